"""What is due: the pure rule, what an embedded store pays for it, and several processes at once."""

import asyncio
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from raf.clock import SystemClock
from raf.errors import StoreBusyError
from raf.store.due import Places, choose, order
from raf.store.file import FileStore, place
from raf.store.model import Due, Head, Summary
from raf.store.order import new_head
from raf.store.owner import LeaseWatch
from raf.store.port import Store
from raf.store.sqlite import SqliteStore, schema
from raf.store.sqlite.due import ClaimDueWrite
from raf.store.urls import open_store
from raf.testing import CrashError, ManualClock, crash_at
from raf.testing.store_suite.base import LEASE_S, claim, head_of, live_owner, new_session
from raf.testing.store_suite.due import OURS, left, names, ours, take
from tests.unit.store.held_writer import connection_of

ROOT = Path(__file__).parents[3]
WORKER = Path(__file__).with_name("due_worker.py")
STORES = {"file": "file:{}/place", "sqlite": "sqlite:{}/runs.db"}
SESSIONS, PLACES, WORKERS = 12, 5, 3


def head(name: str, *, since: float = 0.0, queue: str = "default", commit: int = 0) -> Head:
    summary = Summary(fingerprint=OURS, status="running", queue=queue)
    return replace(new_head(name, "n", since), commit=commit, summary=summary)


def test_the_longest_due_come_first() -> None:
    """By time, then by id in code point order."""
    heads = [head("b"), head("c", since=-1.0), head("a"), head("A")]
    assert [h.session_id for h in sorted(heads, key=order)] == ["c", "A", "a", "b"]


def test_places_of_a_queue() -> None:
    """Each queue has its own; one that is not served has none, one without a limit always some."""
    places = Places(Due(fingerprints=frozenset(), queues={"a": 2, "b": None, "c": 0}), ["a", "b"])
    assert [places.free(queue) for queue in "abcd"] == [True, True, False, False]
    for queue in "ab":
        places.take(queue)
    assert [places.free(queue) for queue in "abcd"] == [False, True, False, False]


def test_what_has_no_place_is_not_chosen() -> None:
    """A full queue's sessions and sessions that are not due are left out."""
    due = ours(queues={"a": 1, "b": 1})
    heads = [head("full", queue="a"), head("new", queue="b", commit=-1), head("due", queue="b")]
    chosen = choose(heads, due, 0.0, Places(due, ["a"]))
    assert [h.session_id for h in chosen] == ["due"]


# -- the index of a SQLite file ------------------------------------------------------------------


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def work(store: SqliteStore, due: Due) -> int:
    """How many steps the database takes to find what is due; nothing is claimed."""
    steps: list[None] = []
    write = ClaimDueWrite(
        live_owner(store.clock),
        due,
        lease_s=LEASE_S,
        limit=1,
        clock=store.clock,
        watch=LeaseWatch(store.clock),
    )
    with closing(schema.open_for_reading(store.path)) as connection:
        connection.set_progress_handler(lambda: steps.append(None), 1)
        assert write.run(connection) == []
    return len(steps)


async def test_what_does_not_want_to_run_costs_nothing(tmp_path: Path, clock: ManualClock) -> None:
    """However many finished, far, held and full ones there are, a look costs the same."""
    async with SqliteStore(tmp_path / "runs.db", synchronous="normal", clock=clock) as store:
        pen = await new_session(store, "held")
        await pen.write(summary=Summary(fingerprint=OURS, status="running", queue="full"))
        seen = set()
        for many in range(1, 4):
            for n in range(many * 10):
                await left(store, f"{many} {n} finished", status="completed")
                await left(store, f"{many} {n} far", status="sleeping", wake_at=clock.now() + 1e6)
                await left(store, f"{many} {n} failed", status="failed")
                await left(store, f"{many} {n} full", status="submitted", queue="full")
            seen.add(await work(store, ours(queues={"default": 5, "full": 1})))
        assert len(seen) == 1


async def test_a_backlog_is_not_read_whole(tmp_path: Path, clock: ManualClock) -> None:
    """What is taken of many submitted or sleeping ones costs what is taken."""
    async with SqliteStore(tmp_path / "runs.db", synchronous="normal", clock=clock) as store:
        spent: list[int] = []
        for many in (20, 60):
            for n in range(many):
                await left(store, f"{many} {n}", status="submitted")
                await left(store, f"{many} {n} t", status="sleeping", wake_at=clock.now() - 1.0)
            steps: list[None] = []
            count = partial(steps.append, None)
            connection_of(store).set_progress_handler(count, 1)
            (claimed,) = await take(store, limit=1)
            spent.append(len(steps))
            await store.release(claimed.lease)
        assert spent[1] < 2 * spent[0]


async def test_a_file_from_before_gets_its_indices(tmp_path: Path, clock: ManualClock) -> None:
    """Opened again, a file that lacks them has them, and its sessions are found."""
    path = tmp_path / "runs.db"
    async with SqliteStore(path, clock=clock) as store:
        await left(store, "s")
        for name in schema.INDICES:
            connection_of(store).execute(f"DROP INDEX {name}")
    async with SqliteStore(path, clock=clock) as store:
        assert names(await take(store, ours(queues={"default": 1}))) == ["s"]


@pytest.mark.parametrize("summary", ["[", "{}", "5", "[5]", ""])
async def test_damage_is_passed_over(tmp_path: Path, clock: ManualClock, summary: str) -> None:
    """A row that cannot be read neither ends the search nor is claimed."""
    async with SqliteStore(tmp_path / "runs.db", clock=clock) as store:
        for name in "abc":
            await left(store, name)
        connection_of(store).execute(f"UPDATE sessions SET summary = '{summary}' WHERE id = 'b'")
        assert names(await take(store, ours(queues={"default": 9}))) == ["a", "c"]


@pytest.mark.parametrize("wake_at", [float("nan"), float("inf"), -5.0])
async def test_times_that_are_none(tmp_path: Path, clock: ManualClock, wake_at: float) -> None:
    """What JSON cannot hold hides no session that was asked something."""
    async with SqliteStore(tmp_path / "runs.db", clock=clock) as store:
        await left(store, "s", status="waiting", wake_at=wake_at)
        assert names(await take(store)) == (["s"] if wake_at < 0 else [])
        await store.request("s", "r", "signal", b"")
        clock.advance(LEASE_S + 1)
        assert names(await take(store)) == ["s"]


async def test_a_call_that_fails_leaves_nothing(tmp_path: Path, clock: ManualClock) -> None:
    """All of its claims are one transaction."""
    async with SqliteStore(tmp_path / "runs.db", clock=clock) as store:
        heads = [(await left(store, name)).lease.epoch for name in "ab"]
        with crash_at("store.sqlite.claim_due.before", how="raise"), pytest.raises(CrashError):
            await take(store)
        assert [(await head_of(store, name)).epoch for name in "ab"] == heads
        assert names(await take(store)) == ["a", "b"]


# -- the lock of a file store --------------------------------------------------------------------


async def test_a_stopped_worker_is_told_of(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another looks and does not come back, a call ends with an error; claims go on."""
    monkeypatch.setattr(place, "_PATIENCE", 3)
    async with FileStore(tmp_path, clock=clock) as store:
        await left(store, "s")
        with store._place.one_at_a_time():
            with pytest.raises(StoreBusyError):
                await take(store)
            await store.release(await claim(store))
        assert names(await take(store)) == ["s"]


async def test_what_was_taken_before_an_error_is_given_back(
    tmp_path: Path, clock: ManualClock
) -> None:
    """A call that fails midway holds nothing."""
    async with FileStore(tmp_path, clock=clock) as store:
        for name in "abc":
            await left(store, name)
        point = crash_at("store.file.claim.put.before", hit=3, how="raise")
        with point, pytest.raises(CrashError):
            await take(store)
        again = await take(store)
        assert names(again) == ["a", "b", "c"]
        assert not any(claimed.took_over for claimed in again)


# -- processes -----------------------------------------------------------------------------------


def start(url: str, *, dies: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), url, str(PLACES), "dies" if dies else "waits"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


async def held(store: Store) -> list[str]:
    return [head.session_id for head in await store.scan() if head.held is not None]


@pytest.mark.parametrize("backend", STORES)
async def test_a_limit_holds_across_processes(backend: str, tmp_path: Path) -> None:
    """Workers of several processes share a queue's places; what dead ones held is free at once."""
    url = STORES[backend].format(tmp_path)
    async with open_store(url, clock=SystemClock()) as store:
        for turn in range(SESSIONS):
            await left(store, f"s{turn:02}")
        dead = start(url, dies=True)
        told = await asyncio.to_thread(dead.communicate)
        assert told[0] == f"{PLACES}\n"
        assert len(await held(store)) == PLACES
        workers = [start(url) for _ in range(WORKERS)]
        try:
            got = [await asyncio.to_thread(worker.stdout.readline) for worker in workers]  # type: ignore[union-attr]
            assert sum(map(int, got)) == PLACES
            assert len(await held(store)) == PLACES
            assert await take(store, ours(queues={"default": PLACES})) == []
        finally:
            for worker in workers:
                await asyncio.to_thread(worker.communicate)
