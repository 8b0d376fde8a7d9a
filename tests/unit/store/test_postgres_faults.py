"""Broken links, lost answers, cancelled callers and a server that goes away, on a real server."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
import pytest
import pytest_asyncio

from raf.errors import RafError, StoreUnavailableError
from raf.store.model import Due, Lease, Reading, Select, Summary
from raf.store.postgres import PostgresStore
from raf.testing.store_suite.base import (
    EVERYTHING,
    Pen,
    bodies,
    claim,
    head_of,
    live_owner,
    must_read,
    new_session,
)
from tests.servers.postgres import Postgres, empty, running, shared_url, with_options
from tests.servers.proxy import Proxy, proxy

SCHEMA = "faults"
SECRET = "hunter2-hunter2"
WHOLE = Select(log=True, inbox=True)
DUE = Due(fingerprints=frozenset({"f"}), queues={"q": None})


@dataclass
class Place:
    """One schema, reached directly and through a relay that can be cut."""

    direct: PostgresStore
    far: PostgresStore
    relay: Proxy


@pytest_asyncio.fixture
async def place() -> AsyncIterator[Place]:
    empty(shared_url(), SCHEMA)
    server = urlsplit(shared_url())
    async with proxy(server.hostname or "", server.port or 0) as relay:
        far = f"postgresql://postgres@127.0.0.1:{relay.port}/postgres"
        async with (
            PostgresStore(with_options(shared_url(), schema=SCHEMA)) as direct,
            PostgresStore(with_options(far, schema=SCHEMA)) as through,
        ):
            yield Place(direct, through, relay)


Operation = Callable[[Place, Pen], Awaitable[object]]


async def _claims_anew(place: Place, pen: Pen) -> None:
    lease = await claim(place.far, "new")
    head = await head_of(place.direct, "new")
    assert (head.epoch, head.nonce, head.position) == (1, lease.nonce, 1)
    assert await place.direct.renew([lease]) == [True]


async def _claims(place: Place, pen: Pen) -> None:
    await place.direct.release(pen.lease)
    claimed = await place.far.claim("s", live_owner(place.far.clock, "two"), lease_s=30)
    assert (claimed.took_over, claimed.created) == (False, False)
    assert claimed.lease.epoch == pen.lease.epoch + 1
    assert await place.direct.renew([claimed.lease]) == [True]


async def _claims_due(place: Place, pen: Pen) -> None:
    for n in range(4):
        other = await new_session(place.direct, f"due {n}")
        await other.write(summary=Summary(status="submitted", fingerprint="f", queue="q"))
        await place.direct.release(other.lease)
    owner = live_owner(place.far.clock, "two")
    got = await place.far.claim_due(owner, DUE, lease_s=30, limit=2)
    assert len(got) == 2
    held = {head.session_id for head in await place.direct.scan() if head.held} - {"s"}
    assert held == {claimed.lease.session_id for claimed in got}


async def _commits(place: Place, pen: Pen) -> None:
    pen.store = place.far
    await pen.write(body=b"once")
    reading = await must_read(place.direct)
    assert bodies(reading) == [b"body 0", b"body 1", b"once"]
    assert len(reading.infos) == 3


async def _appends(place: Place, pen: Pen) -> None:
    await place.far.append(pen.lease, [b"one", b"two"])
    assert [r.body for r in (await must_read(place.direct)).journal] == [b"one", b"two"]
    await place.direct.append(pen.lease, [b"three"])
    assert [r.body for r in (await must_read(place.direct)).journal] == [b"one", b"two", b"three"]


async def _requests(place: Place, pen: Pen) -> None:
    sent = await place.far.request("s", "r", "signal", b"x")
    assert (await must_read(place.direct)).requests == (sent,)
    assert (await head_of(place.direct)).requests == 1


async def _renews(place: Place, pen: Pen) -> None:
    assert await place.far.renew([pen.lease]) == [True]


async def _releases(place: Place, pen: Pen) -> None:
    await place.far.release(pen.lease)
    assert (await head_of(place.direct)).held is None


async def _prunes(place: Place, pen: Pen) -> None:
    await pen.write(full=True)
    first = (await must_read(place.direct)).infos[0].position
    await place.far.prune(pen.lease, [first], events_before=2)
    reading = await must_read(place.direct)
    assert ([info.commit for info in reading.kept], reading.head.first_event) == ([1, 2], 2)


async def _deletes(place: Place, pen: Pen) -> None:
    await place.far.delete(pen.lease)
    assert await place.direct.read("s", Select()) is None


async def _adopts(place: Place, pen: Pen) -> None:
    await place.direct.release(pen.lease)
    whole = await must_read(place.direct, select=WHOLE)
    await place.direct.delete(await claim(place.direct))
    await place.far.adopt(whole)
    again: Reading = await must_read(place.direct, select=WHOLE)
    assert (again.log, again.inbox, again.head.nonce) == (whole.log, whole.inbox, whole.head.nonce)


async def _reads(place: Place, pen: Pen) -> None:
    assert (await must_read(place.far)).infos == (await must_read(place.direct)).infos


OPERATIONS: dict[str, tuple[Operation, bytes]] = {
    "claim, new": (_claims_anew, b"made AS ("),
    "claim": (_claims, b"made AS ("),
    "claim_due": (_claims_due, b"rooms AS "),
    "commit": (_commits, b".commits (session"),
    "append": (_appends, b"append_id = g.append_id"),
    "request": (_requests, b"added AS ("),
    "renew": (_renews, b"RETURNING s.id, s.epoch"),
    "release": (_releases, b"SET owner = NULL"),
    "prune": (_prunes, b"kept_from = coalesce"),
    "delete": (_deletes, b"SET nonce = ''"),
    "adopt": (_adopts, b"ON CONFLICT (id) DO UPDATE"),
    "read": (_reads, b"WITH RECURSIVE"),
}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_cut_link_is_neither_loss_nor_repeat(place: Place, name: str, moment: str) -> None:
    """The link breaks before the server got a write, or before its answer arrived: it is done once."""
    operation, statement = OPERATIONS[name]
    pen = await new_session(place.direct, commits=2)
    cut = place.relay.cut_before if moment == "before" else place.relay.cut_after_forward
    happened = cut(holding=statement)
    await operation(place, pen)
    assert happened.done.is_set()


async def test_a_late_copy_of_a_write_does_nothing(place: Place) -> None:
    """Journal records that arrive again after others were written are refused by their position."""
    pen = await new_session(place.direct, commits=1)
    stale = Lease(**{field: getattr(pen.lease, field) for field in Lease.__dataclass_fields__})
    await place.direct.append(pen.lease, [b"one"])
    await place.direct.append(pen.lease, [b"two"])
    from raf.store.postgres import writes

    late = writes.AppendWrite(stale, [b"one"], "another id", 0.0)
    rows = await place.direct._database.ask(writes.APPENDS, writes.append_values([late]))
    assert [writes.Found(*row).moved for row in rows] == [False]
    assert [r.body for r in (await must_read(place.direct)).journal] == [b"one", b"two"]


async def test_every_link_cut_in_the_middle_of_many_commits(place: Place) -> None:
    """Links that break again and again under ten sessions leave each without gap or double."""
    pens = [await new_session(place.far, f"s{n}", commits=1) for n in range(10)]

    async def work(pen: Pen) -> None:
        for _ in range(8):
            await pen.write()

    async def disturb() -> None:
        for _ in range(6):
            await place.relay.cut_after_forward(2, holding=b".commits (session").done.wait()
            place.relay.cut_all()

    disturbing = asyncio.create_task(disturb())
    await asyncio.gather(*(work(pen) for pen in pens))
    disturbing.cancel()
    for pen in pens:
        reading = await must_read(place.direct, pen.lease.session_id)
        assert [info.commit for info in reading.infos] == list(range(9))


async def test_cancelled_in_mid_commit_two_hundred_times() -> None:
    """With two connections in the pool, each outcome can be read and the pool stays whole."""
    empty(shared_url(), SCHEMA)
    url = with_options(shared_url(), schema=SCHEMA, connections=2)
    async with PostgresStore(url) as store:
        pen = await new_session(store, commits=1)
        for turn in range(200):
            draft = pen.draft()
            task = asyncio.create_task(store.commit(pen.lease, draft))
            for _ in range(turn % 9):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if (await head_of(store)).commit != draft.commit:
                await store.commit(pen.lease, draft)
            pen.wrote(draft)
        infos = (await must_read(store)).infos
        assert [info.commit for info in infos] == list(range(201))
        other = await new_session(store, "other", commits=3)
        assert (await head_of(store, "other")).commit == other.number
        busy = await store._database.ask(
            "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%%'", {}
        )
        assert busy == [(0,)]


async def test_a_cancelled_reader_leaves_the_pool_whole(place: Place) -> None:
    """Reads that nobody waits for any more take no connection away."""
    await new_session(place.direct, commits=3)
    for turn in range(40):
        task = asyncio.create_task(place.direct.read("s", EVERYTHING))
        for _ in range(turn % 6):
            await asyncio.sleep(0)
        task.cancel()
    assert len((await must_read(place.direct)).infos) == 3


async def test_a_server_that_cannot_be_reached() -> None:
    """Opening says at once what to do; no password stands in the error."""
    async with proxy("127.0.0.1", 1) as relay:
        port = relay.port
    with pytest.raises(StoreUnavailableError, match="check that the server runs") as caught:
        await PostgresStore(f"postgresql://postgres:{SECRET}@127.0.0.1:{port}/db").open()
    assert SECRET not in str(caught.value)


async def test_a_database_that_is_not_there() -> None:
    """The server's own words are told."""
    url = shared_url().rpartition("/")[0] + "/nowhere"
    with pytest.raises(StoreUnavailableError, match="nowhere"):
        await PostgresStore(url).open()


async def test_after_its_time_an_operation_gives_up(place: Place) -> None:
    """With the server away for longer than `retry_s` it is an error, and the store goes on later."""
    far = with_options(f"postgresql://postgres@127.0.0.1:{place.relay.port}/postgres", retry_s=0.2)
    async with PostgresStore(with_options(far, schema=SCHEMA)) as store:
        pen = await new_session(store, commits=1)
        draft = pen.draft()
        cuts = [place.relay.cut_before(holding=b".commits (session") for _ in range(1)]
        place.relay.cut_after_forward(holding=b"client_encoding")
        try:
            await store.commit(pen.lease, draft)
        except StoreUnavailableError:
            await store.commit(pen.lease, draft)
        assert cuts[0].done.is_set()
        assert (await head_of(place.direct)).commit == draft.commit


# -- a server of its own, stopped and started ------------------------------------------------------


@pytest.fixture(scope="module")
def own() -> Iterator[Postgres]:
    with running() as server:
        yield server


@pytest.mark.slow
async def test_restarts_in_the_middle_of_a_run(own: Postgres) -> None:
    """Crashes of the server under ten sessions cost time only: no gap, no double, no error."""
    async with PostgresStore(own.url) as store:
        pens = [await new_session(store, f"s{n}", commits=1) for n in range(10)]
        going = True

        async def work(pen: Pen) -> None:
            while going or pen.number < 5:
                await store.append(pen.lease, [b"half"])
                await pen.write()
                await store.request(pen.lease.session_id, f"r{pen.number}", "signal", b"")
                await pen.write(consumed=pen.consumed + 1)

        working = asyncio.gather(*(work(pen) for pen in pens))
        for _ in range(3):
            await asyncio.to_thread(own.restart)
            await asyncio.sleep(0.3)
        going = False
        await working
        for pen in pens:
            reading = await must_read(store, pen.lease.session_id)
            assert [info.commit for info in reading.infos] == list(range(pen.number + 1))
            assert (reading.head.events, reading.requests) == (pen.events, ())
            assert await store.renew([pen.lease]) == [True]


@pytest.mark.slow
async def test_a_server_that_stays_away(own: Postgres) -> None:
    """After `retry_s` each operation is a typed error; when the server is back all goes on."""
    async with PostgresStore(with_options(own.url, retry_s=1)) as store:
        pen = await new_session(store, "away", commits=1)
        draft = pen.draft()
        await asyncio.to_thread(own.stop)
        try:
            for operation in (
                store.commit(pen.lease, draft),
                store.append(pen.lease, [b"x"]),
                store.read("away", Select()),
                store.renew([pen.lease]),
                store.now(),
            ):
                with pytest.raises(StoreUnavailableError, match="check that the server runs"):
                    await operation
        finally:
            await asyncio.to_thread(own.start)
        await store.commit(pen.lease, draft)
        assert (await head_of(store, "away")).commit == draft.commit


@pytest.mark.slow
async def test_no_password_is_shown(own: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    """A right and a wrong password: neither stands in an error, a log line, or the store's URL."""
    with psycopg.connect(own.url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE app LOGIN PASSWORD '{SECRET}'".encode())
        admin.execute(b"CREATE SCHEMA app AUTHORIZATION app")
        rules = own.folder / "pg_hba.conf"
        rules.write_text("host all app 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        admin.execute(b"SELECT pg_reload_conf()")
        admin.execute(b"SELECT pg_sleep(0.5)")
    place = f"127.0.0.1:{own.port}/postgres"
    with caplog.at_level(logging.DEBUG):
        async with PostgresStore(f"postgresql://app:{SECRET}@{place}?schema=app") as store:
            await new_session(store, commits=1)
        errors: list[RafError] = []
        for url in (
            f"postgresql://app:{SECRET}-wrong@{place}?schema=app",
            f"postgresql://app:{SECRET}@{place}?schema=not_mine",
            f"postgresql://app:{SECRET}@127.0.0.1:1/postgres",
        ):
            with pytest.raises(StoreUnavailableError) as caught:
                await PostgresStore(url).open()
            errors.append(caught.value)
    assert "lacks a right" in str(errors[1])
    for text in (store.url, caplog.text, *map(str, errors), *map(repr, errors)):
        assert SECRET not in text
