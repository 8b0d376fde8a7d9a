"""What the tests of the engine share: ledgers, gates, small graphs, stores that fail on purpose.

The stores here are the memory store with one fault put in: a verified fake that breaks where the
test says.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from raf import CheckpointConfig, Event, Workflow, WorkflowBuilder, WorkflowEngine
from raf.checkpoint.codec import decode_journal
from raf.errors import StoreError
from raf.store.memory import MemoryStore
from raf.store.model import Claimed, Commit, Kind, Lease, Owner, Select
from raf.store.port import Store
from raf.testing import ManualClock

BACKENDS = ("memory", "sqlite", "file")


def url_of(backend: str, folder: Path) -> str:
    """The URL of a fresh store of this kind."""
    return {
        "memory": "memory:",
        "sqlite": f"sqlite:{folder / 'runs.db'}?synchronous=normal",
        "file": f"file:{folder / 'runs'}",
    }[backend]


class Ledger(Counter[str]):
    """A witness outside the engine that counts what really ran."""

    def note(self, what: str) -> int:
        """Count one call; returns how many there were."""
        self[what] += 1
        return self[what]


class Gate:
    """A place where a node stops until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def stop(self) -> None:
        """Say that the place is reached, and wait."""
        self.reached.set()
        await self.open.wait()


def line(name: str, nodes: Mapping[str, Callable[..., Any]], **options: Any) -> WorkflowBuilder:
    """A builder with these nodes one after the other; `options` go to every node."""
    builder = WorkflowBuilder(name)
    names = list(nodes)
    for node in names:
        builder.add_node(node, nodes[node], **options)
    for before, after in pairwise(names):
        builder.add_edge(before, after)
    return builder.set_start(names[0])


def fan(
    name: str,
    start: Callable[..., Any],
    workers: Mapping[str, Callable[..., Any]],
    end: Callable[..., Any],
    **options: Any,
) -> WorkflowBuilder:
    """A builder: `start` to all workers side by side, a barrier, `end`; options go to workers."""
    builder = WorkflowBuilder(name).add_node("start", start).add_node("end", end)
    for worker, handler in workers.items():
        builder.add_node(worker, handler, **options)
    builder.add_fan_out("start", workers).add_fan_in(list(workers), "end")
    return builder.set_start("start")


async def passes(value: int) -> int:
    """A node that gives what it gets."""
    return value


async def collects(values: list[int]) -> list[int]:
    """A node behind a barrier that gives what it gets."""
    return list(values)


async def adds_one(value: int) -> int:
    """A node that counts on."""
    return value + 1


@asynccontextmanager
async def running(
    workflow: Workflow, store: Store | str = "memory:", **options: Any
) -> AsyncIterator[WorkflowEngine]:
    """An opened engine."""
    async with WorkflowEngine(workflow, store=store, **options) as engine:
        yield engine


def small_chains(interval: int = 4, most: int = 1000) -> CheckpointConfig:
    """Settings under which chains are short."""
    return CheckpointConfig(full_snapshot_interval=interval, max_checkpoints=most)


async def events_of(engine: WorkflowEngine, session_id: str, after: int = 0) -> list[Event]:
    """The durable events of a session at rest."""
    stream = engine.stream(session_id=session_id, after=after)
    return [event async for event in stream if event.durable]


def kinds(events: Sequence[Event]) -> list[str]:
    """What happened, in order."""
    return [event.kind for event in events]


def logical(events: Sequence[Event]) -> list[tuple[Any, ...]]:
    """The events that a resumed run repeats exactly, without their numbers and times."""
    return [(e.kind, e.step, e.node, e.message, dict(e.data), e.value) for e in events if e.logical]


async def journal_of(store: Store, session_id: str) -> list[list[Any]]:
    """The entries of the open step's journal."""
    reading = await store.read(session_id, Select(journal=True))
    assert reading is not None
    return [
        decode_journal(record.body, session_id, "journal")
        for record in reading.journal
        if record.info.kind is Kind.JOURNAL
    ]


async def kill(task: "asyncio.Task[Any]") -> None:
    """Stop a run in mid-step, as leaving the process would, and wait until it is gone."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def settle() -> None:
    """Let other tasks run for a while."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until(holds: Callable[[], bool]) -> None:
    """Return when the condition holds; the test's own timeout ends a wait in vain."""
    while not holds():  # noqa: ASYNC110 - what is waited for has no event of its own
        await asyncio.sleep(0.001)


class VanishingStore(MemoryStore):
    """Owners vanish: a lease is never given back, so the next claim takes over a dead owner's.

    `claim` first lets the old lease run out.
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.manual = clock

    async def claim(
        self, session_id: str, owner: Owner, *, lease_s: float, create: bool = False
    ) -> Claimed:
        self.manual.advance(lease_s + 1)
        return await super().claim(session_id, owner, lease_s=lease_s, create=create)

    async def release(self, lease: Lease) -> None:
        del lease


class BrokenStore(MemoryStore):
    """Fails the n-th write of a kind (`commit`, `append`, …), before or after it is done.

    Args:
        what: The operation.
        number: Which call of it fails, from 1.
        error: What it raises.
        after: Whether the write is done all the same.
        for_good: Whether all later ones fail too.
    """

    def __init__(
        self,
        what: str,
        number: int,
        error: StoreError,
        *,
        after: bool = False,
        for_good: bool = False,
        clock: ManualClock | None = None,
    ) -> None:
        super().__init__(clock=clock)
        self.calls: Counter[str] = Counter()
        self._what, self._number, self._error = what, number, error
        self._after, self._for_good = after, for_good

    def _fails(self, what: str) -> bool:
        self.calls[what] += 1
        if what != self._what:
            return False
        now = self.calls[what]
        return now == self._number or (self._for_good and now > self._number)

    async def commit(self, lease: Lease, commit: Commit) -> None:
        fails = self._fails("commit")
        if fails and not self._after:
            raise self._error
        await super().commit(lease, commit)
        if fails:
            raise self._error

    async def append(self, lease: Lease, bodies: Sequence[bytes]) -> None:
        fails = self._fails("append")
        if fails and not self._after:
            raise self._error
        await super().append(lease, bodies)
        if fails:
            raise self._error

    async def prune(
        self, lease: Lease, bodies: Sequence[int], *, events_before: int | None = None
    ) -> None:
        if self._fails("prune"):
            raise self._error
        await super().prune(lease, bodies, events_before=events_before)

    async def release(self, lease: Lease) -> None:
        if self._fails("release"):
            raise self._error
        await super().release(lease)


class SlowStore(MemoryStore):
    """Each commit and append from the n-th on waits at a gate."""

    def __init__(self, what: str, number: int = 1) -> None:
        super().__init__()
        self.gate = Gate()
        self.log: list[str] = []
        self._what, self._number, self._calls = what, number, 0

    async def _wait(self, what: str) -> None:
        if what == self._what:
            self._calls += 1
            if self._calls == self._number:
                await self.gate.stop()

    async def commit(self, lease: Lease, commit: Commit) -> None:
        await self._wait("commit")
        await super().commit(lease, commit)
        self.log.append(f"commit {commit.commit}")

    async def append(self, lease: Lease, bodies: Sequence[bytes]) -> None:
        await self._wait("append")
        await super().append(lease, bodies)
        self.log.append("append")
