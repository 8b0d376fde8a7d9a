"""What workers take: sessions that are due, the longest due first, within the limits of queues."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from raf.errors import SessionBusyError
from raf.store.due import is_due, order
from raf.store.model import Claimed, Due, Kind, Summary
from raf.store.port import Store
from raf.testing.clock import ManualClock
from raf.testing.store_suite.base import (
    LEASE_S,
    Pen,
    SuiteBase,
    claim,
    dead_owner,
    head_of,
    live_owner,
    must_read,
    new_session,
)

OURS = "f1:ours"
STATUSES = (
    "running",
    "submitted",
    "sleeping",
    "waiting",
    "failed",
    "limited",
    "completed",
    "cancelled",
)
FAR = 100_000.0


def ours(**changes: Any) -> Due:
    """What a worker of these tests asks for."""
    return replace(Due(fingerprints=frozenset([OURS])), **changes)


async def left(store: Store, name: str, **changes: Any) -> Pen:
    """A session with one commit, given back; `running` unless said otherwise."""
    summary = Summary(**{"fingerprint": OURS, "status": "running", **changes})
    pen = await new_session(store, name)
    await pen.write(summary=summary)
    await store.release(pen.lease)
    return pen


async def take(store: Store, due: Due | None = None, *, limit: int = 100) -> list[Claimed]:
    """Claim what is due, as a worker does."""
    worker = live_owner(store.clock, "worker")
    return await store.claim_due(worker, due or ours(), lease_s=LEASE_S, limit=limit)


def names(claims: Iterable[Claimed]) -> list[str]:
    """Whose sessions they are."""
    return [claimed.lease.session_id for claimed in claims]


class DueTests(SuiteBase):
    """claim_due."""

    async def test_what_is_due(self, store: Store) -> None:
        """Each status with each time, with and without a request, is judged as the rule says."""
        now = await store.now()
        wakes = (None, now - FAR, now + FAR)
        cases = list(product(STATUSES, wakes, (0, 1, 2)))
        for turn, (status, wake_at, asks) in enumerate(cases):
            pen = await new_session(store, f"s{turn}")
            if asks:
                await store.request(f"s{turn}", "r", "signal", b"")
            await pen.write(
                consumed=asks // 2,
                created_at=now - (turn * 7) % 50,
                summary=Summary(fingerprint=OURS, status=status, wake_at=wake_at),
            )
            await store.release(pen.lease)
        await store.release((await new_session(store, "without a commit")).lease)
        heads = [head for head in await store.scan() if is_due(head, ours(), now)]
        assert len(cases) // 4 < len(heads) < len(cases)
        expected = [head.session_id for head in sorted(heads, key=order)]
        assert names(await take(store)) == expected
        assert await take(store) == []

    async def test_it_is_claimed_as_by_name(self, store: Store, clock: ManualClock) -> None:
        """A claim record with the next epoch is there, and the owner can write at once."""
        pen = await left(store, "s")
        (claimed,) = await take(store)
        lease = claimed.lease
        assert (claimed.took_over, claimed.created) == (False, False)
        assert (lease.nonce, lease.epoch) == (pen.lease.nonce, pen.lease.epoch + 1)
        assert (lease.owner, lease.duration_s) == (live_owner(clock, "worker"), LEASE_S)
        assert lease.expires_boot == self.lease_time(clock.boot() + LEASE_S)
        reading = await must_read(store)
        assert reading.head.held is not None
        assert [(r.info.kind, r.info.epoch) for r in reading.journal] == [(Kind.CLAIM, lease.epoch)]
        with pytest.raises(SessionBusyError):
            await claim(store)
        await Pen(store, lease, reading.head).write()
        assert await store.renew([lease]) == [True]

    async def test_the_longest_due_come_first(self, store: Store) -> None:
        """A limit takes them from the front, over all kinds; equal ones go by their ids."""
        now = await store.now()
        for name, at in (("c", 30.0), ("b", 10.0), ("e", 50.0), ("a", 50.0)):
            pen = await new_session(store, name)
            await pen.write(
                created_at=now - at, summary=Summary(fingerprint=OURS, status="running")
            )
            await store.release(pen.lease)
        await left(store, "d", status="sleeping", wake_at=now - 40.0)
        assert names(await take(store, limit=2)) == ["a", "e"]
        assert names(await take(store, limit=2)) == ["d", "c"]
        assert names(await take(store, limit=2)) == ["b"]

    @pytest.mark.parametrize("limit", [0, -1])
    async def test_no_limit_takes_nothing(self, store: Store, limit: int) -> None:
        """A limit below one claims nothing."""
        await left(store, "s")
        assert await take(store, limit=limit) == []
        assert (await head_of(store)).held is None

    async def test_only_what_was_asked_for(self, store: Store) -> None:
        """Other graphs, other queues and sessions to skip are left alone."""
        await left(store, "ours")
        await left(store, "theirs", fingerprint="f1:theirs")
        await left(store, "slow", queue="slow")
        await left(store, "skipped")
        due = ours(skip=frozenset(["skipped"]))
        assert await take(store, ours(fingerprints=frozenset())) == []
        assert await take(store, ours(queues={})) == []
        assert names(await take(store, due)) == ["ours"]
        both = ours(fingerprints=frozenset([OURS, "f1:theirs"]), queues={"slow": None, "no": 0})
        assert names(await take(store, both)) == ["slow"]

    @pytest.mark.parametrize("queue", ["", "\u00e9 \U0001f600", "a\x00b", "\ud800", "' OR 1 --"])
    async def test_queues_of_any_text(self, store: Store, queue: str) -> None:
        """Whatever text names a queue, only its sessions are taken for it."""
        await left(store, "s", queue=queue)
        await left(store, "other", queue=queue + "x")
        assert names(await take(store, ours(queues={queue: 1}))) == ["s"]

    async def test_what_is_held_is_left(self, store: Store, clock: ManualClock) -> None:
        """A live owner's session is passed over; once its lease ran out it is taken over."""
        pen = await new_session(store, "s")
        await pen.write(summary=Summary(fingerprint=OURS, status="running"))
        assert await take(store) == []
        await self.pass_time(store, clock, LEASE_S + 1)
        (claimed,) = await take(store)
        assert claimed.took_over
        assert claimed.lease.epoch > pen.lease.epoch
        assert (await must_read(store)).journal[-1].info.took_over
        assert await store.renew([pen.lease]) == [False]

    async def test_a_dead_owner_holds_nothing(self, store: Store, clock: ManualClock) -> None:
        """What a process left that is gone is taken at once, and takes no place in its queue."""
        for name in "ab":
            pen = Pen(store, await claim(store, name, owner=dead_owner(clock)))
            await pen.write(summary=Summary(fingerprint=OURS, status="running"))
        claims = await take(store, ours(queues={"default": 2}))
        assert [claimed.took_over for claimed in claims] == [True, True]

    async def test_a_request_wakes(self, store: Store) -> None:
        """What is asked makes an unfinished session due until a commit has consumed it."""
        await left(store, "s", status="waiting")
        assert await take(store) == []
        await store.request("s", "r", "answer", b"")
        (claimed,) = await take(store)
        waiting = Summary(fingerprint=OURS, status="waiting")
        await Pen(store, claimed.lease, await head_of(store)).write(consumed=1, summary=waiting)
        await store.release(claimed.lease)
        assert await take(store) == []

    async def test_a_deleted_session_is_never_due(self, store: Store) -> None:
        """Neither it nor a new one of its name without a commit."""
        await left(store, "s")
        (claimed,) = await take(store)
        await store.delete(claimed.lease)
        assert await take(store) == []
        await store.release(await claim(store))
        assert await take(store) == []

    # -- limits of queues ------------------------------------------------------------------------

    async def test_a_queue_has_places(self, store: Store, clock: ManualClock) -> None:
        """Of no queue more are held than its limit; a place that is given back is taken."""
        for turn in range(4):
            await left(store, f"a{turn}", queue="a")
            await left(store, f"b{turn}", queue="b")
        due = ours(queues={"a": 2, "b": None})
        claims = await take(store, due)
        assert sorted(names(claims)) == ["a0", "a1", "b0", "b1", "b2", "b3"]
        assert await take(store, due) == []
        await store.release(claims[names(claims).index("a0")].lease)
        assert names(await take(store, due)) == ["a0"]
        await self.pass_time(store, clock, LEASE_S + 1)
        assert names(await take(store, ours(queues={"a": 3}))) == ["a0", "a1", "a2"]

    async def test_whoever_holds_takes_a_place(self, store: Store) -> None:
        """Claims by name count, also of other graphs, of finished and of new sessions."""
        await left(store, "due")
        await new_session(store, "new")
        pen = await new_session(store, "finished")
        await pen.write(summary=Summary(fingerprint="f1:theirs", status="completed"))
        other = await new_session(store, "other")
        await other.write(summary=Summary(status="running", queue="other"))
        assert await take(store, ours(queues={"default": 2})) == []
        assert names(await take(store, ours(queues={"default": 3}))) == ["due"]

    async def test_two_workers_one_limit(
        self, store: Store, tmp_path: Path, clock: ManualClock
    ) -> None:
        """Through two instances at the same moment, each session has one owner, no place two."""
        for turn in range(12):
            await left(store, f"s{turn:02}")
        due = ours(queues={"default": 5})
        async with self.second(store, tmp_path, clock) as other:
            answers = await asyncio.gather(
                *(take(place, due, limit=3) for place in (store, other, store, other))
            )
            claims = [claimed for answer in answers for claimed in answer]
            assert sorted(names(claims)) == [f"s{turn:02}" for turn in range(5)]
            assert await take(other, due) == []
        for claimed in claims:
            head = await head_of(store, claimed.lease.session_id)
            assert head.epoch == claimed.lease.epoch

    async def test_a_cancelled_call_is_given_back(self, store: Store) -> None:
        """Cancelled at any moment, it binds nobody, and no owner counts as lost by it."""
        for name in "abc":
            await left(store, name)
        for turn in range(30):
            task = asyncio.create_task(take(store))
            for _ in range(turn % 7):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            got = [] if task.cancelled() else task.result()
            again = await take(store)
            assert sorted(names([*got, *again])) == ["a", "b", "c"]
            for claimed in [*got, *again]:
                assert not claimed.took_over
                await store.release(claimed.lease)
