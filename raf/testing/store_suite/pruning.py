"""Pruning: bodies go, events stay, and what is left is whole."""

from raf.store.model import Kind, Reading, Select
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


def _positions(reading: Reading, *commits: int) -> list[int]:
    by_commit = {info.commit: info.position for info in reading.infos}
    return [by_commit[commit] for commit in commits]


async def _two_chains(store: Store) -> Pen:
    """Commits 0 to 5, full at 0 and 3; each has two events."""
    pen = await new_session(store)
    for number in range(6):
        await pen.write(full=number in (0, 3), events=2)
    return pen


async def _kept(store: Store) -> list[int]:
    """The commits that are kept, after a look whether they are told as among all."""
    reading = await must_read(store)
    assert reading.kept == tuple(info for info in reading.infos if info.body_size)
    assert (await must_read(store, select=Select(kept=True))).kept == reading.kept
    return [info.commit for info in reading.kept]


async def _chain(store: Store, at: int) -> list[bytes]:
    return bodies(await must_read(store, select=Select(chain=True, at=at)))


class PruningTests(SuiteBase):
    """prune."""

    async def test_bodies_go_and_events_stay(self, store: Store) -> None:
        """A pruned chain reads as empty; its events and clear fields are still there."""
        pen = await _two_chains(store)
        before = await must_read(store)
        await store.prune(pen.lease, _positions(before, 2, 1, 0))
        after = await must_read(store)
        for at in (0, 1, 2):
            assert await _chain(store, at) == []
        assert bodies(after) == bodies(before)
        assert [record.events for record in after.events] == [r.events for r in before.events]
        assert after.head.first_event == 1
        assert [info.commit for info in after.infos] == [0, 1, 2, 3, 4, 5]
        assert [info.body_size for info in after.infos][:3] == [0, 0, 0]
        assert [info.events_size for info in after.infos] == [
            info.events_size for info in before.infos
        ]

    async def test_newest_first_leaves_shorter_chains(self, store: Store) -> None:
        """With the newest body of a chain gone, the older commits still read whole."""
        pen = await _two_chains(store)
        before = await must_read(store)
        await store.prune(pen.lease, _positions(before, 2))
        assert await _chain(store, 2) == []
        assert await _chain(store, 1) == [b"body 0", b"body 1"]
        await store.prune(pen.lease, _positions(before, 1))
        assert await _chain(store, 0) == [b"body 0"]

    async def test_a_chain_without_its_base_is_no_chain(self, store: Store) -> None:
        """A store never returns a part of a chain."""
        pen = await _two_chains(store)
        await store.prune(pen.lease, _positions(await must_read(store), 0))
        for at in (0, 1, 2):
            assert await _chain(store, at) == []
        assert await _chain(store, 4) == [b"body 3", b"body 4"]

    async def test_pruning_again_changes_nothing(self, store: Store) -> None:
        """Positions already pruned, and an empty list, are fine."""
        pen = await _two_chains(store)
        positions = _positions(await must_read(store), 2, 1, 0)
        await store.prune(pen.lease, positions)
        before = await must_read(store)
        await store.prune(pen.lease, positions)
        await store.prune(pen.lease, [])
        assert await must_read(store) == before

    async def test_the_session_goes_on(self, store: Store) -> None:
        """After pruning the next commit follows as if nothing had happened."""
        pen = await _two_chains(store)
        await store.prune(pen.lease, _positions(await must_read(store), 2, 1, 0))
        await pen.write()
        assert bodies(await must_read(store)) == [b"body 3", b"body 4", b"body 5", b"body 6"]

    async def test_what_is_kept(self, store: Store) -> None:
        """The commits that still have a body, oldest first, with what was written since."""
        pen = await _two_chains(store)
        assert await _kept(store) == [0, 1, 2, 3, 4, 5]
        positions = _positions(await must_read(store), 2, 1, 0)
        await store.prune(pen.lease, positions[:2])
        assert await _kept(store) == [0, 3, 4, 5]
        await store.append(pen.lease, [b"one"])
        await pen.write(ends_journal=False)
        assert await _kept(store) == [0, 3, 4, 5, 6]
        await store.prune(pen.lease, positions)
        assert await _kept(store) == [3, 4, 5, 6]

    async def test_an_old_one_is_kept_among_pruned_ones(self, store: Store) -> None:
        """A pinned chain stays known between others that went, until it goes too."""
        pen = await _two_chains(store)
        for number in range(6, 12):
            await pen.write(full=number in (6, 9))
        before = await must_read(store)
        await store.prune(pen.lease, _positions(before, 2, 1, 0, 5))
        assert await _kept(store) == [3, 4, 6, 7, 8, 9, 10, 11]
        await store.prune(pen.lease, _positions(before, 8, 7, 6))
        assert await _kept(store) == [3, 4, 9, 10, 11]
        await pen.write()
        await store.prune(pen.lease, _positions(before, 4))
        assert await _kept(store) == [3, 9, 10, 11, 12]
        assert await _chain(store, 3) == [b"body 3"]
        await store.prune(pen.lease, _positions(before, 3))
        assert await _kept(store) == [9, 10, 11, 12]

    async def test_nothing_is_kept(self, store: Store) -> None:
        """When every body went, only what comes afterwards is kept."""
        pen = await _two_chains(store)
        await store.prune(pen.lease, _positions(await must_read(store), 5, 4, 3, 2, 1, 0))
        assert await _kept(store) == []
        await pen.write(full=True)
        assert await _kept(store) == [6]

    async def test_what_is_kept_without_events(self, store: Store) -> None:
        """A body stays known when the events beside it, or all of its neighbours, go."""
        pen = await _two_chains(store)
        positions = _positions(await must_read(store), 2, 1)
        await store.prune(pen.lease, positions, events_before=9)
        assert await _kept(store) == [0, 3, 4, 5]
        assert [info.events_size > 0 for info in (await must_read(store)).kept] == [
            False,
            False,
            True,
            True,
        ]

    async def test_the_open_journal_stays(self, store: Store, clock: ManualClock) -> None:
        """Pruning keeps the claims and records that the open journal needs."""
        pen = await _two_chains(store)
        await store.append(pen.lease, [b"one"])
        await self.pass_time(store, clock, LEASE_S + 1)
        rival = await claim(store, owner=live_owner(clock, "two"))
        await store.prune(rival, _positions(await must_read(store), 2, 1, 0))
        journal = (await must_read(store)).journal
        assert [(r.info.kind, r.body) for r in journal] == [
            (Kind.JOURNAL, b"one"),
            (Kind.CLAIM, b""),
        ]

    async def test_events_before_a_number(self, store: Store) -> None:
        """Whole records below the number lose their events; the head says what is left."""
        pen = await _two_chains(store)
        positions = _positions(await must_read(store), 2, 1, 0)
        await store.prune(pen.lease, positions, events_before=6)
        reading = await must_read(store)
        # Records hold 1-2, 3-4, 5-6, ...: the third holds event 6, so it stays.
        assert reading.head.first_event == reading.events[0].info.first_event
        assert [record.events for record in reading.events] == [
            b"events 2",
            b"events 3",
            b"events 4",
            b"events 5",
        ]
        assert reading.head.events == pen.events
        gone = [info for info in reading.infos if info.commit in (0, 1)]
        assert [(info.body_size, info.events_size) for info in gone] == [(0, 0)] * len(gone)
        assert bodies(reading) == [b"body 3", b"body 4", b"body 5"]

    async def test_events_without_bodies(self, store: Store) -> None:
        """Events may go while their bodies stay, and the chain still reads."""
        pen = await _two_chains(store)
        await store.prune(pen.lease, [], events_before=pen.events + 1)
        reading = await must_read(store)
        assert reading.events == ()
        assert reading.head.first_event == pen.events + 1
        assert await _chain(store, 2) == [b"body 0", b"body 1", b"body 2"]
        assert [record.events for record in reading.chain] == [b"", b"", b""]
        await pen.write()
        after = await must_read(store)
        assert [record.events for record in after.events] == [b"events 6"]
        assert after.head.first_event == after.events[0].info.first_event

    async def test_the_events_left_never_grow(self, store: Store) -> None:
        """A lower number than before brings nothing back and moves nothing."""
        pen = await _two_chains(store)
        await store.prune(pen.lease, [], events_before=5)
        before = await must_read(store)
        await store.prune(pen.lease, [], events_before=1)
        await store.prune(pen.lease, [], events_before=0)
        assert await must_read(store) == before

    async def test_a_finished_run_is_still_found(self, store: Store) -> None:
        """A pruned body does not hide the run that its commit finished."""
        pen = await new_session(store, commits=1)
        await pen.write(run_id="main")
        await pen.write(full=True)
        await store.prune(pen.lease, _positions(await must_read(store), 1, 0))
        run = (await must_read(store, select=Select(run="main"))).run
        assert run is not None
        assert (run.body, run.events) == (b"", b"events 1")

    async def test_another_sessions_log_is_untouched(self, store: Store) -> None:
        """Positions mean this session's records only."""
        pen = await _two_chains(store)
        await new_session(store, "other", commits=6)
        before = await must_read(store, "other")
        await store.prune(pen.lease, _positions(await must_read(store), 2, 1, 0), events_before=9)
        assert await must_read(store, "other") == before
