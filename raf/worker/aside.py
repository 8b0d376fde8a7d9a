"""Sessions that a worker leaves alone for a while, because they ended in an error; pure.

Rules of this file:
- A session that errs again without having moved is left alone for twice as long each time, up to a
  bound: it never spins, and it is never given up.
- What is remembered of a session goes when it ran without an error, or was left alone for so long
  that it would have been tried again.
"""

from dataclasses import dataclass
from typing import Final

FIRST_S: Final = 1.0
MOST_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class _Left:
    """Where a session stood when it erred, how often it did there, and until when it is left."""

    place: object
    times: int
    until: float


class Aside:
    """The sessions that are left alone; times are seconds of one steady clock."""

    def __init__(self) -> None:
        self._left: dict[str, _Left] = {}

    def put(self, session_id: str, place: object, now: float) -> int:
        """Leave a session alone for a while; returns how often it erred in this place.

        Args:
            session_id: The session.
            place: Where it stands; one that differs from the last says that it has moved.
            now: The time.
        """
        known = self._left.get(session_id)
        times = known.times + 1 if known is not None and known.place == place else 1
        self._left[session_id] = _Left(place, times, now + delay_s(times))
        return times

    def forget(self, session_id: str) -> None:
        """It ran without an error."""
        self._left.pop(session_id, None)

    def names(self, now: float) -> frozenset[str]:
        """The sessions that are left alone now."""
        old = [name for name, left in self._left.items() if left.until + MOST_S < now]
        for name in old:
            del self._left[name]
        return frozenset(name for name, left in self._left.items() if now < left.until)


def delay_s(times: int) -> float:
    """For how many seconds a session is left alone that erred so often in one place."""
    return min(FIRST_S * 2.0 ** min(times - 1, 30), MOST_S)
