"""Head, log and inbox of a session: each fault is named, and what stores write has none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raf.errors import CorruptRecordError, SessionNotFoundError
from raf.store.adopted import check_adoptable
from raf.store.audit import audit
from raf.store.file import FileStore
from raf.store.file.names import folder_name
from raf.store.model import Kind, Reading, Salvage, Select
from raf.store.port import Store
from raf.store.transfer import WHOLE, whole
from raf.store.urls import open_store
from raf.testing import ManualClock
from raf.testing.store_suite.base import LEASE_S, claim, live_owner, new_session
from tests.unit.engine.stage import BACKENDS, url_of


async def grown(store: Store) -> Reading:
    """A session with pruned commits, dropped events, an open journal, and an inbox."""
    pen = await new_session(store)
    for number in range(9):
        await pen.write(full=number in (0, 3, 6), events=2, run_id="run" if number == 1 else "")
    reading = await store.read("s", Select(infos=True))
    assert reading is not None
    positions = [info.position for info in reading.infos]
    await store.prune(pen.lease, [positions[2], positions[1], positions[0]], events_before=6)
    for number in range(3):
        await store.request("s", f"r{number}", "signal", b"x")
    await pen.write(consumed=2)
    await store.append(pen.lease, [b"one", b"two"])
    await pen.write(ends_journal=False)
    await store.append(pen.lease, [b"three"])
    return await whole(store, "s")


@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_a_store_writes_is_whole(backend: str, tmp_path: Path) -> None:
    """No fault in a session that was pruned and is in mid-step; salvage gives the same."""
    async with open_store(url_of(backend, tmp_path)) as store:
        session = await grown(store)
        assert audit(session) == []
        check_adoptable(session)
        assert await store.salvage("s") == Salvage(session=session)
        assert await store.salvage("nobody") is None


def at(session: Reading, place: int, **changes: Any) -> Reading:
    """The session with clear fields of one record changed."""
    log = list(session.log)
    log[place] = replace(log[place], info=replace(log[place].info, **changes))
    return replace(session, log=tuple(log))


def of_head(**changes: Any) -> Callable[[Reading], Reading]:
    return lambda session: replace(session, head=replace(session.head, **changes))


FAULTS: dict[str, tuple[Callable[[Reading], Reading], str]] = {
    "a commit is missing": (
        lambda s: replace(s, log=(*s.log[:3], *s.log[4:])),
        "missing before commit",
    ),
    "the last commit is missing": (
        lambda s: replace(s, log=tuple(r for r in s.log if r.info.commit != s.head.commit)),
        "commit 10",
    ),
    "a record is there twice": (lambda s: replace(s, log=(*s.log, s.log[-1])), "at or before"),
    "positions fall": (lambda s: at(s, 4, position=1), "at or before"),
    "an epoch falls": (lambda s: at(at(s, 0, epoch=1), 4, epoch=0), "below its predecessor"),
    "an epoch above the head's": (lambda s: at(s, -1, epoch=9), "newer than"),
    "a commit repeats a number": (lambda s: at(s, 4, commit=2), "repeats"),
    "events repeat": (lambda s: at(s, 4, first_event=2), "repeats"),
    "events leave a gap": (lambda s: at(s, 4, event_count=1), "do not follow"),
    "the head's last event": (of_head(events=7), "its last"),
    "the head's commit": (of_head(commit=4), "the head says"),
    "the head's step": (lambda s: of_head(summary=replace(s.head.summary, step=77))(s), "step 77"),
    "a body of another size": (lambda s: at(s, -1, body_size=99), "as long as"),
    "an empty journal entry": (
        lambda s: replace(s, log=(*s.log[:-1], replace(s.log[-1], body=b""))),
        "journal",
    ),
    "a request is missing": (lambda s: replace(s, inbox=s.inbox[1:]), "request 1"),
    "the newest request is missing": (lambda s: replace(s, inbox=s.inbox[:-1]), "request 3"),
    "an id twice": (
        lambda s: replace(s, inbox=(*s.inbox[:2], replace(s.inbox[0], seq=3))),
        "its id",
    ),
    "more requests than arrived": (of_head(requests=2), "request 3"),
    "more consumed than arrived": (of_head(consumed=2**62), "request 4 to"),
    "a position beyond the log": (of_head(position=2**62), "open journal"),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_each_fault_is_named(name: str) -> None:
    """One change, one finding that says where; a number however large costs no time."""
    change, says = FAULTS[name]
    async with open_store("memory:") as store:
        session = await grown(store)
        if name == "a position beyond the log":
            session = replace(session, head=replace(session.head, first_event=1))
        found = audit(change(session))
        assert any(says in f"{fault.record} {fault.why}" for fault in found), found
        assert len(found) < 10


# -- a session of the file store whose head cannot be read -------------------------------------------


def newest(folder: Path) -> Path:
    """The newest record of session `s`."""
    return max((folder / "place" / folder_name("s")).rglob("*.rec"))


@pytest.fixture
async def torn(tmp_path: Path) -> FileStore:
    """A store in which the newest record of `s` is empty; its owner has let go."""
    clock = ManualClock()
    async with FileStore(tmp_path / "place", clock=clock) as store:
        pen = await new_session(store, commits=3)
        await new_session(store, "other", commits=1)
        await store.release(pen.lease)
    newest(tmp_path).write_bytes(b"")
    return FileStore(tmp_path / "place", clock=clock)


async def test_a_damaged_newest_record_can_be_deleted(torn: FileStore) -> None:
    """It is refused to everybody, listed as damaged, and can be deleted; the name can be used again."""
    async with torn as store:
        for call in (store.read("s", WHOLE), store.request("s", "r", "k", b"")):
            with pytest.raises(CorruptRecordError, match=r"\.rec"):
                await call
        assert {head.session_id: head.summary.status for head in await store.scan()} == {
            "other": "running",
            "s": "damaged",
        }
        lease = await claim(store)
        with pytest.raises(CorruptRecordError):
            await store.append(lease, [b"x"])
        await store.release(lease)
        again = await claim(store)
        await store.delete(again)
        assert await store.read("s", WHOLE) is None
        with pytest.raises(SessionNotFoundError):
            await store.claim("s", lease.owner, lease_s=LEASE_S)
        pen = await new_session(store, commits=1)
        assert pen.lease.epoch > again.epoch


async def test_a_damaged_session_that_is_held_is_not_taken(tmp_path: Path) -> None:
    """Its owner may live: told as damaged, and by whom it is held; free when the lease is over."""
    clock = ManualClock()
    async with FileStore(tmp_path / "place", clock=clock) as store:
        await new_session(store, commits=2)
        newest(tmp_path).write_bytes(b"")
        rival = live_owner(clock, "rival")
        with pytest.raises(CorruptRecordError, match="holds the session until"):
            await store.claim("s", rival, lease_s=LEASE_S)
        clock.advance(LEASE_S + 1)
        claimed = await store.claim("s", rival, lease_s=LEASE_S)
        await store.delete(claimed.lease)
        assert await store.scan() == []


async def test_what_is_left_is_salvaged(torn: FileStore) -> None:
    """All but the damaged file is read, and that is named."""
    async with torn as store:
        found = await store.salvage("s")
        assert found is not None
        assert [record.info.commit for record in found.session.log] == [0, 1]
        assert found.session.head.commit == 1
        [damage] = found.damaged
        assert damage.record.endswith(".rec")
        assert {record.info.kind for record in found.session.log} == {Kind.COMMIT}
