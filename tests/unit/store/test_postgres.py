"""What is special to the Postgres store: groups, round trips, poolers, the database's clock, schemas."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from raf.errors import (
    CommitOrderError,
    CorruptRecordError,
    LeaseLostError,
    SessionBusyError,
    StoreFullError,
)
from raf.failpoint import set_hook
from raf.store.model import Due, Select, Summary
from raf.store.postgres import PostgresStore
from raf.testing.store_suite.base import (
    EVERYTHING,
    Pen,
    claim,
    dead_owner,
    head_of,
    live_owner,
    must_read,
    new_session,
)
from tests.servers.pooler import pooler
from tests.servers.postgres import empty, execute, shared_url, with_options

SCHEMA = "units"


@pytest.fixture
def url() -> str:
    """A schema with empty tables, on the server that tests share."""
    empty(shared_url(), SCHEMA)
    return with_options(shared_url(), schema=SCHEMA)


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(url) as store:
        yield store


@pytest.fixture
def passed() -> Iterator[list[str]]:
    """The failpoints that were passed."""
    names: list[str] = []
    set_hook(names.append)
    yield names
    set_hook(None)


# -- groups ---------------------------------------------------------------------------------------


async def test_sessions_that_commit_at_once_share_a_statement(
    store: PostgresStore, passed: list[str]
) -> None:
    """Fifty commits at the same moment are one group, and each session has its own."""
    pens = await asyncio.gather(*(new_session(store, f"s{n}", commits=1) for n in range(50)))
    passed.clear()
    await asyncio.gather(*(pen.write(body=pen.lease.session_id.encode()) for pen in pens))
    assert passed == ["store.postgres.commit.before", "store.postgres.commit.after"]
    for pen in pens:
        assert (await must_read(store, pen.lease.session_id)).chain[-1].body == (
            pen.lease.session_id.encode()
        )


async def test_what_comes_meanwhile_goes_together(store: PostgresStore, passed: list[str]) -> None:
    """While one commit is on its way, all others pile up and follow as one group."""
    pens = [await new_session(store, f"s{n}", commits=1) for n in range(20)]
    passed.clear()
    first = asyncio.create_task(pens[0].write())
    await asyncio.sleep(0)  # it is queued
    await asyncio.sleep(0)  # it is on its way
    assert passed == ["store.postgres.commit.before"]
    await asyncio.gather(first, *(pen.write() for pen in pens[1:]))
    assert passed.count("store.postgres.commit.before") == 2


async def test_one_stale_epoch_fails_alone(store: PostgresStore) -> None:
    """In one group a lost lease, a wrong number and a repeat get their own answers."""
    pens = [await new_session(store, f"s{n}", commits=1) for n in range(5)]
    await store.release(pens[1].lease)
    await claim(store, "s1")
    repeated = await pens[2].write()
    before = await must_read(store, "s1")
    answers = await asyncio.gather(
        pens[0].write(),
        pens[1].write(),
        store.commit(pens[2].lease, repeated),
        store.commit(pens[3].lease, pens[3].draft(commit=7)),
        pens[4].write(),
        return_exceptions=True,
    )
    kinds = [type(a) if isinstance(a, Exception) else None for a in answers]
    assert kinds == [None, LeaseLostError, None, CommitOrderError, None]
    after = await must_read(store, "s1")
    assert (after.infos, after.journal) == (before.infos, before.journal)
    assert [(await head_of(store, f"s{n}")).commit for n in (0, 2, 3, 4)] == [1, 1, 0, 1]


async def test_one_that_the_server_refuses_fails_alone(store: PostgresStore) -> None:
    """A full disk for one of a group is that one's error; what the others wrote stands."""
    pens = [await new_session(store, f"s{n}", commits=1) for n in range(4)]
    execute(
        f"CREATE OR REPLACE FUNCTION {SCHEMA}.no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.body = 'big' THEN RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END IF;"
        " RETURN NEW; END $$"
    )
    execute(
        f"CREATE TRIGGER no_room BEFORE INSERT ON {SCHEMA}.commits FOR EACH ROW"
        f" EXECUTE FUNCTION {SCHEMA}.no_room()"
    )
    try:
        answers = await asyncio.gather(
            *(pen.write(body=b"big" if n == 2 else b"small") for n, pen in enumerate(pens)),
            return_exceptions=True,
        )
        assert [isinstance(answer, StoreFullError) for answer in answers] == [
            n == 2 for n in range(4)
        ]
        assert [(await head_of(store, f"s{n}")).commit for n in range(4)] == [1, 1, 0, 1]
    finally:
        execute(f"DROP TRIGGER no_room ON {SCHEMA}.commits")
    await pens[2].write()


async def test_journal_records_of_one_step_keep_their_order(store: PostgresStore) -> None:
    """Appends of one session at the same moment all stand, each whole, in the order asked."""
    pen = await new_session(store, commits=1)
    bodies = [[f"{n}a".encode(), f"{n}b".encode()] for n in range(10)]
    await asyncio.gather(*(store.append(pen.lease, pair) for pair in bodies))
    reading = await must_read(store)
    assert [r.body for r in reading.journal] == [body for pair in bodies for body in pair]


async def test_two_processes_groups_do_not_deadlock(store: PostgresStore, url: str) -> None:
    """Renewals and commits over the same sessions, in opposite orders, through two stores."""
    pens = [await new_session(store, f"s{n:02}", commits=1) for n in range(30)]
    async with PostgresStore(url) as other:

        async def renew(place: PostgresStore, step: int) -> None:
            for _ in range(15):
                assert all(await place.renew([pen.lease for pen in pens[::step]]))

        async def write() -> None:
            for _ in range(15):
                await asyncio.gather(*(pen.write() for pen in reversed(pens)))

        await asyncio.gather(renew(store, 1), renew(other, -1), write())
    deadlocks = execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert deadlocks == [(0,)]


# -- round trips and poolers --------------------------------------------------------------------


async def test_behind_a_pooler_each_operation_is_one_round_trip(url: str) -> None:
    """Each transaction on another connection, nothing kept on any; and one trip for each."""
    server = urlsplit(shared_url())
    async with pooler(server.hostname or "", server.port or 0) as between:
        place = f"postgresql://postgres@127.0.0.1:{between.port}/postgres"
        async with PostgresStore(with_options(place, schema=SCHEMA)) as store:
            trips = between.trips

            def took() -> int:
                nonlocal trips
                taken, trips = between.trips - trips, between.trips
                return taken

            pen = Pen(store, await claim(store))
            assert took() == 1
            for number in range(5):
                await pen.write(events=2, full=number == 3)
            assert took() == 5
            await store.append(pen.lease, [b"one", b"two"])
            await store.request("s", "r", "signal", b"")
            await store.renew([pen.lease])
            assert took() == 3
            reading = await must_read(store, select=replace(EVERYTHING, run="x", log=True))
            assert took() == 1
            assert (len(reading.chain), len(reading.journal), len(reading.log)) == (2, 2, 7)
            await store.prune(pen.lease, [reading.infos[0].position], events_before=3)
            await store.scan()
            await store.release(pen.lease)
            assert took() == 3
            due = Due(fingerprints=frozenset({""}), queues={"default": 3})
            (claimed,) = await store.claim_due(live_owner(store.clock), due, lease_s=30, limit=5)
            assert took() == 2  # who is dead is for this machine to say
            await store.delete(claimed.lease)
            assert took() == 1
            assert await store.read("s", Select()) is None
        assert len(set(between.used)) > 1
        assert all(a != b for a, b in zip(between.used, between.used[1:], strict=False))


async def test_no_connection_is_held_between_operations(store: PostgresStore) -> None:
    """Between its operations the store has no transaction open and no lock."""
    pen = await new_session(store, commits=2)
    await store.request("s", "r", "signal", b"")
    states = execute("SELECT state FROM pg_stat_activity WHERE application_name = 'raf'")
    assert {state for (state,) in states} <= {"idle"}
    locks = execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
    assert locks == [(0,)]
    await pen.write()


# -- the database's clock ------------------------------------------------------------------------


async def test_leases_end_by_the_databases_clock(store: PostgresStore, url: str) -> None:
    """A lease binds until the server's time has passed; its owner counts from before it asked."""
    before = store.clock.boot()
    lease = await claim(store, lease_s=0.5)
    assert before + 0.5 <= lease.expires_boot <= store.clock.boot() + 0.5
    held = (await head_of(store)).held
    assert held is not None
    assert abs(held.expires_boot - lease.expires_boot) < 0.5
    async with PostgresStore(url) as other:
        with pytest.raises(SessionBusyError):
            await claim(other, owner=live_owner(other.clock, "two"))
        execute("SELECT pg_sleep(0.6)")
        claimed = await other.claim("s", live_owner(other.clock, "two"), lease_s=30)
        assert claimed.took_over
    assert await store.renew([lease]) == [False]
    assert abs(await store.now() - store.clock.now()) < 5


async def test_dead_owners_are_replaced_by_workers_at_once(store: PostgresStore) -> None:
    """What an owner that is provably dead held is due."""
    lease = await claim(store, owner=dead_owner(store.clock))
    await Pen(store, lease).write(summary=Summary(status="running", fingerprint="f"))
    due = Due(fingerprints=frozenset({"f"}))
    (claimed,) = await store.claim_due(live_owner(store.clock), due, lease_s=30, limit=5)
    assert (claimed.took_over, claimed.lease.epoch) == (True, lease.epoch + 1)


async def test_a_queues_limit_holds_among_many_workers(store: PostgresStore, url: str) -> None:
    """Ten workers that claim at the same moment get together what the limit leaves."""
    for n in range(20):
        pen = await new_session(store, f"s{n}")
        await pen.write(summary=Summary(status="submitted", fingerprint="f", queue="q\0\ud800"))
        await store.release(pen.lease)
    due = Due(fingerprints=frozenset({"f"}), queues={"q\0\ud800": 7})
    async with PostgresStore(url) as other:
        got = await asyncio.gather(
            *(
                place.claim_due(live_owner(store.clock, f"w{n}"), due, lease_s=30, limit=3)
                for n, place in enumerate((store, other) * 5)
            )
        )
    names = [claimed.lease.session_id for part in got for claimed in part]
    assert len(names) == len(set(names)) == 7
    assert all(len(part) <= 3 for part in got)


# -- text that Postgres cannot hold ----------------------------------------------------------------


async def test_any_text_of_a_summary_comes_back(store: PostgresStore) -> None:
    """NUL and lone surrogates, which a text column refuses, are kept in every field."""
    odd = "a\0b\ud800\u2028"
    pen = await new_session(store)
    summary = Summary(
        workflow=odd,
        fingerprint=odd,
        run_id=odd,
        status=odd,
        queue=odd,
        reason=odd,
        forked_from=odd,
    )
    await pen.write(summary=summary, run_id=odd)
    assert (await store.scan())[0].summary == summary
    run = (await must_read(store, select=Select(run=odd))).run
    assert run is not None
    assert run.info.run_id == odd


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("status = 'completed'", "another status"),
        ("fingerprint = 'x'", "another fingerprint"),
        ("queue = 'x'", "another queue"),
        ("wake_at = 5", "another wake_at"),
        ("created_at = 'NaN'", "no time"),
        ("updated_at = 'infinity'", "no time"),
        ("summary = '[1]'", "no summary"),
    ],
)
async def test_a_damaged_head(store: PostgresStore, damage: str, says: str) -> None:
    """It is named in the error and listed as damaged, and its neighbours are untouched."""
    for name in "st":
        await new_session(store, name, commits=1)
    execute(f"UPDATE {SCHEMA}.sessions SET {damage} WHERE id = 's'")
    with pytest.raises(CorruptRecordError, match=says) as caught:
        await store.read("s", Select())
    assert caught.value.session_id == "s"
    heads = await store.scan()
    assert [head.session_id for head in heads] == ["s", "t"]
    assert [head.summary.status for head in heads] == ["damaged", "running"]


async def test_texts_that_no_id_holds(store: PostgresStore) -> None:
    """A list may go on from them, and a worker may skip them."""
    await (await new_session(store, "b")).write(summary=Summary(status="running", fingerprint="f"))
    for odd in ("a\0", "a\ud800"):
        assert [head.session_id for head in await store.scan(after=odd)] == ["b"]
        due = Due(fingerprints=frozenset({"f"}), skip=frozenset({odd}))
        assert await store.claim_due(live_owner(store.clock), due, lease_s=30, limit=1) == []


async def test_opened_and_closed_at_the_same_time(url: str) -> None:
    """Whoever opens while another closes gets a store that works."""
    store = PostgresStore(url)
    for _ in range(5):
        await store.open()
        await asyncio.gather(store.close(), store.open())
        await store.scan()
        await store.close()


async def test_long_names_fit(store: PostgresStore) -> None:
    """Names that no index would take are found all the same."""
    long = "x" * 100_000
    pen = await new_session(store)
    await pen.write(run_id=long, summary=Summary(status="submitted", queue=long, fingerprint=long))
    await store.request("s", long, long, b"")
    assert (await must_read(store, select=Select(run=long))).run is not None
    await store.release(pen.lease)
    due = Due(fingerprints=frozenset({long}), queues={long: 1})
    assert len(await store.claim_due(live_owner(store.clock), due, lease_s=30, limit=2)) == 1
