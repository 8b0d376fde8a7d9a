"""Drives a store beside a dict: claims, commits, crashes, takeovers, pruning, forks, deletions.

Each rule does one thing to the store and says to the model what must have become of it; after each,
all of every session is compared.  Old leases are kept and tried again: a former owner is refused.
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raf.errors import (
    CommitOrderError,
    LeaseLostError,
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
)
from raf.store.model import Commit, Due, Lease, Owner, Select, Summary
from raf.store.port import Store
from raf.testing.clock import ManualClock
from raf.testing.store_suite.base import LEASE_S, SuiteBase, live_owner
from tests.property.store_model import Holder, ModelSession, must_show, unowned

T = TypeVar("T")

NAMES = ("a", "A", "../é", "z" * 300)
SESSIONS = st.sampled_from(NAMES)
OWNERS = st.sampled_from(("one", "two"))
PLACES = st.integers(0, 1)
STATUSES = (
    "submitted", "running", "sleeping", "waiting", "limited", "failed", "completed", "cancelled",
)  # fmt: skip
DUE = Due(fingerprints=frozenset({"f"}), queues={"default": None, "slow": 1})
ALL = Select(
    chain=True, journal=True, requests=True, events_after=0, infos=True, kept=True, log=True,
    inbox=True,
)  # fmt: skip


class StoreMachine(RuleBasedStateMachine):
    """The rules; a subclass says how its stores are made."""

    def __init__(self, kit: Callable[[], SuiteBase]) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.kit = kit()
        self.folder = Path(tempfile.mkdtemp(prefix="raf-machine-"))
        self.clock = ManualClock()
        self.stores: list[Store] = []
        self.model: dict[str, ModelSession] = {}
        self.epochs: dict[str, int] = {}  # the last of deleted sessions
        self.former: list[Lease] = []

    @initialize()
    def open(self) -> None:
        """Two instances at one place, where there can be two."""
        for _ in range(2 if self.kit.shareable else 1):
            self.stores.append(self.go(self._opened()))

    def go(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run one call."""
        return self.runner.run(coroutine)

    async def _opened(self) -> Store:
        store = await self.kit.make_store(self.folder, self.clock)
        await store.open()
        return store

    def teardown(self) -> None:
        """Close all and leave nothing behind."""
        for store in self.stores:
            self.go(store.close())
        self.runner.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def at(self, place: int) -> Store:
        """One of the instances at the place of the store."""
        return self.stores[place % len(self.stores)]

    def owner(self, token: str) -> Owner:
        """A living owner."""
        return live_owner(self.clock, token)

    def held(self, name: str) -> tuple[ModelSession, Lease] | None:
        """A session that somebody holds, with the lease."""
        session = self.model.get(name)
        if session is None or session.holder is None:
            return None
        return session, session.holder.lease

    # -- owning ----------------------------------------------------------------------------------

    @rule(name=SESSIONS, token=OWNERS, place=PLACES, create=st.booleans())
    def claim(self, name: str, token: str, place: int, create: bool) -> None:
        session = self.model.get(name)
        call = self.at(place).claim(name, self.owner(token), lease_s=LEASE_S, create=create)
        if session is None and not create:
            with pytest.raises(SessionNotFoundError):
                self.go(call)
            return
        if session is not None and session.holder is not None and session.holder.bound:
            with pytest.raises(SessionBusyError):
                self.go(call)
            return
        claimed = self.go(call)
        assert claimed.created == (session is None)
        assert claimed.took_over == (session is not None and session.holder is not None)
        self._claimed(claimed.lease)

    def _claimed(self, lease: Lease) -> None:
        session = self.model.get(lease.session_id)
        if session is None:
            assert lease.epoch > self.epochs.get(lease.session_id, 0)
            session = ModelSession(nonce=lease.nonce, epoch=lease.epoch, holder=None)
            self.model[lease.session_id] = session
        else:
            assert lease.nonce == session.nonce
            assert lease.epoch == session.epoch + 1
            if session.holder is not None:
                self.former.append(session.holder.lease)
        session.epoch = lease.epoch
        session.holder = Holder(lease)

    @rule(place=PLACES, token=OWNERS, limit=st.integers(1, 3))
    def claim_due(self, place: int, token: str, limit: int) -> None:
        store = self.at(place)
        now = self.go(store.now())
        free = {
            name
            for name, s in self.model.items()
            if s.wants(DUE, now) and not (s.holder and s.holder.bound)
        }
        slow_held = sum(
            bool(s.holder and s.holder.bound and s.commits)
            and s.commits[-1].summary.queue == "slow"
            for s in self.model.values()
        )
        slow_free = {n for n in free if self.model[n].commits[-1].summary.queue == "slow"}
        takes = len(free - slow_free) + min(len(slow_free), max(0, 1 - slow_held))
        got = self.go(store.claim_due(self.owner(token), DUE, lease_s=LEASE_S, limit=limit))
        names = [claimed.lease.session_id for claimed in got]
        assert set(names) <= free
        assert len(names) == len(set(names)) == min(limit, takes)
        for claimed in got:
            assert claimed.took_over == (self.model[claimed.lease.session_id].holder is not None)
            self._claimed(claimed.lease)

    @rule(name=SESSIONS, place=PLACES)
    def release(self, name: str, place: int) -> None:
        if found := self.held(name):
            session, lease = found
            self.go(self.at(place).release(lease))
            self.former.append(lease)
            session.holder = None

    @rule(place=PLACES)
    def renew(self, place: int) -> None:
        holders = [s.holder for s in self.model.values() if s.holder]
        leases = [*(h.lease for h in holders), *self.former]
        kept = self.go(self.at(place).renew(leases))
        assert kept == [True] * len(holders) + [False] * len(self.former)
        for holder in holders:
            holder.bound = True

    @rule()
    def a_lease_runs_out(self) -> None:
        self.go(self.kit.pass_time(self.stores[0], self.clock, LEASE_S + 1))
        for session in self.model.values():
            if session.holder is not None:
                session.holder.bound = False

    @rule(place=PLACES)
    def an_instance_is_closed_and_opened(self, place: int) -> None:
        if self.kit.durable and len(self.stores) > 1:
            place %= len(self.stores)
            self.go(self.stores[place].close())
            self.stores[place] = self.go(self._opened())

    # -- writing ---------------------------------------------------------------------------------

    def draft(self, session: ModelSession, lease: Lease, data: Any) -> Commit:
        number = len(session.commits)
        status = data.draw(st.sampled_from(STATUSES))
        count = data.draw(st.integers(0, 2))
        wake_at = None
        if status in ("submitted", "sleeping", "waiting") and data.draw(st.booleans()):
            # Far enough from now that no clock of a server comes near it.
            wake_at = self.go(self.stores[0].now()) + data.draw(st.sampled_from((-1e6, 1e6)))
        return Commit(
            commit_id=self.clock.new_id(),
            commit=number,
            step=number - 1,
            full=number == 0 or data.draw(st.booleans()),
            body=f"body {number} of {lease.nonce}".encode(),
            events=f"events {number}".encode() if count else b"",
            first_event=session.events + 1,
            event_count=count,
            consumed=data.draw(st.integers(session.consumed, len(session.requests))),
            ends_journal=data.draw(st.booleans()),
            created_at=self.clock.now(),
            summary=Summary(
                workflow="w",
                fingerprint=data.draw(st.sampled_from("fg")),
                status=status,
                step=number - 1,
                wake_at=wake_at,
                queue=data.draw(st.sampled_from(("default", "slow", "other"))),
                reason="why\x00",
            ),
            run_id="",
        )

    @rule(name=SESSIONS, place=PLACES, again=st.booleans(), data=st.data())
    def commit(self, name: str, place: int, again: bool, data: Any) -> None:
        if found := self.held(name):
            session, lease = found
            commit = self.draft(session, lease, data)
            self.go(self.at(place).commit(lease, commit))
            if again:  # its reply was lost: the same commit is no second one
                self.go(self.at(place + 1).commit(lease, commit))
            session.wrote(commit)

    @rule(name=SESSIONS, place=PLACES, data=st.data())
    def a_commit_is_cancelled(self, name: str, place: int, data: Any) -> None:
        if found := self.held(name):
            session, lease = found
            commit = self.draft(session, lease, data)
            pauses = data.draw(st.integers(0, 6))

            async def cut() -> None:
                task = asyncio.ensure_future(self.at(place).commit(lease, commit))
                for _ in range(pauses):
                    await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

            self.go(cut())
            # The instance that wrote knows the outcome; the other may look too soon.
            reading = self.go(self.at(place).read(name, Select()))
            assert reading is not None
            if reading.head.commit == commit.commit:
                session.wrote(commit)
            assert reading.head.commit == len(session.commits) - 1

    @rule(name=SESSIONS, place=PLACES, data=st.data())
    def a_commit_out_of_order(self, name: str, place: int, data: Any) -> None:
        if found := self.held(name):
            session, lease = found
            commit = self.draft(session, lease, data)
            wrong = data.draw(
                st.sampled_from(
                    (
                        {"commit": commit.commit + 1},
                        {"commit": commit.commit - 1},
                        {"first_event": commit.first_event + 1},
                        {"consumed": len(session.requests) + 1},
                    )
                )
            )
            with pytest.raises(CommitOrderError):
                self.go(self.at(place).commit(lease, replace(commit, **wrong)))

    @rule(name=SESSIONS, place=PLACES, count=st.integers(1, 3))
    def append(self, name: str, place: int, count: int) -> None:
        if found := self.held(name):
            session, lease = found
            bodies = [f"journal {len(session.journal) + n}".encode() for n in range(count)]
            self.go(self.at(place).append(lease, bodies))
            session.journal += bodies

    @rule(place=PLACES, which=st.integers(0, 10), data=st.data())
    def a_former_owner_writes(self, place: int, which: int, data: Any) -> None:
        if not self.former:
            return
        lease = self.former[which % len(self.former)]
        store, session = self.at(place), self.model.get(lease.session_id)
        if session is not None and session.epoch == lease.epoch and session.nonce == lease.nonce:
            return  # released and not claimed since: nobody replaced it
        empty = ModelSession(nonce=lease.nonce, epoch=lease.epoch, holder=None)
        late = self.draft(session or empty, lease, data)
        for call in (
            store.commit(lease, late),
            store.append(lease, [b"late"]),
            store.prune(lease, [1, 2, 3], events_before=10),
        ):
            with pytest.raises(LeaseLostError):
                self.go(call)
        self.go(store.release(lease))
        if session is not None:
            with pytest.raises(LeaseLostError):
                self.go(store.delete(lease))

    # -- asking, cleaning, moving ------------------------------------------------------------------

    @rule(name=SESSIONS, place=PLACES, kind=st.sampled_from(("cancel", "pin")), old=st.booleans())
    def request(self, name: str, place: int, kind: str, old: bool) -> None:
        session = self.model.get(name)
        if session is None:
            with pytest.raises(SessionNotFoundError):
                self.go(self.at(place).request(name, "r", kind, b"x"))
        elif old and session.requests:
            known = session.requests[0]
            again = self.go(self.at(place).request(name, known.request_id, "other", b"other"))
            assert again == known
        else:
            request_id = f"r{len(session.requests)}"
            request = self.go(self.at(place).request(name, request_id, kind, b"asked"))
            assert (request.seq, request.kind) == (len(session.requests) + 1, kind)
            session.requests.append(request)

    @rule(name=SESSIONS, place=PLACES, most=st.integers(0, 3), events=st.integers(0, 6))
    def prune(self, name: str, place: int, most: int, events: int) -> None:
        if found := self.held(name):
            session, lease = found
            reading = self.go(self.at(place).read(name, Select(kept=True)))
            assert reading is not None
            fulls = [info.commit for info in reading.kept if info.full]
            old = [i for i in reversed(reading.kept) if fulls and i.commit < fulls[-1]][:most]
            before = min(events, session.events)
            call = self.at(place).prune(
                lease, [i.position for i in old], events_before=before or None
            )
            self.go(call)
            session.dropped([info.commit for info in old])
            if before:
                session.events_dropped(before)

    @rule(name=SESSIONS, place=PLACES)
    def delete(self, name: str, place: int) -> None:
        if found := self.held(name):
            session, lease = found
            self.go(self.at(place).delete(lease))
            self.go(self.at(place + 1).delete(lease))  # its own retry
            del self.model[name]
            self.epochs[name] = session.epoch
            self.former.append(lease)

    @rule(name=SESSIONS, place=PLACES)
    def move_out_and_in(self, name: str, place: int) -> None:
        if found := self.held(name):
            session, lease = found
            if not session.commits:
                return
            before = self.go(self.at(place).read(name, ALL))
            assert before is not None
            with pytest.raises(SessionExistsError):
                self.go(self.at(place).adopt(before))
            self.go(self.at(place).delete(lease))
            self.go(self.at(place + 1).adopt(before))
            after = self.go(self.at(place).read(name, ALL))
            assert after is not None
            assert after.head.epoch > lease.epoch
            assert after.head == unowned(before.head, after.head.epoch)
            assert (after.log, after.inbox) == (before.log, before.inbox)
            self.former.append(lease)
            session.epoch, session.holder = after.head.epoch, None

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def the_store_is_the_model(self) -> None:
        for store in self.stores:
            heads = self.go(store.scan())
            assert [head.session_id for head in heads] == sorted(self.model)
            for name in NAMES:
                reading = self.go(store.read(name, ALL))
                assert (reading is None) == (name not in self.model)
                if reading is not None:
                    must_show(self.model[name], reading)
