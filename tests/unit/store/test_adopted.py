"""Adopting: the pure rules, and an adoption that breaks off."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from raf.errors import ConfigurationError, InvalidSessionIdError, RafError
from raf.store.adopted import adopted_head, check_adoptable, emptied
from raf.store.file import FileStore
from raf.store.memory import MemoryStore
from raf.store.model import Reading
from raf.store.order import new_head
from raf.store.sqlite import SqliteStore
from raf.testing import CrashError, ManualClock, crash_at
from raf.testing.disk import CrashingDisk, FailingDisk, PowerLossError
from raf.testing.store_suite.adopting import EXPORT, SHAPES, exported
from raf.testing.store_suite.base import claim, head_of, live_owner


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def shaped(clock: ManualClock, shape: int) -> Reading:
    """A session, as it is when nobody holds it."""
    async with MemoryStore(clock=clock) as store:
        await SHAPES[shape](store)
        reading = await exported(store)
    return replace(reading, head=replace(reading.head, held=None))


@pytest.mark.parametrize("buried", [0, 2, 3, 9])
def test_the_head_it_begins_with(buried: int) -> None:
    """Nobody holds it, and its epoch is above those of deleted sessions and not below its own."""
    head = new_head("s", "n", 0.0, epoch=3)
    assert adopted_head(head, buried) == replace(head, epoch={3: 4, 9: 10}.get(buried, 3))


async def test_what_pruning_left_nothing_of(clock: ManualClock) -> None:
    """In the open journal each missing position is a commit; an ended journal may end in one."""
    for shape in range(len(SHAPES)):
        session = await shaped(clock, shape)
        check_adoptable(session)
        left = {record.info.position for record in session.log}
        gone = emptied(session)
        assert left.isdisjoint(gone)
        first = min(session.head.journal_from + 1, session.head.position)
        assert {*range(first, session.head.position + 1)} <= left | gone.keys()


def test_ids_and_fields_of_another_kind() -> None:
    """They are refused by name."""
    with pytest.raises(InvalidSessionIdError):
        check_adoptable(Reading(head=new_head("a\x00b", "n", 0.0)))
    with pytest.raises(ConfigurationError, match="of its kind"):
        check_adoptable(Reading(head=replace(new_head("s", "n", 0.0), epoch="1")))  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["before", "after"])
async def test_a_file_of_sqlite_has_all_or_nothing(
    tmp_path: Path, clock: ManualClock, end: str
) -> None:
    """Broken off right before its COMMIT it left nothing, right after it all."""
    session = await shaped(clock, 0)
    async with SqliteStore(tmp_path / "runs.db", clock=clock) as store:
        point = crash_at(f"store.sqlite.adopt.{end}", how="raise")
        with point, pytest.raises(CrashError):
            await store.adopt(session)
        assert await store.read("s", EXPORT) == (session if end == "after" else None)


async def found(root: Path, clock: ManualClock, session: Reading) -> bool:
    """Whether it is there, whole; if not, it can be adopted now, and nothing is left over."""
    async with FileStore(root, clock=clock) as store:
        reading = await store.read("s", EXPORT)
        assert reading in (None, session)
        assert await store.scan() == ([] if reading is None else [session.head])
        if reading is None:
            await store.adopt(session)
        assert await store.read("s", EXPORT) == session
        await store.claim("s", live_owner(clock), lease_s=30)
    assert [path.name for path in (root / "s").iterdir()] == ["s00000001"]
    return reading is not None


EVERY = [pytest.param(7), pytest.param(1, marks=pytest.mark.slow)]


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0])
async def test_a_power_cut_at_each_change(
    tmp_path: Path, clock: ManualClock, every: int, kept: float
) -> None:
    """After it the whole session is there, or none; once adopt has returned, it is there."""
    session = await shaped(clock, 5)
    answers: list[tuple[bool, bool]] = []
    for n in range(1, 200, every):
        root = tmp_path / str(n)
        async with FileStore(root, clock=clock):
            pass
        disk = CrashingDisk(n, vault=tmp_path / f"vault {n}", kept=kept)
        store, done = FileStore(root, clock=clock, disk=disk), False
        try:
            await store.open()
            await store.adopt(session)
            done = True
        except PowerLossError:
            pass
        finally:
            await store.close()
        there = await found(root, clock, session)
        answers.append((done, there))
        if done:
            break
    assert (True, True) in answers
    assert (True, False) not in answers
    assert (False, False) in answers


async def test_a_failing_disk_at_each_call(tmp_path: Path, clock: ManualClock) -> None:
    """An error leaves the whole session or none; nothing else is in the way."""
    session = await shaped(clock, 5)
    ended = False
    for n in range(1, 200, 5):
        root = tmp_path / str(n)
        async with FileStore(root, clock=clock):
            pass
        store = FileStore(root, clock=clock, disk=FailingDisk(n, errno.EIO))
        try:
            async with store:
                await store.adopt(session)
                ended = True
        except RafError:
            pass
        await found(root, clock, session)
        if ended:
            return
    raise AssertionError("the disk failed every time")


async def test_what_a_killed_adoption_left_is_in_nobodys_way(
    tmp_path: Path, clock: ManualClock
) -> None:
    """A half-made folder is neither read nor listed, and the next owner of the name removes it."""
    session = await shaped(clock, 0)
    async with FileStore(tmp_path, clock=clock) as store:
        with crash_at("store.file.rename.before", how="raise"), pytest.raises(CrashError):
            await store.adopt(session)
        assert await store.read("s", EXPORT) is None
        assert await store.scan() == []
        lease = await claim(store)
        assert (await head_of(store)).nonce == lease.nonce != session.head.nonce
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["s00000001"]
