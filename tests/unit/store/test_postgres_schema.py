"""How the Postgres store makes its schema, and what it refuses or warns of when it is opened."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from raf.errors import FormatVersionError, StoreUnavailableError
from raf.store.postgres import PostgresStore
from raf.testing.store_suite.base import claim, new_session
from tests.servers.postgres import drop, execute, schema_of, shared_url, with_options


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[str]:
    """The name of a schema that is not there yet."""
    yield schema_of(tmp_path)
    drop(shared_url(), schema_of(tmp_path))


async def test_many_make_the_schema_at_once(fresh: str) -> None:
    """Openers that find nothing make it once, and all of them can work."""
    url = with_options(shared_url(), schema=fresh)
    stores = [PostgresStore(url) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await new_session(stores[0], commits=1)
    assert [len(await store.scan()) for store in stores] == [1] * 8
    await asyncio.gather(*(store.close() for store in stores))
    assert execute(f"SELECT application, version FROM {fresh}.format") == [("raf", 1)]


async def test_a_newer_format_is_refused(fresh: str) -> None:
    """Nothing is written to a schema of a later version."""
    url = with_options(shared_url(), schema=fresh)
    async with PostgresStore(url):
        pass
    execute(f"UPDATE {fresh}.format SET version = 99")
    with pytest.raises(FormatVersionError):
        await PostgresStore(url).open()
    execute(f"UPDATE {fresh}.format SET version = -5")
    with pytest.raises(StoreUnavailableError, match="another program"):
        await PostgresStore(url).open()
    execute(f"UPDATE {fresh}.format SET version = 1")
    async with PostgresStore(url) as store:
        assert await store.scan() == []


@pytest.mark.parametrize(
    "table", ["sessions (a int)", "format (version int)", "format (application text, version int)"]
)
async def test_another_programs_schema_is_refused(fresh: str, table: str) -> None:
    """A schema with tables of somebody else is left as it is."""
    execute(f"CREATE SCHEMA {fresh}")
    execute(f"CREATE TABLE {fresh}.{table}")
    with pytest.raises(StoreUnavailableError, match="another program"):
        await PostgresStore(with_options(shared_url(), schema=fresh)).open()
    tables = execute(f"SELECT count(*) FROM pg_tables WHERE schemaname = '{fresh}'")
    assert tables == [(1,)]


async def test_an_empty_schema_is_taken(fresh: str) -> None:
    """A schema that an administrator made for us is used."""
    execute(f"CREATE SCHEMA {fresh}")
    async with PostgresStore(with_options(shared_url(), schema=fresh)) as store:
        await new_session(store, commits=1)


async def test_steps_leave_no_index_entries(fresh: str) -> None:
    """A step rewrites the session's row within its page: no index grows by it."""
    async with PostgresStore(with_options(shared_url(), schema=fresh)) as store:
        pen = await new_session(store)
        for _ in range(50):
            await pen.write()
    updated = hot = 0
    while updated < 50:  # a connection tells its counts as it ends
        ((updated, hot),) = execute(
            "SELECT n_tup_upd::int, n_tup_hot_upd::int FROM pg_stat_all_tables"
            f" WHERE schemaname = '{fresh}' AND relname = 'sessions'"
        )
    assert hot >= 45


async def test_a_server_that_does_not_wait_for_the_disk_is_told(
    fresh: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Opening warns when a crash of the server may take commits."""
    with caplog.at_level(logging.WARNING, logger="raf.store.postgres"):
        url = with_options(shared_url(), schema=fresh)
        async with PostgresStore(f"{url}&options=-csynchronous_commit%3Doff"):
            pass
    assert "synchronous_commit is off" in caplog.text


async def test_a_database_that_may_only_be_read(fresh: str) -> None:
    """Writes are refused with what to do; reads go on."""
    url = with_options(shared_url(), schema=fresh)
    async with PostgresStore(url):
        pass
    async with PostgresStore(f"{url}&options=-cdefault_transaction_read_only%3Don") as store:
        assert await store.scan() == []
        with pytest.raises(StoreUnavailableError, match="name the primary"):
            await claim(store)
