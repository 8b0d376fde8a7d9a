"""Executes the invocations of one step side by side: limits, deadlines, attempts.

Rules of this file:
- Each invocation is a task.  One that fails lets its siblings finish; what finished is kept.
- A failure is recorded durably before the next attempt begins.  Failures and losses are counted
  apart; an invocation is given up after `attempts` failures or max(3, attempts) losses.
- A failed attempt's messages, outputs, writes and durable events vanish.
- Interrupted (cancel, lost lease, drain past its grace), the tasks are cancelled and waited for a
  moment; whoever does not end by then is left behind and can write nothing any more.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from raf.clock import Clock
from raf.engine.apply import Rulebook
from raf.engine.calling import call_node, failure_of, in_thread
from raf.engine.commits import Commits
from raf.engine.context import NodeContext
from raf.engine.journal import OpenStep
from raf.engine.keeper import Watch
from raf.engine.logs import about
from raf.engine.plan import Invocation
from raf.engine.result import FAILURE, Failure, Result, Sent, result_to_wire
from raf.engine.retry import decide
from raf.errors import CommitError, LeaseLostError, NodePoisonedError, UndecodableError
from raf.events import Kind
from raf.state.view import StateAccess
from raf.topology.workflow import NodeCode
from raf.values.codec import decode, encode

log = logging.getLogger("raf.engine")

JOURNAL_FROM_S: Final = 0.010
LEAST_LOSSES: Final = 3
ABANDON_AFTER_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Tools:
    """What all runs of an engine share."""

    clock: Clock
    pool: ThreadPoolExecutor
    max_concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run happens: its session, and how its live events are shown."""

    session_id: str
    nonce: str
    show_live: Callable[[Kind, Invocation, int, Any], None]


class Executor:
    """Runs steps of one run; it is the surroundings of the run's attempts."""

    def __init__(
        self,
        book: Rulebook,
        commits: Commits,
        watch: Watch,
        tools: Tools,
        place: Place,
        open_step: OpenStep,
    ) -> None:
        snapshot, workflow = commits.writer.snapshot, book.workflow
        self.session_id = place.session_id
        self.run_id = snapshot.run.run_id
        self.nonce = place.nonce
        self.types = workflow.types
        self.open_step = open_step
        self.errors: dict[int, Exception] = {}
        self._stopping = False
        self._place = place
        self._book = book
        self._snapshot = snapshot
        self._commits = commits
        self._watch = watch
        self._clock = tools.clock
        self._pool = tools.pool
        nodes = workflow.topology.nodes
        self._outputs = {node.name for node in nodes if node.output}
        self._on_failure = {node.name: node.on_failure for node in nodes}
        codes = workflow.nodes.values()
        self._slots = _semaphore(tools.max_concurrency)
        self._node_slots = {code.name: _semaphore(code.max_concurrency) for code in codes}
        self._limited = tools.max_concurrency is not None or any(
            code.max_concurrency is not None for code in codes
        )

    def targets_of(self, node: str) -> tuple[str, ...]:
        """The nodes that edges of this node lead to."""
        return self._book.edges.leaving[node].targets

    # -- surroundings of an attempt ------------------------------------------------------------

    async def before_effect(self) -> None:
        """Return when all earlier commits are durable and the lease holds."""
        await self._watch.hold_lease()
        await self._commits.flush()

    def show_live(self, invocation: Invocation, attempt: int, value: Any) -> None:
        """Show what a node emits at once."""
        self._place.show_live(Kind.PROGRESS, invocation, attempt, value)

    async def record(self, entry: Sequence[Any]) -> None:
        """Make a journal entry durable."""
        await self._commits.record(entry)

    async def in_thread(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Call a sync function in a thread, with this task's context variables."""
        return await in_thread(self._pool, fn, *args)

    # -- one step ------------------------------------------------------------------------------

    async def run_step(self, invocations: Sequence[Invocation]) -> list[Result]:
        """The results of a step, in the order of its plan; results in the journal are kept.

        Raises:
            Interrupted: The run was told to stop; finished results are in the journal.
        """
        results = {n: r for n, r in self.open_step.results.items() if r.status != "failed"}
        waiting = [i for i in invocations if i.number not in results]
        if len(waiting) == 1:
            await self._run_all(waiting, results)
        elif waiting:
            # What ends soon is kept as well, once the step turns out to be a long one.
            loop = asyncio.get_running_loop()
            long = loop.call_later(JOURNAL_FROM_S, self.keep_all, results.values())
            try:
                await self._run_all(waiting, results)
            finally:
                long.cancel()
        return [results[invocation.number] for invocation in invocations]

    async def _run_all(self, waiting: Sequence[Invocation], results: dict[int, Result]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        done: asyncio.Future[None] = loop.create_future()
        tasks: set[asyncio.Task[Result]] = set()

        def on_done(task: asyncio.Task[Result]) -> None:
            tasks.discard(task)
            if done.done():
                _look_away(task)
                return
            if task.cancelled():
                done.set_exception(asyncio.CancelledError())
            elif (error := task.exception()) is not None:
                done.set_exception(error)
            else:
                self._finished(task.result(), results, last=not tasks, age=loop.time() - began)
                if not tasks:
                    done.set_result(None)

        for invocation in waiting:
            task = loop.create_task(self._invoke(invocation))
            tasks.add(task)
            task.add_done_callback(on_done)
        self._watch.interrupts(done)
        try:
            await done
        except BaseException:
            self._stopping = True
            await _cancel_all(tasks)
            raise
        finally:
            self._watch.interrupts(None)

    def _finished(
        self, result: Result, results: dict[int, Result], *, last: bool, age: float
    ) -> None:
        results[result.number] = result
        if not last and age >= JOURNAL_FROM_S and self._commits.journals_results:
            self.keep(result)

    def keep_all(self, results: Iterable[Result]) -> None:
        """Journal what finished, unless the durability keeps no results."""
        if self._commits.journals_results:
            for result in results:
                self.keep(result)

    def keep(self, result: Result) -> None:
        """Journal a finished result, once."""
        if result.status != "failed" and result.number not in self.open_step.results:
            self.open_step.results[result.number] = result
            self._commits.record_soon(result_to_wire(result))

    # -- one invocation ------------------------------------------------------------------------

    async def _invoke(self, invocation: Invocation) -> Result:
        if not self._limited:
            return await self._attempts(invocation)
        async with self._node_slots[invocation.node], self._slots:
            return await self._attempts(invocation)

    async def _attempts(self, invocation: Invocation) -> Result:
        code, number = self._book.workflow.nodes[invocation.node], invocation.number
        failures = self.open_step.failures.get(number, 0)
        losses = self.open_step.losses(number)
        if losses >= max(LEAST_LOSSES, code.retry.attempts):
            error = NodePoisonedError(invocation.node, self._snapshot.step + 1, losses)
            return self._given_up(invocation, error, failures, losses)
        if failures >= code.retry.attempts:
            known = self.open_step.last_failure.get(number, Failure("Exception", "unknown"))
            return self._ended(invocation, known, failures, losses)
        while True:
            ended = await self._try(code, invocation, failures + losses + 1)
            if isinstance(ended, Result):
                return ended
            failures += 1
            follows = await self._failed(code, invocation, failures, losses, ended)
            if isinstance(follows, Result):
                return follows
            await self._clock.sleep(follows)

    async def _try(
        self, code: NodeCode, invocation: Invocation, attempt: int
    ) -> Result | Exception:
        """One attempt: its result, or what it raised."""
        try:
            return await self._attempt(code, invocation, attempt)
        except (LeaseLostError, CommitError):
            raise  # not the node's failure: the run itself cannot go on
        except asyncio.CancelledError:
            error: Exception = RuntimeError("the node cancelled itself")
        except Exception as raised:  # noqa: BLE001 - a node is the user's code
            error = raised
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as raised:  # noqa: BLE001 - the same; it must be counted as well
            error = RuntimeError(f"the node raised {type(raised).__name__}")
            error.__cause__ = raised
        await self._refuse_if_stopping()
        return error

    async def _refuse_if_stopping(self) -> None:
        """Let an attempt that was told to stop end as cancelled, in whatever way it did stop."""
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            return
        while task.cancelling():
            task.uncancel()
        for _ in range(2):  # whoever stops this run is cancelled in the same turn of the loop
            await asyncio.sleep(0)
        if self._stopping:
            raise asyncio.CancelledError

    async def _failed(
        self, code: NodeCode, invocation: Invocation, failures: int, losses: int, error: Exception
    ) -> Result | float:
        """Decide what follows a failure, durably: how the invocation ends here, or seconds to wait."""
        number, now, failure = invocation.number, self._clock.now(), failure_of(error)
        first = self.open_step.first_failure.setdefault(number, now)
        step = self._snapshot.step + 1
        log.warning(
            "session %r run %r step %d: node %r failed, failure %d: %s",
            self.session_id,
            self.run_id,
            step,
            invocation.node,
            failures,
            failure.error_type,
            extra=about(
                self.session_id, self.run_id, step, epoch=self._watch.epoch, attempt=failures
            ),
        )
        elapsed, chance = max(0.0, now - first), self._clock.chance()
        again = decide(code.retry, failures, error, elapsed_s=elapsed, chance=chance)
        self.open_step.failures[number] = failures
        entry = [FAILURE, number, failures, now, failure.error_type, failure.text, failure.code]
        if again is not None and again.in_step:
            follows: Result | float = again.delay_s
        elif again is not None:
            follows = self._put_off(invocation, error, failures, losses, again.delay_s)
        else:
            follows = self._given_up(invocation, error, failures, losses)
        if self._commits.journals_results:
            if isinstance(follows, Result) and follows.status != "failed":
                # Whoever goes on after a crash must not decide anew: it would try again at once.
                self.open_step.results[number], entry = follows, result_to_wire(follows)
            await self._commits.record(entry)
        return follows

    def _given_up(
        self, invocation: Invocation, error: Exception, failures: int, losses: int
    ) -> Result:
        self.errors[invocation.number] = error
        return self._ended(invocation, failure_of(error), failures, losses)

    def _ended(
        self, invocation: Invocation, failure: Failure, failures: int, losses: int
    ) -> Result:
        # What is stored and cannot be read is no fault of the node, and nothing may go past it.
        unreadable = failure.error_type == UndecodableError.__name__
        how = "fail" if unreadable else self._on_failure[invocation.node]
        return Result(
            number=invocation.number,
            status={"fail": "failed", "skip": "skipped", "fallback": "fallback"}[how],  # type: ignore[arg-type]
            failure=failure,
            attempt=failures + losses,
            failures=failures,
        )

    def _put_off(
        self,
        invocation: Invocation,
        error: Exception,
        failures: int,
        losses: int,
        delay_s: float,
    ) -> Result:
        recorded = self.open_step.effects_of(invocation.number)
        return Result(
            number=invocation.number,
            status="suspended",
            failure=failure_of(error),
            attempt=failures + losses,
            failures=failures,
            wake_at=self._clock.now() + delay_s,
            effects=tuple((k, e.digest, e.result or b"") for k, e in recorded.items()),
        )

    async def _attempt(self, code: NodeCode, invocation: Invocation, attempt: int) -> Result:
        self._place.show_live(Kind.NODE_STARTED, invocation, attempt, None)
        access = StateAccess(self._snapshot.state, self._book.rules, code.name)
        context = NodeContext(
            self, invocation, access, step=self._snapshot.step + 1, attempt=attempt
        )
        try:
            value = await call_node(code, context, self._payload(code, invocation), self._pool)
            if value is not None:
                is_output = code.name in self._outputs
                where = f"return value of {code.name!r}"
                encoded = encode(value, self.types, where=where)
                context.left.sends.append(Sent(encoded, None, is_output))
            context.close()
        finally:
            context.abort()
        return Result(
            number=invocation.number,
            sends=tuple(context.left.sends),
            outputs=tuple(context.left.outputs),
            writes=tuple(access.writes),
            events=tuple(context.left.events),
            attempt=attempt,
        )

    def _payload(self, code: NodeCode, invocation: Invocation) -> Any:
        message = invocation.message
        values = [decode(payload, self.types) for payload in message.payloads]
        value: Any = values
        if not message.from_barrier:
            value = values[0]
        elif self._book.edges.barriers[message.source].collect == "dict":
            value = dict(zip(message.sources, values, strict=True))
        return code.payload.fit(value, f"payload for {code.name!r}")


def _semaphore(limit: int | None) -> AbstractAsyncContextManager[Any]:
    return nullcontext() if limit is None else asyncio.Semaphore(limit)


def _look_away(task: asyncio.Task[Result]) -> None:
    """Drop what a task left that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


async def _cancel_all(tasks: set[asyncio.Task[Result]]) -> None:
    """Cancel tasks and give them a moment to end."""
    running = set(tasks)
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=ABANDON_AFTER_S)
