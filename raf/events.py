"""Numbered happenings of a session: what streams, pages and `raf show` tell.

Rules of this file:
- A *durable* event has a number; numbers of a session have no gaps and start at 1.  It is shown
  after the commit that holds it.
- A *live* event has no number; it is shown at once and never replayed.
- *Logical* events (`LOGICAL`) are equal for a resumed run and an unbroken one; the others tell of
  operations (attempts, takeovers, resumes).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final


class Kind(IntEnum):
    """What happened.  The numbers are stored: never reuse one."""

    RUN_STARTED = 1
    NODE_COMPLETED = 2
    STEP_COMMITTED = 3
    OUTPUT = 4
    DEAD_LETTER = 5
    LATE = 6
    OUTCOME = 7
    NODE_FAILED = 8
    NODE_SKIPPED = 9
    NODE_RETRY = 10
    FALLBACK = 11
    RUN_RESUMED = 12
    TAKEN_OVER = 13
    CANCEL_REQUESTED = 14
    CODE_CHANGED = 15
    FORKED = 16
    EDITED = 17
    PINNED = 18
    UNPINNED = 19
    CUSTOM = 20
    LOOP_LIMIT = 21
    RUN_SUBMITTED = 22
    MIGRATED = 23
    REPAIRED = 24
    LOST = 25
    # live only
    NODE_STARTED = 100
    PROGRESS = 101

    @property
    def text(self) -> str:
        """The name that people and JSON see, such as `node_completed`."""
        return self.name.lower()


LOGICAL: Final = frozenset(
    {
        Kind.NODE_COMPLETED,
        Kind.STEP_COMMITTED,
        Kind.OUTPUT,
        Kind.DEAD_LETTER,
        Kind.LATE,
        Kind.OUTCOME,
        Kind.NODE_FAILED,
        Kind.NODE_SKIPPED,
        Kind.FALLBACK,
        Kind.CUSTOM,
        Kind.LOOP_LIMIT,
    }
)


@dataclass(frozen=True, slots=True)
class Happening:
    """An event before it has a number: what a step decides, without time or chance.

    `payload` is an encoded value (an output, a dead letter, a custom event); `data` is plain.
    """

    kind: Kind
    node: str = ""
    message: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""


def steps_of(happenings: Sequence[Happening], last: int) -> list[int]:
    """The step of each event of a commit that ends at step `last`.

    A commit of gathered steps (durability "exit") holds the events of several, each step closed by
    its own `STEP_COMMITTED`.
    """
    ends = sum(happening.kind is Kind.STEP_COMMITTED for happening in happenings)
    step = last - max(0, ends - 1)
    steps: list[int] = []
    for happening in happenings:
        steps.append(step)
        if happening.kind is Kind.STEP_COMMITTED and step < last:
            step += 1
    return steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event as readers get it.

    Args:
        number: 1, 2, 3 … within the session; None for a live event.
        kind: What happened, such as `output`.
        step: The step it belongs to; -1 before the first.
        node: The node, or empty.
        message: The number of the invocation's message, or 0.
        data: Plain details, by kind (see the reference page of events).
        value: The decoded value that the event carries, or None.
        at: UTC seconds of the commit (or of the happening, for live events).
    """

    session_id: str
    run_id: str
    number: int | None
    kind: str
    step: int
    node: str = ""
    message: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    value: Any = None
    at: float = 0.0

    @property
    def durable(self) -> bool:
        """Whether the event has a number and will be replayed."""
        return self.number is not None

    @property
    def logical(self) -> bool:
        """Whether a resumed run repeats it exactly."""
        return Kind[self.kind.upper()] in LOGICAL
