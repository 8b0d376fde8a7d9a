"""The engine: runs, resumes, streams and stops the sessions of one workflow in one store."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, Self

from raf.checkpoint.config import CheckpointConfig
from raf.checkpoint.manager import CheckpointManager
from raf.engine.admin import FINISHED, HasSessionId
from raf.engine.apply import Rulebook
from raf.engine.background import Background
from raf.engine.commits import Durability
from raf.engine.edges import Edges
from raf.engine.executor import Tools
from raf.engine.follow import follow
from raf.engine.hub import QUEUE, Hub
from raf.engine.keeper import CANCEL, Keeper
from raf.engine.migrate import Migrating
from raf.engine.options import (
    OnChange,
    OnCorrupt,
    check_call,
    check_engine,
    check_number,
    check_on_change,
    check_on_corrupt,
)
from raf.engine.outcome import RunResult
from raf.engine.recorded import recorded_result
from raf.engine.session import Machine
from raf.errors import ConfigurationError, NothingToResumeError, SessionBusyError
from raf.events import Event
from raf.state.view import Rules
from raf.store.owner import this_owner
from raf.store.port import Store
from raf.topology.workflow import Workflow

LEASE_S: Final = 30.0
MAX_STEPS: Final = 10_000
DRAIN_POLL_S: Final = 0.02
MISSING: Final = object()


class WorkflowEngine(Background, Migrating):
    """Runs the sessions of one workflow.

    Args:
        workflow: What `WorkflowBuilder.build()` returned.
        store: A store or its URL: `memory:`, `file:DIR`, `sqlite:PATH`.
        checkpoints: How often a full snapshot is written and how many checkpoints stay.
        durability: "sync": a step is on disk before the next begins.  "async": one commit is in
            flight meanwhile.  "exit": one commit at outcomes and before effects.
        max_concurrency: Nodes that run at once in a step; None: all.
        max_steps: Steps after which a run pauses as `limited`; `resume` grants as many again.
        strict: A message that no edge takes fails the run.
        lease_s: Seconds for which a session is owned without renewal.
        threads: Threads for sync nodes.
        on_change: What happens to a session whose graph changed: "refuse" names the difference;
            "compatible" goes on, and records it, where nothing that the session holds can meet the
            change.
        on_corrupt: What happens to a session of which a record is damaged: "refuse" names the
            record; "last-intact" falls back to the last intact checkpoint, with an event that says
            what was lost, and goes on from there.

    Example:
        >>> import asyncio
        >>> from raf import WorkflowBuilder, WorkflowEngine
        >>> async def double(number: int) -> int:
        ...     return 2 * number
        >>> workflow = WorkflowBuilder("double").add_node("d", double).set_start("d").build()
        >>> async def main():
        ...     async with WorkflowEngine(workflow, store="memory:") as engine:
        ...         return (await engine.run(21, session_id="s")).outputs
        >>> asyncio.run(main())
        [42]
    """

    def __init__(  # noqa: PLR0913 - keyword options of the one constructor that users call
        self,
        workflow: Workflow,
        store: Store | str | Path = "memory:",
        *,
        checkpoints: CheckpointConfig | None = None,
        durability: Durability = "sync",
        max_concurrency: int | None = None,
        max_steps: int = MAX_STEPS,
        strict: bool = False,
        lease_s: float = LEASE_S,
        threads: int = 32,
        on_change: OnChange = "refuse",
        on_corrupt: OnCorrupt = "refuse",
    ) -> None:
        if not isinstance(workflow, Workflow):
            raise ConfigurationError("WorkflowEngine takes a built workflow: call build() first")
        check_engine(
            durability=durability,
            max_concurrency=max_concurrency,
            max_steps=max_steps,
            lease_s=lease_s,
            threads=threads,
        )
        check_on_change(on_change)
        check_on_corrupt(on_corrupt)
        self._on_change: OnChange = on_change
        self._on_corrupt: OnCorrupt = on_corrupt
        rules = {(code.scope, code.key): code for code in workflow.state}
        book = Rulebook(workflow, Edges.of(workflow), Rules(rules, workflow.types), strict=strict)
        self._pool_size = (threads, max_concurrency)
        manager = CheckpointManager(store, checkpoints)
        super().__init__(self._machine_of(workflow, book, manager, lease_s, durability))
        self.max_steps = max_steps
        self._opened = False

    def _machine_of(
        self,
        workflow: Workflow,
        book: Rulebook,
        manager: CheckpointManager,
        lease_s: float,
        durability: Durability,
    ) -> Machine:
        threads, max_concurrency = self._pool_size
        clock = manager.store.clock
        pool = ThreadPoolExecutor(threads, thread_name_prefix="raf-node")
        return Machine(
            workflow=workflow,
            book=book,
            manager=manager,
            hub=Hub(workflow.types, limit=QUEUE if manager.config.enabled else None),
            keeper=Keeper(manager.store),
            tools=Tools(clock, pool, max_concurrency),
            owner=this_owner(clock),
            lease_s=lease_s,
            durability=durability,
            on_change=self._on_change,
            on_corrupt=self._on_corrupt,
        )

    def with_checkpoint_manager(self, manager: CheckpointManager) -> Self:
        """Use this manager's store and settings; call it before the first run."""
        if self._opened:
            raise ConfigurationError("the engine is in use: set its checkpoint manager before")
        m = self.machine
        m.tools.pool.shutdown(wait=False)
        self.machine = self._machine_of(m.workflow, m.book, manager, m.lease_s, m.durability)
        return self

    async def __aenter__(self) -> Self:
        """Open the store."""
        await self.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close the engine and the store."""
        await self.close()

    async def open(self) -> None:
        """Open the store; the first run does so by itself."""
        if not self._opened:
            if self.manager.config.enabled:
                await self.manager.store.open()
            self._opened = True

    async def close(self) -> None:
        """End the engine: runs in flight should be over or drained before."""
        if self._opened:
            self._opened = False
            machine = self.machine
            await machine.keeper.close()
            machine.tools.pool.shutdown(wait=False, cancel_futures=True)
            if machine.manager.config.enabled:
                await machine.manager.store.close()
            # A new pool and owner, so that the engine can be opened again.
            self.machine = self._machine_of(
                machine.workflow, machine.book, machine.manager, machine.lease_s, machine.durability
            )

    # -- running -------------------------------------------------------------------------------

    async def run(  # noqa: PLR0913 - keyword options of the one call that users make
        self,
        input: Any,  # noqa: A002 - the word of the field
        session_id: str | HasSessionId | None = None,
        *,
        run_id: str = "main",
        check: bool = True,
        wait: bool = True,
        wait_s: float = 0.0,
        durability: Durability | None = None,
        max_steps: int | None = None,
    ) -> RunResult:
        """Run the workflow on an input, or go on where this run stopped.

        Running the same script again is the recovery: a finished run returns its recorded result
        and nothing runs; an unfinished one with equal input is continued.

        Args:
            input: What the start node gets.
            session_id: The durable identity; a new one when None.
            run_id: Names the run within the session.
            check: Raise `RunFailedError` when the run fails; False returns that result too.
            wait: Wait in process for sleeping attempts; False returns `sleeping`.
            wait_s: Seconds to wait for a live owner to let the session go.
            durability: Overrides the engine's for this call.
            max_steps: Overrides the engine's for a run that begins here.

        Returns:
            The outcome; see `RunResult.status`.

        Guarantees:
            Durable: the input is on disk before the first node runs.

        Raises:
            RunFailedError: The run failed; it carries the result, `resume` goes on.
            CommitError: Saving failed; the session stands at its last commit.
            RunInputMismatchError, RunUnfinishedError, WorkflowMismatchError, TopologyChangedError,
            SessionBusyError: Nothing ran.
        """
        session = self._session_id(session_id)
        check_call(durability=durability, max_steps=max_steps, wait_s=wait_s)
        entry = self._entry(input, run_id, max_steps)
        await self.open()
        known = await recorded_result(self.machine, session, run_id, entry.digest)
        if known is not None:
            return known
        async with self._own(session, create=True, wait_s=wait_s) as owned:
            if owned.restored is not None:
                known = await recorded_result(self.machine, session, run_id, entry.digest)
            if known is not None:
                return known
            await owned.begin_or_continue(entry)
            return self._checked(await owned.drive(durability, wait=wait), owned, check=check)

    async def resume(
        self,
        session_id: str | HasSessionId,
        *,
        check: bool = True,
        wait: bool = True,
        wait_s: float = 0.0,
        durability: Durability | None = None,
        max_steps: int | None = None,
    ) -> RunResult:
        """Continue the unfinished run of a session.

        A `limited` run may take `max_steps` more, or as many again as it was allowed; a `failed`
        one starts its counts anew.

        Raises:
            SessionNotFoundError: There is no such session.
            NothingToResumeError: Its last run is finished.
            RunFailedError, CommitError, TopologyChangedError, SessionBusyError: As in `run`.
        """
        session = self._session_id(session_id)
        check_call(durability=durability, max_steps=max_steps, wait_s=wait_s)
        await self._open_kept()
        async with self._own(session, create=False, wait_s=wait_s) as owned:
            await owned.resume(max_steps=max_steps)
            return self._checked(await owned.drive(durability, wait=wait), owned, check=check)

    async def stream(
        self,
        input: Any = MISSING,  # noqa: A002 - the word of the field
        session_id: str | HasSessionId | None = None,
        *,
        after: int | None = None,
        **options: Any,
    ) -> AsyncIterator[Event]:
        """The same as `run`, as events; without an input it only watches.

        Args:
            input: What the start node gets; left out, nothing is started.
            session_id: The session.
            after: Durable events with a higher number are replayed first (0: from the first);
                None: with an input, those of this call; without, from now on.
            options: As in `run`.

        Yields:
            Durable events in order of their numbers, without gap or double, each after its commit,
            and live events between them.  Watching ends with the outcome of the open run.

        Raises:
            EventsGoneError: Events after `after` were pruned.
            RunFailedError, CommitError: As in `run`, behind the last event.
        """
        session = self._session_id(session_id)
        if after is not None:
            check_number("after", after)
        await self.open()
        call = None if input is MISSING else (lambda: self.run(input, session, **options))
        m = self.machine
        events = follow(m.manager, m.hub, session, types=m.workflow.types, after=after, call=call)
        # Whoever leaves the stream ends the call at once, not when the generator is collected.
        async with aclosing(events):
            async for event in events:
                yield event

    async def cancel(self, session_id: str | HasSessionId, *, wait_s: float = 10.0) -> str:
        """End the unfinished run of a session as `cancelled`; the outcome is final.

        A running owner is told and stops in mid-step; an unowned session is claimed.

        Returns:
            The status when this call ends: "cancelled", or the owner's if it did not react within
            `wait_s` seconds (the request stays in its inbox).

        Raises:
            SessionNotFoundError, NothingToResumeError: There is nothing to cancel.
        """
        session = self._session_id(session_id)
        await self._open_kept()
        head = await self.manager.head(session)
        if head.summary.status in FINISHED:
            raise NothingToResumeError(session, head.summary.run_id, head.summary.status)
        store = self.manager.store
        run_id = head.summary.run_id.encode()
        request = await store.request(session, store.clock.new_id(), CANCEL, run_id)
        if (watch := self.machine.keeper.of(session)) is not None:
            watch.heard()
            if watch.is_cancelled_by(request):
                watch.interrupt("cancel")
        until = store.clock.monotonic() + wait_s
        while True:
            try:
                async with self._own(session, create=False, checked=False) as owned:
                    await owned.consume()
            except SessionBusyError:
                pass
            head = await self.manager.head(session)
            if head.consumed >= request.seq or store.clock.monotonic() >= until:
                return head.summary.status
            await asyncio.sleep(DRAIN_POLL_S)

    async def drain(self, grace_s: float | None = None) -> None:
        """Stop every run of this engine at the next end of a step; they return `drained`.

        Args:
            grace_s: Seconds after which a step in flight is interrupted (finished nodes are kept);
                None waits for the step.
        """
        clock = self.machine.tools.clock
        self.draining = True
        try:
            watches = self.machine.keeper.drain()
            until = None if grace_s is None else clock.monotonic() + grace_s
            while self.machine.keeper.keeps_any():
                if until is not None and clock.monotonic() >= until:
                    for watch in watches:
                        watch.interrupt("drain")
                    until = None
                await asyncio.sleep(DRAIN_POLL_S)
        finally:
            self.draining = False
