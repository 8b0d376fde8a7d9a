"""When the disk is full, broken or damaged: typed errors, whole commits, and work that goes on."""

import asyncio
import resource
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from raf.checkpoint.manager import CheckpointManager
from raf.errors import (
    CheckpointError,
    CorruptRecordError,
    RafError,
    SessionBusyError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
)
from raf.store.model import Select
from raf.store.sqlite import SqliteStore
from raf.store.sqlite.faults import translate
from raf.store.sqlite.rows import FENCE
from raf.store.sqlite.schema import TABLES
from raf.testing import CrashError, ManualClock, crash_at
from raf.testing.store_suite.base import (
    EVERYTHING,
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


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "runs.db", clock=ManualClock()) as store:
        yield store


def fill(store: SqliteStore, pages: int) -> None:
    """Leave room for so many more pages."""
    connection = connection_of(store)
    (used,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {used + pages}")


async def test_no_room(store: SqliteStore) -> None:
    """A full disk is told as such; the session stands, and goes on once there is room."""
    pen = await new_session(store, commits=1)
    before = await must_read(store)
    fill(store, 2)
    for _ in range(2):
        with pytest.raises(StoreFullError) as caught:
            await pen.write(body=b"x" * 100_000)
        assert caught.value.store == store.url
    assert await must_read(store) == before
    await pen.write()
    fill(store, 1000)
    await pen.write(body=b"x" * 100_000)
    assert len(bodies(await must_read(store))) == 3


async def test_no_room_for_one_of_a_group(store: SqliteStore) -> None:
    """Of twenty steps that wait together, the one that is too big fails and the others stand."""
    pens = [await new_session(store, f"s{n}", commits=1) for n in range(20)]
    fill(store, 10)
    with Held() as held:
        first = asyncio.create_task(store.request("s0", "r", "signal", b""))
        await held.reached()
        tasks = [
            asyncio.create_task(pen.write(body=b"x" * (500_000 if n == 5 else 10)))
            for n, pen in enumerate(pens)
        ]
        await asyncio.sleep(0)
        held.let_go()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    await first
    failed = [n for n, answer in enumerate(answers) if isinstance(answer, BaseException)]
    assert failed == [5]
    assert isinstance(answers[5], StoreFullError)
    assert [(await head_of(store, f"s{n}")).commit for n in range(20)] == [
        0 if n == 5 else 1 for n in range(20)
    ]


@contextmanager
def no_growth(path: Path) -> Iterator[None]:
    """The operating system refuses every write past the present end of the file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_failing_disk(store: SqliteStore) -> None:
    """A write error at the commit fails the whole group; the next group works as the disk does."""
    pens = [await new_session(store, f"s{n}", commits=1) for n in range(5)]
    log = store.path.with_name(store.path.name + "-wal")
    broken = connection_of(store)
    with no_growth(log):
        answers = await asyncio.gather(
            *(pen.write(body=b"x" * 9000) for pen in pens), return_exceptions=True
        )
    assert [type(answer) for answer in answers] == [StoreUnavailableError] * 5
    assert [(await head_of(store, f"s{n}")).commit for n in range(5)] == [0] * 5
    await asyncio.gather(*(pen.write() for pen in pens))
    assert [(await head_of(store, f"s{n}")).commit for n in range(5)] == [1] * 5
    assert connection_of(store) is not broken


@pytest.mark.parametrize("op", ["commit", "group"])
@pytest.mark.parametrize(("end", "stands"), [("before", 0), ("after", 1)])
async def test_an_unknown_outcome(store: SqliteStore, op: str, end: str, stands: int) -> None:
    """Broken off before the COMMIT nothing stands, after it all; a retry succeeds once."""
    pen = await new_session(store, commits=1)
    draft = pen.draft()
    with crash_at(f"store.sqlite.{op}.{end}", how="raise") as armed:
        with pytest.raises(CrashError):
            await store.commit(pen.lease, draft)
        assert armed.fired
    assert (await head_of(store)).commit == stands
    await store.commit(pen.lease, draft)
    await store.commit(pen.lease, draft)
    assert (await head_of(store)).commit == 1
    pen.wrote(draft)
    await pen.write()
    assert bodies(await must_read(store)) == [b"body 0", b"body 1", b"body 2"]


async def test_something_that_sqlite_cannot_take(store: SqliteStore) -> None:
    """A value that cannot be bound fails its own write; the thread lives on."""
    pen = await new_session(store, commits=1)
    with pytest.raises((RafError, OverflowError)):
        await pen.write(step=2**70)
    with pytest.raises((RafError, TypeError)):
        await pen.write(body=object())
    await pen.write()
    assert (await head_of(store)).commit == 1


async def test_damaged_pages(tmp_path: Path) -> None:
    """Pages overwritten with rubbish are an error of `raf` that names the session or the store."""
    path = tmp_path / "runs.db"
    async with SqliteStore(path) as store:
        pen = await new_session(store)
        for _ in range(50):
            await pen.write(body=b"x" * 1000)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    async with SqliteStore(path) as store:
        with pytest.raises((CorruptRecordError, StoreUnavailableError)):
            await must_read(store)
        with pytest.raises((CorruptRecordError, StoreUnavailableError)):
            await store.request("s", "r", "signal", b"")


async def test_a_damaged_summary(store: SqliteStore) -> None:
    """A session's row that cannot be read is named; others are read."""
    await new_session(store, "a", commits=1)
    await new_session(store, "b", commits=1)
    connection_of(store).execute("UPDATE sessions SET summary = '[' WHERE id = 'a'")
    with pytest.raises(CorruptRecordError) as caught:
        await must_read(store, "a")
    assert caught.value.session_id == "a"
    await must_read(store, "b")


BAD = {"INTEGER": ["'x'", "1.5", "x'00'"], "TEXT": ["x'00'"], "BLOB": ["7", "'text'"]}
BAD["REAL"] = ["'x'", "x'00'"]
NO_CLAIM = {"nonce", "epoch", "position"}  # without these nobody can be fenced
MAY_BE_NULL = {"run_id", "events", "body"}


def damages(table: str, free: set[str]) -> list[tuple[str, str]]:
    """Each column of a table but the free ones, with values that it never has."""
    connection = sqlite3.connect(":memory:")
    for statement in TABLES:
        connection.execute(statement)
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    connection.close()
    return [
        (name, value)
        for _, name, kind, needed, *_ in columns
        if name not in free
        for value in BAD[kind]
        + (["NULL"] if table == "records" and not needed and name not in MAY_BE_NULL else [])
    ]


def edit(store: SqliteStore, statement: str) -> None:
    """Change the file by hand; at least one row must be met."""
    assert connection_of(store).execute(statement).rowcount >= 1


async def session_with_all(store: SqliteStore) -> Pen:
    pen = await new_session(store, commits=2)
    await pen.write(run_id="main")
    await store.append(pen.lease, [b"x"])
    await store.request("s", "r", "signal", b"hello")
    return pen


ALL = replace(EVERYTHING, run="main")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *damages("sessions", {"number", "id"}),
        ("summary", "'[5]'"),
        ("summary", "'{}'"),
        ("summary", "CAST(x'ff' AS TEXT)"),
        ("owner", "'[]'"),
        ("owner", "''"),
        ("owner", "'[1,2,3,4,5,6]'"),
    ],
)
async def test_a_damaged_session_row(store: SqliteStore, column: str, value: str) -> None:
    """It is named when read, listed as damaged beside the others, and can be deleted."""
    pen = await session_with_all(store)
    await store.release(pen.lease)
    pen = Pen(store, await claim(store), await head_of(store))
    await new_session(store, "t", commits=1)
    edit(store, f"UPDATE sessions SET {column} = {value} WHERE id = 's'")
    with pytest.raises(CorruptRecordError) as caught:
        await must_read(store)
    assert caught.value.session_id == "s"
    listed = await store.scan()
    assert [(head.session_id, head.summary.status) for head in listed] == [
        ("s", "damaged"),
        ("t", "running"),
    ]
    if column == "commit_id":
        return  # a blob there is only another id to a writer
    if column in set(FENCE.split(", ")) - {"nonce", "epoch"}:
        with pytest.raises(CorruptRecordError):
            await pen.write()
    if column in NO_CLAIM:
        return
    store.clock.advance(2 * LEASE_S)  # type: ignore[attr-defined]
    with suppress(SessionBusyError):  # an unknown holder is watched for a while
        await claim(store)
    store.clock.advance(2 * LEASE_S)  # type: ignore[attr-defined]
    claimed = await store.claim("s", live_owner(store.clock), lease_s=LEASE_S)
    await store.delete(claimed.lease)
    assert await store.read("s", ALL) is None
    await new_session(store, commits=1)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *damages("records", {"key", "kind"}),
        ("run_id", "x'ff'"),
        ("kind", "7"),
        ("kind", "-1"),
        ("kind", "'x'"),
    ],
)
async def test_damaged_records(store: SqliteStore, column: str, value: str) -> None:
    """A read names the session and the place; verify and history tell it; deleting works."""
    pen = await session_with_all(store)
    edit(store, f"UPDATE records SET {column} = {value}")
    with pytest.raises(CorruptRecordError) as caught:
        await must_read(store, select=ALL)
    assert caught.value.session_id == "s"
    assert "position" in caught.value.record
    manager = CheckpointManager(store)
    assert (await manager.verify("s")).findings
    with suppress(CheckpointError):
        await manager.history("s")
    with suppress(CorruptRecordError):
        await store.prune(pen.lease, [2], events_before=2)
    await store.delete(pen.lease)
    assert await store.read("s", ALL) is None


@pytest.mark.parametrize(("column", "value"), damages("requests", {"session"}))
async def test_damaged_requests(store: SqliteStore, column: str, value: str) -> None:
    """A request that cannot be read is told with the session's name."""
    await session_with_all(store)
    edit(store, f"UPDATE requests SET {column} = {value}")
    with pytest.raises(CorruptRecordError) as caught:
        await must_read(store)
    assert caught.value.session_id == "s"
    assert "request" in caught.value.record


async def test_a_damaged_place_of_a_run(store: SqliteStore) -> None:
    """Where a run's end stands may be damaged too."""
    await session_with_all(store)
    edit(store, "UPDATE runs SET position = 'x'")
    with pytest.raises(CorruptRecordError):
        await must_read(store, select=ALL)


async def test_damage_met_midway_writes_nothing(store: SqliteStore) -> None:
    """A prune that meets a damaged record after its first change takes that change back."""
    pen = await new_session(store, commits=4)
    kept = await must_read(store, select=Select(kept=True))
    edit(store, "UPDATE records SET first_event = 'x' WHERE commit_number = 2")
    with pytest.raises(CorruptRecordError):
        await store.prune(pen.lease, [kept.kept[0].position], events_before=4)
    edit(store, "UPDATE records SET first_event = 3 WHERE commit_number = 2")
    assert await must_read(store, select=Select(kept=True)) == kept


@pytest.mark.parametrize("how", ["removed", "replaced", "folder"])
async def test_the_file_goes_away_under_a_writer(tmp_path: Path, how: str) -> None:
    """Nothing is said to be stored in a file that nobody finds; once it is back, work goes on."""
    folder, aside = tmp_path / "place", tmp_path / "aside"
    folder.mkdir()
    async with SqliteStore(folder / "runs.db", clock=ManualClock()) as store:
        pen = await new_session(store, commits=1)
        folder.rename(aside)
        if how != "folder":
            folder.mkdir()
        if how == "replaced":
            shutil.copy(aside / "runs.db", folder / "runs.db")
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match="was removed or replaced"):
                await pen.write()
        with pytest.raises(StoreUnavailableError, match="was removed or replaced"):
            await claim(store, "new")
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
        await pen.write()
        assert (await head_of(store)).commit == 1


def remove_all(folder: Path) -> None:
    for entry in folder.iterdir():
        entry.unlink()


async def test_the_file_goes_away(store: SqliteStore) -> None:
    """A read never makes a new, empty file where the store was."""
    await new_session(store, commits=1)
    remove_all(store.path.parent)
    with pytest.raises(StoreError):
        await must_read(store)
    assert not store.path.exists()


async def test_a_lost_file_is_not_made_anew(store: SqliteStore) -> None:
    """After an error a writer reconnects to the file it had, or says that it is gone."""
    pen = await new_session(store, commits=1)
    log = store.path.with_name(store.path.name + "-wal")
    with no_growth(log), pytest.raises(StoreUnavailableError):
        await pen.write(body=b"x" * 9000)
    remove_all(store.path.parent)
    with pytest.raises(StoreUnavailableError):
        await pen.write()
    assert not store.path.exists()


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("it happened")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "session_id", "expected"),
    [
        (sqlite3.SQLITE_FULL, "s", StoreFullError),
        (sqlite3.SQLITE_TOOBIG, "s", StoreFullError),
        (sqlite3.SQLITE_BUSY, "s", StoreBusyError),
        (sqlite3.SQLITE_BUSY_RECOVERY, "s", StoreBusyError),
        (sqlite3.SQLITE_LOCKED, "s", StoreBusyError),
        (sqlite3.SQLITE_IOERR, "s", StoreUnavailableError),
        (sqlite3.SQLITE_IOERR_FSYNC, "s", StoreUnavailableError),
        (sqlite3.SQLITE_READONLY, "s", StoreUnavailableError),
        (sqlite3.SQLITE_CANTOPEN, "s", StoreUnavailableError),
        (sqlite3.SQLITE_CORRUPT, "s", CorruptRecordError),
        (sqlite3.SQLITE_CORRUPT, "", StoreUnavailableError),
        (sqlite3.SQLITE_NOTADB, "s", StoreUnavailableError),
        (0, "s", StoreUnavailableError),
    ],
)
def test_what_errors_mean(code: int, session_id: str, expected: type[RafError]) -> None:
    """Each result code becomes one error of `raf`, with the cause in its text."""
    told = translate(sqlite_error(code), "sqlite:x", waited_s=1.5, session_id=session_id)
    assert type(told) is expected
    if not isinstance(told, StoreBusyError):
        assert "it happened" in str(told)
    assert "x" in str(told) or session_id in str(told)
