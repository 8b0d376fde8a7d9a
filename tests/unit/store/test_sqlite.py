"""What is particular to the SQLite store: files, groups, cancellation, threads and loops."""

import asyncio
import os
import sqlite3
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from raf.errors import (
    CommitOrderError,
    ConfigurationError,
    FormatVersionError,
    LeaseLostError,
    StoreBusyError,
    StoreClosedError,
    StoreUnavailableError,
)
from raf.store.model import Lease, Select
from raf.store.owner import this_owner
from raf.store.sqlite import SqliteStore, reads
from raf.store.sqlite import writer as writing
from raf.store.sqlite.schema import open_for_reading
from raf.store.sqlite.writes import Write
from raf.testing import ManualClock, count_failpoints
from raf.testing.store_suite.base import (
    LEASE_S,
    Pen,
    bodies,
    claim,
    head_of,
    live_owner,
    must_read,
    new_session,
)
from tests.unit.store.held_writer import Held, connection_of

NOBODY = 65534


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "runs.db", clock=ManualClock()) as store:
        yield store


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def set_mode(path: Path, mode: int) -> None:
    path.chmod(mode)


# -- files -------------------------------------------------------------------------------------


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write anywhere: be somebody else meanwhile."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    "content",
    [b"hello", b"\x89PNG" + bytes(range(256)) * 64, b"SQLite format 3\x00" + b"x" * 5000],
    ids=["short", "picture", "forged"],
)
async def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    """It is refused by name and not one byte of it changes."""
    path = tmp_path / "runs.db"
    path.write_bytes(content)
    with pytest.raises(StoreUnavailableError, match=r"runs\.db.*not touched"):
        await SqliteStore(path).open()
    assert path.read_bytes() == content
    assert names(tmp_path) == [path.name]


async def test_another_programs_database(tmp_path: Path) -> None:
    """A SQLite file with foreign tables, or another application's mark, is left alone."""
    path = tmp_path / "runs.db"
    for statement in ("CREATE TABLE theirs (a)", "PRAGMA application_id = 42"):
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as connection:
            connection.execute(statement)
            connection.execute("PRAGMA user_version = 3")
        connection.close()
        before = path.read_bytes()
        with pytest.raises(StoreUnavailableError, match="another program"):
            await SqliteStore(path).open()
        assert path.read_bytes() == before


async def test_a_newer_format(tmp_path: Path) -> None:
    """A file of a newer version is refused with both numbers, and kept."""
    path = tmp_path / "runs.db"
    async with SqliteStore(path) as store:
        await new_session(store, commits=1)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(FormatVersionError) as caught:
        await SqliteStore(path).open()
    assert (caught.value.found, caught.value.known) == (99, 1)
    assert path.read_bytes() == before


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """A file that was made and never filled (a crash at the first start) is new."""
    path = tmp_path / "runs.db"
    path.touch()
    async with SqliteStore(path) as store:
        await new_session(store, commits=1)


async def test_where_no_file_can_be(tmp_path: Path) -> None:
    """A missing folder and a folder in the place of the file are named."""
    with pytest.raises(StoreUnavailableError, match="missing does not exist"):
        await SqliteStore(tmp_path / "missing" / "runs.db").open()
    with pytest.raises(StoreUnavailableError, match="is a folder"):
        await SqliteStore(tmp_path).open()
    assert names(tmp_path) == []


@pytest.mark.parametrize("read_only", ["folder", "file", "missing file"])
async def test_what_may_not_be_written(read_only: str) -> None:
    """A read-only folder or file is an error at `open`, and nothing changes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        if read_only != "missing file":
            async with SqliteStore(path) as store:
                await new_session(store, commits=1)
            set_mode(path, 0o444)
        set_mode(Path(folder), 0o777 if read_only == "file" else 0o555)
        with without_privileges(), pytest.raises(StoreUnavailableError):
            await SqliteStore(path).open()
        set_mode(Path(folder), 0o755)


@pytest.mark.parametrize("path", ["", ".", ":memory:"])
def test_a_path_is_needed(path: str) -> None:
    """A store that would vanish is not a file store."""
    with pytest.raises(ConfigurationError):
        SqliteStore(path)


def test_settings_are_checked() -> None:
    """An unknown setting is refused when the store is made."""
    with pytest.raises(ConfigurationError, match="full or normal"):
        SqliteStore("x.db", synchronous="off")  # type: ignore[arg-type]


@pytest.mark.parametrize(("synchronous", "level"), [("full", 2), ("normal", 1)])
async def test_how_the_file_is_used(tmp_path: Path, synchronous: str, level: int) -> None:
    """The log is written ahead, and the writer syncs as asked."""
    store = SqliteStore(tmp_path / "runs.db", synchronous=synchronous)  # type: ignore[arg-type]
    async with store:
        connection = connection_of(store)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (level,)


async def test_odd_file_names(tmp_path: Path) -> None:
    """Names that mean something in a URL are names here."""
    path = tmp_path / "a?b=c#d %41.db"
    async with SqliteStore(path) as store:
        await new_session(store, commits=1)
        assert bodies(await must_read(store)) == [b"body 0"]
    assert names(tmp_path) == [path.name]


# -- groups ------------------------------------------------------------------------------------


async def test_one_commit_for_all_that_wait(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty steps that wait together share one COMMIT and one wake-up; a stale one fails alone."""
    pens = [await new_session(store, f"s{n}", commits=1) for n in range(20)]
    store.clock.advance(LEASE_S + 1)  # type: ignore[attr-defined]
    await claim(store, "s7", owner=live_owner(store.clock, "rival"))
    await new_session(store, "first")
    statements: list[str] = []
    wakes: list[int] = []
    settle = writing._settle

    def woken(writes: Sequence[Write[Any]]) -> None:
        wakes.append(len(writes))
        settle(writes)

    monkeypatch.setattr(writing, "_settle", woken)
    connection_of(store).set_trace_callback(statements.append)
    with Held() as held:
        first = asyncio.create_task(store.request("first", "r", "signal", b""))
        await held.reached()
        tasks = [asyncio.create_task(store.commit(pen.lease, pen.draft())) for pen in pens]
        await asyncio.sleep(0)
        held.let_go()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    await first
    assert statements.count("COMMIT") == 2
    assert wakes == [1, 20]
    assert isinstance(answers.pop(7), LeaseLostError)
    assert answers == [None] * 19
    assert [(await head_of(store, f"s{n}")).commit for n in range(20)] == [
        0 if n == 7 else 1 for n in range(20)
    ]


async def test_each_of_a_group_passes_its_points(store: SqliteStore) -> None:
    """A group passes the points of every member that is written, before and after."""
    pens = [await new_session(store, f"s{n}", commits=1) for n in range(3)]
    with count_failpoints() as seen, pytest.raises(CommitOrderError):
        await asyncio.gather(
            *(store.commit(pen.lease, pen.draft()) for pen in pens[:2]),
            store.append(pens[0].lease, [b"x"]),
            store.request("s0", "r", "signal", b""),
            store.commit(pens[2].lease, pens[2].draft(commit=9)),
        )
    await store.scan()
    assert {name: count for name, count in seen.items() if "group" not in name and count} == {
        f"store.sqlite.{op}.{end}": count
        for op, count in (("commit", 2), ("append", 1), ("request", 1))
        for end in ("before", "after")
    }


async def test_a_step_is_two_rows(store: SqliteStore) -> None:
    """A step updates the head and inserts one record; with an open journal it deletes, too."""
    pen = await new_session(store, commits=1)
    statements: list[str] = []
    connection_of(store).set_trace_callback(statements.append)
    await pen.write()
    words = [statement.split()[0] for statement in statements]
    assert words == ["BEGIN", "SELECT", "UPDATE", "INSERT", "COMMIT"]
    await store.append(pen.lease, [b"x"])
    statements.clear()
    await pen.write()
    words = [statement.split()[0] for statement in statements]
    assert words == ["BEGIN", "SELECT", "UPDATE", "DELETE", "INSERT", "COMMIT"]


async def test_a_small_step_is_small_on_disk(tmp_path: Path) -> None:
    """A step of 100 bytes takes at most 250 in the file, all overhead counted."""
    path = tmp_path / "runs.db"
    async with SqliteStore(path, synchronous="normal") as store:
        pens = [await new_session(store, f"session-{n}") for n in range(10)]
        for _ in range(200):
            await asyncio.gather(*(pen.write(body=b"x" * 90) for pen in pens))
    assert path.stat().st_size / (10 * 200) <= 250


async def test_what_is_kept_costs_what_is_kept(store: SqliteStore) -> None:
    """However many checkpoints went before, reading the three that are left takes equal work."""

    def work() -> int:
        steps: list[None] = []
        with closing(open_for_reading(store.path)) as connection:
            connection.set_progress_handler(lambda: steps.append(None), 1)
            reading = reads.read(connection, "s", Select(kept=True))
        assert reading is not None
        assert len(reading.kept) == 3
        return len(steps)

    pen, seen = await new_session(store), set[int]()
    for count in (10, 90):
        for _ in range(count):
            await pen.write()
        kept = [info.position for info in (await must_read(store)).kept]
        await store.prune(pen.lease, kept[-4::-1])
        seen.add(work())
    assert len(seen) == 1


# -- cancelled waiters, loops, threads -----------------------------------------------------------


async def test_a_read_waits_for_what_was_left_behind(store: SqliteStore) -> None:
    """After a cancelled commit, a read tells its outcome, not the state before it."""
    pen = await new_session(store, commits=1)
    with Held() as held:
        task = asyncio.create_task(pen.write())
        await held.reached()
        task.cancel()
        await asyncio.wait([task])
        reading = asyncio.create_task(must_read(store))
        await asyncio.sleep(0)
        held.let_go()
        assert (await reading).head.commit == 1


async def test_a_claim_that_nobody_waits_for_is_given_back(store: SqliteStore) -> None:
    """A cancelled claim leaves the session free, and no owner counts as lost."""
    first = await claim(store)
    await store.release(first)
    with Held() as held:
        task = asyncio.create_task(claim(store))
        await held.reached()
        task.cancel()
        await asyncio.wait([task])
        held.let_go()
    claimed = await store.claim("s", live_owner(store.clock, "two"), lease_s=LEASE_S)
    assert not claimed.took_over


async def test_a_cancelled_open_is_undone(tmp_path: Path) -> None:
    """Cancelled while it opens, a store is closed and can be opened again."""
    store = SqliteStore(tmp_path / "runs.db")
    task = asyncio.create_task(store.open())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    with pytest.raises(StoreClosedError):
        await store.scan()
    async with store:
        await new_session(store, commits=1)


def test_several_event_loops_in_sequence(tmp_path: Path) -> None:
    """A store opened in one loop is used and closed in others."""
    store = SqliteStore(tmp_path / "runs.db")

    async def begin() -> Pen:
        await store.open()
        return await new_session(store, commits=1)

    async def leave(pen: Pen) -> None:
        task = asyncio.create_task(pen.write())
        await asyncio.sleep(0)
        task.cancel()

    async def end() -> list[bytes]:
        found = bodies(await must_read(store))
        await store.close()
        return found

    pen = asyncio.run(begin())
    asyncio.run(pen.write())
    asyncio.run(leave(pen))
    assert asyncio.run(end()) == [b"body 0", b"body 1", b"body 2"]


def test_several_event_loops_at_once(tmp_path: Path) -> None:
    """Threads with loops of their own share an instance; each gets its own answers."""
    store = SqliteStore(tmp_path / "runs.db", synchronous="normal")
    asyncio.run(store.open())
    found: dict[int, list[bytes]] = {}

    def work(name: int) -> None:
        async def steps() -> None:
            await new_session(store, f"s{name}", commits=30)
            found[name] = bodies(await must_read(store, f"s{name}"))

        asyncio.run(steps())

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(store.close())
    assert found == {name: [f"body {n}".encode() for n in range(30)] for name in range(4)}


async def test_closing_finishes_what_is_queued(tmp_path: Path) -> None:
    """Writes that were asked for before `close` are done when it returns; no thread is left."""
    store = SqliteStore(tmp_path / "runs.db")
    await store.open()
    pens = [await new_session(store, f"s{n}") for n in range(10)]
    tasks = [asyncio.create_task(pen.write()) for pen in pens]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*tasks)
    assert [t.name for t in threading.enumerate() if "runs.db" in t.name] == []
    assert names(tmp_path) == ["runs.db"]


async def test_a_forked_child_is_told(store: SqliteStore) -> None:
    """A store that was opened in another process is not used here."""
    pen = await new_session(store)
    store._process += 1
    for use in (pen.write(), store.read("s", Select())):
        with pytest.raises(StoreUnavailableError, match="fork"):
            await use
    store._process -= 1


# -- other holders -------------------------------------------------------------------------------


async def test_a_stopped_process_holds_the_file(tmp_path: Path) -> None:
    """Behind a transaction that never ends a write fails as busy; reads go on, then writes too."""
    path = tmp_path / "runs.db"
    async with SqliteStore(path, busy_timeout_s=0.05) as store:
        pen = await new_session(store, commits=1)
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError) as caught:
            await pen.write()
        assert (caught.value.store, caught.value.seconds) == (store.url, 0.05)
        assert (await head_of(store)).commit == 0
        async with SqliteStore(path) as reader:
            assert (await head_of(reader)).commit == 0
        holder.execute("ROLLBACK")
        holder.close()
        await pen.write()


async def test_a_lease_forged_for_another_session(store: SqliteStore) -> None:
    """The nonce keeps a lease to the session it was given for."""
    pen = await new_session(store, "a")
    other = await new_session(store, "b")
    mixed = Lease(
        session_id="b",
        nonce=pen.lease.nonce,
        epoch=other.lease.epoch,
        owner=pen.lease.owner,
        duration_s=LEASE_S,
        expires_boot=pen.lease.expires_boot,
        position=1,
    )
    with pytest.raises(LeaseLostError):
        await store.append(mixed, [b"x"])
    assert await store.renew([mixed]) == [False]


async def test_the_number_of_a_lost_row_is_not_given_again(tmp_path: Path) -> None:
    """What is left of the one session never becomes another's."""
    path = tmp_path / "runs.db"
    async with SqliteStore(path, synchronous="normal") as store:
        await store.claim("a", this_owner(store.clock), lease_s=30, create=True)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("DELETE FROM sessions")
    async with SqliteStore(path, synchronous="normal") as store:
        claimed = await store.claim("b", this_owner(store.clock), lease_s=30, create=True)
        assert claimed.created
    with closing(sqlite3.connect(path)) as file:
        numbers = [row[0] for row in file.execute("SELECT DISTINCT key >> 32 FROM records")]
        assert len(numbers) == 2
