"""Every write of a former owner is refused and leaves nothing."""

from collections.abc import Awaitable, Callable

import pytest

from raf.errors import LeaseLostError, SessionNotFoundError
from raf.store.model import Select
from raf.store.port import Store
from raf.testing.clock import ManualClock
from raf.testing.store_suite.base import (
    LEASE_S,
    Pen,
    SuiteBase,
    bodies,
    claim,
    head_of,
    live_owner,
    must_read,
    new_session,
)

WRITES = ("commit", "append", "prune", "delete")


def _late_write(pen: Pen, kind: str, position: int) -> Callable[[], Awaitable[None]]:
    store, lease = pen.store, pen.lease
    late = pen.draft(body=b"late")
    return {
        "commit": lambda: store.commit(lease, late),
        "append": lambda: store.append(lease, [b"late"]),
        "prune": lambda: store.prune(lease, [position]),
        "delete": lambda: store.delete(lease),
    }[kind]


class FencingTests(SuiteBase):
    """Stale owners."""

    @pytest.mark.parametrize("kind", WRITES)
    async def test_a_replaced_owner_is_refused(
        self, store: Store, clock: ManualClock, kind: str
    ) -> None:
        """After a take-over every kind of late write raises LeaseLostError; nothing changed."""
        pen = await new_session(store, commits=2)
        await store.append(pen.lease, [b"mine"])
        await self.pass_time(store, clock, LEASE_S + 1)
        rival = await claim(store, owner=live_owner(clock, "two"))
        before = await must_read(store)
        late = _late_write(pen, kind, before.chain[0].info.position)
        for _ in range(2):
            with pytest.raises(LeaseLostError) as caught:
                await late()
            assert (caught.value.session_id, caught.value.epoch) == ("s", pen.lease.epoch)
        assert await must_read(store) == before
        await Pen(store, rival, before.head).write()

    async def test_a_replaced_owner_neither_renews_nor_releases(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A late renewal is False, a late release is ignored, and the new owner keeps its lease."""
        pen = await new_session(store, commits=1)
        await self.pass_time(store, clock, LEASE_S + 1)
        rival = await claim(store, owner=live_owner(clock, "two"))
        before = await must_read(store)
        expiry = pen.lease.expires_boot
        assert await store.renew([pen.lease, rival]) == [False, True]
        assert pen.lease.expires_boot == expiry
        await store.release(pen.lease)
        assert await must_read(store) == before

    async def test_a_late_renewal_lengthens_no_other_lease(
        self, store: Store, clock: ManualClock
    ) -> None:
        """The new owner's lease ends when it should, however often the former one renews its own."""
        pen = await new_session(store, commits=1)
        await self.pass_time(store, clock, LEASE_S + 1)
        await claim(store, owner=live_owner(clock, "two"))
        for _ in range(2):
            assert await store.renew([pen.lease]) == [False]
            await self.pass_time(store, clock, LEASE_S / 2 + 1)
        await claim(store, owner=live_owner(clock, "three"))

    async def test_its_own_commit_cannot_be_repeated_either(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A former owner learns that it was replaced, also when it repeats a commit that stands."""
        pen = await new_session(store, commits=1)
        again = await pen.write()
        await self.pass_time(store, clock, LEASE_S + 1)
        await claim(store, owner=live_owner(clock, "two"))
        with pytest.raises(LeaseLostError):
            await store.commit(pen.lease, again)

    @pytest.mark.parametrize("kind", WRITES)
    async def test_no_write_into_a_new_session_of_that_name(
        self, store: Store, clock: ManualClock, kind: str
    ) -> None:
        """After delete and a new creation the old owner's writes are refused."""
        pen = await new_session(store, commits=1)
        await self.pass_time(store, clock, LEASE_S + 1)
        killer = await claim(store, owner=live_owner(clock, "two"))
        await store.delete(killer)
        fresh = await new_session(store, commits=1)
        assert fresh.lease.epoch > killer.epoch
        before = await must_read(store)
        late = _late_write(pen, kind, before.chain[0].info.position)
        with pytest.raises(LeaseLostError):
            await late()
        assert await store.renew([pen.lease, killer]) == [False, False]
        await store.release(pen.lease)
        await store.release(killer)
        assert await must_read(store) == before

    @pytest.mark.parametrize("kind", ["commit", "append", "prune"])
    async def test_a_deleted_session_does_not_come_back(
        self, store: Store, clock: ManualClock, kind: str
    ) -> None:
        """A late write to a deleted session is refused, and it stays deleted."""
        pen = await new_session(store, commits=1)
        position = (await must_read(store)).chain[0].info.position
        await store.delete(pen.lease)
        with pytest.raises(LeaseLostError):
            await _late_write(pen, kind, position)()
        assert await store.renew([pen.lease]) == [False]
        await store.release(pen.lease)
        assert await store.read("s", Select()) is None
        with pytest.raises(SessionNotFoundError):
            await store.claim("s", live_owner(clock), lease_s=LEASE_S)

    async def test_the_heir_goes_on_from_what_stands(
        self, store: Store, clock: ManualClock
    ) -> None:
        """The new owner sees the old one's commits and open journal, and continues the numbers."""
        pen = await new_session(store, commits=2)
        await store.append(pen.lease, [b"half"])
        await self.pass_time(store, clock, LEASE_S + 1)
        rival = await claim(store, owner=live_owner(clock, "two"))
        reading = await must_read(store)
        assert [record.body for record in reading.journal][:1] == [b"half"]
        assert reading.journal[-1].info.took_over
        await Pen(store, rival, reading.head).write()
        after = await must_read(store)
        assert bodies(after) == [b"body 0", b"body 1", b"body 2"]
        assert (after.head.commit, after.head.epoch) == (2, rival.epoch)
        assert (await head_of(store)).epoch == rival.epoch
