"""Deleting: everything goes but the highest epoch of the name."""

from raf.store.model import Select, Summary
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


class DeletionTests(SuiteBase):
    """delete."""

    async def test_nothing_is_left(self, store: Store) -> None:
        """A deleted session is neither read nor listed; its neighbours are untouched."""
        pen = await new_session(store, commits=3)
        await new_session(store, "neighbour", commits=1)
        neighbour = await must_read(store, "neighbour")
        await store.append(pen.lease, [b"x"])
        await store.request("s", "r", "signal", b"")
        await store.delete(pen.lease)
        assert await store.read("s", Select()) is None
        assert [head.session_id for head in await store.scan()] == ["neighbour"]
        assert await must_read(store, "neighbour") == neighbour

    async def test_the_same_name_begins_anew(self, store: Store, clock: ManualClock) -> None:
        """A new session of that name has a new nonce, a higher epoch, and nothing of the old."""
        pen = await new_session(store, commits=3)
        await pen.write(run_id="main")
        await store.request("s", "r", "signal", b"old")
        await store.delete(pen.lease)
        await self.pass_time(store, clock, 1)
        claimed = await store.claim("s", live_owner(clock), lease_s=LEASE_S, create=True)
        lease = claimed.lease
        assert (claimed.created, claimed.took_over) == (True, False)
        assert lease.nonce != pen.lease.nonce
        assert lease.epoch > pen.lease.epoch
        reading = await must_read(store)
        head = reading.head
        assert (head.commit, head.events, head.first_event) == (-1, 0, 1)
        assert (head.consumed, head.requests, head.summary) == (0, 0, Summary())
        assert head.created_at == clock.now()
        assert (reading.chain, reading.infos, reading.requests) == ((), (), ())
        assert [record.info.epoch for record in reading.journal] == [lease.epoch]
        assert (await must_read(store, select=Select(run="main"))).run is None
        again = await store.request("s", "r", "signal", b"new")
        assert (again.seq, again.body) == (1, b"new")
        await Pen(store, lease).write(body=b"fresh")
        assert bodies(await must_read(store)) == [b"fresh"]

    async def test_again_and_again(self, store: Store) -> None:
        """A name can be made and deleted many times; epochs grow, nonces differ."""
        leases = []
        for _ in range(5):
            pen = await new_session(store, commits=2)
            leases.append(pen.lease)
            await store.delete(pen.lease)
        epochs = [lease.epoch for lease in leases]
        assert epochs == sorted(set(epochs))
        assert len({lease.nonce for lease in leases}) == len(leases)

    async def test_a_new_session_can_be_deleted(self, store: Store) -> None:
        """A session without a commit is deleted like any other."""
        await store.delete(await claim(store))
        assert await store.read("s", Select()) is None
