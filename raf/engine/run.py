"""The loop of a run: consume requests, plan, execute, apply, commit, show.

One `RunLoop` drives one claimed session until the run pauses, ends, or is interrupted.  It decides
nothing by itself: plan and apply are pure, the executor runs nodes, commits write.
"""

import logging
from collections.abc import Sequence
from typing import Any

from raf.checkpoint.delta import Op, Pin, SetRun, Unpin, Wake
from raf.checkpoint.snapshot import Output, Run, Snapshot
from raf.checkpoint.writer import How
from raf.engine.apply import Applied, Rulebook, apply, outcome, used_up
from raf.engine.commits import Commits
from raf.engine.executor import Executor
from raf.engine.inbox import Inbox
from raf.engine.journal import OpenStep
from raf.engine.keeper import Interrupted, Watch
from raf.engine.logs import about
from raf.engine.plan import Invocation, plan
from raf.engine.result import VOID, Result
from raf.errors import (
    ConditionError,
    CorruptRecordError,
    LeaseLostError,
    NodeFailedError,
    RafError,
    ReducerError,
    RunError,
    UsageError,
)
from raf.events import Happening, Kind
from raf.failpoint import failpoint
from raf.store.model import Request

log = logging.getLogger("raf.engine")

PIN, UNPIN = "pin", "unpin"


class RunLoop:
    """Drives one session that this engine owns."""

    def __init__(
        self,
        book: Rulebook,
        executor: Executor,
        commits: Commits,
        watch: Watch,
        inbox: Inbox,
        *,
        wait: bool,
    ) -> None:
        self.error: Exception | None = None
        self.drained = False
        self.commits = commits
        self._book = book
        self._executor = executor
        self._watch = watch
        self._inbox = inbox
        self._wait = wait
        self._ended: Applied | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The session as it stands."""
        return self.commits.writer.snapshot

    @property
    def outputs(self) -> Sequence[Output]:
        """All outputs of the run so far."""
        return self.snapshot.outputs if self._ended is None else self._ended.outputs

    @property
    def steps(self) -> int:
        """Steps of the run that are committed."""
        return self.snapshot.steps_used if self._ended is None else self._ended.steps

    async def drive(self) -> None:
        """Run until the run pauses, ends or is drained; `snapshot.run` then says how it stands.

        Raises:
            LeaseLostError: Another owner took the session.
            CommitError: A write failed; the session stands at its last commit.
        """
        try:
            while self.snapshot.run.status in ("running", "sleeping"):
                await self.consume_requests()
                if self._watch.draining and self.snapshot.run.status in ("running", "sleeping"):
                    self.drained = True
                    break
                await self._wake_due()
                if self.snapshot.run.status == "sleeping":
                    if not await self._sleep():
                        break
                elif self.snapshot.run.status == "running":
                    await self._step()
        except Interrupted as interruption:
            self._executor.open_step = OpenStep()  # nodes that do not stop find it gone
            await self._interrupted(interruption)
        self._executor.open_step = OpenStep()
        await self.commits.settle()

    async def _interrupted(self, interruption: Interrupted) -> None:
        match interruption.why:
            case "cancel":
                self._watch.heard()
                await self.consume_requests()
            case "drain":
                await self.commits.settle()
                self.drained = True
            case _:
                raise LeaseLostError(self._executor.session_id, self._watch.epoch)

    # -- requests ------------------------------------------------------------------------------

    async def consume_requests(self) -> None:
        """Consume what the inbox holds, in a commit of its own."""
        requests = await self._inbox.take()
        if not requests:
            return
        ops: list[Op] = []
        happenings: list[Happening] = []
        cancelled = not self.snapshot.finished and any(map(self._watch.is_cancelled_by, requests))
        for request in requests:
            _take_request(self._executor.session_id, request, ops, happenings)
        if cancelled:
            run = self.snapshot.run
            ops.append(
                SetRun(Run(run.run_id, run.input_digest, "cancelled", "cancelled by request"))
            )
            happenings.append(
                outcome(run, "cancelled", "cancelled by request", self.snapshot.outputs, self.steps)
            )
        await self.commits.outcome(
            ops,
            happenings,
            How(consumed=requests[-1].seq, ends_journal=cancelled, finished=cancelled),
        )

    # -- one step ------------------------------------------------------------------------------

    async def _step(self) -> None:
        self._watch.check()
        await self._watch.hold_lease()
        invocations = plan(self.snapshot, self._book.edges.place)
        if self.snapshot.woken:
            self._executor.open_step.recall(self.snapshot.woken.values())
        failpoint("engine.step.before_run")
        results = await self._executor.run_step(invocations)
        failpoint("engine.step.after_run")
        if not self._watch.draining:  # a step that is done is worth its commit
            self._watch.check()
        failed = next((r for r in results if r.status == "failed"), None)
        if failed is not None:
            await self._node_failed(invocations, results, failed)
            return
        try:
            applied = apply(self._book, self.snapshot, invocations, results)
        except (RunError, UsageError) as error:
            await self._apply_failed(invocations, results, error)
            return
        await self._commit(applied)

    async def _commit(self, applied: Applied) -> None:
        failpoint("engine.commit.before")
        self._executor.open_step = OpenStep()
        if applied.status == "running":
            await self.commits.step(applied.ops, applied.happenings)
        else:
            how = How(finished=applied.status == "completed")
            await self.commits.outcome(applied.ops, applied.happenings, how)
            if applied.status == "completed":
                self._ended = applied
            log.info(
                "session %r run %r is %s after step %d",
                self._executor.session_id,
                self._executor.run_id,
                applied.status,
                self.snapshot.step,
                extra=self._about(),
            )
        failpoint("engine.commit.after")

    def _about(self) -> dict[str, Any]:
        executor, step = self._executor, self.snapshot.step + 1
        return about(executor.session_id, executor.run_id, step, epoch=self._watch.epoch)

    async def _node_failed(
        self, invocations: Sequence[Invocation], results: Sequence[Result], failed: Result
    ) -> None:
        """Keep the finished siblings, and commit that the run failed."""
        self._executor.keep_all(results)
        node = next(i.node for i in invocations if i.number == failed.number)
        failure = failed.failure
        assert failure is not None  # noqa: S101 - a failed result has one
        error = NodeFailedError(
            node, self.snapshot.step + 1, failed.attempt, failure.error_type, failure.text
        )
        self.error = self._executor.errors.get(failed.number, error)
        happenings = [
            Happening(Kind.NODE_FAILED, invocation.node, invocation.number, _failure_data(result))
            for invocation, result in zip(invocations, results, strict=True)
            if result.status == "failed"
        ]
        await self._fail(str(error), happenings)

    async def _apply_failed(
        self, invocations: Sequence[Invocation], results: Sequence[Result], error: RafError
    ) -> None:
        """Commit that the run failed in the step's own rules.

        Results stand when the fault lies in a condition or reducer, which is judged anew on resume.
        Otherwise a node gave what cannot be applied: its step's nodes run again, their recorded
        effects stay.
        """
        self.error = error
        if isinstance(error, ConditionError | ReducerError):
            self._executor.keep_all(results)
        elif self._executor.open_step.results:
            await self.commits.record([VOID, *(i.number for i in invocations)])
            self._executor.open_step.results.clear()
        await self._fail(str(error), [])

    async def _fail(self, reason: str, happenings: list[Happening]) -> None:
        run = self.snapshot.run
        log.error(
            "session %r run %r failed in step %d",
            self._executor.session_id,
            run.run_id,
            self.snapshot.step + 1,
            extra=self._about(),
        )
        await self.commits.outcome(
            [SetRun(Run(run.run_id, run.input_digest, "failed", reason))],
            [*happenings, outcome(run, "failed", reason, (), self.steps)],
            How(ends_journal=False),
        )

    # -- sleeping ------------------------------------------------------------------------------

    async def _sleep(self) -> bool:
        """Wait for the next suspended invocation; False leaves the run sleeping."""
        self._watch.check()
        if not self._wait:
            return False
        wake_at = min(s.wake_at for s in self.snapshot.suspended.values())
        await self._watch.sleep(wake_at - await self.commits.now())
        return True

    async def _wake_due(self) -> None:
        """Let suspended invocations whose time has come join the next step."""
        if not self.snapshot.suspended or self.snapshot.finished:
            return
        now = await self.commits.now()
        due = sorted(n for n, held in self.snapshot.suspended.items() if held.wake_at <= now)
        if not due:
            return
        run = self.snapshot.run
        ops: list[Op] = [*map(Wake, due)]
        happenings: list[Happening] = []
        if run.status == "sleeping":
            spent = used_up(self.snapshot.steps_limit, self.snapshot.steps_used)
            status = "limited" if spent else "running"
            ops.append(SetRun(Run(run.run_id, run.input_digest, status, spent)))
            if spent:
                happenings.append(outcome(run, status, spent, (), self.steps))
        # What is journaled of a step in flight still stands: they join it.
        fresh = self._executor.open_step == OpenStep() or run.status == "sleeping"
        await self.commits.outcome(ops, happenings, How(ends_journal=fresh))
        if fresh:
            self._executor.open_step = OpenStep()


def _take_request(
    session_id: str, request: Request, ops: list[Op], happenings: list[Happening]
) -> None:
    match request.kind:
        case "cancel":
            happenings.append(Happening(Kind.CANCEL_REQUESTED))
        case "pin" | "unpin":
            if not request.body.isdigit():
                why = "it names no commit"
                raise CorruptRecordError(session_id, f"request {request.seq}", why)
            commit = int(request.body)
            ops.append(Pin(commit) if request.kind == PIN else Unpin(commit))
            kind = Kind.PINNED if request.kind == PIN else Kind.UNPINNED
            happenings.append(Happening(kind, "", 0, {"commit": commit}))
        case _:
            log.warning(
                "request %r of unknown kind %r is dropped", request.request_id, request.kind
            )


def _failure_data(result: Result) -> dict[str, object]:
    failure = result.failure
    assert failure is not None  # noqa: S101 - a failed result has one
    code = {"code": failure.code} if failure.code else {}
    error = {"error_type": failure.error_type, "error": failure.text}
    return {"attempt": result.attempt, **error, **code}
