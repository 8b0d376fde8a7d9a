"""The Redis store beside the suite: its URL, what it asks of a server, and what it says of one."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from raf.errors import (
    ConfigurationError,
    CorruptRecordError,
    FormatVersionError,
    SessionBusyError,
    StoreFullError,
    StoreUnavailableError,
)
from raf.store.model import Due, Select, Summary
from raf.store.redis import RedisStore
from raf.store.redis.server import Server, refusal, risk
from raf.store.urls import open_store
from raf.testing.crash import count_failpoints
from raf.testing.store_suite.base import Pen, claim, live_owner, must_read, new_session
from tests.servers.valkey import ALWAYS, client_of, forget, prefix_of, redis_url, running

__all__ = ["redis_url"]


@pytest.fixture
def url(redis_url: str, tmp_path: Path) -> Iterator[str]:
    """A place of this test alone."""
    yield f"{redis_url}?prefix={prefix_of(tmp_path)}"
    forget(redis_url, prefix_of(tmp_path))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h", "redis://h:6379/0"),
        ("redis://u:secret@h:7000/3", "redis://h:7000/3"),
        ("redis://:secret@[::1]:7000", "redis://[::1]:7000/0"),
        ("rediss://h?prefix=p&durability=strict", "rediss://h:6379/0?prefix=p&durability=strict"),
        ("redis://h?prefix=raf&durability=check&retry_s=5&pool=2", "redis://h:6379/0"),
    ],
)
def test_the_url(url: str, shown: str) -> None:
    """The store names itself by a URL that leads to the same place and holds no password."""
    store = open_store(url)
    assert isinstance(store, RedisStore)
    assert store.url == shown
    assert "secret" not in repr(vars(store))
    assert open_store(shown).url == shown


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis:", "does not read"),
        ("redis://", "does not read"),
        ("redis://u:secret@h:port", "does not read"),
        ("redis://u:secret@h:70000", "does not read"),
        ("redis://u:secret@h:0", "port is"),
        ("redis://u:12/secret@h", "does not read"),
        ("redis://u:12?secret=a@h", "does not read"),
        ("redis://u:secret@h/name", "database"),
        ("redis://u:secret@h?nonsense", "does not read"),
        ("redis://h?prefix=a&prefix=b", "given twice"),
        ("redis://h?password=secret", "no option password"),
        ("redis://h?prefix=a:b", "prefix is"),
        ("redis://h?prefix=", "prefix is"),
        ("redis://h?durability=none", "check or strict"),
        ("redis://h?retry_s=nan", "retry_s"),
        ("redis://h?retry_s=soon", "retry_s"),
        ("redis://h?pool=0", "pool"),
        ("redis://h?pool=2.9", "whole number"),
    ],
)
def test_a_wrong_url(url: str, says: str) -> None:
    """It is refused with the right form, and no password is shown."""
    with pytest.raises(ConfigurationError, match=says) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


async def test_a_ca_file_that_is_not_there(tmp_path: Path) -> None:
    """The file is named, before the server is asked anything."""
    store = open_store(f"rediss://h?ca={tmp_path}/none.pem")
    with pytest.raises(ConfigurationError, match=r"none\.pem cannot be used: No such file"):
        await store.open()


def test_without_the_extra() -> None:
    """Without the client library the error says what to install, and shows no password."""
    code = (
        "import sys; sys.modules['redis'] = None\n"
        "from raf.store.urls import open_store\n"
        "try: open_store('redis://:secret@h')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ConfigurationError" in done.stdout
    assert "pip install 'raf-engine[redis]'" in done.stdout
    assert "secret" not in done.stdout


SAFE = {"role": "master", "cluster_enabled": "0", "maxmemory": "0", "aof_enabled": "1"}
FSYNC = {"appendfsync": "always", "no-appendfsync-on-rewrite": "no"}


@pytest.mark.parametrize(
    ("info", "config", "says"),
    [
        ({}, {}, ""),
        ({}, {"appendfsync": "everysec"}, "last second or two"),
        ({}, {"appendfsync": "no"}, "last half minute"),
        ({}, {"no-appendfsync-on-rewrite": "yes"}, "while it rewrites"),
        ({"aof_enabled": "0"}, {}, "since its last save"),
    ],
)
def test_what_may_be_lost(info: dict[str, str], config: dict[str, str], says: str) -> None:
    """Each setting that may lose a commit is told with what it loses and what mends it."""
    said = risk(Server(info=SAFE | info, config=FSYNC | config))
    assert says in said
    assert bool(said) == bool(says)
    assert not said or "mend it by" in said


def test_what_could_not_be_looked_at() -> None:
    """Where the server does not tell its settings, that is what is said."""
    assert "CONFIG is not allowed" in risk(Server(info=SAFE, config={}))
    assert "INFO is not allowed" in risk(Server(info={}, config={}))


@pytest.mark.parametrize(
    ("info", "says"),
    [
        ({}, ""),
        ({"maxmemory_policy": "allkeys-lru"}, ""),  # without a limit nothing is evicted
        ({"maxmemory": "4096", "maxmemory_policy": "noeviction"}, ""),
        ({"maxmemory": "4096", "maxmemory_policy": "volatile-ttl"}, "maxmemory-policy noeviction"),
        ({"role": "slave"}, "primary"),
        ({"cluster_enabled": "1"}, "cluster"),
    ],
)
def test_which_servers_are_refused(info: dict[str, str], says: str) -> None:
    """A server that may drop or refuse live data is no store."""
    why = refusal(Server(info=SAFE | info, config=FSYNC))
    assert says in why
    assert bool(why) == bool(says)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ((*ALWAYS, "--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru"), "noeviction"),
        ((*ALWAYS, "--cluster-enabled", "yes"), "cluster"),
        ((*ALWAYS, "--replicaof", "127.0.0.1 1"), "primary"),
    ],
    ids=["evicts", "cluster", "replica"],
)
async def test_a_real_server_that_is_no_store(settings: tuple[str, ...], says: str) -> None:
    """It is refused at opening, and nothing is written there."""
    with running(*settings) as server:
        with pytest.raises(StoreUnavailableError, match=says):
            await RedisStore(server.url).open()
        with server.client() as client:
            assert client.dbsize() == 0


async def test_a_server_that_may_lose_commits(caplog: pytest.LogCaptureFixture) -> None:
    """It is opened with a warning; `strict` refuses it, and takes it once it is mended."""
    with running("--appendonly", "yes", "--appendfsync", "everysec") as server:
        strict = RedisStore(f"{server.url}?durability=strict")
        async with RedisStore(server.url) as store:
            assert "last second or two" in caplog.text
            await new_session(store, commits=1)
        with pytest.raises(StoreUnavailableError, match="appendfsync always"):
            await strict.open()
        with server.client() as client:
            client.config_set("appendfsync", "always")
        caplog.clear()
        async with strict:
            assert not [record for record in caplog.records if record.name.startswith("raf")]


async def test_no_password_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    """Neither a refused nor a used password stands in an error, a log or the URL."""
    caplog.set_level(logging.DEBUG)
    with running("--appendonly", "no", "--requirepass", "hush-hush") as server:
        place = server.url.removeprefix("redis://")
        for given in ("", ":wrong-one@"):
            with pytest.raises(StoreUnavailableError) as caught:
                await RedisStore(f"redis://{given}{place}").open()
            assert "wrong-one" not in f"{caught.value} {caught.value.__cause__}"
        async with RedisStore(f"redis://:hush-hush@{place}") as store:
            await new_session(store, commits=1)
            assert "hush" not in store.url + repr(store)
    assert "save" in caplog.text  # the warning was there
    assert "hush" not in caplog.text
    assert "wrong-one" not in caplog.text


async def test_a_managed_server(caplog: pytest.LogCaptureFixture) -> None:
    """Where CONFIG is forbidden the store works and says what it could not check."""
    with running() as server:
        with server.client() as client:
            client.execute_command("ACL SETUSER app on >pw ~raf:* +@all -config -@dangerous +info")
        place = server.url.removeprefix("redis://")
        async with RedisStore(f"redis://app:pw@{place}") as store:
            assert "CONFIG is not allowed" in caplog.text
            pen = await new_session(store, commits=1)
            assert (await must_read(store)).head.commit == pen.number


async def test_a_full_server() -> None:
    """Without memory a commit is refused whole; with more, the session goes on."""
    with running(*ALWAYS, "--maxmemory-policy", "noeviction") as server:
        async with RedisStore(server.url) as store:
            pen = await new_session(store, commits=1)
            before = await must_read(store)
            with server.client() as client:
                client.config_set("maxmemory", "1mb")
            with pytest.raises(StoreFullError):
                await pen.store.commit(pen.lease, pen.draft())
            assert await must_read(store) == before
            with server.client() as client:
                client.config_set("maxmemory", "0")
            await pen.write()


async def test_leases_end_by_the_servers_clock(url: str) -> None:
    """A lease of a machine with any clock ends when the server says so."""
    async with RedisStore(url) as store:
        owner = replace(live_owner(store.clock), boot_id="another", host="elsewhere")
        lease = await claim(store, owner=owner, lease_s=0.2)
        taken = None
        while taken is None:
            try:
                taken = await store.claim("s", live_owner(store.clock), lease_s=30)
            except SessionBusyError:
                await asyncio.sleep(0.02)
        assert taken.took_over
        assert await store.renew([lease]) == [False]


async def test_prefixes_are_stores_of_their_own(url: str) -> None:
    """Two prefixes of one server share nothing."""
    async with RedisStore(url) as one, RedisStore(f"{url}.2") as two:
        await new_session(one, commits=1)
        assert await two.scan() == []
        assert await two.read("s", Select()) is None


async def test_a_newer_format_is_left_alone(url: str, redis_url: str, tmp_path: Path) -> None:
    """What a newer version keeps there is not touched."""
    with client_of(redis_url) as client:
        client.hset(f"{prefix_of(tmp_path)}:store", mapping={"format": "2", "id": "x"})
    with pytest.raises(FormatVersionError):
        await RedisStore(url).open()


@pytest.mark.parametrize(
    ("field", "value"),
    [("epoch", "x"), ("events", ""), ("summary", "[1]"), ("summary", "{"), ("owner", "[]")],
)
async def test_a_damaged_head(
    url: str, redis_url: str, tmp_path: Path, field: str, value: str
) -> None:
    """It is named in the error, listed as damaged, and its neighbours are untouched."""
    async with RedisStore(url) as store:
        pen = await new_session(store, commits=2)
        await new_session(store, "t", commits=1)
        with client_of(redis_url) as client:
            client.hset(f"{prefix_of(tmp_path)}:head:s", field, value)
        with pytest.raises(CorruptRecordError) as caught:
            await store.read("s", Select(chain=True))
        assert caught.value.session_id == "s"
        assert [head.summary.status for head in await store.scan()] == ["damaged", "running"]
        if field == "events":
            with pytest.raises(CorruptRecordError):
                await pen.write()


async def test_a_damaged_owner_stops_no_worker(url: str, redis_url: str, tmp_path: Path) -> None:
    """A session whose owner cannot be read is left alone, and the others are taken."""
    async with RedisStore(url) as store:
        pens = [await new_session(store, name) for name in "st"]
        for pen in pens:
            await pen.write(summary=Summary(status="running", fingerprint="f"))
        await store.release(pens[1].lease)
        with client_of(redis_url) as client:
            client.hset(f"{prefix_of(tmp_path)}:head:s", "owner", "[]")
        due = Due(fingerprints=frozenset(["f"]))
        claims = await store.claim_due(live_owner(store.clock), due, lease_s=30, limit=9)
        assert [claimed.lease.session_id for claimed in claims] == ["t"]


async def test_damaged_records(url: str, redis_url: str, tmp_path: Path) -> None:
    """A record, a journal item or a request that is not what was written is an error by name."""
    prefix = prefix_of(tmp_path)
    async with RedisStore(url) as store:
        pen = await new_session(store, commits=2)
        await store.append(pen.lease, [b"x"])
        await store.request("s", "r", "signal", b"")
        with client_of(redis_url) as client:
            client.hset(f"{prefix}:commit:s", "1", "what is this")
            client.lset(f"{prefix}:journal:s", 0, "x")
            client.lset(f"{prefix}:inbox:s", 0, "1 2 99 0 x")
        for select in (Select(infos=True), Select(journal=True), Select(requests=True)):
            with pytest.raises(CorruptRecordError):
                await store.read("s", select)
        assert (await must_read(store, select=Select(chain=True, at=0))).chain
        with client_of(redis_url) as client:
            client.delete(f"{prefix}:body:s")
            client.set(f"{prefix}:body:s", "no hash")
        with pytest.raises(CorruptRecordError):
            await store.read("s", Select(chain=True))


async def test_each_write_stands_between_two_points(url: str) -> None:
    """Every operation that changes something passes its failpoints, before and after."""
    with count_failpoints() as passed:
        async with RedisStore(url) as store:
            pen: Pen = await new_session(store, commits=1)
            await store.append(pen.lease, [b"x"])
            await store.request("s", "r", "signal", b"")
            await store.renew([pen.lease])
            await store.prune(pen.lease, [])
            await store.release(pen.lease)
            await store.delete(await claim(store))
    operations = ("append", "claim", "commit", "delete", "prune", "release", "renew", "request")
    for operation in operations:
        assert passed[f"store.redis.{operation}.before"], operation
        assert passed[f"store.redis.{operation}.after"], operation


def test_another_event_loop_is_refused(url: str) -> None:
    """Connections belong to the loop that opened them; the error says so, and nothing hangs."""
    store = RedisStore(url)

    async def use_elsewhere() -> None:
        async with store:
            with pytest.raises(StoreUnavailableError, match="another event loop"):
                await asyncio.to_thread(lambda: asyncio.run(store.now()))

    async def use() -> None:
        async with store:
            await store.now()

    asyncio.run(use_elsewhere())
    asyncio.run(use())  # one loop after another is fine
