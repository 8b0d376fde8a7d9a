"""Deltas: ordered operations on a snapshot; pure.

Rules of this file:
- `merge(snapshot, ops)` is the only way a snapshot changes: the engine applies a step by it, and
  restore applies a chain by it.  So replaying a chain equals the snapshot that ran.
- A full checkpoint is `as_ops(snapshot)`: the operations that make it from an empty snapshot, in
  canonical order.  Equal snapshots give equal operations.
- An operation names what it changes and costs the change.  Removing is an operation too.
- Operations on the state are those of `raf.state.ops`; the others stand here, each with what it
  does.  Their stored form is in `raf.checkpoint.opcodes`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from raf.checkpoint.snapshot import (
    BarrierKey,
    LoopKey,
    Message,
    Output,
    Parked,
    Run,
    Slot,
    Snapshot,
    Suspension,
)
from raf.state.ops import StateOp


class FlowOp:
    """An operation on what flows: messages, barriers, loops, the run."""

    __slots__ = ()

    def merge(self, snapshot: Snapshot, at: float, /) -> None:
        """Change the snapshot; `at` is the time of the commit that holds the operation."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Send(FlowOp):
    """A message is pending."""

    message: Message

    def merge(self, snapshot: Snapshot, at: float, /) -> None:
        """Add it, and remember when."""
        number = self.message.number
        snapshot.pending[number] = self.message
        snapshot.sent_at.setdefault(number, at)


@dataclass(frozen=True, slots=True)
class Take(FlowOp):
    """These messages are pending no more: their invocations ended."""

    numbers: tuple[int, ...]

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Remove them with what is known of them."""
        for number in self.numbers:
            del snapshot.pending[number]
            snapshot.sent_at.pop(number, None)
            snapshot.woken.pop(number, None)
            snapshot.kept.pop(number, None)


@dataclass(frozen=True, slots=True)
class Hold(FlowOp):
    """A barrier holds a message back."""

    barrier: BarrierKey
    slot: Slot

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Fill the source's slot."""
        snapshot.barriers.setdefault(self.barrier, {})[self.slot.source] = self.slot


@dataclass(frozen=True, slots=True)
class Late(FlowOp):
    """The sources of a fired quorum that may still come too late; none: forget them."""

    barrier: BarrierKey
    late: tuple[str, ...]

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Remember or forget them."""
        if self.late:
            snapshot.late[self.barrier] = self.late
        else:
            snapshot.late.pop(self.barrier, None)


@dataclass(frozen=True, slots=True)
class Fire(FlowOp):
    """A barrier gave up what it held; `late` are the sources that may still come too late."""

    barrier: BarrierKey
    late: tuple[str, ...] = ()

    def merge(self, snapshot: Snapshot, at: float, /) -> None:
        """Empty it."""
        del snapshot.barriers[self.barrier]
        Late(self.barrier, self.late).merge(snapshot, at)


@dataclass(frozen=True, slots=True)
class Emit(FlowOp):
    """The open run has one more output."""

    output: Output

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Add it."""
        snapshot.outputs.append(self.output)


@dataclass(frozen=True, slots=True)
class Count(FlowOp):
    """Step and counters as they are now."""

    step: int
    next_number: int
    steps_used: int
    steps_limit: int

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Set them."""
        snapshot.step, snapshot.next_number = self.step, self.next_number
        snapshot.steps_used, snapshot.steps_limit = self.steps_used, self.steps_limit


@dataclass(frozen=True, slots=True)
class Grant(FlowOp):
    """A loop may turn so many more times in this stay; none: forget the grant."""

    loop: LoopKey
    iterations: int

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Set the grant, or forget it."""
        if self.iterations:
            snapshot.grants[self.loop] = self.iterations
        else:
            snapshot.grants.pop(self.loop, None)


@dataclass(frozen=True, slots=True)
class Park(FlowOp):
    """A message waits before a loop edge for more iterations."""

    parked: Parked

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Keep it."""
        snapshot.parked[self.parked.number] = self.parked


@dataclass(frozen=True, slots=True)
class Unpark(FlowOp):
    """A parked message goes on."""

    number: int

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Let it go."""
        del snapshot.parked[self.number]


@dataclass(frozen=True, slots=True)
class Suspend(FlowOp):
    """An invocation leaves the step and waits outside of it."""

    suspension: Suspension

    def merge(self, snapshot: Snapshot, at: float, /) -> None:
        """Keep it, and when its message was sent."""
        number = self.suspension.message.number
        snapshot.pending.pop(number, None)
        snapshot.woken.pop(number, None)
        snapshot.kept.pop(number, None)
        snapshot.suspended[number] = self.suspension
        snapshot.sent_at.setdefault(number, at)


@dataclass(frozen=True, slots=True)
class Wake(FlowOp):
    """A suspended invocation is pending again; what it knows of earlier attempts stays."""

    number: int

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Make its message pending."""
        suspension = snapshot.suspended.pop(self.number)
        snapshot.woken[self.number] = suspension
        snapshot.pending[self.number] = suspension.message


@dataclass(frozen=True, slots=True)
class Keep(FlowOp):
    """What the journal said of a pending invocation, carried over by a change of the graph."""

    number: int
    records: tuple[bytes, ...]

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Keep it until the invocation ends."""
        snapshot.kept[self.number] = self.records


@dataclass(frozen=True, slots=True)
class SetRun(FlowOp):
    """The open run stands so."""

    run: Run

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Set it."""
        snapshot.run = self.run


@dataclass(frozen=True, slots=True)
class Clear(FlowOp):
    """A run is over, or another begins: nothing is pending and counters start anew; state stays."""

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Empty all that belongs to one run."""
        snapshot.next_number, snapshot.steps_used, snapshot.steps_limit = 1, 0, 0
        snapshot.outputs.clear()
        for held in (
            snapshot.pending,
            snapshot.barriers,
            snapshot.late,
            snapshot.grants,
            snapshot.parked,
            snapshot.suspended,
            snapshot.woken,
            snapshot.kept,
            snapshot.sent_at,
        ):
            held.clear()


@dataclass(frozen=True, slots=True)
class Graph(FlowOp):
    """The session continues under this fingerprint."""

    fingerprint: str

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Set it."""
        snapshot.fingerprint = self.fingerprint


@dataclass(frozen=True, slots=True)
class Pin(FlowOp):
    """Retention keeps this commit."""

    commit: int

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Add the pin."""
        snapshot.pins.add(self.commit)


@dataclass(frozen=True, slots=True)
class Unpin(FlowOp):
    """Retention need not keep this commit."""

    commit: int

    def merge(self, snapshot: Snapshot, _at: float, /) -> None:
        """Remove the pin."""
        snapshot.pins.discard(self.commit)


Op: TypeAlias = StateOp | FlowOp


def merge(snapshot: Snapshot, ops: Iterable[Op], at: float = 0.0) -> None:
    """Change the snapshot by these operations, in order.

    Args:
        snapshot: Changed in place.
        ops: What a commit holds.
        at: The time of that commit, UTC seconds; the new messages remember it.

    Raises:
        KeyError: An operation does not fit the snapshot (a chain from elsewhere).
    """
    for op in ops:
        if isinstance(op, FlowOp):
            op.merge(snapshot, at)
        else:
            snapshot.state.apply(op)


def as_ops(snapshot: Snapshot) -> Iterator[Op]:
    """The operations that make this snapshot from an empty one, in canonical order."""
    yield Graph(snapshot.fingerprint)
    yield SetRun(snapshot.run)
    yield Count(snapshot.step, snapshot.next_number, snapshot.steps_used, snapshot.steps_limit)
    yield from snapshot.state.as_ops()
    yield from _pending_ops(snapshot)
    yield from _barrier_ops(snapshot)
    yield from (Grant(loop, n) for loop, n in sorted(snapshot.grants.items()))
    yield from (Park(snapshot.parked[number]) for number in sorted(snapshot.parked))
    yield from (Suspend(snapshot.suspended[number]) for number in sorted(snapshot.suspended))
    yield from map(Emit, snapshot.outputs)
    yield from map(Pin, sorted(snapshot.pins))


def _pending_ops(snapshot: Snapshot) -> Iterator[Op]:
    for number in sorted(snapshot.pending):
        if number in snapshot.woken:
            yield Suspend(snapshot.woken[number])
            yield Wake(number)
        else:
            yield Send(snapshot.pending[number])
        if number in snapshot.kept:
            yield Keep(number, snapshot.kept[number])


def _barrier_ops(snapshot: Snapshot) -> Iterator[Op]:
    for barrier in sorted(snapshot.barriers):
        slots = snapshot.barriers[barrier]
        yield from (Hold(barrier, slots[source]) for source in sorted(slots))
    for barrier in sorted(snapshot.late):
        yield Late(barrier, snapshot.late[barrier])
