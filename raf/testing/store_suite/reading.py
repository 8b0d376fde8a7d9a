"""Events, runs, lists of sessions."""

import pytest

from raf.store.model import Kind, Select, Summary
from raf.store.port import Store
from raf.testing.clock import ManualClock
from raf.testing.store_suite.base import (
    LEASE_S,
    Pen,
    SuiteBase,
    claim,
    live_owner,
    must_read,
    new_session,
)


async def _events(store: Store, after: int, limit: int = 256) -> list[bytes]:
    select = Select(events_after=after, events_limit=limit)
    return [record.events for record in (await must_read(store, select=select)).events]


class ReadingTests(SuiteBase):
    """read and scan."""

    @pytest.mark.parametrize(
        ("after", "expected"),
        [(0, "0234"), (1, "234"), (2, "34"), (3, "34"), (4, "34"), (5, "4"), (6, ""), (99, "")],
    )
    async def test_events_after_a_number(self, store: Store, after: int, expected: str) -> None:
        """Commits with a later event come back, oldest first, also when only a part is later."""
        pen = await new_session(store)
        for events in (1, 0, 1, 3, 1):
            await pen.write(events=events)
        assert await _events(store, after) == [f"events {n}".encode() for n in expected]

    async def test_events_in_pages(self, store: Store) -> None:
        """Paging by the last number seen meets each record once."""
        pen = await new_session(store)
        for number in range(20):
            await pen.write(events=number % 3)
        seen: list[bytes] = []
        after = 0
        while page := (
            await must_read(store, select=Select(events_after=after, events_limit=3))
        ).events:
            assert len(page) in (1, 2, 3)
            seen += [record.events for record in page]
            after = page[-1].info.first_event + page[-1].info.event_count - 1
        assert seen == [f"events {n}".encode() for n in range(20) if n % 3]
        assert after == (await must_read(store)).head.events

    async def test_a_run_is_found_by_its_id(self, store: Store) -> None:
        """The commit that finished a run is found by the run's id, others are not."""
        pen = await new_session(store, commits=1)
        await pen.write(run_id="main")
        await pen.write()
        await pen.write(run_id="turn/\u00e9 2")
        for run_id, number in (("main", 1), ("turn/\u00e9 2", 3)):
            run = (await must_read(store, select=Select(run=run_id))).run
            assert run is not None
            assert (run.info.commit, run.info.run_id) == (number, run_id)
            assert run.events == f"events {number}".encode()
        for other in ("Main", "mai", "", "turn/e\u0301 2"):
            assert (await must_read(store, select=Select(run=other))).run is None

    async def test_runs_of_one_name_in_two_sessions(self, store: Store) -> None:
        """A run's id is of its session."""
        a, b = await new_session(store, "a", commits=1), await new_session(store, "b", commits=1)
        await a.write(run_id="main")
        assert (await must_read(store, "b", Select(run="main"))).run is None
        await b.write()
        await b.write(run_id="main")
        for name, number in (("a", 1), ("b", 2)):
            run = (await must_read(store, name, Select(run="main"))).run
            assert run is not None
            assert run.info.commit == number

    async def test_sessions_in_code_point_order(self, store: Store) -> None:
        """A scan is sorted by code points: capitals first, then small, then the far planes."""
        names = ["b", "a", "A", "aa", "\u00e9", "Z", "\U0001f600", "\uffee", "1", "a b", "a-b"]
        for name in names:
            await new_session(store, name)
        assert [head.session_id for head in await store.scan()] == sorted(names)

    async def test_scan_in_pages(self, store: Store) -> None:
        """Paging by the last id meets each session once, also while others are made behind."""
        names = [f"s{n:02}" for n in range(23)]
        for name in names:
            await new_session(store, name)
        seen: list[str] = []
        after = ""
        while page := await store.scan(after=after, limit=5):
            seen += [head.session_id for head in page]
            after = seen[-1]
            await new_session(store, f"r{len(seen)}")
        assert seen == names
        assert await store.scan(after="zzz") == []

    async def test_scan_shows_heads(self, store: Store) -> None:
        """A list shows each head as a read does."""
        for name in ("a", "b"):
            pen = await new_session(store, name, commits=2)
            await pen.write(summary=Summary(workflow=name, status="completed", step=1))
        heads = await store.scan()
        assert heads == [(await must_read(store, name)).head for name in ("a", "b")]
        assert [head.summary.workflow for head in heads] == ["a", "b"]

    async def test_the_whole_log(self, store: Store, clock: ManualClock) -> None:
        """All commits, and between them the claims and records of the open journal."""
        pen = await new_session(store, commits=2)
        await store.append(pen.lease, [b"one"])
        await pen.write(ends_journal=False)
        await self.pass_time(store, clock, LEASE_S + 1)
        rival = await claim(store, owner=live_owner(clock, "two"))
        await store.append(rival, [b"two"])
        reading = await must_read(store)
        assert [(r.info.kind, r.body, r.events) for r in reading.log] == [
            (Kind.COMMIT, b"body 0", b"events 0"),
            (Kind.COMMIT, b"body 1", b"events 1"),
            (Kind.JOURNAL, b"one", b""),
            (Kind.COMMIT, b"body 2", b"events 2"),
            (Kind.CLAIM, b"", b""),
            (Kind.JOURNAL, b"two", b""),
        ]
        assert tuple(r.info for r in reading.log if r.info.kind is Kind.COMMIT) == reading.infos
        assert tuple(r for r in reading.log if r.info.kind is not Kind.COMMIT) == reading.journal
        await Pen(store, rival, reading.head).write()
        assert [r.info.kind for r in (await must_read(store)).log] == [Kind.COMMIT] * 4

    async def test_the_log_after_a_prune(self, store: Store) -> None:
        """A commit without a body is there with its events; one of which nothing is left is not."""
        pen = await new_session(store, commits=4)
        positions = [info.position for info in (await must_read(store)).infos]
        await store.prune(pen.lease, positions[2::-1], events_before=2)
        reading = await must_read(store)
        assert [(r.info.commit, r.body, r.events) for r in reading.log] == [
            (1, b"", b"events 1"),
            (2, b"", b"events 2"),
            (3, b"body 3", b"events 3"),
        ]
        assert tuple(r.info for r in reading.log) == reading.infos

    async def test_the_whole_inbox(self, store: Store) -> None:
        """Consumed requests are in it too, in their order."""
        pen = await new_session(store)
        requests = [await store.request("s", f"r{n}", "signal", b"") for n in range(4)]
        await pen.write(consumed=2)
        reading = await must_read(store)
        assert list(reading.inbox) == requests
        assert list(reading.requests) == requests[2:]

    async def test_one_read_is_of_one_moment(self, store: Store) -> None:
        """Head, chain, infos and events of a read agree with each other."""
        pen: Pen = await new_session(store, commits=5)
        await store.request("s", "r", "signal", b"")
        await store.append(pen.lease, [b"x"])
        reading = await must_read(store)
        assert reading.chain[-1].info.commit == reading.infos[-1].commit == reading.head.commit
        assert reading.events[-1].info == reading.infos[-1]
        assert len(reading.requests) == reading.head.requests
        assert all(r.info.position > reading.head.journal_from for r in reading.journal)
