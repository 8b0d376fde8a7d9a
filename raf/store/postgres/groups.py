"""Writes of many sessions that go to the server together.

Rules of this file: whoever comes first sends at once; what comes meanwhile goes together with the
next round.  So a lone session waits for nobody, and many share a round trip and a sync of the disk.

Theory of operation.  One task sends group after group while anything waits.  A group holds at most
one write of a session; writes of a session go in the order in which they came.  When the server
refuses a group for what one write holds, each is sent alone; when it is away, all of them fail.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from raf.errors import StoreUnavailableError
from raf.store.postgres.writes import Write

W = TypeVar("W", bound=Write)

MOST_WRITES = 256
MOST_BYTES = 16 * 1024 * 1024


class Groups(Generic[W]):
    """A queue of writes and the task that sends them.

    Args:
        send: Sends a group and settles each of its writes; when it raises, none was settled.
    """

    def __init__(self, send: Callable[[Sequence[W]], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: list[W] = []
        self._task: asyncio.Task[None] | None = None

    def submit(self, write: W) -> asyncio.Future[None]:
        """Queue a write; the future tells how it went."""
        self._waiting.append(write)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())
        return write.done

    async def finish(self) -> None:
        """Wait until nothing is left."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        group: list[W] = []
        try:
            while self._waiting:
                group = self._take()
                await self._send_all(group)
        finally:
            self._task = None
            # Broken off from outside, nobody must wait for ever; else all of them are settled.
            for write in (*group, *self._waiting):
                write.done.cancel()
            self._waiting = []

    def _take(self) -> list[W]:
        group: list[W] = []
        later: list[W] = []
        sessions: set[str] = set()
        size = 0
        for write in self._waiting:
            fits = not group or (len(group) < MOST_WRITES and size + write.size <= MOST_BYTES)
            if fits and write.session_id not in sessions:
                group.append(write)
                size += write.size
            else:
                later.append(write)
            sessions.add(write.session_id)
        self._waiting = later
        return group

    async def _send_all(self, group: Sequence[W]) -> None:
        try:
            await self._send(group)
        except StoreUnavailableError as error:
            _fail(group, error)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked for the write
            if len(group) == 1:
                _fail(group, error)
                return
            for write in group:
                await self._send_all([write])


def _fail(group: Sequence[Write], error: Exception) -> None:
    for write in group:
        write.settle(error)
