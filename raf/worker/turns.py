"""Which queues a worker asks for next, and for how many sessions; pure.

Rules of this file:
- A queue with a limit is asked for alone, so what comes is known to be of it; all queues without
  one are asked for together.  They take turns at being first, so none starves for another.
- What the worker has in hand counts for a limit however its leases stand: the store counts leases
  that bind, and after an outage a run may outlive its own until the worker hears of it.
"""

from collections import Counter, deque
from collections.abc import Mapping
from typing import TypeAlias

Queues: TypeAlias = Mapping[str, int | None]


class Turns:
    """The queues of one worker, and how many sessions of each narrow one it has in hand.

    Args:
        queues: Each queue that it serves, with its limit; None: any number.
    """

    def __init__(self, queues: Queues) -> None:
        wide = {name: limit for name, limit in queues.items() if limit is None}
        narrow = [{name: limit} for name, limit in queues.items() if limit is not None]
        self._groups: deque[Queues] = deque([wide, *narrow] if wide else narrow)
        self._in_hand: Counter[str] = Counter()
        self._queue_of: dict[str, str] = {}

    def next_round(self) -> list[Queues]:
        """What to ask for, one after the other; the next round begins with another."""
        groups = list(self._groups)
        self._groups.rotate(-1)
        return groups

    def room(self, asked: Queues, slots: int) -> int:
        """How many sessions of these queues fit into so many free slots."""
        left = (limit - self._in_hand[name] for name, limit in asked.items() if limit is not None)
        return max(0, min([slots, *left]))

    def take(self, session_id: str, asked: Queues) -> None:
        """Count a session that was got when these queues were asked for."""
        for name, limit in asked.items():
            if limit is not None:
                self._queue_of[session_id] = name
                self._in_hand[name] += 1

    def give(self, session_id: str) -> None:
        """Count a session no more."""
        name = self._queue_of.pop(session_id, None)
        if name is not None:
            self._in_hand[name] -= 1
