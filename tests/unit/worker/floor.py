"""What the tests of the worker share: a worker beside the test, and looks at its store."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from raf import Worker
from raf.store.memory import MemoryStore
from raf.store.model import Head
from raf.testing import ManualClock
from tests.unit.engine.stage import adds_one, line

QUICK: dict[str, Any] = {"poll_s": 0.02}
TWO_STEPS = line("w", {"a": adds_one, "b": adds_one}).build()


@asynccontextmanager
async def at_work(worker: Worker) -> AsyncIterator[Worker]:
    """A worker that works beside the test, and is drained at its end."""
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        await worker.drain()
        await task


async def heads(store: MemoryStore) -> dict[str, Head]:
    return {head.session_id: head for head in await store.scan(limit=100_000)}


async def statuses(store: MemoryStore) -> dict[str, str]:
    return {name: head.summary.status for name, head in (await heads(store)).items()}


async def held(store: MemoryStore) -> list[str]:
    return [name for name, head in (await heads(store)).items() if head.held is not None]


async def stand(store: MemoryStore, *expected: str) -> None:
    """Return when the sessions stand so, by their ids."""
    while list((await statuses(store)).values()) != list(expected):  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.002)


async def time_passes(clock: ManualClock, holds: Callable[[], bool]) -> None:
    """Let the clock run, a little at a time, until the condition holds."""
    while not holds():
        clock.advance(0.01)
        await asyncio.sleep(0.001)
