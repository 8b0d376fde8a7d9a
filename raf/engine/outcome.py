"""How a run stands when nothing of it runs any more."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Status: TypeAlias = Literal[
    "completed", "submitted", "waiting", "sleeping", "limited", "cancelled", "failed", "drained"
]

HOW_TO_GO_ON: Mapping[str, str] = {
    "completed": "the run is over; start another run with its own run_id",
    "submitted": "a worker runs it; run it here to have it at once",
    "waiting": "answer what is asked",
    "sleeping": "resume at or after its time",
    "limited": "resume grants more",
    "cancelled": "the run is over; fork the session to go on from it",
    "failed": "mend the cause and resume",
    "drained": "resume, here or in another process",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The outcome of a run.

    Args:
        status: How the run stands; `HOW_TO_GO_ON` says what may follow.
        outputs: What the output nodes gave, ordered by step, node and call.
        steps: Supersteps of this run that are committed.
        pending: The nodes whose messages wait, with their message numbers.
        resumed_from: The checkpoint that this call went on from; None when it began the run.
        reason: Why the run paused or failed.
        wake_at: With "sleeping" and "submitted", when it wants to go on, UTC seconds.
    """

    status: Status
    outputs: list[Any]
    session_id: str
    run_id: str
    steps: int
    pending: tuple[tuple[str, int], ...] = ()
    resumed_from: str | None = None
    reason: str = ""
    wake_at: float | None = None

    @property
    def next_step(self) -> str:
        """What to do next, for a person."""
        return HOW_TO_GO_ON[self.status]

    @property
    def output(self) -> Any:
        """The last output, or None when there is none."""
        return self.outputs[-1] if self.outputs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A run that was left to a worker.

    Args:
        session_id: The session, to watch it with `stream(session_id=..., after=0)`.
        run_id: The run within it.
        status: How the run stands: "submitted" at first; when the call is repeated, "running" or
            how it paused or ended.
    """

    session_id: str
    run_id: str
    status: str
