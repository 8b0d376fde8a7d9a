"""The one way from a running session to its store: commits and journal records, in order.

Rules of this file:
- Everything durable that a run writes passes here, one write at a time; journal records that wait
  at the same moment go in one write.
- "sync": a commit is durable before the next step.  "async": one commit is in flight while the next
  step runs.  "exit": steps are gathered into one delta, written at outcomes and before effects; the
  journal then holds effects only.
- Before an effect runs, all earlier commits are durable.
- Events are shown after the commit that holds them.
- After a failed write nothing more is written: the session stands at its last commit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from raf.checkpoint.delta import Op
from raf.checkpoint.writer import PLAINLY, Committed, How, Writer
from raf.errors import CommitError, RafError, StoreUnavailableError
from raf.events import Happening

Durability: TypeAlias = Literal["sync", "async", "exit"]


class Commits:
    """The writes of one run."""

    def __init__(
        self,
        writer: Writer,
        durability: Durability,
        show: Callable[[Committed], None],
        now: Callable[[], Awaitable[float]],
    ) -> None:
        self.writer = writer
        self.now = now
        self.durability = durability
        self._show = show
        self._ops: list[Op] = []
        self._happenings: list[Happening] = []
        self._gathered_at: float | None = None
        self._in_flight: asyncio.Task[None] | None = None
        self._queue: list[Sequence[Any]] = []
        self._queued = 0
        self._recorded = 0
        self._writing = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._broken: RafError | None = None

    @property
    def journals_results(self) -> bool:
        """Whether finished nodes of a long step are journaled."""
        return self.durability != "exit"

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken

    async def step(self, ops: Sequence[Op], happenings: Sequence[Happening]) -> None:
        """Commit a step that the run goes on from, as the durability says."""
        self._check()
        if self.durability == "exit":
            self.writer.merge(ops, await self._moment())
            self._ops += ops
            self._happenings += happenings
            return
        at = await self.now()
        await self._settle()
        write = self._commit(ops, happenings, at, PLAINLY)
        if self.durability == "sync":
            await write
        else:
            self._in_flight = asyncio.ensure_future(write)

    async def outcome(
        self, ops: Sequence[Op], happenings: Sequence[Happening], how: How = PLAINLY
    ) -> None:
        """Commit and wait until all of it is durable; `how` says what else it does."""
        self._check()
        await self._settle()
        at = await (self.now() if how.finished else self._moment())
        if self.durability == "exit":
            self.writer.merge(ops, at)
            if self._ops:  # nothing of the last step is journaled: an effect would have flushed
                how = replace(how, ends_journal=True)
            await self._flush_gathered(
                [*self._ops, *ops], [*self._happenings, *happenings], at, how
            )
        else:
            await self._commit(ops, happenings, at, how)

    async def flush(self) -> None:
        """Return when every commit so far is durable."""
        self._check()
        await self._settle_commit()
        if self.durability == "exit":
            await asyncio.shield(self._begin(self._flush()))

    async def _flush(self) -> None:
        # Whoever comes while another flushes waits for the lock, and so for that commit.
        async with self._writing:
            if self._ops:
                at = await self._moment()
                await self._guarded(self._write_gathered(self._ops, self._happenings, at, PLAINLY))
        self._check()

    async def _moment(self) -> float:
        """The time of the next commit: steps gathered for it share it, as they will when restored."""
        if self.durability != "exit":
            return await self.now()
        if self._gathered_at is None:
            self._gathered_at = await self.now()
        return self._gathered_at

    async def _flush_gathered(
        self,
        ops: list[Op],
        happenings: list[Happening],
        at: float,
        how: How,
    ) -> None:
        async with self._writing:
            await self._guarded(self._write_gathered(ops, happenings, at, how))

    async def _write_gathered(
        self, ops: list[Op], happenings: list[Happening], at: float, how: How
    ) -> None:
        self._ops, self._happenings, self._gathered_at = [], [], None
        prepared = self.writer.prepare(ops, happenings, at, how)
        self._show(await self.writer.write(prepared))

    def _commit(
        self, ops: Sequence[Op], happenings: Sequence[Happening], at: float, how: How
    ) -> Coroutine[Any, Any, None]:
        self.writer.merge(ops, at)
        record = self.writer.prepare(ops, happenings, at, how)

        async def write() -> None:
            async with self._writing:
                self._show(await self.writer.write(record))

        async def guarded() -> None:
            # Begun here, so that a task that is cancelled before it starts leaves nothing behind.
            await self._guarded(write())

        return guarded()

    async def _guarded(self, write: Coroutine[Any, Any, None]) -> None:
        try:
            await write
        except RafError as error:
            self._broken = error
            raise
        except Exception as error:
            # A store may raise what its port does not name: those who wait must not take it for done.
            why = f"it raised {type(error).__name__}: {error}"
            self._broken = StoreUnavailableError("of this session", why)
            raise

    # -- journal -----------------------------------------------------------------------------

    async def record(self, entry: Sequence[Any]) -> None:
        """Write a journal record; durable on return."""
        self._check()
        # Whoever waits may be cancelled; the records of others go in the same write.
        await asyncio.shield(self._begin(self._written(self._enqueue(entry))))

    def record_soon(self, entry: Sequence[Any]) -> None:
        """Write a journal record in the background; the next commit waits for it."""
        if self._broken is None:  # else the next commit tells
            self._begin(self._written(self._enqueue(entry)))

    def _enqueue(self, entry: Sequence[Any]) -> int:
        self._queue.append(entry)
        self._queued += 1
        return self._queued

    async def _written(self, number: int) -> None:
        """Return when so many entries are durable; those that wait go in one write."""
        async with self._writing:
            if self._recorded < number:
                batch, self._queue = self._queue, []
                self._recorded = self._queued
                await self._guarded(self.writer.append(batch))
        self._check()

    def _begin(self, write: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a write that ends although its caller may be cancelled."""
        task = asyncio.ensure_future(write)
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        # A failure stays, for the next commit to tell.
        if not task.cancelled() and task.exception() is None:
            self._background.discard(task)

    async def _settle_commit(self) -> None:
        # It stays known until it is durable: others wait for it at the same time.
        if (task := self._in_flight) is not None:
            await asyncio.shield(task)
            if self._in_flight is task:
                self._in_flight = None

    async def _settle(self) -> None:
        """Wait for what is in flight; its errors surface here."""
        await self._settle_commit()
        while self._background:
            task = next(iter(self._background))
            try:
                await asyncio.shield(task)
            finally:
                if task.done():
                    self._background.discard(task)

    async def settle(self) -> None:
        """Return when nothing is in flight any more; used before the lease is given back."""
        await self._settle()

    def abandon(self, session_id: str) -> None:
        """Write no more, as a kill would: what is in flight is left to the store."""
        if self._broken is None:
            self._broken = CommitError(session_id, self.writer.snapshot.step, "the run was stopped")
        for task in [*self._background, *([self._in_flight] if self._in_flight else [])]:
            task.cancel()
        self._background.clear()
        self._in_flight = None
