"""A snapshot: a session between two supersteps, as values.

Rules of this file:
- What is here decides what happens next: state, pending messages, barriers, suspended and parked
  messages, counters, the open run.  Time, epochs and attempts are not here: they are the envelope.
- A snapshot changes by operations only (`raf.checkpoint.delta`), live and in restore alike.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from raf.state.ops import State

Path: TypeAlias = tuple[tuple[str, int], ...]
BarrierKey: TypeAlias = tuple[str, Path]
LoopKey: TypeAlias = tuple[str, Path]


@dataclass(frozen=True, slots=True)
class Message:
    """A message on its way to a node.

    `payloads` holds one payload, or what a fired barrier held: `sources` then names who sent each,
    and `source` the barrier.
    """

    number: int
    source: str
    target: str
    path: Path
    payloads: tuple[bytes, ...]
    sources: tuple[str, ...] = ()

    @property
    def from_barrier(self) -> bool:
        """Whether a fired barrier made it."""
        return bool(self.sources)


@dataclass(frozen=True, slots=True)
class Slot:
    """One message that a barrier holds back."""

    source: str
    number: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Parked:
    """A message that a loop with `on_limit="stop"` holds before its loop edge."""

    number: int
    loop: str
    path: Path
    payload: bytes


@dataclass(frozen=True, slots=True)
class Suspension:
    """An invocation that waits: here, for the time of its next attempt.

    `wake_at` is UTC seconds on the store's clock, never computed anew.
    """

    message: Message
    reason: str
    wake_at: float
    failures: int
    effects: tuple[tuple[str, bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """One output of the open run."""

    step: int
    node: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Run:
    """The run of the session that is open, or was last: its input and how it stands."""

    run_id: str = ""
    input_digest: bytes = b""
    status: str = "new"
    reason: str = ""


@dataclass(slots=True)
class Snapshot:
    """A session between two supersteps; the engine's working copy.

    `woken` keeps what pending invocations that were suspended know of their earlier attempts.
    `kept` holds journal records of pending invocations that a change of the graph carried over.
    `late` names, sorted, the sources that fired quorums went without: each as often as it was missed.
    `sent_at` is envelope: when each pending or suspended message was committed, UTC seconds.
    """

    state: State = field(default_factory=State)
    run: Run = field(default_factory=Run)
    step: int = -1
    fingerprint: str = ""
    next_number: int = 1
    steps_used: int = 0
    steps_limit: int = 0
    pending: dict[int, Message] = field(default_factory=dict)
    barriers: dict[BarrierKey, dict[str, Slot]] = field(default_factory=dict)
    late: dict[BarrierKey, tuple[str, ...]] = field(default_factory=dict)
    grants: dict[LoopKey, int] = field(default_factory=dict)
    parked: dict[int, Parked] = field(default_factory=dict)
    suspended: dict[int, Suspension] = field(default_factory=dict)
    woken: dict[int, Suspension] = field(default_factory=dict)
    kept: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    pins: set[int] = field(default_factory=set)
    sent_at: dict[int, float] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether the run is over: its result is recorded and nothing of it will run."""
        return self.run.status in ("completed", "cancelled")
