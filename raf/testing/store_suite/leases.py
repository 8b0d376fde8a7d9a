"""Who may run a session: claims, renewals, expiry, dead owners, other boots."""

from dataclasses import replace

import pytest

from raf.errors import SessionBusyError, SessionNotFoundError
from raf.store.model import Kind, Select, Summary
from raf.store.port import Store
from raf.testing.clock import ManualClock
from raf.testing.store_suite.base import (
    LEASE_S,
    SuiteBase,
    claim,
    dead_owner,
    head_of,
    live_owner,
    must_read,
    new_session,
    owner_of_another_boot,
)


class LeaseTests(SuiteBase):
    """claim, renew, release."""

    async def test_a_new_session(self, store: Store, clock: ManualClock) -> None:
        """A created session has an identity, an owner, and no commit."""
        owner = live_owner(clock)
        claimed = await store.claim("s", owner, lease_s=LEASE_S, create=True)
        lease = claimed.lease
        assert (claimed.created, claimed.took_over) == (True, False)
        assert (lease.session_id, lease.owner, lease.duration_s) == ("s", owner, LEASE_S)
        assert lease.epoch >= 1
        assert lease.expires_boot == self.lease_time(clock.boot() + LEASE_S)
        head = await head_of(store)
        assert (head.session_id, head.nonce, head.epoch) == ("s", lease.nonce, lease.epoch)
        assert head.nonce
        assert (head.commit, head.events, head.first_event) == (-1, 0, 1)
        assert (head.consumed, head.requests, head.summary) == (0, 0, Summary())
        assert head.created_at == clock.now()
        assert head.held is not None
        assert (head.held.owner, head.held.epoch) == (owner, lease.epoch)
        assert (head.held.expires_boot, head.held.duration_s) == (self.held_until(lease), LEASE_S)

    async def test_create_must_be_asked_for(self, store: Store, clock: ManualClock) -> None:
        """Claiming a missing session without `create` is an error and makes nothing."""
        with pytest.raises(SessionNotFoundError) as caught:
            await store.claim("s", live_owner(clock), lease_s=LEASE_S)
        assert caught.value.session_id == "s"
        assert await store.read("s", Select()) is None

    async def test_create_takes_what_is_there(self, store: Store, clock: ManualClock) -> None:
        """Claiming with `create` an existing free session claims it as it is."""
        pen = await new_session(store, commits=2)
        await store.release(pen.lease)
        claimed = await store.claim("s", live_owner(clock), lease_s=LEASE_S, create=True)
        assert (claimed.created, claimed.lease.nonce) == (False, pen.lease.nonce)
        assert (await head_of(store)).commit == pen.number

    @pytest.mark.parametrize("token", ["one", "two"])
    async def test_a_held_session_is_busy(
        self, store: Store, clock: ManualClock, token: str
    ) -> None:
        """A live owner's session cannot be claimed, not even by itself; the error names it."""
        lease = await claim(store, owner=live_owner(clock, "one"))
        before = await must_read(store)
        with pytest.raises(SessionBusyError) as caught:
            await claim(store, owner=live_owner(clock, token))
        assert caught.value.owner == str(lease.owner)
        assert caught.value.until
        assert await must_read(store) == before

    async def test_a_released_session_is_free(self, store: Store, clock: ManualClock) -> None:
        """After a release the next claim is no take-over, and the epoch grows."""
        lease = await claim(store)
        await store.release(lease)
        assert (await head_of(store)).held is None
        claimed = await store.claim("s", live_owner(clock, "two"), lease_s=LEASE_S)
        assert (claimed.took_over, claimed.created) == (False, False)
        assert claimed.lease.epoch > lease.epoch

    async def test_release_twice(self, store: Store) -> None:
        """Releasing again changes nothing."""
        lease = await claim(store)
        await store.release(lease)
        before = await must_read(store)
        await store.release(lease)
        assert await must_read(store) == before

    async def test_an_expired_lease_is_taken_over(self, store: Store, clock: ManualClock) -> None:
        """A lease binds until its time has passed, then it is taken over."""
        lease = await claim(store)
        await self.pass_time(store, clock, LEASE_S / 2)  # a server's own clock runs on meanwhile
        with pytest.raises(SessionBusyError):
            await claim(store, owner=live_owner(clock, "two"))
        await self.pass_time(store, clock, LEASE_S / 2 + 0.1)
        claimed = await store.claim("s", live_owner(clock, "two"), lease_s=LEASE_S)
        assert claimed.took_over
        assert claimed.lease.epoch > lease.epoch

    async def test_a_renewal_extends(self, store: Store, clock: ManualClock) -> None:
        """A renewed lease binds from the renewal on."""
        lease = await claim(store)
        await self.pass_time(store, clock, LEASE_S * 2 / 3)
        assert await store.renew([lease]) == [True]
        assert lease.expires_boot == self.lease_time(clock.boot() + LEASE_S)
        await self.pass_time(store, clock, LEASE_S * 2 / 3)
        with pytest.raises(SessionBusyError):
            await claim(store, owner=live_owner(clock, "two"))
        held = (await head_of(store)).held
        assert held is not None
        assert held.expires_boot == self.held_until(lease)

    async def test_an_expired_lease_is_renewed_while_nobody_took_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        """An owner that overslept holds its session again, if it is the first to come."""
        lease = await claim(store)
        await self.pass_time(store, clock, LEASE_S * 3)
        assert await store.renew([lease]) == [True]
        with pytest.raises(SessionBusyError):
            await claim(store, owner=live_owner(clock, "two"))

    async def test_a_released_lease_is_not_renewed(self, store: Store) -> None:
        """A renewal never revives a lease that was given back."""
        lease = await claim(store)
        await store.release(lease)
        assert await store.renew([lease]) == [False]
        assert (await head_of(store)).held is None

    async def test_renewals_answer_in_order(self, store: Store) -> None:
        """Of several leases each gets its own answer, in the order asked."""
        a, b, c = [await claim(store, name) for name in "abc"]
        await store.release(b)
        assert await store.renew([c, b, a]) == [True, False, True]
        assert await store.renew([]) == []

    async def test_the_wall_clock_does_not_matter(self, store: Store, clock: ManualClock) -> None:
        """Setting the wall clock forward or back neither ends nor lengthens a lease."""
        await claim(store)
        for step in (86_400.0, -172_800.0):
            clock.step_wall(step)
            with pytest.raises(SessionBusyError):
                await claim(store, owner=live_owner(clock, "two"))
        await self.pass_time(store, clock, LEASE_S + 1)
        await claim(store, owner=live_owner(clock, "two"))

    async def test_a_dead_owner_binds_nobody(self, store: Store, clock: ManualClock) -> None:
        """A session whose owner's process is gone is taken over at once."""
        lease = await claim(store, owner=dead_owner(clock))
        claimed = await store.claim("s", live_owner(clock), lease_s=LEASE_S)
        assert claimed.took_over
        assert claimed.lease.epoch > lease.epoch

    async def test_a_lease_of_another_boot_is_watched(
        self, store: Store, clock: ManualClock
    ) -> None:
        """It binds until it was seen unchanged for its duration; a renewal begins that anew."""
        earlier = await claim(store, owner=owner_of_another_boot(clock))
        with pytest.raises(SessionBusyError):
            await claim(store)
        await self.pass_time(store, clock, LEASE_S * 2 / 3)
        with pytest.raises(SessionBusyError):
            await claim(store)
        assert await store.renew([earlier]) == [True]
        await self.pass_time(store, clock, LEASE_S * 2 / 3)
        with pytest.raises(SessionBusyError):
            await claim(store)
        await self.pass_time(store, clock, LEASE_S + 1)
        claimed = await store.claim("s", live_owner(clock), lease_s=LEASE_S)
        assert claimed.took_over

    async def test_claims_are_in_the_journal(self, store: Store, clock: ManualClock) -> None:
        """Each claim leaves a record that says whether it replaced an owner."""
        first = await claim(store)
        await store.release(first)
        second = await claim(store, owner=dead_owner(clock))
        third = await claim(store)
        journal = (await must_read(store)).journal
        assert [record.info.kind for record in journal] == [Kind.CLAIM] * 3
        assert [record.info.epoch for record in journal] == [
            first.epoch,
            second.epoch,
            third.epoch,
        ]
        assert [record.info.took_over for record in journal] == [False, False, True]
        assert {record.info.created_at for record in journal} == {clock.now()}

    async def test_epochs_never_fall(self, store: Store, clock: ManualClock) -> None:
        """Claim by claim, also over deletions, the epoch of a name grows."""
        epochs = []
        for turn in range(6):
            lease = await claim(store, owner=live_owner(clock, f"turn {turn}"))
            epochs.append(lease.epoch)
            if turn % 2:
                await store.delete(lease)
            else:
                await self.pass_time(store, clock, LEASE_S + 1)
        assert epochs == sorted(set(epochs))

    async def test_leases_are_apart(self, store: Store, clock: ManualClock) -> None:
        """A lease of one session says nothing about another."""
        await claim(store, "a")
        b = await claim(store, "b", owner=live_owner(clock, "two"))
        forged = replace(b, session_id="a")
        if forged.nonce != (await head_of(store, "a")).nonce:
            assert await store.renew([forged]) == [False]
