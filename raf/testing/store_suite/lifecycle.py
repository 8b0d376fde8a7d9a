"""Opening, closing, and what outlives them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from raf.errors import StoreClosedError
from raf.store.model import Due, Lease, Reading, Select
from raf.store.order import new_head
from raf.store.port import Store
from raf.testing.clock import ManualClock
from raf.testing.store_suite.base import (
    EVERYTHING,
    Pen,
    SuiteBase,
    bodies,
    claim,
    head_of,
    live_owner,
    must_read,
    new_session,
)


def _uses(store: Store, clock: ManualClock) -> dict[str, Callable[[], Awaitable[object]]]:
    owner = live_owner(clock)
    lease = Lease(
        session_id="s",
        nonce="n",
        epoch=1,
        owner=owner,
        duration_s=30.0,
        expires_boot=clock.boot() + 30,
        position=0,
    )
    commit = Pen(store, lease).draft()
    due = Due(fingerprints=frozenset())
    session = Reading(head=new_head("s", "n", 0.0))
    return {
        "claim": lambda: store.claim("s", owner, lease_s=30, create=True),
        "claim_due": lambda: store.claim_due(owner, due, lease_s=30, limit=1),
        "renew": lambda: store.renew([lease]),
        "release": lambda: store.release(lease),
        "commit": lambda: store.commit(lease, commit),
        "append": lambda: store.append(lease, [b"x"]),
        "read": lambda: store.read("s", Select()),
        "request": lambda: store.request("s", "r", "signal", b""),
        "scan": store.scan,
        "prune": lambda: store.prune(lease, []),
        "delete": lambda: store.delete(lease),
        "adopt": lambda: store.adopt(session),
    }


async def _refused(use: Callable[[], Awaitable[object]]) -> bool:
    try:
        await use()
    except StoreClosedError:
        return True
    return False


class LifecycleTests(SuiteBase):
    """Open, close, reopen."""

    async def test_nothing_works_before_open(self, tmp_path: Path, clock: ManualClock) -> None:
        """Each operation of a store that was never opened raises StoreClosedError."""
        store = await self.make_store(tmp_path, clock)
        for name, use in _uses(store, clock).items():
            assert await _refused(use), f"{name} worked before open"

    async def test_nothing_works_after_close(self, tmp_path: Path, clock: ManualClock) -> None:
        """Each operation of a closed store raises StoreClosedError; it can be opened again."""
        store = await self.make_store(tmp_path, clock)
        async with store:
            await new_session(store, commits=1)
        for name, use in _uses(store, clock).items():
            assert await _refused(use), f"{name} worked after close"
        async with store:
            await new_session(store, "another", commits=1)

    async def test_opening_is_counted(self, tmp_path: Path, clock: ManualClock) -> None:
        """A store opened twice works until it was closed twice; more closes do nothing."""
        store = await self.make_store(tmp_path, clock)
        await store.close()
        await store.open()
        await store.open()
        await store.close()
        await new_session(store, commits=1)
        await store.close()
        with pytest.raises(StoreClosedError):
            await store.scan()
        await store.close()
        async with store:
            await store.scan()

    async def test_many_open_at_once(self, tmp_path: Path, clock: ManualClock) -> None:
        """Ten tasks that open one store at the same time share it."""
        store = await self.make_store(tmp_path, clock)
        await asyncio.gather(*(store.open() for _ in range(10)))
        await new_session(store, commits=1)
        await asyncio.gather(*(store.close() for _ in range(10)))
        with pytest.raises(StoreClosedError):
            await store.scan()

    async def test_what_is_stored_survives(
        self, store: Store, tmp_path: Path, clock: ManualClock
    ) -> None:
        """Every part of a session reads the same after the store was closed and another opened."""
        if not self.durable:
            return
        pen = await new_session(store, commits=3)
        await store.append(pen.lease, [b"one", b""])
        await store.request("s", "r1", "signal", b"body")
        before = await must_read(store)
        again = await self.reopen(store, tmp_path, clock)
        try:
            assert await must_read(again) == before
            assert await again.scan() == [before.head]
            pen.store = again
            await pen.write()  # the lease still holds
            assert (await head_of(again)).commit == pen.number
        finally:
            await again.close()

    async def test_a_restarted_owner_goes_on(
        self, store: Store, tmp_path: Path, clock: ManualClock
    ) -> None:
        """After a restart a released session is claimed with a higher epoch and continues."""
        if not self.durable:
            return
        pen = await new_session(store, commits=2)
        await store.release(pen.lease)
        again = await self.reopen(store, tmp_path, clock)
        try:
            lease = await claim(again)
            assert lease.epoch > pen.lease.epoch
            assert lease.nonce == pen.lease.nonce
            await Pen(again, lease, await head_of(again)).write()
            assert bodies(await must_read(again)) == [b"body 0", b"body 1", b"body 2"]
        finally:
            await again.close()

    async def test_what_is_kept_outlives_closing(
        self, store: Store, tmp_path: Path, clock: ManualClock
    ) -> None:
        """After a restart the checkpoints that were pruned are not kept, and pruning goes on."""
        if not self.durable:
            return
        pen = await new_session(store, commits=6)
        positions = [info.position for info in (await must_read(store)).infos]
        await store.prune(pen.lease, [positions[3], positions[2]])
        await store.release(pen.lease)
        again = await self.reopen(store, tmp_path, clock)
        try:
            reading = await must_read(again)
            assert [info.commit for info in reading.kept] == [0, 1, 4, 5]
            lease = await claim(again)
            await Pen(again, lease, reading.head).write(full=True)
            await again.prune(lease, [positions[1], positions[0]])
            reading = await must_read(again)
            assert [info.commit for info in reading.kept] == [4, 5, 6]
        finally:
            await again.close()

    async def test_the_address_names_the_store(self, store: Store, clock: ManualClock) -> None:
        """The URL begins with a scheme, and the clock is the one that was handed in."""
        assert ":" in store.url
        assert store.clock is clock

    async def test_the_stores_time(self, store: Store, clock: ManualClock) -> None:
        """It is its user's, or a clock's that does not run backwards."""
        before = await store.now()
        assert self.clock_of_its_own or before == clock.now()
        assert await store.now() >= before

    async def test_a_missing_session_reads_as_none(self, store: Store) -> None:
        """Reading what was never made is None, and lists are empty."""
        assert await store.read("s", EVERYTHING) is None
        assert await store.scan() == []
