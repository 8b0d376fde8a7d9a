"""Whether a call starts a run, continues one, or returns what is recorded; pure.

Rules of this file:
- A finished run of that id and input is not run again: its record is returned.
- An unfinished run of that id and input is continued.
- Another input under a known run id is refused, finished or not.
- Another run while one is unfinished is refused, naming it.
- A submitted run is an unfinished one of which nothing ran yet.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from raf.checkpoint.delta import (
    Clear,
    Count,
    Grant,
    Graph,
    Op,
    Send,
    SetRun,
    Suspend,
    Unpark,
    Wake,
)
from raf.checkpoint.snapshot import Message, Run, Snapshot
from raf.engine.apply import Rulebook
from raf.engine.edges import Edges
from raf.errors import ConfigurationError, RunInputMismatchError, RunUnfinishedError
from raf.events import Happening, Kind
from raf.state.ops import Set
from raf.state.scope import ScopeKey
from raf.topology.loops import Path
from raf.topology.workflow import Workflow
from raf.values.codec import encode

Decision: TypeAlias = Literal["start", "continue"]
MAX_RUN_ID = 512


def check_run_id(run_id: str) -> str:
    """Return the id if it can name a run: text of 1 to 512 characters without NUL and surrogates.

    Raises:
        ConfigurationError: It could not be found again.
    """
    fits_length = 1 <= len(run_id) <= MAX_RUN_ID if type(run_id) is str else False
    if not fits_length or "\x00" in run_id or any("\ud800" <= c <= "\udfff" for c in run_id):
        what = f"run_id {run_id!r:.60}: give text of 1 to {MAX_RUN_ID} characters, without NUL"
        raise ConfigurationError(what)
    return run_id


@dataclass(frozen=True, slots=True)
class Entry:
    """What a caller asks for: one input, carried to an outcome under a run id.

    Args:
        run_id: Names the run within its session.
        payload: The encoded input.
        digest: Tells one input from another.
        max_steps: Steps that the run may use before it pauses as `limited`.
        queue: Where the run waits for a worker, or would, if its owner vanished.
        submitted: Whether it is left to a worker.
        at: UTC seconds before which no worker takes it; None: any time.
    """

    run_id: str
    payload: bytes
    digest: bytes
    max_steps: int
    queue: str = "default"
    submitted: bool = False
    at: float | None = None


def admit(session_id: str, snapshot: Snapshot | None, run_id: str, digest: bytes) -> Decision:
    """What a call of `run` does with a session that has no finished run of this id.

    Raises:
        RunInputMismatchError: The unfinished run of this id has another input.
        RunUnfinishedError: Another run is unfinished.
    """
    if snapshot is None or snapshot.run.status == "new" or snapshot.finished:
        return "start"
    run = snapshot.run
    if run.run_id != run_id:
        raise RunUnfinishedError(session_id, run_id, run.run_id, run.status)
    if run.input_digest != digest:
        raise RunInputMismatchError(session_id, run_id)
    return "continue"


@dataclass(frozen=True, slots=True)
class Change:
    """Operations and events of one commit that is no step."""

    ops: tuple[Op, ...]
    happenings: tuple[Happening, ...]


def start_run(workflow: Workflow, snapshot: Snapshot, entry: Entry, *, first: bool) -> Change:
    """The entry of a run: the input is in flight, nothing ran yet (step -1).

    Args:
        workflow: The graph to run.
        snapshot: The session before: its state is kept, all else starts anew.
        entry: What is to be run.
        first: Whether the session begins: then declared initial values are set.
    """
    start = workflow.topology.start
    message = Message(1, "", start, workflow.loops.enter(start), (entry.payload,))
    status = "submitted" if entry.submitted else "running"
    ops: list[Op] = [
        Clear(),
        Graph(workflow.fingerprint),
        SetRun(Run(entry.run_id, entry.digest, status, "")),
    ]
    if first:
        ops += initial_state(workflow)
    ops += mirrors(workflow, message.path, snapshot)
    ops += [Send(message), Count(-1, 2, 0, entry.max_steps)]
    if not entry.submitted:
        return Change(tuple(ops), (_started(workflow, entry.run_id),))
    data: dict[str, object] = {"run_id": entry.run_id, "queue": entry.queue}
    if entry.at is not None:
        data["at"] = entry.at
    return Change(tuple(ops), (Happening(Kind.RUN_SUBMITTED, start, 1, data),))


def _started(workflow: Workflow, run_id: str) -> Happening:
    return Happening(Kind.RUN_STARTED, workflow.topology.start, 1, {"run_id": run_id})


def initial_state(workflow: Workflow) -> list[Set]:
    """The declared initial values; a key without a scope starts in every node's own scope."""
    ops: list[Set] = []
    for code in workflow.state:
        if code.initial is None:
            continue
        if code.scope is not None:
            ops.append(Set(str(ScopeKey.shared("", code.scope)), code.key, code.initial))
        else:
            ops += [
                Set(str(ScopeKey.private(node.name)), code.key, code.initial)
                for node in workflow.topology.nodes
            ]
    return sorted(ops, key=lambda op: (op.scope, op.key))


def mirrors(workflow: Workflow, path: Path, snapshot: Snapshot) -> list[Set]:
    """The loop variables of a path, where they differ from the state."""
    loops = Edges.of(workflow).loops if path else {}
    ops = []
    for loop_id, iteration in path:
        loop = loops[loop_id]
        scope, encoded = str(ScopeKey.private(loop.source)), encode(iteration, workflow.types)
        cell = snapshot.state.cell(scope, loop.variable)
        if cell is None or cell.encoded() != encoded:
            ops.append(Set(scope, loop.variable, encoded))
    return ops


def go_on(
    book: Rulebook,
    snapshot: Snapshot,
    *,
    took_over: bool,
    max_steps: int | None,
    changed_code: tuple[str, ...],
    grants: bool,
) -> Change:
    """The commit by which an unfinished run is taken up again.

    Args:
        book: The graph to run, with its look-ups.
        snapshot: The session as it stands.
        took_over: Whether its last owner vanished.
        max_steps: With `grants`, so many steps more; None: as many as it was allowed before.
        changed_code: Conditions whose source differs from what the session was saved under.
        grants: Whether the call may grant more to a `limited` run.
    """
    run = snapshot.run
    ops: list[Op] = []
    happenings = (
        [Happening(Kind.CODE_CHANGED, "", 0, {"names": list(changed_code)})] if changed_code else []
    )
    data: dict[str, object] = {"status": run.status}
    if took_over:
        happenings.append(Happening(Kind.TAKEN_OVER))
    if run.status == "limited" and grants:
        if snapshot.parked:
            ops += _grant_loops(book, snapshot)
        if snapshot.steps_limit and snapshot.steps_used >= snapshot.steps_limit:
            limit = snapshot.steps_used + (max_steps or snapshot.steps_limit)
            ops.append(Count(snapshot.step, snapshot.next_number, snapshot.steps_used, limit))
    if run.status == "failed":
        ops += _counted_anew(snapshot)
    if run.status in ("failed", "limited", "submitted"):
        ops.append(SetRun(Run(run.run_id, run.input_digest, "running", "")))
    began = run.status == "submitted"
    resumed = Happening(Kind.RUN_RESUMED, "", 0, data)
    happenings.append(_started(book.workflow, run.run_id) if began else resumed)
    return Change(tuple(ops), tuple(happenings))


def _counted_anew(snapshot: Snapshot) -> list[Op]:
    """Failures that suspended and woken invocations remember count no more."""
    held = [*sorted(snapshot.suspended.items()), *sorted(snapshot.woken.items())]
    ops: list[Op] = []
    for number, suspension in held:
        if suspension.failures:
            ops.append(Suspend(replace(suspension, failures=0)))
            ops += [Wake(number)] if number in snapshot.woken else []
    return ops


def _grant_loops(book: Rulebook, snapshot: Snapshot) -> list[Op]:
    workflow, edges = book.workflow, book.edges
    ops: list[Op] = []
    shown: dict[tuple[str, str], Set] = {}
    granted = dict(snapshot.grants)
    for number in sorted(snapshot.parked):
        parked = snapshot.parked[number]
        loop = edges.loops[parked.loop]
        key = (loop.loop_id, workflow.loops.outer(parked.path, loop))
        iteration = workflow.loops.iteration(parked.path, loop)
        if iteration >= loop.max_iterations + granted.get(key, 0):
            granted[key] = granted.get(key, 0) + loop.max_iterations
            ops.append(Grant(key, granted[key]))
        back = workflow.loops.back(parked.path, loop)
        message = Message(number, loop.source, loop.target, back, (parked.payload,))
        ops += [Unpark(number), Send(message)]
        # As within a step the last message shows, so each is told against nothing.
        shown |= {(op.scope, op.key): op for op in mirrors(workflow, back, Snapshot())}
    return [*ops, *shown.values()]
