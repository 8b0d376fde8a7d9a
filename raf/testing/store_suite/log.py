"""Commits: atomic, numbered without gaps, repeatable by id."""

from dataclasses import replace
from typing import Any

import pytest

from raf.errors import CommitOrderError
from raf.store.model import Kind, Select, Summary
from raf.store.port import Store
from raf.testing.clock import ManualClock
from raf.testing.store_suite.base import SuiteBase, bodies, head_of, must_read, new_session

MEGABYTE = 1024 * 1024


class LogTests(SuiteBase):
    """commit, and the chain that it leaves."""

    async def test_a_commit_moves_the_head(self, store: Store, clock: ManualClock) -> None:
        """Head, record, events and summary are those of the commit."""
        pen = await new_session(store)
        await self.pass_time(store, clock, 5)
        summary = Summary(
            workflow="review",
            fingerprint="f1:ab",
            run_id="main",
            status="waiting",
            step=0,
            wake_at=1234.5,
            queue="slow",
            reason="asks für \u00e9 \U0001f600",
            forked_from="other@3",
        )
        commit = await pen.write(events=3, summary=summary)
        reading = await must_read(store)
        head = reading.head
        assert (head.commit, head.events, head.first_event) == (0, commit.event_count, 1)
        assert head.summary == summary
        assert head.updated_at == clock.now()
        assert head.held is not None
        assert head.created_at < head.updated_at
        (record,) = reading.chain
        info = record.info
        assert (record.body, record.events) == (commit.body, commit.events)
        assert (info.kind, info.epoch, info.commit) == (Kind.COMMIT, pen.lease.epoch, 0)
        assert (info.step, info.full, info.run_id) == (commit.step, True, "")
        assert (info.first_event, info.event_count) == (1, commit.event_count)
        assert (info.created_at, info.took_over) == (clock.now(), False)
        assert (info.body_size, info.events_size) == (len(commit.body), len(commit.events))
        assert reading.infos == (info,)
        assert info.position == head.commit_position

    async def test_numbers_have_no_gap(self, store: Store) -> None:
        """Commit and event numbers follow each other; positions grow."""
        pen = await new_session(store)
        for events in (1, 0, 4, 2):
            await pen.write(events=events)
        infos = (await must_read(store)).infos
        assert [info.commit for info in infos] == [0, 1, 2, 3]
        assert [info.event_count for info in infos] == [1, 0, 4, 2]
        assert [info.first_event for info in infos if info.event_count] == [1, 2, 6]
        positions = [info.position for info in infos]
        assert positions == sorted(set(positions))
        assert (await head_of(store)).events == pen.events

    @pytest.mark.parametrize(
        "change",
        [
            {"commit": 1},
            {"commit": 3},
            {"commit": -1},
            {"first_event": 2},
            {"first_event": 4},
            {"consumed": 1},
        ],
        ids=str,
    )
    async def test_a_wrong_number_is_refused(self, store: Store, change: dict[str, Any]) -> None:
        """A commit that repeats, skips or falls behind a number writes nothing."""
        pen = await new_session(store, commits=2)
        before = await must_read(store)
        with pytest.raises(CommitOrderError):
            await store.commit(pen.lease, pen.draft(**change))
        assert await must_read(store) == before
        await pen.write()

    async def test_consumed_never_falls(self, store: Store) -> None:
        """A commit cannot give a consumed request back."""
        pen = await new_session(store, commits=1)
        await store.request("s", "r1", "signal", b"")
        await pen.write(consumed=1)
        with pytest.raises(CommitOrderError):
            await store.commit(pen.lease, pen.draft(consumed=0))
        assert (await head_of(store)).consumed == 1

    async def test_my_own_retry_succeeds_once(self, store: Store) -> None:
        """The same commit again is a success and not a second record."""
        pen = await new_session(store, commits=1)
        commit = await pen.write()
        before = await must_read(store)
        for _ in range(2):
            await store.commit(pen.lease, commit)
        assert await must_read(store) == before
        await pen.write()

    async def test_a_retry_is_known_by_its_id_alone(self, store: Store) -> None:
        """Equal content under another id is a rival, and refused by its number."""
        pen = await new_session(store, commits=1)
        commit = await pen.write()
        with pytest.raises(CommitOrderError):
            await store.commit(pen.lease, replace(commit, commit_id=store.clock.new_id()))

    async def test_the_chain_at_the_head(self, store: Store) -> None:
        """It begins at the nearest full checkpoint and ends at the head, oldest first."""
        pen = await new_session(store, commits=3)
        assert bodies(await must_read(store)) == [b"body 0", b"body 1", b"body 2"]
        await pen.write(full=True)
        assert bodies(await must_read(store)) == [b"body 3"]
        await pen.write()
        reading = await must_read(store)
        assert bodies(reading) == [b"body 3", b"body 4"]
        assert [record.info.full for record in reading.chain] == [True, False]

    @pytest.mark.parametrize(
        ("at", "expected"),
        [(0, "0"), (1, "01"), (2, "012"), (3, "3"), (4, "34"), (5, "5"), (6, ""), (-1, "")],
    )
    async def test_the_chain_at_an_older_commit(self, store: Store, at: int, expected: str) -> None:
        """`at` reads the state as of that commit; a number that was never made reads nothing."""
        pen = await new_session(store)
        for number in range(6):
            await pen.write(full=number in (0, 3, 5))
        reading = await must_read(store, select=Select(chain=True, at=at))
        assert bodies(reading) == [f"body {number}".encode() for number in expected]
        assert reading.head.commit == pen.number

    async def test_a_session_without_commits_has_no_chain(self, store: Store) -> None:
        """Before the first commit the chain is empty."""
        await new_session(store)
        reading = await must_read(store)
        assert (reading.chain, reading.infos, reading.kept, reading.events) == ((), (), (), ())

    async def test_what_is_not_selected_is_empty(self, store: Store) -> None:
        """A plain read returns the head alone."""
        pen = await new_session(store, commits=2)
        await store.append(pen.lease, [b"x"])
        await store.request("s", "r", "signal", b"")
        reading = await must_read(store, select=Select())
        assert (reading.chain, reading.journal, reading.requests) == ((), (), ())
        assert (reading.events, reading.infos, reading.run) == ((), (), None)
        assert (reading.log, reading.inbox) == ((), ())

    @pytest.mark.parametrize("size", [0, 1, 4096, 5 * MEGABYTE])
    async def test_bodies_of_any_size(self, store: Store, size: int) -> None:
        """Bytes come back as they were, empty and of several megabytes, in every part."""
        pen = await new_session(store)
        body = (bytes(range(256)) * (size // 256 + 1))[:size]
        await pen.write(body=body, events=1)
        await pen.write(body=b"next")
        await store.append(pen.lease, [body, b"", body])
        await store.request("s", "r", "signal", body)
        reading = await must_read(store)
        assert bodies(reading) == [body, b"next"]
        assert [record.body for record in reading.journal] == [body, b"", body]
        assert [request.body for request in reading.requests] == [body]
        assert reading.infos[0].body_size == size

    async def test_events_of_any_bytes(self, store: Store) -> None:
        """The event part is kept apart from the body, with all byte values."""
        pen = await new_session(store)
        await pen.write(body=b"", events=1)
        await pen.write(body=bytes(range(256)), events=0)
        chain = (await must_read(store)).chain
        assert [record.events for record in chain] == [b"events 0", b""]
        assert [record.body for record in chain] == [b"", bytes(range(256))]
