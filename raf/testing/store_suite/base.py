"""What the tests of the suite share: the store under test, owners, and a pen that writes commits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import ANY

import pytest
import pytest_asyncio

from raf.clock import Clock
from raf.store.model import Commit, Head, Lease, Owner, Reading, Select, Summary
from raf.store.owner import this_owner
from raf.store.port import Store
from raf.testing.clock import ManualClock

LEASE_S = 30.0
# Above the highest pid that Linux gives out: no such process, for certain.
NO_SUCH_PID = 2**22 + 7
EVERYTHING = Select(
    chain=True,
    journal=True,
    requests=True,
    events_after=0,
    infos=True,
    kept=True,
    log=True,
    inbox=True,
)


def live_owner(clock: Clock, token: str = "one") -> Owner:  # noqa: S107 - names an engine
    """An owner in this process, so it is alive; another token is another engine."""
    return replace(this_owner(clock), token=token)


def dead_owner(clock: Clock) -> Owner:
    """An owner of this host and boot whose process is gone."""
    return replace(this_owner(clock), token="dead", pid=NO_SUCH_PID)  # noqa: S106 - a name


def owner_of_another_boot(clock: Clock) -> Owner:
    """An owner whose lease times cannot be compared with this clock."""
    return replace(this_owner(clock), token="earlier", boot_id="another-boot")  # noqa: S106 - a name


async def claim(
    store: Store, session_id: str = "s", *, owner: Owner | None = None, lease_s: float = LEASE_S
) -> Lease:
    """Claim a session, creating it when it is missing."""
    owner = owner or live_owner(store.clock)
    return (await store.claim(session_id, owner, lease_s=lease_s, create=True)).lease


async def must_read(store: Store, session_id: str = "s", select: Select = EVERYTHING) -> Reading:
    """Read a session that must be there."""
    reading = await store.read(session_id, select)
    assert reading is not None, f"session {session_id!r} is missing"
    return reading


async def head_of(store: Store, session_id: str = "s") -> Head:
    """The head of a session that must be there."""
    return (await must_read(store, session_id, Select())).head


class Pen:
    """Writes the commits of one session in order, as an engine does.

    Commit 0 is a full checkpoint, the others are deltas unless `full=True`; the body of commit n is
    `body n`, it has `events` events (default 1) in `events n`, and it ends the journal.
    """

    def __init__(self, store: Store, lease: Lease, head: Head | None = None) -> None:
        self.store = store
        self.lease = lease
        self.number = head.commit if head else -1
        self.events = head.events if head else 0
        self.consumed = head.consumed if head else 0

    def draft(self, *, events: int = 1, **changes: Any) -> Commit:
        """The next commit, not yet written."""
        number = self.number + 1
        draft = Commit(
            commit_id=self.store.clock.new_id(),
            commit=number,
            step=number - 1,
            full=number == 0,
            body=f"body {number}".encode(),
            events=f"events {number}".encode() if events else b"",
            first_event=self.events + 1,
            event_count=events,
            consumed=self.consumed,
            ends_journal=True,
            created_at=self.store.clock.now(),
            summary=Summary(workflow="w", status="running", step=number - 1),
        )
        return replace(draft, **changes)

    def wrote(self, commit: Commit) -> Commit:
        """Note that a draft is written."""
        self.number = commit.commit
        self.events += commit.event_count
        self.consumed = commit.consumed
        return commit

    async def write(self, *, events: int = 1, **changes: Any) -> Commit:
        """Write the next commit."""
        draft = self.draft(events=events, **changes)
        await self.store.commit(self.lease, draft)
        return self.wrote(draft)


async def new_session(store: Store, session_id: str = "s", *, commits: int = 0) -> Pen:
    """Create a session with so many commits; its lease is held."""
    pen = Pen(store, await claim(store, session_id))
    for _ in range(commits):
        await pen.write()
    return pen


def bodies(reading: Reading) -> list[bytes]:
    """The bodies of the chain, oldest first."""
    return [record.body for record in reading.chain]


class SuiteBase:
    """How the store under test is made; the parts of the suite build on it."""

    durable: ClassVar[bool] = True
    shareable: ClassVar[bool] = True
    clock_of_its_own: ClassVar[bool] = False

    async def make_store(self, tmp_path: Path, clock: Clock) -> Store:
        """Return a store that is not opened; equal paths mean the same place."""
        raise NotImplementedError("override make_store() in the test class")

    async def pass_time(
        self,
        store: Store,  # noqa: ARG002 - of use to a store with a clock of its own
        clock: ManualClock,
        seconds: float,
    ) -> None:
        """Let time pass for the store and for whoever uses it.

        A store whose leases live on a server's clock overrides it: it moves the expiries that are
        stored back by so much, and advances the clock of its user, here as there.
        """
        clock.advance(seconds)

    def lease_time(self, seconds: float) -> object:
        """What `Lease.expires_boot`, a time of its owner's clock, must equal if it should be this."""
        return pytest.approx(seconds, abs=5.0) if self.clock_of_its_own else seconds

    def held_until(self, lease: Lease) -> object:
        """What `Held.expires_boot`, a time of the store's clock, must equal for this lease.

        Whatever clock it is, two reads of one lease must tell the same.
        """
        return ANY if self.clock_of_its_own else lease.expires_boot

    async def reopen(self, store: Store, tmp_path: Path, clock: Clock) -> Store:
        """Close the store and return another, opened, at the same place."""
        await store.close()
        again = await self.make_store(tmp_path, clock)
        await again.open()
        return again

    @asynccontextmanager
    async def second(self, store: Store, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
        """Another instance at the place of the first, or the first where there can be no other."""
        if not self.shareable:
            yield store
            return
        async with await self.make_store(tmp_path, clock) as other:
            yield other

    @pytest.fixture
    def clock(self) -> ManualClock:
        """The clock that drives the store."""
        return ManualClock()

    @pytest_asyncio.fixture
    async def store(self, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
        """The store under test, opened."""
        async with await self.make_store(tmp_path, clock) as store:
            yield store
