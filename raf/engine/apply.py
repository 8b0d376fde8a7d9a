"""What a step's results make of the session; pure.

Rules of this file:
- The same snapshot and results give the same operations and events, byte for byte, whatever the
  order in which the results arrived.  Nothing here asks for time, chance or the outside.
- State is folded first; conditions then see the state behind the step's writes.
- Nothing is changed in place: the caller merges the operations.
- What fails here fails the step: nothing of it is committed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from raf.checkpoint.delta import Clear, Count, Emit, Op, SetRun, Suspend, Take
from raf.checkpoint.snapshot import Output, Run, Snapshot, Suspension
from raf.engine.barriers import Barriers
from raf.engine.edges import Edges
from raf.engine.plan import Invocation
from raf.engine.result import Result
from raf.engine.routing import Router
from raf.errors import BarrierUnfilledError, DeadLetterError
from raf.events import Happening, Kind
from raf.state.fold import fold_writes
from raf.state.view import Rules, StateView
from raf.topology.workflow import Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What a step changes: operations, events, and how the run stands behind it.

    `outputs` are all outputs of the run so far and `steps` its steps; `status` is "running" unless the run pauses or ends.
    """

    ops: tuple[Op, ...]
    happenings: tuple[Happening, ...]
    status: str
    reason: str
    outputs: tuple[Output, ...]
    steps: int


@dataclass(frozen=True, slots=True)
class Rulebook:
    """What applying needs of a workflow, derived once."""

    workflow: Workflow
    edges: Edges
    rules: Rules
    strict: bool = False


def apply(
    book: Rulebook, snapshot: Snapshot, invocations: Sequence[Invocation], results: Sequence[Result]
) -> Applied:
    """Apply the results of a step, given in the order of its plan.

    Raises:
        StateConflictError, StateValueError, ReducerError, ConditionError, PayloadTypeError,
        BarrierConflictError, DeadLetterError: The step cannot be committed.
    """
    pairs = list(zip(invocations, results, strict=True))
    state_ops = fold_writes(
        snapshot.state,
        [(str(invocation), result.writes) for invocation, result in pairs],
        book.rules.reducer,
        book.rules.types,
    )
    view = StateView(snapshot.state, book.rules, "", state_ops)
    router = Router(
        book.workflow,
        book.edges,
        snapshot,
        view,
        Barriers.of(snapshot, book.edges.barriers),
        snapshot.next_number,
    )
    ended = (result.number for _, result in pairs if result.status != "suspended")
    ops: list[Op] = [Take(tuple(ended)), *state_ops]
    suspensions: list[Suspension] = []
    for invocation, result in pairs:
        _take_result(router, invocation, result, suspensions)
    router.fire(router.barriers.fire_full())
    if not router.sent and not suspensions and not snapshot.suspended and not router.parked:
        router.fire(router.barriers.fire_quiescent(book.edges.reaches))
    _refuse_dead_letters(book, router)
    alive = _alive(router, snapshot, suspensions)
    router.barriers.forget_late(alive, book.workflow.loops.of_node)
    ops += [*router.barriers.ops(), *router.ops, *map(Suspend, suspensions), *router.mirror_ops()]
    ops += map(Emit, router.outputs)
    made = min(len(pairs), 1)  # nothing to deliver (resumed over an unfilled barrier) is no step
    used = snapshot.steps_used + made
    counts = Count(snapshot.step + made, router.next_number, used, snapshot.steps_limit)
    ops.append(counts)
    return _close(snapshot, router, ops, suspensions, counts)


def _take_result(
    router: Router,
    invocation: Invocation,
    result: Result,
    suspensions: list[Suspension],
) -> None:
    node, number = invocation.node, invocation.number
    happenings = router.happenings
    failure = {} if result.failure is None else _failure_data(result)
    match result.status:
        case "suspended":
            happenings.append(Happening(Kind.NODE_RETRY, node, number, failure))
            suspensions.append(
                Suspension(
                    invocation.message, "retry", result.wake_at, result.failures, result.effects
                )
            )
        case "skipped":
            happenings.append(Happening(Kind.NODE_SKIPPED, node, number, failure))
        case "fallback":
            happenings.append(Happening(Kind.FALLBACK, node, number, failure))
            router.fall_back(invocation)
        case _:
            happenings.append(Happening(Kind.NODE_COMPLETED, node, number))
            happenings += result.events
            for payload in result.outputs:
                router.put_out(invocation, payload)
            for sent in result.sends:
                router.route(invocation, sent)


def _failure_data(result: Result) -> dict[str, object]:
    assert result.failure is not None  # noqa: S101 - for the type checker; callers look first
    return {
        "attempt": result.attempt,
        "error_type": result.failure.error_type,
        "error": result.failure.text,
    }


def _alive(
    router: Router, snapshot: Snapshot, suspensions: Sequence[Suspension]
) -> list[tuple[tuple[str, int], ...]]:
    waiting = [*snapshot.suspended.values(), *suspensions]
    return [
        *(message.path for message in router.sent),
        *(suspension.message.path for suspension in waiting),
        *(parked.path for parked in [*snapshot.parked.values(), *router.parked]),
    ]


def _refuse_dead_letters(book: Rulebook, router: Router) -> None:
    if book.strict:
        for happening in router.happenings:
            if happening.kind is Kind.DEAD_LETTER:
                raise DeadLetterError(happening.node, happening.message)


def _close(
    snapshot: Snapshot,
    router: Router,
    ops: list[Op],
    suspensions: Sequence[Suspension],
    counts: Count,
) -> Applied:
    waits = [s.wake_at for s in [*snapshot.suspended.values(), *suspensions]]
    status, reason = _standing(snapshot, router, counts.steps_used, waits=bool(waits))
    run = snapshot.run
    all_outputs = (*snapshot.outputs, *router.outputs)
    happenings = list(router.happenings)
    if counts.step > snapshot.step:
        happenings.append(Happening(Kind.STEP_COMMITTED))
    if status != "running":
        ops.append(SetRun(Run(run.run_id, run.input_digest, status, reason)))
        happenings.append(outcome(run, status, reason, all_outputs, counts.steps_used))
    if status == "completed":
        ops.append(Clear())
    return Applied(
        ops=tuple(ops),
        happenings=tuple(happenings),
        status=status,
        reason=reason,
        outputs=all_outputs,
        steps=counts.steps_used,
    )


def _standing(snapshot: Snapshot, router: Router, used: int, *, waits: bool) -> tuple[str, str]:
    """How the run stands behind the step, and why."""
    if router.parked or (snapshot.parked and not router.sent):
        loops = sorted({p.loop for p in [*snapshot.parked.values(), *router.parked]})
        return "limited", f"loop {', '.join(loops)} reached its limit"
    if router.sent:
        spent = used_up(snapshot.steps_limit, used)
        return ("limited", spent) if spent else ("running", "")
    if waits:
        return "sleeping", "an attempt waits for its time"
    try:
        router.barriers.check_filled()
    except BarrierUnfilledError as error:
        return "failed", str(error)
    return "completed", ""


def used_up(limit: int, used: int) -> str:
    """Why a run may take no further step now; empty when it may."""
    return f"{limit} steps were used" if limit and used >= limit else ""


def outcome(run: Run, status: str, reason: str, outputs: Sequence[Output], steps: int) -> Happening:
    """The event that records how a run stands; of a finished run it is the run's record."""
    data: dict[str, object] = {"status": status, "run_id": run.run_id, "steps": steps}
    if reason:
        data["reason"] = reason
    if status in ("completed", "cancelled"):
        data["input"] = run.input_digest
        data["outputs"] = [[o.step, o.node, o.payload] for o in outputs]
    return Happening(Kind.OUTCOME, "", 0, data)
