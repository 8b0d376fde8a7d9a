"""Following a session's events: replay from the store, then live, without gap or double.

Rules of this file:
- The cursor is the number of the last event given.  An event is given when it is the next one; what
  is missing between is read from the store.
- Watching ends behind the outcome of the run that was open, once no event is left.
- A call that is followed is ended when its reader leaves, as a kill would.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Final

from raf.checkpoint.manager import CheckpointManager
from raf.engine.hub import Hub, Subscription, shown_event
from raf.errors import SessionNotFoundError
from raf.events import Event
from raf.store.model import Select
from raf.values.registry import TypeTable

POLL_S: Final = 0.1
RUNNING: Final = ("submitted", "running", "sleeping", "new")


class _Follower:
    """A cursor over one session."""

    def __init__(
        self,
        manager: CheckpointManager,
        types: TypeTable,
        session_id: str,
        subscription: Subscription,
    ) -> None:
        self._manager = manager
        self._types = types
        self._session_id = session_id
        self._subscription = subscription
        self.cursor = 0
        self.status = "new"

    async def from_store(self) -> AsyncIterator[Event]:
        """All stored events behind the cursor; none when there is no session."""
        while True:
            try:
                head, stored = await self._manager.events(self._session_id, after=self.cursor)
            except SessionNotFoundError:
                return
            for each in stored:
                self.cursor = each.number
                yield shown_event(self._session_id, each, self._types)
            if not stored or self.cursor >= head.events:
                self.status = head.summary.status
                return

    async def from_hub(self) -> AsyncIterator[Event]:
        """What the hub handed over, with gaps filled from the store."""
        waiting = self._subscription.take()
        while waiting:
            event = waiting.pop(0)
            if event.number is None:
                yield event
            elif event.number == self.cursor + 1:
                self.cursor = event.number
                yield event
            elif event.number > self.cursor:
                async for missed in self.from_store():
                    yield missed
                waiting = self._ahead(waiting)

    def _ahead(self, waiting: list[Event]) -> list[Event]:
        """What comes behind the cursor: live events from before it are stale by now."""
        passed = [
            i for i, event in enumerate(waiting) if event.number and event.number <= self.cursor
        ]
        return waiting[passed[-1] + 1 :] if passed else waiting


async def follow(
    manager: CheckpointManager,
    hub: Hub,
    session_id: str,
    *,
    types: TypeTable,
    after: int | None,
    call: Callable[[], Awaitable[Any]] | None,
) -> AsyncGenerator[Event, None]:
    """The events of a session; with a call, those of that call; see `WorkflowEngine.stream`."""
    subscription = hub.subscribe(session_id)
    follower = _Follower(manager, types, session_id, subscription)
    task: asyncio.Task[Any] | None = None
    try:
        known = await _place_cursor(manager, session_id, follower, after)
        if call is None and not known:
            raise SessionNotFoundError(session_id)
        if call is not None:
            task = asyncio.ensure_future(call())
            task.add_done_callback(lambda _: subscription.poke())
        if after is not None and known:
            async for event in follower.from_store():
                yield event
        async for event in _watch(follower, subscription, task, stored=manager.config.enabled):
            yield event
        if task is not None:
            await task
    finally:
        hub.leave(session_id, subscription)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _place_cursor(
    manager: CheckpointManager,
    session_id: str,
    follower: _Follower,
    after: int | None,
) -> bool:
    """Put the cursor before the first event that is wanted; False when there is no session yet."""
    follower.cursor = after or 0
    if not manager.config.enabled:
        return False
    reading = await manager.store.read(session_id, Select())
    if reading is None:
        return False
    follower.status = reading.head.summary.status
    if after is None:
        follower.cursor = reading.head.events
    return True


async def _watch(
    follower: _Follower,
    subscription: Subscription,
    task: asyncio.Task[Any] | None,
    *,
    stored: bool,
) -> AsyncIterator[Event]:
    while True:
        over = task.done() if task is not None else follower.status not in RUNNING
        async for event in follower.from_hub():
            yield event
        if over or (task is None and stored):
            async for event in follower.from_store() if stored else _nothing():
                yield event
            if over and (task is not None or follower.status not in RUNNING):
                return
        await subscription.wait(None if task is not None else POLL_S)


async def _nothing() -> AsyncIterator[Event]:
    """No events."""
    none: tuple[Event, ...] = ()
    for event in none:
        yield event
