"""When the disk is full, broken or damaged: typed errors, whole commits, and work that goes on."""

import asyncio
import resource
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raf.errors import (
    CorruptRecordError,
    RafError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
)
from raf.store.sqlite import SqliteStore
from raf.store.sqlite.faults import translate
from raf.testing import CrashError, ManualClock, crash_at
from raf.testing.store_suite.base import bodies, head_of, must_read, new_session
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
