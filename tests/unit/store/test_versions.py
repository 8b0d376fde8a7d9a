"""Two versions of `raf` on one server: the older is told when it opens, and never reads what it does not know."""

import asyncio

import pytest

from raf import WorkflowEngine
from raf.errors import FormatVersionError
from raf.store.postgres import schema
from raf.store.urls import open_store
from tests.servers import places, valkey
from tests.servers.postgres import drop, execute, shared_url, with_options
from tests.unit.engine.stage import Gate, adds_one, line

NEWER = "ALTER TABLE $S.sessions ADD COLUMN note text"


async def test_a_newer_version_brings_a_postgres_schema_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It migrates once under a live owner, whose run ends well; the older cannot open it any more."""
    gate, name = Gate(), "versions"
    drop(shared_url(), name)

    async def node(value: int) -> int:
        await gate.stop()
        return value

    workflow = line("w", {"node": node, "last": adds_one}).build()
    url = with_options(shared_url(), schema=name)
    async with WorkflowEngine(workflow, url) as older:
        task = asyncio.create_task(older.run(1, "s"))
        await gate.reached.wait()
        with monkeypatch.context() as patch:
            patch.setattr(schema, "FORMAT", 2)
            patch.setattr(schema, "MIGRATIONS", {1: [NEWER]})
            stores = [open_store(url) for _ in range(4)]
            await asyncio.gather(*(store.open() for store in stores))
            assert execute(f"SELECT version FROM {name}.format") == [(2,)]
            assert [len(await store.scan()) for store in stores] == [1] * 4
            await asyncio.gather(*(store.close() for store in stores))
        gate.open.set()
        assert (await task).outputs == [2]
    with pytest.raises(FormatVersionError):
        await open_store(url).open()
    assert execute(f"SELECT count(*) FROM {name}.sessions") == [(1,)]
    drop(shared_url(), name)


@pytest.mark.parametrize("place", ["redis"], indirect=True)
async def test_a_newer_version_takes_a_redis_prefix(place: str) -> None:
    """An owner that was there ends its run; who opens later and is older is refused."""
    gate = Gate()

    async def node(value: int) -> int:
        await gate.stop()
        return value

    workflow = line("w", {"node": node, "last": adds_one}).build()
    async with WorkflowEngine(workflow, place) as older:
        task = asyncio.create_task(older.run(1, "s"))
        await gate.reached.wait()
        with valkey.client_of(places.shared_valkey()) as client:
            client.hset(f"{places.prefix(place)}:store", "format", "2")
        with pytest.raises(FormatVersionError):
            await open_store(place).open()
        gate.open.set()
        assert (await task).outputs == [2]
