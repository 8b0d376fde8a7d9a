"""Records of the step in flight: they last until a commit ends the journal."""

from raf.store.model import Kind, Select
from raf.store.port import Store
from raf.testing.clock import ManualClock
from raf.testing.store_suite.base import (
    LEASE_S,
    Pen,
    SuiteBase,
    bodies,
    claim,
    live_owner,
    must_read,
    new_session,
)


async def _journal(store: Store) -> list[bytes]:
    reading = await must_read(store, select=Select(journal=True))
    return [record.body for record in reading.journal if record.info.kind is Kind.JOURNAL]


class JournalTests(SuiteBase):
    """append, and what ends it."""

    async def test_records_keep_their_order(self, store: Store, clock: ManualClock) -> None:
        """Journal records come back in the order written, with time and epoch."""
        pen = await new_session(store, commits=1)
        await store.append(pen.lease, [b"one", b"two"])
        await self.pass_time(store, clock, 1)
        await store.append(pen.lease, [b"three"])
        await store.append(pen.lease, [])
        journal = (await must_read(store)).journal
        assert [record.body for record in journal] == [b"one", b"two", b"three"]
        assert {record.info.kind for record in journal} == {Kind.JOURNAL}
        assert {record.info.epoch for record in journal} == {pen.lease.epoch}
        assert [record.info.body_size for record in journal] == [3, 3, 5]
        assert journal[-1].info.created_at == clock.now()
        positions = [record.info.position for record in journal]
        assert positions == sorted(set(positions))

    async def test_a_commit_ends_the_journal(self, store: Store) -> None:
        """A step's commit makes earlier records and claims void; later ones count."""
        pen = await new_session(store)
        await store.append(pen.lease, [b"old"])
        await pen.write()
        assert (await must_read(store)).journal == ()
        await store.append(pen.lease, [b"new"])
        assert await _journal(store) == [b"new"]

    async def test_a_commit_may_keep_the_journal_open(self, store: Store) -> None:
        """With `ends_journal` False the records stay, until a commit that ends them."""
        pen = await new_session(store, commits=1)
        await store.append(pen.lease, [b"one"])
        await pen.write(ends_journal=False)
        await store.append(pen.lease, [b"two"])
        await pen.write(ends_journal=False)
        assert await _journal(store) == [b"one", b"two"]
        reading = await must_read(store)
        assert bodies(reading) == [b"body 0", b"body 1", b"body 2"]
        await pen.write()
        assert await _journal(store) == []

    async def test_claims_stand_between_the_records(self, store: Store, clock: ManualClock) -> None:
        """The open journal shows where an owner was lost."""
        pen = await new_session(store, commits=1)
        await store.append(pen.lease, [b"one"])
        await self.pass_time(store, clock, LEASE_S + 1)
        rival = await claim(store, owner=live_owner(clock, "two"))
        await store.append(rival, [b"two"])
        journal = (await must_read(store)).journal
        assert [(r.info.kind, r.info.took_over, r.body) for r in journal] == [
            (Kind.JOURNAL, False, b"one"),
            (Kind.CLAIM, True, b""),
            (Kind.JOURNAL, False, b"two"),
        ]

    async def test_the_journal_does_not_disturb_the_log(self, store: Store) -> None:
        """Numbers, chain, events and infos know nothing of journal records."""
        pen = await new_session(store, commits=1)
        await store.append(pen.lease, [b"x"] * 5)
        await pen.write()
        reading = await must_read(store)
        assert [info.commit for info in reading.infos] == [0, 1]
        assert [record.events for record in reading.events] == [b"events 0", b"events 1"]

    async def test_an_heir_ends_the_journal(self, store: Store, clock: ManualClock) -> None:
        """The commit of a new owner makes the old owner's records void."""
        pen = await new_session(store, commits=1)
        await store.append(pen.lease, [b"one"])
        await self.pass_time(store, clock, LEASE_S + 1)
        rival = await claim(store, owner=live_owner(clock, "two"))
        await Pen(store, rival, (await must_read(store)).head).write()
        assert (await must_read(store)).journal == ()
