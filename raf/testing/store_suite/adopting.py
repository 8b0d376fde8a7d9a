"""Sessions that come from another store: everything stays what it was, and goes on."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raf.errors import ConfigurationError, LeaseLostError, SessionExistsError
from raf.store.adopted import adopted_head
from raf.store.memory import MemoryStore
from raf.store.model import Claimed, Kind, Reading, Record, Select, Summary
from raf.store.port import Store
from raf.testing.clock import ManualClock
from raf.testing.store_suite.base import (
    EVERYTHING,
    LEASE_S,
    Pen,
    SuiteBase,
    bodies,
    claim,
    dead_owner,
    head_of,
    live_owner,
    must_read,
    new_session,
)
from raf.testing.store_suite.due import names, ours, take

EXPORT = Select(log=True, inbox=True)


async def _grow(store: Store) -> Pen:
    """Seven commits with a finished run and an open journal, two requests consumed, one not."""
    pen = await new_session(store, commits=2)
    for turn in range(3):
        await store.request("s", f"r{turn}", "signal", f"request {turn}".encode())
    await pen.write(consumed=2, run_id="main")
    await pen.write(full=True, events=3)
    await pen.write(events=0)
    await store.append(pen.lease, [b"one", b""])
    await pen.write(ends_journal=False)
    await store.release(pen.lease)
    pen = Pen(store, await claim(store, owner=dead_owner(store.clock)), await head_of(store))
    await store.append(pen.lease, [b"two"])
    pen = Pen(store, await claim(store), await head_of(store))
    summary = Summary(
        workflow="w\ud800", fingerprint="f1:ours", status="waiting", wake_at=5.5, queue="default"
    )
    await pen.write(ends_journal=False, summary=summary)
    return pen


async def _prune(pen: Pen, *commits: int, events_before: int | None = None) -> None:
    by_commit = {info.commit: info.position for info in (await must_read(pen.store)).infos}
    positions = [by_commit[commit] for commit in commits]
    await pen.store.prune(pen.lease, positions, events_before=events_before)


async def _as_new(store: Store) -> Pen:
    return await new_session(store)


async def _without_the_last(store: Store) -> Pen:
    pen = await new_session(store, commits=3)
    await _prune(pen, 2, 1, 0)
    return pen


async def _without_anything(store: Store) -> Pen:
    pen = await new_session(store, commits=3)
    await _prune(pen, 2, 1, 0, events_before=9)
    return pen


async def _without_old_bodies(store: Store) -> Pen:
    pen = await _grow(store)
    await _prune(pen, 2, 1, 0)
    return pen


async def _without_old_events(store: Store) -> Pen:
    pen = await _grow(store)
    await _prune(pen, 1, 0, events_before=5)
    return pen


async def _without_a_middle(store: Store) -> Pen:
    pen = await _grow(store)
    await _prune(pen, 5, 4, 2, events_before=8)
    return pen


async def _with_a_body_alone(store: Store) -> Pen:
    pen = await _grow(store)
    await _prune(pen, 6, 5, 4, 2, 1, 0, events_before=99)
    return pen


SHAPES = (
    _grow,
    _as_new,
    _without_the_last,
    _without_anything,
    _without_old_bodies,
    _without_old_events,
    _without_a_middle,
    _with_a_body_alone,
)


async def exported(store: Store, name: str = "s") -> Reading:
    """What an export carries of a session."""
    return await must_read(store, name, EXPORT)


async def _elsewhere(clock: ManualClock, grow: Callable[[Store], Any] = _grow) -> Reading:
    """A session that another store gave."""
    async with MemoryStore(clock=clock) as other:
        await grow(other)
        return await exported(other)


async def everything_read(store: Store, *, epoch: int | None = None) -> list[Reading]:
    """Whatever can be asked of a session; its holder, and on demand its epoch, apart."""
    selects = [EVERYTHING, *(Select(chain=True, at=at) for at in range(8)), Select(run="main")]
    readings = [await must_read(store, select=select) for select in selects]
    changes: dict[str, Any] = {"held": None} | ({} if epoch is None else {"epoch": epoch})
    return [replace(reading, head=replace(reading.head, **changes)) for reading in readings]


def _change(session: Reading, turn: int, **changes: Any) -> Reading:
    """The session with another field in the clear of one record."""
    log = [
        replace(record, info=replace(record.info, **changes)) if at == turn else record
        for at, record in enumerate(session.log)
    ]
    return replace(session, log=tuple(log))


def _head(session: Reading, **changes: Any) -> Reading:
    return replace(session, head=replace(session.head, **changes))


def _drop(session: Reading, kind: Kind) -> Reading:
    """The session without its last record of a kind."""
    last = next(r for r in reversed(session.log) if r.info.kind is kind)
    return replace(session, log=tuple(r for r in session.log if r is not last))


def _void(session: Reading) -> Reading:
    """The session with a claim in front of everything."""
    info = replace(session.log[0].info, position=1, kind=Kind.CLAIM, commit=-1, body_size=0)
    return replace(session, log=(Record(info=replace(info, events_size=0)), *session.log))


NONSENSE: dict[str, Callable[[Reading], Reading]] = {
    "backwards": lambda s: replace(s, log=s.log[::-1]),
    "twice": lambda s: replace(s, log=(s.log[0], *s.log)),
    "no first commit": lambda s: replace(s, log=s.log[1:]),
    "no last commit": lambda s: _drop(s, Kind.COMMIT),
    "no claim": lambda s: _drop(s, Kind.CLAIM),
    "no journal record": lambda s: _drop(s, Kind.JOURNAL),
    "no log": lambda s: replace(s, log=()),
    "a void claim": _void,
    "a commit as journal": lambda s: _change(s, 1, kind=Kind.JOURNAL),
    "a number twice": lambda s: _change(s, 1, commit=0),
    "a number too far": lambda s: _change(s, 1, commit=99),
    "an event left out": lambda s: _change(s, 1, first_event=3),
    "a size that is not": lambda s: _change(s, 1, body_size=0),
    "a later epoch": lambda s: _change(s, 1, epoch=99),
    "a position of another kind": lambda s: _change(s, 1, position="2"),
    "a request left out": lambda s: replace(s, inbox=s.inbox[1:]),
    "one request twice": lambda s: replace(
        s, inbox=(s.inbox[0], replace(s.inbox[0], seq=2), s.inbox[2])
    ),
    "no nonce": lambda s: _head(s, nonce=""),
    "no epoch": lambda s: _head(s, epoch=0),
    "no position": lambda s: _head(s, position=0),
    "a commit more": lambda s: _head(s, commit=s.head.commit + 1),
    "an event more": lambda s: _head(s, events=s.head.events + 1),
    "events that are gone": lambda s: _head(s, first_event=4),
    "a request more": lambda s: _head(s, requests=4),
    "consumed too far": lambda s: _head(s, consumed=4),
    "the last commit elsewhere": lambda s: _head(s, commit_position=3),
    "a journal from the future": lambda s: _head(s, journal_from=s.head.position + 1),
}


class AdoptingTests(SuiteBase):
    """adopt."""

    @pytest.mark.parametrize("grow", SHAPES)
    async def test_it_is_what_it_was(
        self, store: Store, clock: ManualClock, grow: Callable[[Store], Any]
    ) -> None:
        """Whatever can be read, also of what pruning left, reads as where it came from."""
        async with MemoryStore(clock=clock) as other:
            await grow(other)
            expected = await everything_read(other)
            await store.adopt(await exported(other))
        assert await everything_read(store) == expected
        assert (await head_of(store)).held is None
        assert await store.scan() == [expected[0].head]

    @pytest.mark.parametrize("grow", SHAPES)
    async def test_it_can_be_given_away(
        self, store: Store, clock: ManualClock, grow: Callable[[Store], Any]
    ) -> None:
        """What this store exports, another adopts."""
        await grow(store)
        async with MemoryStore(clock=clock) as other:
            await other.adopt(await exported(store))
            assert await everything_read(other) == await everything_read(store)

    @pytest.mark.parametrize("grow", SHAPES)
    async def test_it_goes_on(
        self, store: Store, clock: ManualClock, grow: Callable[[Store], Any]
    ) -> None:
        """The next owner takes over nobody's lease, and numbers continue."""
        session = await _elsewhere(clock, grow)
        await store.adopt(session)
        owner = live_owner(clock, "heir")
        claimed = await store.claim("s", owner, lease_s=LEASE_S, create=True)
        assert (claimed.created, claimed.took_over) == (False, False)
        head = session.head
        assert (claimed.lease.nonce, claimed.lease.epoch) == (head.nonce, head.epoch + 1)
        journal = (await must_read(store)).journal
        old = tuple(record for record in session.log if record.info.kind is not Kind.COMMIT)
        assert journal[:-1] == old
        assert (journal[-1].info.kind, journal[-1].info.position) == (
            Kind.CLAIM,
            head.position + 1,
        )
        pen = Pen(store, claimed.lease, head)
        await store.append(pen.lease, [b"three"])
        await pen.write(full=True, run_id="next")
        await pen.write()
        reading = await must_read(store)
        assert bodies(reading) == [
            f"body {n}".encode() for n in range(head.commit + 1, pen.number + 1)
        ]
        assert (reading.head.commit, reading.head.events) == (pen.number, pen.events)
        assert reading.journal == ()
        assert reading.infos[:-2] == tuple(
            record.info for record in session.log if record.info.kind is Kind.COMMIT
        )
        run = (await must_read(store, select=Select(run="next"))).run
        assert run is not None
        assert run.info.commit == head.commit + 1

    async def test_it_can_be_pruned_and_deleted(self, store: Store, clock: ManualClock) -> None:
        """Owners do with it what they do with their own."""
        await store.adopt(await _elsewhere(clock, _without_a_middle))
        pen = Pen(store, await claim(store), await head_of(store))
        await pen.write(full=True)
        await _prune(pen, 6, 3, 1, 0, events_before=99)
        reading = await must_read(store)
        # Of what finished a run, and of the last, the clear fields stay.
        assert [info.commit for info in reading.infos] == [2, 7]
        assert bodies(reading) == [b"body 7"]
        await store.delete(pen.lease)
        assert await store.read("s", EXPORT) is None

    async def test_a_consumed_request_is_still_known(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A sender that repeats itself gets its request; the next number is free."""
        session = await _elsewhere(clock)
        await store.adopt(session)
        for known in session.inbox:
            again = await store.request("s", known.request_id, "signal", b"again")
            assert again == known
        assert (await store.request("s", "new", "signal", b"")).seq == len(session.inbox) + 1

    async def test_it_can_be_due(self, store: Store, clock: ManualClock) -> None:
        """Workers find it."""
        await store.adopt(await _elsewhere(clock))
        assert names(await take(store, ours())) == ["s"]

    async def test_over_a_deleted_session(self, store: Store) -> None:
        """The epoch is raised above the last of the name: late writes are refused, records kept."""
        pen = await _grow(store)
        session, expected = await exported(store), await everything_read(store, epoch=0)
        await store.delete(pen.lease)
        await store.adopt(session)
        assert await everything_read(store, epoch=0) == expected
        head = await head_of(store)
        assert head == adopted_head(session.head, pen.lease.epoch)
        assert (head.nonce, head.epoch) == (pen.lease.nonce, pen.lease.epoch + 1)
        with pytest.raises(LeaseLostError):
            await pen.write()
        lease = await claim(store)
        assert lease.epoch == head.epoch + 1
        await Pen(store, lease, head).write()

    async def test_a_higher_epoch_than_the_deleted_ones(
        self, store: Store, clock: ManualClock
    ) -> None:
        """It stays; and the epoch of a name goes on from it after another deletion."""
        await store.delete(await claim(store))
        epoch = 40
        await store.adopt(_head(await _elsewhere(clock), epoch=epoch))
        assert (await head_of(store)).epoch == epoch
        lease = await claim(store)
        await store.delete(lease)
        assert lease.epoch == epoch + 1
        assert (await claim(store)).epoch > lease.epoch

    @pytest.mark.parametrize("commits", [0, 2])
    async def test_a_session_of_that_name(
        self, store: Store, clock: ManualClock, commits: int
    ) -> None:
        """What is there stays untouched, also a session without a commit."""
        pen = await new_session(store, commits=commits)
        before = await must_read(store)
        with pytest.raises(SessionExistsError) as caught:
            await store.adopt(await _elsewhere(clock))
        assert caught.value.session_id == "s"
        assert await must_read(store) == before
        await pen.write()

    @pytest.mark.parametrize("what", NONSENSE)
    async def test_nonsense_is_refused(self, store: Store, clock: ManualClock, what: str) -> None:
        """Numbers that do not fit together leave nothing, and the right ones can come after."""
        session = await _elsewhere(clock)
        with pytest.raises(ConfigurationError, match="'s' cannot be adopted"):
            await store.adopt(NONSENSE[what](session))
        assert await store.read("s", EXPORT) is None
        assert await store.scan() == []
        await store.adopt(session)
        assert await exported(store) == _head(session, held=None)

    async def test_two_adopt_one(self, store: Store, tmp_path: Path, clock: ManualClock) -> None:
        """At the same moment, through two instances, one succeeds; and one beside a creation."""
        session = await _elsewhere(clock)
        async with self.second(store, tmp_path, clock) as other:
            for turn in range(6):
                named = _head(session, session_id=f"s{turn}")
                rival = (
                    other.claim(f"s{turn}", live_owner(clock), lease_s=LEASE_S, create=True)
                    if turn % 2
                    else other.adopt(named)
                )
                answers = await asyncio.gather(store.adopt(named), rival, return_exceptions=True)
                head = await head_of(store, f"s{turn}")
                assert await head_of(other, f"s{turn}") == head
                refused = [isinstance(answer, SessionExistsError) for answer in answers]
                if turn % 2:  # adopted first, it is there to be claimed
                    assert isinstance(answers[1], Claimed), answers
                    assert refused[0] == (head.nonce != session.head.nonce)
                else:
                    assert sorted(refused) == [False, True], answers
                    assert head.nonce == session.head.nonce

    async def test_cancelled_it_is_there_or_not(self, store: Store, clock: ManualClock) -> None:
        """Cancelled at any moment, the whole session is read, or none."""
        session = await _elsewhere(clock)
        for turn in range(20):
            named = _head(session, session_id=f"s{turn}", held=None)
            task = asyncio.create_task(store.adopt(named))
            for _ in range(turn % 5):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            found = await store.read(f"s{turn}", EXPORT)
            assert found in (None, named)

    async def test_it_survives(self, store: Store, tmp_path: Path, clock: ManualClock) -> None:
        """After a restart it is there as it was."""
        if not self.durable:
            return
        session = await _elsewhere(clock, _without_a_middle)
        await store.adopt(session)
        expected = await everything_read(store)
        again = await self.reopen(store, tmp_path, clock)
        try:
            assert await everything_read(again) == expected
        finally:
            await again.close()
