"""What the file store does on a disk that others use, damage, or clear."""

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from raf.errors import (
    CheckpointError,
    CorruptRecordError,
    FormatVersionError,
    LeaseLostError,
    RafError,
    SessionBusyError,
    SessionNotFoundError,
    StoreFullError,
    StoreUnavailableError,
)
from raf.failpoint import set_hook
from raf.store.file import FileStore
from raf.store.file.disk import Disk, translate
from raf.store.file.names import folder_name
from raf.store.model import Claimed, Kind, Reading, Request, Select
from raf.testing.clock import ManualClock
from raf.testing.disk import FailingDisk, FreezingDisk
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


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[FileStore]:
    async with FileStore(tmp_path / "place", clock=clock) as store:
        yield store


def files(root: Path, pattern: str) -> list[Path]:
    return sorted(root.glob(f"place/*/s*/{pattern}"))


# -- what lies on the disk ---------------------------------------------------------------------------


async def test_no_temporary_file_is_left(store: FileStore, tmp_path: Path) -> None:
    """After all kinds of writes only named files are there."""
    pen = await new_session(store, commits=3)
    await store.append(pen.lease, [b"a", b"b"])
    await store.request("s", "r", "signal", b"")
    await store.renew([pen.lease])
    await pen.write(full=True)
    await store.prune(pen.lease, [4, 3, 2], events_before=2)
    await store.release(pen.lease)
    assert [path for path in (tmp_path / "place").rglob(".*") if path.name != ".format"] == []
    assert [path.name for path in files(tmp_path, "*")] == [
        "000000000003-000000000004.pack",
        "000000000007.rec",
        "inbox",
        "leases",
        "marker-00000001",
    ]


async def test_a_claim_sweeps_what_earlier_owners_left(
    store: FileStore, tmp_path: Path, clock: ManualClock
) -> None:
    """Temporary files of lower epochs go at a claim, those of this epoch and above stay."""
    pen = await new_session(store, commits=1)
    (folder,) = files(tmp_path, "")
    left = [
        parent / f".tmp-{epoch}-x"
        for parent in (folder, folder / "leases", folder / "inbox")
        for epoch in (0, 1, 2, 3)
    ]
    for path in left:
        path.touch()
    home = folder.parent
    (home / ".new-x").mkdir()
    (home / ".trash-x").mkdir()
    await store.release(pen.lease)
    lease = await claim(store, owner=live_owner(clock, "two"))
    assert lease.epoch == 2
    assert [path.name[:6] for path in left if path.exists()] == [".tmp-2", ".tmp-3"] * 3
    assert sorted(path.name for path in home.iterdir()) == ["s00000001"]
    assert [path.name for path in files(tmp_path, "leases/lease*")] == ["lease-00000002"]


async def test_temporary_and_foreign_files_are_not_listed(store: FileStore, tmp_path: Path) -> None:
    """What the store did not name is no session and no record."""
    await new_session(store, commits=1)
    before = await must_read(store)
    (folder,) = files(tmp_path, "")
    for name in (".tmp-9-x", "notes.txt", "1.rec", "000000000009.rec~", "x.pack", "lease-x"):
        (folder / name).write_bytes(b"?")
    root = tmp_path / "place"
    for name in (".hidden", "Big", "a b", "%zz", "x~y", "empty"):
        (root / name).mkdir()
    (root / "file").touch()
    assert await must_read(store) == before
    assert [head.session_id for head in await store.scan()] == ["s"]


async def test_a_place_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """Opening names the version, and text that is no version is no store."""
    async with FileStore(tmp_path):
        pass
    (tmp_path / ".format").write_text("raf file store, format 2\n")
    with pytest.raises(FormatVersionError):
        await FileStore(tmp_path).open()
    (tmp_path / ".format").write_text("something else")
    with pytest.raises(StoreUnavailableError, match="something else"):
        await FileStore(tmp_path).open()


def test_the_url_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text and paths name the same place, and changing the folder later does not move it."""
    monkeypatch.chdir(tmp_path)
    assert FileStore("x").url == FileStore(tmp_path / "x").url == f"file:{tmp_path}/x"


async def test_the_root_vanishes(store: FileStore, tmp_path: Path) -> None:
    """With its root gone the store is unavailable: no lease is called lost, no session missing."""
    pen = await new_session(store, commits=1)
    (tmp_path / "place").rename(tmp_path / "moved")
    with pytest.raises(StoreUnavailableError):
        await pen.write()
    with pytest.raises(StoreUnavailableError):
        await store.read("s", Select())
    with pytest.raises(StoreUnavailableError):
        await store.scan()
    (tmp_path / "moved").rename(tmp_path / "place")
    await pen.write()


# -- damage ------------------------------------------------------------------------------------------


async def every_kind_of_file(store: FileStore, tmp_path: Path) -> list[Path]:
    """A small session that has each kind of file."""
    pen = await new_session(store)
    for number in range(5):
        await pen.write(full=number in (0, 3), run_id="main" if number == 1 else "")
    await store.request("s", "r1", "signal", b"hello")
    await store.request("s", "r2", "signal", b"")
    await store.prune(pen.lease, [3, 2], events_before=2)
    await pen.write(consumed=1)
    await store.append(pen.lease, [b"journal"])
    root = tmp_path / "place"
    return sorted(path for path in root.rglob("*") if path.is_file() and path.name[0] != ".")


def reading_or_error(store: FileStore) -> Reading | RafError:
    """Read everything; in this thread, for it is done thousands of times."""
    try:
        reading = store._reader.read("s", replace(EVERYTHING, run="main"))
    except RafError as error:
        return error
    assert reading is not None
    return reading


def damages(data: bytes, every: int) -> list[bytes]:
    """The file cut off at each byte, and with each byte flipped in turn; or at every n-th."""
    places = range(0, len(data), every)
    cut = [data[:length] for length in places]
    flipped = [data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :] for at in places]
    return [*cut, *flipped, data + b"\0"]


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
async def test_every_damage_is_found(store: FileStore, tmp_path: Path, every: int) -> None:
    """Each byte of each file, cut or flipped: the right reading or a typed error, no third thing.

    A damaged lease file costs nothing but the name of the holder: nobody is locked out for good.
    """
    paths = await every_kind_of_file(store, tmp_path)
    right = reading_or_error(store)
    assert isinstance(right, Reading)
    assert {path.suffix for path in paths} >= {".rec", ".pack", ".req"}
    found: dict[str, set[str]] = {}
    for path in paths:
        data = path.read_bytes()
        kinds = found.setdefault(path.name, set())
        for damaged in damages(data, every):
            path.write_bytes(damaged)
            answer = reading_or_error(store)
            if isinstance(answer, Reading):
                if path.name.startswith("lease"):
                    assert answer.head.held is not None
                    assert answer.head.held.owner.host == "unknown"
                    answer = replace(answer, head=replace(answer.head, held=right.head.held))
                assert answer == right, path.name
            else:
                assert isinstance(answer, CheckpointError)
            kinds.add(type(answer).__name__)
        path.write_bytes(data)
    assert reading_or_error(store) == right
    assert {name for name, kinds in found.items() if "Reading" in kinds} == {"lease-00000001"}
    del found["lease-00000001"]
    assert all(kinds == {"CorruptRecordError"} for kinds in found.values())


async def test_a_lost_file_is_found(store: FileStore, tmp_path: Path) -> None:
    """Each file removed in turn: a typed error that names what is missing, never a shorter log.

    The newest record and the newest request are those whose loss leaves no trace.
    """
    paths = await every_kind_of_file(store, tmp_path)
    newest = [max(path for path in paths if path.suffix == kind) for kind in (".rec", ".req")]
    right = reading_or_error(store)
    for path in paths:
        data = path.read_bytes()
        path.unlink()
        answer = reading_or_error(store)
        if path.name.startswith("lease") or path in newest:
            assert isinstance(answer, Reading)
        elif path.name.startswith("marker"):
            assert isinstance(answer, CorruptRecordError | Reading)
        else:
            assert isinstance(answer, CorruptRecordError), path.name
        path.write_bytes(data)
    assert reading_or_error(store) == right


async def test_a_gap_among_the_newest_is_named(store: FileStore, tmp_path: Path) -> None:
    """A missing record behind the newest is an error for every read, claim and commit."""
    pen = await new_session(store, commits=2)
    await store.append(pen.lease, [b"a", b"b"])
    (folder,) = files(tmp_path, "")
    (folder / "000000000004.rec").unlink()
    for ask in (
        lambda: store.read("s", Select()),
        lambda: claim(store),
        lambda: store.request("s", "r", "signal", b""),
    ):
        with pytest.raises(CorruptRecordError, match=r"000000000004\.rec"):
            await ask()


@pytest.mark.parametrize("new_name", ["000000000003.rec", "000000000004.rec"])
async def test_another_sessions_record_is_refused(
    store: FileStore, tmp_path: Path, new_name: str
) -> None:
    """A record copied from another session, or from another position, is not believed."""
    await new_session(store, "a", commits=2)
    await new_session(store, "b", commits=3 if new_name.startswith("000000000004") else 1)
    source = tmp_path / "place/a/s00000001/000000000003.rec"
    target = tmp_path / "place/b/s00000001" / new_name
    shutil.copy(source, target)
    with pytest.raises(CorruptRecordError) as caught:
        await store.read("b", Select())
    assert caught.value.record == new_name
    shutil.copy(tmp_path / "place/a/s00000001/000000000002.rec", source)
    with pytest.raises(CorruptRecordError, match="position 2"):
        await store.read("a", Select())


async def test_a_record_of_a_deleted_namesake_is_refused(store: FileStore, tmp_path: Path) -> None:
    """A file of an earlier session of the same name is another session's."""
    pen = await new_session(store, commits=3)
    old = tmp_path / "old"
    shutil.copy(tmp_path / "place/s/s00000001/000000000004.rec", old)
    await store.delete(pen.lease)
    await new_session(store, commits=1)
    (folder,) = files(tmp_path, "")
    shutil.copy(old, folder / "000000000004.rec")
    shutil.copy(old, folder / "000000000006.rec")
    with pytest.raises(CorruptRecordError, match=r"000000000006\.rec"):
        await must_read(store)


@pytest.mark.parametrize("name", ["damaged", "Ä" * 300])
async def test_a_damaged_session_does_not_hide_the_others(
    store: FileStore, tmp_path: Path, name: str
) -> None:
    """A list shows it as damaged, with the reason, among the others."""
    for session_id in ("a", name, "z"):
        await new_session(store, session_id, commits=1)
    (folder,) = (tmp_path / "place" / folder_name(name)).glob("s*")
    newest = folder / "000000000002.rec"
    newest.write_bytes(newest.read_bytes()[:-1])
    heads = {head.session_id: head.summary for head in await store.scan()}
    assert sorted(heads) == sorted(["a", name, "z"])
    assert heads[name].status == "damaged"
    assert "000000000002.rec" in heads[name].reason
    assert heads["a"].status == heads["z"].status == "running"
    shutil.rmtree(folder / "inbox")
    (folder / "000000000001.rec").write_bytes(b"")
    assert [head.summary.status for head in await store.scan()].count("damaged") == 1


async def test_an_unreadable_session_does_not_hide_the_others(
    tmp_path: Path, clock: ManualClock
) -> None:
    """A list in which one call fails shows the other sessions."""
    disk = FailingDisk(0, errno.EIO)
    async with FileStore(tmp_path / "place", clock=clock, disk=disk) as store:
        for name in ("a", "b"):
            await new_session(store, name, commits=1)
        for n in range(2, 12):
            disk = FailingDisk(n, errno.EIO)
            async with FileStore(tmp_path / "place", clock=clock) as again:
                again._place.disk = disk
                heads = await again.scan()
            assert [head.session_id for head in heads] == ["a", "b"]
            assert [head.summary.status for head in heads].count("damaged") <= 1


async def test_a_damaged_lease_locks_nobody_out(
    store: FileStore, tmp_path: Path, clock: ManualClock
) -> None:
    """It binds for as long as a watcher must wait, and its owner's renewal mends it."""
    pen = await new_session(store, commits=1)
    (path,) = files(tmp_path, "leases/lease*")
    path.write_bytes(b"")
    clock.advance(LEASE_S - 1)
    assert await store.renew([pen.lease]) == [True]
    held = (await head_of(store)).held
    assert held is not None
    assert held.owner == pen.lease.owner
    path.write_bytes(b"")
    clock.advance(LEASE_S + 1)
    with pytest.raises(SessionBusyError):
        await claim(store)
    clock.advance(LEASE_S + 1)
    lease = await claim(store)
    assert lease.epoch == pen.lease.epoch + 1


# -- errors of the system ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOSPC, StoreFullError),
        (errno.EDQUOT, StoreFullError),
        (errno.EROFS, StoreUnavailableError),
        (errno.EACCES, StoreUnavailableError),
        (errno.EIO, StoreUnavailableError),
        (errno.ENOENT, StoreUnavailableError),
        (errno.EMFILE, StoreUnavailableError),
    ],
)
def test_errors_have_names(code: int, expected: type[RafError]) -> None:
    """Each error of the system becomes one of the store's, with its name."""
    error = translate(OSError(code, os.strerror(code)), "file:x")
    assert type(error) is expected
    assert errno.errorcode[code] in str(error)


async def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that takes a few bytes at a time gets the rest until all are written."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:7])))
    Disk().write_new(str(tmp_path / "x"), bytes(range(256)))
    assert (tmp_path / "x").read_bytes() == bytes(range(256))


async def test_a_failed_sync_is_not_repeated(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync the file is given up: the retry writes and syncs another one."""
    async with FileStore(tmp_path / "place", clock=clock) as store:
        pen = await new_session(store, commits=1)
        synced: list[int] = []
        fsync = os.fsync

        def failing(descriptor: int) -> None:
            synced.append(os.fstat(descriptor).st_ino)
            if len(synced) == 1:
                raise OSError(errno.EIO, "sync")
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", failing)
        draft = pen.draft()
        with pytest.raises(StoreUnavailableError):
            await store.commit(pen.lease, draft)
        assert len(synced) == 1
        assert (await head_of(store)).commit == 0
        await store.commit(pen.lease, draft)
        assert synced.count(synced[0]) == 1 or synced[0] != synced[-1]
        assert (await head_of(store)).commit == 1


async def test_a_lost_answer_of_link_is_my_own_retry(tmp_path: Path, clock: ManualClock) -> None:
    """A link that was made though the system said that the name is taken counts as made."""

    class Lossy(Disk):
        def link(self, source: str, target: str) -> None:
            super().link(source, target)
            raise FileExistsError(errno.EEXIST, "said again", target)

    async with FileStore(tmp_path / "place", clock=clock, disk=Lossy()) as store:
        pen = await new_session(store, commits=2)
        await store.append(pen.lease, [b"a"])
        await store.release(pen.lease)
        lease = await claim(store, owner=live_owner(clock, "two"))
        await Pen(store, lease, await head_of(store)).write()
        assert (await head_of(store)).commit == 2


async def test_one_lease_in_two_instances(
    store: FileStore, tmp_path: Path, clock: ManualClock
) -> None:
    """The notes of an instance may be behind: it looks again and goes on."""
    pen = await new_session(store, commits=1)
    async with FileStore(tmp_path / "place", clock=clock) as other:
        for turn in range(6):
            pen.store = (store, other)[turn % 2]
            await pen.store.append(pen.lease, [b"x"])
            await pen.write()
    assert (await head_of(store)).commit == 6


# -- others at work ----------------------------------------------------------------------------------


async def rival_goes_on(other: FileStore, clock: ManualClock) -> None:
    """Takes over, works past everything that was there, and prunes it."""
    clock.advance(LEASE_S + 1)
    lease = await claim(other, owner=live_owner(clock, "rival"))
    pen = Pen(other, lease, await head_of(other))
    for _ in range(3):
        await other.append(lease, [b"rival"])
        await pen.write(full=True, body=b"rival")
    infos = (await must_read(other)).infos
    await other.prune(lease, [info.position for info in infos[-2::-1]])


async def rival_begins_anew(other: FileStore, clock: ManualClock) -> None:
    """Takes over, deletes the session, and makes one of the same name."""
    clock.advance(LEASE_S + 1)
    lease = await claim(other, owner=live_owner(clock, "rival"))
    await other.delete(lease)
    pen = await new_session(other, commits=2)
    await other.request("s", "new", "signal", b"")
    await pen.write(consumed=1, full=True)
    await other.append(pen.lease, [b"new"])


Late = Callable[[FileStore, Pen], Awaitable[object]]


async def late_prune(store: FileStore, pen: Pen) -> None:
    await store.prune(pen.lease, [4, 3, 2], events_before=3)


LATE: dict[str, Late] = {
    "commit": lambda store, pen: store.commit(pen.lease, pen.draft(body=b"late")),
    "append": lambda store, pen: store.append(pen.lease, [b"late", b"late"]),
    "prune": late_prune,
    "renew": lambda store, pen: store.renew([pen.lease]),
    "release": lambda store, pen: store.release(pen.lease),
    "delete": lambda store, pen: store.delete(pen.lease),
    "claim": lambda store, _: store.claim(
        "s", live_owner(store.clock, "late"), lease_s=LEASE_S, create=True
    ),
    "request": lambda store, _: store.request("s", "late", "signal", b"late"),
}


@pytest.mark.parametrize(
    "rival", [rival_goes_on, pytest.param(rival_begins_anew, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "late",
    [pytest.param(name, marks=pytest.mark.slow) if name == "prune" else name for name in LATE],
)
async def test_frozen_at_every_call(
    tmp_path: Path, late: str, rival: Callable[[FileStore, ManualClock], Awaitable[None]]
) -> None:
    """A process that stood still before any call of a write changes nothing of its successor's."""
    for n in range(1, 200):
        clock = ManualClock()
        disk = FreezingDisk()
        place = tmp_path / str(n)
        async with (
            FileStore(place, clock=clock, disk=disk) as store,
            FileStore(place, clock=clock) as other,
        ):
            pen = await new_session(store, commits=3)
            await pen.write(full=True)
            if late == "claim":
                clock.advance(LEASE_S + 1)
            disk.arm(n)
            task = asyncio.ensure_future(LATE[late](store, pen))
            if not await disk.frozen(task):
                await task
                assert n > 5
                return
            try:
                await rival(other, clock)
                before = await must_read(other)
            except (SessionBusyError, LeaseLostError, SessionNotFoundError):
                assert late in ("claim", "delete"), "the frozen one had finished its claim"
                before = None
            disk.thaw()
            answer = (await asyncio.gather(task, return_exceptions=True))[0]
            if before is not None:
                await check_late(late, answer, before, await must_read(other))
        shutil.rmtree(place)
    pytest.fail("it never ends")


async def check_late(late: str, answer: object, before: Reading, after: Reading) -> None:
    """What a late write may answer, and that it left nothing."""
    if late == "request" and isinstance(answer, Request):
        assert [r for r in after.requests if r.request_id == "late"] == [answer]
        after = replace(
            after,
            requests=tuple(r for r in after.requests if r.request_id != "late"),
            inbox=tuple(r for r in after.inbox if r.request_id != "late"),
            head=replace(after.head, requests=before.head.requests),
        )
        before = replace(
            before,
            requests=tuple(r for r in before.requests if r.request_id != "late"),
            inbox=tuple(r for r in before.inbox if r.request_id != "late"),
        )
    elif late == "claim":
        assert isinstance(answer, Claimed | SessionBusyError), answer
    elif late == "renew":
        assert answer == [False]
    elif late != "release":
        assert answer is None or isinstance(answer, LeaseLostError), answer
    assert after == before


@pytest.mark.parametrize("late", ["commit", "append", "renew"])
async def test_a_claim_in_the_making(tmp_path: Path, late: str) -> None:
    """Beside a claim that stands still at any call, the former owner's write counts or is refused.

    Whatever it was answered is true afterwards, and one of the two holds the session.
    """
    for n in range(1, 200):
        clock = ManualClock()
        disk = FreezingDisk()
        place = tmp_path / str(n)
        async with (
            FileStore(place, clock=clock, disk=disk) as rival,
            FileStore(place, clock=clock) as store,
        ):
            pen = await new_session(store, commits=1)
            clock.advance(LEASE_S + 1)
            disk.arm(n)
            taking = asyncio.ensure_future(
                rival.claim("s", live_owner(clock, "rival"), lease_s=LEASE_S)
            )
            frozen = await disk.frozen(taking)
            taken = (await head_of(store)).epoch > pen.lease.epoch
            answer = (await asyncio.gather(LATE[late](store, pen), return_exceptions=True))[0]
            disk.thaw()
            claimed = (await asyncio.gather(taking, return_exceptions=True))[0]
            assert isinstance(claimed, Claimed | SessionBusyError), claimed
            reading = await must_read(store)
            head = reading.head
            assert head.epoch == pen.lease.epoch + isinstance(claimed, Claimed)
            claims = [r.info.epoch for r in reading.journal if r.info.kind is Kind.CLAIM]
            assert claims == ([head.epoch] if isinstance(claimed, Claimed) else [])
            late_ones = [r for r in (*reading.chain, *reading.journal) if r.body == b"late"]
            if late != "renew":
                assert answer is None or isinstance(answer, LeaseLostError), answer
                assert len(late_ones) == (0 if answer else 2 if late == "append" else 1)
            refused = answer == [False] or isinstance(answer, LeaseLostError)
            assert refused == taken
            if not frozen:
                assert n > 10
                break
        shutil.rmtree(place)


async def test_one_number_for_one_id_from_two_instances(
    store: FileStore, tmp_path: Path, clock: ManualClock
) -> None:
    """Senders in two instances share the row of numbers, and equal ids meet in one request."""
    await new_session(store)
    async with FileStore(tmp_path / "place", clock=clock) as other:
        answers = await asyncio.gather(
            *((store, other)[n % 2].request("s", f"r{n // 2}", "k", b"") for n in range(60))
        )
        for left, right in zip(answers[::2], answers[1::2], strict=True):
            assert left == right
        requests = (await must_read(other)).requests
    assert [request.seq for request in requests] == list(range(1, 31))


async def test_readers_beside_a_pruner(
    store: FileStore, tmp_path: Path, clock: ManualClock
) -> None:
    """While chains are pruned a reader sees each commit once, and no part of a chain."""
    pen = await new_session(store)
    done = asyncio.Event()

    async def write() -> None:
        for number in range(60):
            await pen.write(full=number % 5 == 0)
            if number % 5 == 4:
                infos = (await must_read(store)).infos
                old = [i.position for i in reversed(infos[:-10]) if i.body_size]
                before = max(1, pen.events - 30)
                await store.prune(pen.lease, old, events_before=before)
        done.set()

    async def watch(place: FileStore) -> None:
        while not done.is_set():
            reading = await must_read(place, select=replace(EVERYTHING, at=None))
            if not reading.chain:
                assert reading.head.commit < 0
                continue
            numbers = [info.commit for info in reading.infos]
            assert numbers == list(range(numbers[0], reading.head.commit + 1))
            assert reading.chain[0].info.full
            events = [record.info.first_event for record in reading.events]
            assert events == list(range(events[0], reading.head.events + 1))
            assert events[0] <= reading.head.first_event

    async with FileStore(tmp_path / "place", clock=clock) as other:
        await asyncio.gather(write(), watch(store), watch(other))
    kinds = {record.info.kind for record in (await must_read(store)).journal}
    assert kinds <= {Kind.JOURNAL, Kind.CLAIM}
    assert bodies(await must_read(store)) == [f"body {n}".encode() for n in range(55, 60)]
    assert len(files(tmp_path, "*.rec")) <= 16


async def test_what_is_kept_costs_what_is_kept(tmp_path: Path, clock: ManualClock) -> None:
    """However many checkpoints went before, reading and pruning open as many files."""

    class Counting(Disk):
        reads = 0

        def read(self, path: str) -> bytes:
            self.reads += 1
            return super().read(path)

    work: list[int] = []
    disk = Counting()
    async with FileStore(tmp_path / "place", clock=clock, disk=disk) as store:
        pen = await new_session(store, commits=3)
        for _ in range(12):
            for _ in range(5):
                await pen.write()
            disk.reads = 0
            kept = (await must_read(store, select=Select(kept=True))).kept
            assert len(kept) == 8
            await store.prune(pen.lease, [info.position for info in kept[-4::-1]])
            work.append(disk.reads)
    assert len(set(work[1:])) == 1  # the first prune also finds the record of the claim


async def test_a_killed_prune_is_finished_by_the_next(store: FileStore, tmp_path: Path) -> None:
    """Records that a pack has made void are ignored, and removed by a later prune."""
    pen = await new_session(store, commits=4)
    await pen.write(full=True)
    (folder,) = files(tmp_path, "")
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    await store.prune(pen.lease, [5, 4, 3, 2])
    pruned = await must_read(store)
    for path in kept.glob("*.rec"):  # as if the kill had come before the removing
        shutil.copy(path, folder / path.name)
    assert await must_read(store) == pruned
    await store.prune(pen.lease, [])
    assert await must_read(store) == pruned
    assert [path.name for path in files(tmp_path, "*.rec")] == ["000000000006.rec"]


# -- cancelled waiters -------------------------------------------------------------------------------


@pytest.mark.parametrize("finished", [False, True])
async def test_a_claim_that_nobody_waits_for_is_given_back(
    store: FileStore, finished: bool
) -> None:
    """Cancelled while the thread is in it, or before its answer came, a claim leaves no lease."""
    await store.release(await claim(store))
    entered, go_on = threading.Event(), threading.Event()

    def stop(name: str) -> None:
        if name == "store.file.claim.put.after":
            entered.set()
            go_on.wait(30)

    set_hook(stop)
    try:
        task = asyncio.create_task(claim(store))
        await asyncio.sleep(0)
        assert entered.wait(30)  # the loop stands still: no answer reaches it
        if finished:
            go_on.set()
            with store._lock("s"):
                pass
        task.cancel()
        go_on.set()
        await asyncio.wait([task])
    finally:
        set_hook(None)
        go_on.set()
    assert task.cancelled()
    again = await store.claim("s", live_owner(store.clock), lease_s=LEASE_S)
    assert not again.took_over
