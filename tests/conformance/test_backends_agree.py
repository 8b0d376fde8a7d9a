"""The same operations on two backends give the same answers, errors and readings."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raf.clock import Clock
from raf.errors import RafError
from raf.store.file import FileStore
from raf.store.memory import MemoryStore
from raf.store.model import Due, Lease, Reading, Select, Summary
from raf.store.port import Store
from raf.store.sqlite import SqliteStore
from raf.testing import ManualClock
from raf.testing.store_suite.adopting import SHAPES, everything_read, exported
from raf.testing.store_suite.base import EVERYTHING, Pen, live_owner

NAMES = st.sampled_from(["a", "b"])
NOW = ManualClock().now()
TIMES = (-0.1, 0.0, 0.1, 30.0, 50.0)
SMALL = st.integers(min_value=0, max_value=8)
SUMMARIES = st.builds(
    Summary,
    status=st.sampled_from(["running", "submitted", "sleeping", "waiting", "failed", "completed"]),
    wake_at=st.none() | st.sampled_from([float("inf"), 0.0, *(NOW + n for n in TIMES)]),
    queue=st.sampled_from(["default", "slow"]),
)
STEPS = st.one_of(
    st.tuples(st.just("claim"), NAMES, st.booleans()),
    st.tuples(st.just("release"), NAMES),
    st.tuples(st.just("renew"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("pass"), st.sampled_from([1, 40])),
    st.tuples(st.just("request"), NAMES, st.sampled_from(["r1", "r2", "r3"])),
    st.tuples(st.just("due"), st.sampled_from([1, 9]), st.none() | st.integers(0, 2)),
    st.tuples(st.just("export"), NAMES),
    st.tuples(st.just("adopt"), NAMES),
    st.tuples(st.just("append"), NAMES, st.integers(min_value=0, max_value=2)),
    st.tuples(st.just("prune"), NAMES, st.lists(SMALL, max_size=4), st.none() | SMALL),
    *(
        st.tuples(
            st.just("commit"),
            NAMES,
            st.fixed_dictionaries(
                {"full": st.booleans(), "ends_journal": st.booleans(), "events": st.just(events)},
                optional={
                    "run_id": st.sampled_from(["main", "other"]),
                    "consumed": st.integers(min_value=0, max_value=2),
                    "commit": st.integers(min_value=0, max_value=3),
                    "summary": SUMMARIES,
                },
            ),
        )
        for events in (0, 1, 3)
    ),
)


class Player:
    """Plays a sequence of operations on one store and notes what it answered."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.leases: dict[str, Lease] = {}
        self.exports: dict[str, Reading] = {}
        self.notes: list[object] = []
        self.owner = live_owner(clock)

    async def play(self, step: tuple[Any, ...]) -> None:
        try:
            self.notes.append(await self._do(*step))
        except RafError as error:
            self.notes.append(repr(error))
        for name in ("a", "b"):
            self.notes.append(await self.store.read(name, EVERYTHING))
            for at in range(5):
                self.notes.append(await self.store.read(name, Select(chain=True, at=at)))
            self.notes.append(await self.store.read(name, Select(events_after=3, run="main")))
        self.notes.append(await self.store.scan())

    async def _do(self, op: str, name: Any, *rest: Any) -> object:
        if op == "pass":
            self.clock.advance(name)
            return None
        if op == "due":
            return await self._claim_due(name, *rest)
        if op == "request":
            return await self.store.request(name, rest[0], "signal", b"x")
        if op == "claim":
            claimed = await self.store.claim(name, self.owner, lease_s=30, create=rest[0])
            self.leases[name] = claimed.lease
            return replace(claimed)
        if op in ("export", "adopt"):
            return await self._move(op, name)
        lease = self.leases.get(name)
        return None if lease is None else await self._write(op, lease, *rest)

    async def _claim_due(self, limit: int, places: int | None) -> object:
        due = Due(fingerprints=frozenset([""]), queues={"default": places, "slow": None})
        claims = await self.store.claim_due(self.owner, due, lease_s=30, limit=limit)
        self.leases |= {claimed.lease.session_id: claimed.lease for claimed in claims}
        return [replace(claimed) for claimed in claims]

    async def _move(self, op: str, name: str) -> object:
        if op == "adopt" and name in self.exports:
            await self.store.adopt(self.exports[name])
        elif reading := await self.store.read(name, Select(log=True, inbox=True)):
            self.exports[name] = reading
        return self.exports.get(name)

    async def _write(self, op: str, lease: Lease, *rest: Any) -> object:
        if op == "renew":
            return [await self.store.renew([lease]), lease.expires_boot]
        if op == "append":
            await self.store.append(lease, [b"j"] * rest[0])
        elif op == "prune":
            await self.store.prune(lease, rest[0], events_before=rest[1])
        elif op == "commit":
            reading = await self.store.read(lease.session_id, Select())
            draft = Pen(self.store, lease, reading.head if reading else None).draft(**rest[0])
            await self.store.commit(lease, draft)
        else:
            await (self.store.release if op == "release" else self.store.delete)(lease)
        return None


async def play_both(steps: list[tuple[Any, ...]], path: Path) -> tuple[list[object], list[object]]:
    notes = []
    token = live_owner(ManualClock())
    for make in (
        lambda clock: MemoryStore(clock=clock),
        lambda clock: SqliteStore(path, synchronous="normal", clock=clock),
    ):
        clock = ManualClock()
        async with make(clock) as store:
            player = Player(store, clock)
            player.owner = token
            for step in steps:
                await player.play(step)
            notes.append(player.notes)
    return notes[0], notes[1]


@given(st.lists(STEPS, max_size=40).map(lambda steps: [("claim", "a", True), *steps]))
def test_memory_and_sqlite_agree(steps: list[tuple[Any, ...]]) -> None:
    """Whatever is done in whatever order, no difference can be seen, not even in positions."""
    with tempfile.TemporaryDirectory() as folder:
        one, two = asyncio.run(play_both(steps, Path(folder) / "runs.db"))
    for left, right in zip(one, two, strict=True):
        assert left == right


BACKENDS: dict[str, Callable[[Path, Clock], Store]] = {
    "memory": lambda _, clock: MemoryStore(clock=clock),
    "sqlite": lambda path, clock: SqliteStore(path, synchronous="normal", clock=clock),
    "file": lambda path, clock: FileStore(path, clock=clock),
}


@pytest.mark.parametrize("target", BACKENDS)
@pytest.mark.parametrize("source", BACKENDS)
async def test_sessions_move_between_backends(source: str, target: str, tmp_path: Path) -> None:
    """There and back, a session reads as where it began, whatever pruning left of it."""
    for turn, grow in enumerate(SHAPES[::3]):
        clock = ManualClock()
        async with (
            BACKENDS[source](tmp_path / f"{turn}-source", clock) as first,
            BACKENDS[target](tmp_path / f"{turn}-target", clock) as second,
            BACKENDS[source](tmp_path / f"{turn}-back", clock) as third,
        ):
            await grow(first)
            expected = await everything_read(first)
            await second.adopt(await exported(first))
            assert await everything_read(second) == expected
            await third.adopt(await exported(second))
            assert await everything_read(third) == expected
