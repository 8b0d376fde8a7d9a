"""A worker: claims sessions that want to run, runs many at once, and gives them back.

Rules of this file:
- A session is claimed only when there is a free slot for it, so no lease waits in a queue here.
- A failed run is an outcome.  An error puts its session aside for a while (`aside`); an error of
  the store itself is waited for (`pace`).  Neither ends the worker, and both are told in the log.
- Nothing is asked for a session that this worker has in hand: after a stop longer than its lease
  (SIGSTOP, a closed lid) it would otherwise claim what it is still running.

Theory of operation.  One task asks the store; each claimed session is a task that ends with its
lease given back (`engine.run_claimed`).  The engines renew the leases, each in one batch.  A slot
that frees wakes the asking task at once; else it asks every `poll_s` seconds.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from raf.engine.engine import LEASE_S, WorkflowEngine
from raf.engine.options import check_count, check_lease, check_queue, check_seconds
from raf.engine.outcome import RunResult
from raf.errors import (
    ConfigurationError,
    LeaseLostError,
    RafError,
    SessionNotFoundError,
    StoreClosedError,
    StoreError,
    StoreReplacedError,
)
from raf.store.model import Claimed, Due, Head, Select
from raf.store.owner import this_owner
from raf.store.port import Store
from raf.store.urls import open_store
from raf.topology.workflow import Workflow
from raf.worker.aside import Aside, delay_s
from raf.worker.pace import Pace
from raf.worker.turns import Queues, Turns

log = logging.getLogger("raf.worker")

BATCH: Final = 20
CONCURRENCY: Final = 8
POLL_S: Final = 1.0
FIRST_WAIT: Final = 0.05  # of `poll_s`: what was just submitted seldom comes alone
STORE_FIRST_S: Final = 0.2
STORE_MOST_S: Final = 30.0
DRAIN_POLL_S: Final = 0.05

ANY: Final[Mapping[str, int | None]] = {"default": None}


class Worker:
    """Runs the sessions of some workflows that want to run and that nobody runs.

    These are submitted ones whose time has come, sleeping ones whose time has come, and running
    ones whose owner is gone.  Any number of workers may share a store.

    Args:
        workflows: What it runs: built workflows, or engines on the same store for settings of
            their own (which stay open, and are drained with it).  Sessions of other graphs are left alone.
        store: A store or its URL; that of the first engine when None.
        queues: The queues that it serves, each with how many of its sessions may run at once, in
            all workers together; None: any number.
        concurrency: Sessions that it runs at once.
        poll_s: Seconds between two looks when there is nothing to do.
        lease_s: Seconds for which a session is owned without renewal.
        on_outcome: Is called with how each session stood when it was given back.
        on_aside: Is called with the id of each session that an error put aside, and the error.

    Example:
        >>> import asyncio
        >>> from raf import Worker, WorkflowBuilder, WorkflowEngine
        >>> from raf.store.memory import MemoryStore
        >>> async def double(number: int) -> int:
        ...     return 2 * number
        >>> workflow = WorkflowBuilder("double").add_node("d", double).set_start("d").build()
        >>> async def main():
        ...     store = MemoryStore()
        ...     async with WorkflowEngine(workflow, store) as engine:
        ...         await engine.submit(21, session_id="s")
        ...         await Worker([workflow], store).run(once=True)
        ...         return (await engine.run(21, session_id="s")).outputs
        >>> asyncio.run(main())
        [42]
    """

    def __init__(  # noqa: PLR0913 - keyword options of the one constructor that users call
        self,
        workflows: Sequence[Workflow | WorkflowEngine],
        store: Store | str | None = None,
        *,
        queues: Mapping[str, int | None] = ANY,
        concurrency: int = CONCURRENCY,
        poll_s: float = POLL_S,
        lease_s: float = LEASE_S,
        on_outcome: Callable[[RunResult], None] | None = None,
        on_aside: Callable[[str, Exception], None] | None = None,
    ) -> None:
        check_count("concurrency", concurrency)
        check_seconds("poll_s", poll_s)
        check_lease(lease_s)
        for name, listener in (("on_outcome", on_outcome), ("on_aside", on_aside)):
            if listener is not None and not callable(listener):
                raise ConfigurationError(f"{name} is a function, not {listener!r:.80}")
        self.store = _store_of(workflows, store)
        self.concurrency = concurrency
        self.lease_s = lease_s
        self.outcomes: Counter[str] = Counter()
        self._turns = Turns(_checked_queues(queues))
        engines = [_engine_of(each, self.store, lease_s) for each in workflows]
        self._engines = {engine.workflow.fingerprint: engine for engine in engines}
        if len(self._engines) < len(engines):
            raise ConfigurationError("two of the workflows have one graph: which is to run it?")
        self._own_engines = [
            e for e, given in zip(engines, workflows, strict=True) if e is not given
        ]
        self._on_outcome = on_outcome
        self._on_aside = on_aside
        self._owner = this_owner(self.store.clock)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._aside = Aside()
        self._idle = Pace(poll_s * FIRST_WAIT, poll_s)
        self._away = Pace(STORE_FIRST_S, STORE_MOST_S)
        self._news = asyncio.Event()
        self._over = asyncio.Event()
        self._over.set()
        self._draining = False

    @property
    def running(self) -> frozenset[str]:
        """The sessions that it has in hand."""
        return frozenset(self._running)

    async def run(self, *, once: bool = False) -> None:
        """Work until `drain` is called; cancelled, it stops at once, as a kill would.

        Args:
            once: Return when nothing is due any more.

        Guarantees:
            On return no session is owned by this worker.

        Raises:
            StoreError: The store cannot be opened, was closed or replaced by another (only opening
                it anew helps), or, with `once`, cannot be asked.
        """
        if not self._over.is_set():
            raise ConfigurationError("this worker is at work already")
        self._over.clear()
        self._draining = False
        try:
            await self._with_engines(once=once)
        finally:
            self._over.set()

    async def drain(self, grace_s: float | None = None) -> None:
        """Claim nothing more, stop every run at the next end of a step, and return at the end.

        Args:
            grace_s: Seconds after which steps in flight are interrupted (finished nodes are kept);
                None waits for them.
        """
        self._draining = True
        self._news.set()
        while not self._over.is_set():
            await asyncio.gather(*(e.drain(grace_s) for e in self._engines.values()))
            if self._running:
                await asyncio.sleep(DRAIN_POLL_S)
            else:
                await self._over.wait()

    async def _with_engines(self, *, once: bool) -> None:
        try:
            for engine in self._engines.values():
                await engine.open()
            await self._work(once=once)
        finally:
            await self._stop()
            for engine in self._own_engines:
                await engine.close()

    # -- asking ----------------------------------------------------------------------------------

    async def _work(self, *, once: bool) -> None:
        while not self._draining:
            self._news.clear()
            if len(self._running) >= self.concurrency:
                await self._news.wait()
                continue
            try:
                found = await self._take()
            except StoreError as error:
                if once or isinstance(error, StoreReplacedError | StoreClosedError):
                    raise
                await self._store_is_away(error)
                continue
            if not found and await self._is_over(once=once):
                return
        while self._running:
            await asyncio.wait(self._running.values())

    async def _take(self) -> bool:
        """Fill the free slots; whether there was anything to fill them with."""
        for engine in self._engines.values():
            await engine.give_back()
        found = False
        for queues in self._turns.next_round():
            free = min(self.concurrency - len(self._running), BATCH)
            room = self._turns.room(queues, free)
            if room and not self._draining:
                for each in await self._claim(queues, room):
                    self._start(each, queues)
                    found = True
        return found

    async def _claim(self, queues: Queues, limit: int) -> list[Claimed]:
        """At most so many sessions of these queues."""
        aside = self._aside.names(self.store.clock.monotonic())
        due = Due(fingerprints=frozenset(self._engines), queues=queues, skip=aside | self.running)
        asked = asyncio.ensure_future(
            self.store.claim_due(self._owner, due, lease_s=self.lease_s, limit=limit)
        )
        try:
            claimed = await asyncio.shield(asked)
        except asyncio.CancelledError:
            [late] = await asyncio.gather(asked, return_exceptions=True)
            for each in late if isinstance(late, list) else ():
                await self._let_go(each)
            raise
        if self._away.waited:
            log.warning("the store answers again")
            self._away.begin_anew()
        if claimed:
            self._idle.begin_anew()
        return claimed

    async def _is_over(self, *, once: bool) -> bool:
        """Nothing was due: wait until something may be; True when nobody waits for that."""
        if not once:
            await self._news_or(self._idle.next_s(self.store.clock.chance()))
        elif self._running:
            await self._news.wait()
        else:
            return True
        return False

    async def _store_is_away(self, error: StoreError) -> None:
        seconds = self._away.next_s(self.store.clock.chance())
        log.error("the store cannot be asked, again in %.1f s: %s", seconds, error)
        await self._news_or(seconds)

    async def _news_or(self, seconds: float) -> None:
        """Return when a slot frees or the worker drains, or after so many seconds."""
        waits = [
            asyncio.ensure_future(self._news.wait()),
            asyncio.ensure_future(self.store.clock.sleep(seconds)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    # -- running ---------------------------------------------------------------------------------

    def _start(self, claimed: Claimed, queues: Queues) -> None:
        session_id = claimed.lease.session_id
        self._turns.take(session_id, queues)
        self._running[session_id] = asyncio.ensure_future(self._run(claimed))
        self._running[session_id].add_done_callback(lambda _: self._ended(session_id))

    def _ended(self, session_id: str) -> None:
        del self._running[session_id]
        self._turns.give(session_id)
        self._news.set()

    async def _run(self, claimed: Claimed) -> None:
        """Run one session to its outcome; only a cancellation gets out."""
        session_id = claimed.lease.session_id
        try:
            engine = await self._engine_for(claimed)
            if engine is not None:
                self._tell(await engine.run_claimed(claimed))
        except LeaseLostError as error:
            log.warning("session %r is dropped: %s", session_id, error)
        except SessionNotFoundError:
            log.info("session %r is gone", session_id)
        except Exception as error:  # noqa: BLE001 - one session must not end the others
            await self._put_aside(session_id, error)
        else:
            self._aside.forget(session_id)

    async def _engine_for(self, claimed: Claimed) -> WorkflowEngine | None:
        """Who runs a session; None when the worker drains: it was given back."""
        found: WorkflowEngine | None = None
        try:
            if len(self._engines) == 1:
                [engine] = self._engines.values()
            else:
                head = await self._head(claimed.lease.session_id)
                engine = self._engines[head.summary.fingerprint]
            found = None if self._draining else engine
        finally:
            if found is None:
                await self._let_go(claimed)
        return found

    async def _head(self, session_id: str) -> Head:
        reading = await self.store.read(session_id, Select())
        if reading is None:
            raise SessionNotFoundError(session_id)
        return reading.head

    async def _let_go(self, claimed: Claimed) -> None:
        try:
            await self.store.release(claimed.lease)
        except StoreError as error:  # the lease then runs out by itself
            log.warning("session %r was not given back: %s", claimed.lease.session_id, error)

    def _tell(self, result: RunResult) -> None:
        self.outcomes[result.status] += 1
        if self._on_outcome is not None:
            try:
                self._on_outcome(result)
            except Exception:
                log.exception("on_outcome failed for session %r", result.session_id)

    async def _put_aside(self, session_id: str, error: Exception) -> None:
        times = self._aside.put(
            session_id, await self._place(session_id), self.store.clock.monotonic()
        )
        if times == 1:
            log.error(
                "session %r is left alone for a while (first %.0f s, then longer): %s: %s",
                session_id,
                delay_s(times),
                type(error).__name__,
                error,
                exc_info=None if isinstance(error, RafError) else error,
            )
        if self._on_aside is not None:
            try:
                self._on_aside(session_id, error)
            except Exception:
                log.exception("on_aside failed for session %r", session_id)

    async def _place(self, session_id: str) -> object:
        """Where a session stands: what changes when it moves on, and not by a mere attempt."""
        try:
            summary = (await self._head(session_id)).summary
        except RafError:
            return None
        return summary.run_id, summary.step, summary.fingerprint

    async def _stop(self) -> None:
        """Stop what still runs, as a kill would, but give each session back."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _checked_queues(queues: Any) -> dict[str, int | None]:
    if not isinstance(queues, Mapping) or not queues:
        raise ConfigurationError(
            "queues maps at least one queue to its limit, such as {'default': None, 'nightly': 2}, "
            f"not {queues!r:.80}"
        )
    for name, limit in queues.items():
        check_queue(name)
        if limit is not None:
            check_count(f"the limit of queue {name!r}", limit)
    return dict(queues)


def _store_of(workflows: Any, store: Store | str | None) -> Store:
    if not isinstance(workflows, Sequence) or not workflows:
        raise ConfigurationError("a worker takes a list of at least one workflow")
    if store is not None:
        return open_store(store)
    stores = [each.manager.store for each in workflows if isinstance(each, WorkflowEngine)]
    if not stores:
        raise ConfigurationError("name the store that the worker asks")
    return stores[0]


def _engine_of(each: Workflow | WorkflowEngine, store: Store, lease_s: float) -> WorkflowEngine:
    if not isinstance(each, WorkflowEngine):
        return WorkflowEngine(each, store, lease_s=lease_s)
    if not each.manager.config.enabled or each.manager.store is not store:
        raise ConfigurationError(
            f"the engine of {each.workflow.name!r} works in another store than the worker, or in "
            "none: give both the same store object"
        )
    return each
