"""Many at once: rivals, parallel sessions, cancelled writers, readers in the middle."""

import asyncio
from pathlib import Path

from raf.errors import SessionBusyError
from raf.store.model import Claimed
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


class ConcurrencyTests(SuiteBase):
    """Races."""

    async def test_two_rivals_one_winner(
        self, store: Store, tmp_path: Path, clock: ManualClock
    ) -> None:
        """Of two claims at the same moment, through two instances, exactly one succeeds."""
        async with self.second(store, tmp_path, clock) as other:
            for turn in range(20):
                name = f"s{turn}"
                if turn % 2:
                    await new_session(store, name, commits=1)
                    await self.pass_time(store, clock, LEASE_S + 1)
                answers = await asyncio.gather(
                    *(
                        place.claim(name, live_owner(clock, token), lease_s=LEASE_S, create=True)
                        for place, token in ((store, "one"), (other, "two"))
                    ),
                    return_exceptions=True,
                )
                won = [answer for answer in answers if isinstance(answer, Claimed)]
                lost = [answer for answer in answers if isinstance(answer, SessionBusyError)]
                assert (len(won), len(lost)) == (1, 1), answers
                assert (await head_of(other, name)).epoch == won[0].lease.epoch

    async def test_instances_see_each_other(
        self, store: Store, tmp_path: Path, clock: ManualClock
    ) -> None:
        """What one instance wrote, another reads, continues, and fences."""
        pen = await new_session(store, commits=2)
        async with self.second(store, tmp_path, clock) as other:
            await other.request("s", "r", "signal", b"hello")
            assert await must_read(other) == await must_read(store)
            await store.release(pen.lease)
            heir = Pen(other, await claim(other), await head_of(other))
            await heir.write(consumed=1)
        reading = await must_read(store)
        assert bodies(reading) == [b"body 0", b"body 1", b"body 2"]
        assert reading.requests == ()

    async def test_fifty_sessions_in_parallel(self, store: Store) -> None:
        """Sessions do not wait for, mix with, or lose to each other."""

        async def work(name: str) -> None:
            pen = await new_session(store, name, commits=1)
            for number in range(1, 5):
                await store.append(pen.lease, [f"{name} {number}".encode()])
                await pen.write(body=f"{name} {number}".encode())
            await store.release(pen.lease)

        names = [f"s{n}" for n in range(50)]
        await asyncio.gather(*(work(name) for name in names))
        for name in names:
            reading = await must_read(store, name)
            assert bodies(reading)[1:] == [f"{name} {n}".encode() for n in range(1, 5)]
            assert reading.head.held is None
            assert reading.journal == ()

    async def test_a_cancelled_commit_is_whole_or_nothing(self, store: Store) -> None:
        """Cancelled at any moment, a commit can be read as made or not, and the session goes on."""
        pen = await new_session(store, commits=1)
        for turn in range(50):
            draft = pen.draft()
            task = asyncio.create_task(store.commit(pen.lease, draft))
            for _ in range(turn % 5):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            reading = await must_read(store)
            assert reading.head.commit in (draft.commit - 1, draft.commit)
            assert reading.head.commit == reading.chain[-1].info.commit
            # What was read is the outcome: nothing of the write comes later.
            assert (await must_read(store)).head == reading.head
            if reading.head.commit != draft.commit:
                await store.commit(pen.lease, draft)
            pen.wrote(draft)
        reading = await must_read(store)
        assert [info.commit for info in reading.infos] == list(range(51))
        assert bodies(reading) == [f"body {n}".encode() for n in range(51)]

    async def test_a_cancelled_claim_is_given_back(self, store: Store, clock: ManualClock) -> None:
        """Cancelled at any moment, a claim binds nobody, and no owner counts as lost by it."""
        await store.release(await claim(store))
        for turn in range(50):
            name = "s" if turn % 2 else f"new {turn}"
            task = asyncio.create_task(
                store.claim(name, live_owner(clock), lease_s=LEASE_S, create=True)
            )
            for _ in range(turn % 7):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                await store.release(task.result().lease)
            again = await store.claim(name, live_owner(clock), lease_s=LEASE_S, create=True)
            assert not again.took_over
            await store.release(again.lease)

    async def test_cancelled_in_every_operation(self, store: Store) -> None:
        """Cancelling other writes neither breaks the store nor half-does them."""
        pen = await new_session(store, commits=1)
        for turn in range(20):
            tasks = [
                asyncio.create_task(store.append(pen.lease, [b"a", b"b"])),
                asyncio.create_task(store.renew([pen.lease])),
                asyncio.create_task(store.request("s", f"r{turn}", "signal", b"")),
                asyncio.create_task(store.scan()),
            ]
            for _ in range(turn % 5):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await pen.write(ends_journal=False)
        reading = await must_read(store)
        journal = [record.body for record in reading.journal]
        assert journal == [b"a", b"b"] * (len(journal) // 2)
        assert [request.seq for request in reading.requests] == list(
            range(1, reading.head.requests + 1)
        )

    async def test_readers_see_whole_commits_only(
        self, store: Store, tmp_path: Path, clock: ManualClock
    ) -> None:
        """A reader at full speed sees each time one moment, its journal too, and never goes back."""
        pen = await new_session(store, commits=1)
        done = asyncio.Event()

        async def write() -> None:
            for number in range(1, 60):
                await store.append(pen.lease, [b"a", b"b"])
                await pen.write(full=number % 7 == 0, events=2)
            done.set()

        async def watch(place: Store) -> None:
            last = 0
            while not done.is_set():
                reading = await must_read(place)
                head = reading.head
                assert head.commit >= last
                last = head.commit
                assert reading.chain[-1].info.commit == head.commit == reading.infos[-1].commit
                assert reading.chain[0].info.full
                assert head.events == 1 + 2 * head.commit
                journal = [record.info.position for record in reading.journal]
                assert journal == list(range(head.journal_from + 1, head.position + 1))

        async with self.second(store, tmp_path, clock) as other:
            await asyncio.gather(write(), watch(store), watch(other))
