"""How a repaired session stands, and which of its steps run again; pure.

Rules of this file:
- A run whose record can be read is over, whatever else is lost: nothing of it is pending.
- What is lost of an unfinished run would run again, with its effects.  So the session waits for a
  caller, who can know of it, as a failed one does; no worker goes on with it by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raf.checkpoint.codec import EventsPart
from raf.checkpoint.delta import Clear, Count, Emit, Op, SetRun
from raf.checkpoint.model import Lost
from raf.checkpoint.snapshot import Output, Run, Snapshot
from raf.events import Happening, Kind, steps_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a session stands once it is repaired.

    Args:
        status: Of its run, when a caller is waited for.
        finished: Whether that run is over.
        ops: What makes the last intact snapshot stand so.
        steps: Steps that run again when it goes on.
        nodes: Their nodes, as far as events tell.
    """

    status: str
    finished: bool
    ops: tuple[Op, ...] = ()
    steps: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()


def after_record(snapshot: Snapshot, commit: int, record: Mapping[str, Any]) -> Standing:
    """A session whose newest run is over, by its record; the state is of an earlier commit."""
    status, reason = record["status"], record.get("reason", "")
    told = "; ".join(filter(None, [reason, f"repaired: the state is of commit {commit}"]))
    run = Run(record["run_id"], record["input"], status, told)
    outputs = (Emit(Output(step, node, payload)) for step, node, payload in record["outputs"])
    count = Count(snapshot.step, snapshot.next_number, record["steps"], 0)
    return Standing(status=status, finished=True, ops=(Clear(), SetRun(run), count, *outputs))


def without_record(snapshot: Snapshot, lost: Lost, gone: Sequence[EventsPart]) -> Standing:
    """A session that stands at its last intact snapshot.

    Args:
        snapshot: The last intact one.
        lost: What is given up.
        gone: The events of the commits after it, as far as they can be read.
    """
    run = snapshot.run
    if snapshot.finished or run.status == "new":
        return Standing(status=run.status, finished=snapshot.finished)
    own = [part for part in gone if part.run_id == run.run_id]
    other = {part.step for part in gone if part.run_id not in ("", run.run_id)}
    steps = sorted({*lost.steps, *([snapshot.step + 1] if lost.journal else [])} - other)
    steps = sorted({*steps, *(step for part in own for step in _completed(part, part.events))})
    nodes = {event.node for part in own for event in part.events if _ran(event)}
    held = Run(run.run_id, run.input_digest, "failed", _reason(steps))
    return Standing(
        status="failed",
        finished=False,
        ops=(SetRun(held),),
        steps=tuple(steps),
        nodes=tuple(sorted(nodes)),
    )


def _ran(event: Happening) -> bool:
    return event.kind is Kind.NODE_COMPLETED


def _completed(part: EventsPart, events: Sequence[Happening]) -> list[int]:
    numbered = zip(events, steps_of(events, part.step), strict=True)
    return [step for event, step in numbered if _ran(event)]


def _reason(steps: Sequence[int]) -> str:
    what = "what was lost runs again on resume"
    if steps:
        span = str(steps[0]) if len(steps) == 1 else f"{steps[0]}..{steps[-1]}"
        what = f"lost steps {span} run again on resume"
    return f"repaired: {what}; effects in them may be repeated under the same idempotency keys"
