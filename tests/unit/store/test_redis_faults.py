"""The Redis store when the server dies, forgets, or falls silent, and when its callers vanish."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raf.errors import (
    CommitOrderError,
    LeaseLostError,
    SessionBusyError,
    SessionExistsError,
    StoreReplacedError,
    StoreUnavailableError,
)
from raf.store.model import Due, Kind, Select, Summary
from raf.store.redis import RedisStore, scripts
from raf.testing.store_suite.base import (
    LEASE_S,
    Pen,
    bodies,
    claim,
    dead_owner,
    live_owner,
    must_read,
    new_session,
)
from tests.servers.proxy import Proxy, proxy
from tests.servers.valkey import Valkey, client_of, forget, prefix_of, redis_url, running

__all__ = ["redis_url"]


@pytest.fixture
def url(redis_url: str, tmp_path: Path) -> Iterator[str]:
    """A place of this test alone."""
    yield f"{redis_url}?prefix={prefix_of(tmp_path)}"
    forget(redis_url, prefix_of(tmp_path))


@asynccontextmanager
async def behind_a_proxy(url: str, options: str = "") -> AsyncIterator[tuple[RedisStore, Proxy]]:
    """A store whose link a test can cut."""
    place, _, query = url.removeprefix("redis://").partition("/")
    host, _, port = place.rpartition("@")[2].partition(":")
    async with proxy(host, int(port)) as relay:
        here = place.replace(f"{host}:{port}", f"127.0.0.1:{relay.port}")
        async with RedisStore(f"redis://{here}/{query}{options}") as store:
            yield store, relay


WRITES = ("commit", "append", "request", "prune", "renew", "release", "delete", "claim")


async def _prepared(store: RedisStore, kind: str) -> tuple[Pen, Callable[[], Awaitable[object]]]:
    """A session with two commits, and a write that is to be cut."""
    pen = await new_session(store, commits=2)
    if kind == "claim":
        await store.release(pen.lease)
    position = (await must_read(store)).infos[0].position
    draft = pen.draft(consumed=0)
    writes: dict[str, Callable[[], Awaitable[object]]] = {
        "commit": lambda: store.commit(pen.lease, draft),
        "append": lambda: store.append(pen.lease, [b"one", b"two"]),
        "request": lambda: store.request("s", "r1", "signal", b"x"),
        "prune": lambda: store.prune(pen.lease, [position]),
        "renew": lambda: store.renew([pen.lease]),
        "release": lambda: store.release(pen.lease),
        "delete": lambda: store.delete(pen.lease),
        "claim": lambda: store.claim("s", live_owner(store.clock), lease_s=LEASE_S),
    }
    return pen, writes[kind]


def _sha(kind: str) -> bytes:
    script: scripts.Script = getattr(scripts, kind.upper())
    return script.sha.encode()


@pytest.mark.parametrize("end", ["before", "after"])
@pytest.mark.parametrize("kind", WRITES)
async def test_a_lost_link_does_each_write_once(url: str, kind: str, end: str) -> None:
    """Cut before the server saw it, or after it did it: the write is done, once, without error."""
    async with behind_a_proxy(url) as (store, relay), RedisStore(url) as witness:
        pen, write = await _prepared(store, kind)
        await witness.request("s", "warm", "signal", b"")
        cut = (relay.cut_before if end == "before" else relay.cut_after_forward)(holding=_sha(kind))
        # The scripts that were not run yet are not known by name, and then go by their text.
        with client_of(url.partition("?")[0]) as client:
            client.script_load(getattr(scripts, kind.upper()).text)
        answer = await write()
        assert cut.done.is_set()
        reading = await witness.read("s", Select(journal=True, requests=True, infos=True))
        if kind == "delete":
            assert reading is None
            return
        assert reading is not None
        assert [info.commit for info in reading.infos] == [0, 1, 2][: 3 if kind == "commit" else 2]
        journal = [r.body for r in reading.journal if r.info.kind is Kind.JOURNAL]
        assert journal == ([b"one", b"two"] if kind == "append" else [])
        names = ["warm"] + (["r1"] if kind == "request" else [])
        assert [request.request_id for request in reading.requests] == names
        assert (reading.infos[0].body_size == 0) == (kind == "prune")
        assert (reading.head.held is None) == (kind == "release")
        assert reading.head.epoch == pen.lease.epoch + (kind == "claim")
        assert answer == [True] if kind == "renew" else True


async def test_a_server_that_is_gone_is_a_typed_error() -> None:
    """Nobody there: opening fails at once, and an open store says so in time, never `no session`."""
    with running() as server:
        async with RedisStore(f"{server.url}?retry_s=0.1") as store:
            pen = await new_session(store, commits=1)
            server.kill()
            for use in (
                lambda: store.read("s", Select()),
                store.scan,
                lambda: store.commit(pen.lease, pen.draft()),
                lambda: store.claim("t", live_owner(store.clock), lease_s=LEASE_S, create=True),
            ):
                with pytest.raises(StoreUnavailableError, match="no answer"):
                    await use()
            place = server.url.removeprefix("redis://").partition("/")[0]
            said = f"nothing was sent.*check that the server runs at {place}"
            with pytest.raises(StoreUnavailableError, match=said):
                await RedisStore(server.url).open()
            server.start()
            await pen.write()
            assert (await must_read(store)).head.commit == pen.number


async def test_acknowledged_commits_survive_a_killed_server() -> None:
    """Killed between and during commits, and started again: what was acknowledged is there."""
    with running() as server:
        async with RedisStore(server.url) as store:
            pen = await new_session(store, commits=1)
            done = asyncio.Event()

            async def write() -> None:
                while not done.is_set():
                    await pen.write()

            writing = asyncio.create_task(write())
            for _ in range(2):
                reached = pen.number + 10
                while pen.number < reached:  # noqa: ASYNC110 - the other task writes
                    await asyncio.sleep(0.001)
                server.kill()
                acknowledged = pen.number
                await asyncio.to_thread(server.start)
                reading = await must_read(store)
                assert reading.head.commit >= acknowledged
            done.set()
            await writing
            reading = await must_read(store)
            assert bodies(reading) == [f"body {n}".encode() for n in range(pen.number + 1)]
            assert reading.head.held is not None  # waiting for the server cost no lease


async def test_a_server_that_forgot_its_scripts(url: str, redis_url: str) -> None:
    """Scripts that the server does not know any more are sent to it again."""
    async with RedisStore(url) as store:
        pen = await new_session(store, commits=1)
        with client_of(redis_url) as client:
            client.script_flush()
        await pen.write()
        assert (await must_read(store)).head.commit == pen.number


async def test_a_server_that_forgot_everything() -> None:
    """After FLUSHALL under a running owner nothing is read or written; opened anew, it is empty."""
    with running() as server:
        async with RedisStore(server.url) as store:
            pen = await new_session(store, commits=2)
            with server.client() as client:
                client.flushall()
            for use in (
                lambda: pen.store.commit(pen.lease, pen.draft()),
                lambda: store.read("s", Select()),
                store.scan,
                lambda: store.renew([pen.lease]),
                lambda: store.claim("s", live_owner(store.clock), lease_s=LEASE_S, create=True),
            ):
                with pytest.raises(StoreReplacedError, match="without this store's data"):
                    await use()
            with server.client() as client:
                assert client.dbsize() == 0
        async with store:
            assert await store.scan() == []
            with pytest.raises(LeaseLostError):
                await store.commit(pen.lease, pen.draft())


def _rewind(server: Valkey, to: Path) -> None:
    server.kill()
    shutil.rmtree(server.folder / "appendonlydir")
    shutil.copytree(to, server.folder / "appendonlydir")
    server.start()


@pytest.mark.slow
async def test_a_server_that_came_back_older(tmp_path: Path) -> None:
    """With the tail of its file lost, the next write of the owner is refused, whatever it is."""
    with running() as server:
        async with RedisStore(server.url) as store:
            first = await new_session(store, commits=2)
            server.kill()
            shutil.copytree(server.folder / "appendonlydir", tmp_path / "old")
            server.start()
            await first.write()
            await asyncio.to_thread(_rewind, server, tmp_path / "old")
            with pytest.raises(CommitOrderError):
                await first.write()
            assert (await must_read(store)).head.commit == 1
            await store.release(first.lease)
            heir = Pen(store, await claim(store), (await must_read(store)).head)
            await heir.write()
            await asyncio.to_thread(_rewind, server, tmp_path / "old")
            with pytest.raises(LeaseLostError):
                await heir.write()


@pytest.mark.slow
async def test_two_hundred_cancellations_with_two_connections(url: str) -> None:
    """Cancelled in mid-commit, each outcome is read, and another session runs on the same pool."""
    async with RedisStore(f"{url}&pool=2") as store:
        pen = await new_session(store, commits=1)
        for turn in range(200):
            draft = pen.draft()
            task = asyncio.create_task(store.commit(pen.lease, draft))
            for _ in range(turn % 8):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            head = (await must_read(store, select=Select())).head
            assert head.commit in (draft.commit - 1, draft.commit)
            if head.commit == draft.commit:
                pen.wrote(draft)
        await asyncio.gather(*(new_session(store, f"other {n}", commits=2) for n in range(4)))
        reading = await must_read(store)
        assert [info.commit for info in reading.infos] == list(range(pen.number + 1))


async def test_a_cancelled_claim_behind_a_lost_link_is_given_back(url: str) -> None:
    """The claim's reply is lost and its caller is gone: nobody is kept out."""
    async with behind_a_proxy(url) as (store, relay), RedisStore(url) as witness:
        await store.release(await claim(store))
        cut = relay.cut_after_forward(holding=_sha("claim"))
        task = asyncio.create_task(store.claim("s", live_owner(store.clock), lease_s=LEASE_S))
        await cut.done.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert (await must_read(store)).head.held is None
        assert not (await witness.claim("s", live_owner(store.clock), lease_s=LEASE_S)).took_over


async def test_what_a_worker_took_behind_a_lost_link(url: str) -> None:
    """The reply to `claim_due` is lost: sent again it tells what was taken, and takes no more."""
    async with behind_a_proxy(url) as (store, relay), RedisStore(url) as witness:
        epochs = {}
        for name in "abc":
            pen = await new_session(store, name)
            await pen.write(summary=Summary(status="running", fingerprint="f"))
            await store.release(pen.lease)
            epochs[name] = pen.lease.epoch
        with client_of(url.partition("?")[0]) as client:
            client.script_load(scripts.CLAIM_DUE.text)
        cut = relay.cut_after_forward(2, holding=_sha("claim_due"))  # first it asks who is there
        due = Due(fingerprints=frozenset(["f"]))
        claims = await store.claim_due(live_owner(store.clock), due, lease_s=LEASE_S, limit=2)
        assert cut.done.is_set()
        assert sorted(claimed.lease.session_id for claimed in claims) == ["a", "b"]
        for claimed in claims:
            await store.release(claimed.lease)
        heads = await witness.scan()
        assert {head.session_id: head.epoch for head in heads} == {
            "a": epochs["a"] + 1,
            "b": epochs["b"] + 1,
            "c": epochs["c"],
        }


@pytest.mark.parametrize("end", ["before", "after"])
async def test_an_adoption_behind_a_lost_link(url: str, end: str) -> None:
    """It is done once, and the second sending does not find its own session in the way."""
    async with behind_a_proxy(url) as (store, relay):
        pen = await new_session(store, commits=2)
        given = await must_read(store, select=Select(log=True, inbox=True))
        await store.delete(pen.lease)
        with client_of(url.partition("?")[0]) as client:
            client.script_load(scripts.ADOPT.text)
        cut = (relay.cut_before if end == "before" else relay.cut_after_forward)(
            holding=_sha("adopt")
        )
        await store.adopt(given)
        assert cut.done.is_set()
        assert bodies(await must_read(store)) == [b"body 0", b"body 1"]
        with pytest.raises(SessionExistsError):
            await store.adopt(given)


async def test_closing_waits_for_what_was_left(url: str) -> None:
    """A commit whose caller was cancelled is done before `close` returns."""
    async with RedisStore(url) as store:
        pen = await new_session(store, commits=1)
        task = asyncio.create_task(store.commit(pen.lease, pen.draft()))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    async with RedisStore(url) as store:
        assert (await must_read(store)).head.commit == 1


async def test_a_dead_owner_is_replaced_only_at_the_epoch_seen(url: str) -> None:
    """Of two that both see the owner dead, one takes over and the other meets a live owner."""
    async with RedisStore(url) as store, RedisStore(url) as other:
        for turn in range(10):
            name = f"s{turn}"
            await claim(store, name, owner=dead_owner(store.clock))
            answers = await asyncio.gather(
                *(
                    place.claim(name, live_owner(place.clock, token), lease_s=LEASE_S)
                    for place, token in ((store, "one"), (other, "two"))
                ),
                return_exceptions=True,
            )
            assert sum(isinstance(answer, SessionBusyError) for answer in answers) == 1, answers


@pytest.mark.slow
async def test_commits_under_cuts_and_restarts() -> None:
    """Many sessions write while links are cut and the server is killed: no commit lost or doubled."""
    with running() as server:
        async with behind_a_proxy(server.url) as (store, relay):
            pens = await asyncio.gather(*(new_session(store, f"s{n}") for n in range(20)))

            async def work(pen: Pen) -> None:
                for number in range(40):
                    await store.append(pen.lease, [f"{number}".encode()])
                    await pen.write()

            working = asyncio.gather(*(work(pen) for pen in pens))
            for turn in range(60):
                if turn % 20 == 10:
                    server.kill()
                    await asyncio.to_thread(server.start)
                (relay.cut_before if turn % 2 else relay.cut_after_forward)(1 + turn % 5)
                await asyncio.sleep(0.03)
            await working
            for pen in pens:
                reading = await must_read(store, pen.lease.session_id)
                assert [info.commit for info in reading.infos] == list(range(40))
                assert reading.journal == ()


async def test_a_lost_link_without_patience(url: str) -> None:
    """With nothing to wait, a lost reply is an error at once, and the next call goes through."""
    async with behind_a_proxy(url, "&retry_s=0") as (store, relay):
        pen = await new_session(store, commits=1)
        relay.cut_before(holding=b"EVALSHA")
        with pytest.raises(StoreUnavailableError, match="is open"):
            await store.scan()
        await pen.write()
