"""What the next step runs; pure.

Rules of this file:
- A step delivers every pending message: one invocation each.
- Invocations are ordered by node (its place in the topology), then by message number.  Results are
  applied in this order, whatever the order in which they end.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from raf.checkpoint.snapshot import Message, Snapshot


@dataclass(frozen=True, slots=True)
class Invocation:
    """One node called with one message."""

    message: Message
    sent_at: float

    @property
    def node(self) -> str:
        """The node that is called."""
        return self.message.target

    @property
    def number(self) -> int:
        """The message number: with the run id it is the identity of this invocation."""
        return self.message.number

    def __str__(self) -> str:
        """How errors name it."""
        return f"node {self.node!r} (message {self.number})"


def plan(snapshot: Snapshot, place: Mapping[str, int]) -> list[Invocation]:
    """The invocations of the next step, in order.

    Args:
        snapshot: The session between two steps.
        place: The place of each node in the topology.
    """
    messages = sorted(snapshot.pending.values(), key=lambda m: (place[m.target], m.number))
    return [Invocation(m, snapshot.sent_at.get(m.number, 0.0)) for m in messages]
