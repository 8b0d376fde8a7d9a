"""A store that is away in mid-run, too small for the crowd, or full of others, and then is well again."""

import asyncio
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from raf import Workflow
from raf.errors import CommitError, RafError, StoreError, StoreUnavailableError
from raf.store.port import Store
from raf.store.urls import open_store
from tests.servers import postgres, valkey
from tests.servers.places import SERVERS_ONLY, backend_of
from tests.unit.engine.stage import Gate, Ledger, adds_one, line, passes, running


def stopped(gate: Gate, ledger: Ledger) -> Workflow:
    """A line of three whose second node waits until it may go on."""

    async def node(value: int) -> int:
        if ledger.note("node") == 1:
            await gate.stop()
        return value

    return line("w", {"first": adds_one, "node": node, "last": adds_one}).build()


async def test_a_folder_that_is_away_for_a_while(tmp_path: Path) -> None:
    """The file store's folder vanishes in mid-run: a typed error, nothing in its place; back, all goes on."""
    gate, ledger, folder = Gate(), Ledger(), tmp_path / "runs"
    async with running(stopped(gate, ledger), f"file:{folder}", lease_s=1.0) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        folder.rename(tmp_path / "away")
        gate.open.set()
        with pytest.raises(RafError):
            await task
        with pytest.raises(RafError):
            await engine.run(1, "t")
        if folder.exists():  # what was asked meanwhile may have made a folder, but no session
            assert [head async for head in engine.manager.heads()] == []
            for path in sorted(folder.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            folder.rmdir()
        (tmp_path / "away").rename(folder)
    async with running(stopped(gate, ledger), f"file:{folder}") as engine:
        assert (await engine.run(1, "s", wait_s=40)).outputs == [3]
        assert (await engine.manager.verify("s")).intact


@pytest.mark.slow
async def test_a_database_file_that_another_program_holds(tmp_path: Path) -> None:
    """Locked for longer than a commit waits: the run stops by a typed error; free again, it goes on."""
    gate, ledger, path = Gate(), Ledger(), tmp_path / "runs.db"
    async with running(stopped(gate, ledger), f"sqlite:{path}", lease_s=1.0) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            gate.open.set()
            with pytest.raises(CommitError):
                await task
            other.execute("ROLLBACK")
        assert (await engine.run(1, "s", wait_s=40)).outputs == [3]
        assert (await engine.manager.verify("s")).intact


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["postgres", "redis"])
async def test_a_server_that_is_away_for_longer_than_a_call_waits(backend: str) -> None:
    """The run stops by a typed error and shows no step as done; when the server is back, it goes on."""
    gate, ledger = Gate(), Ledger()
    with ExitStack() as stack:
        server: postgres.Postgres | valkey.Valkey
        if backend == "postgres":
            server = stack.enter_context(postgres.running())
        else:
            server = stack.enter_context(valkey.running())
        stop = server.stop if isinstance(server, postgres.Postgres) else server.kill
        url = f"{server.url}?retry_s=1"
        async with running(stopped(gate, ledger), url, lease_s=2.0) as engine:
            task = asyncio.create_task(engine.run(1, "s"))
            await gate.reached.wait()
            await asyncio.to_thread(stop)
            gate.open.set()
            # Before it commits, a step asks the server for the time: that may be what fails.
            with pytest.raises((CommitError, StoreUnavailableError)):
                await task
            with pytest.raises(StoreUnavailableError):
                await engine.state("s")
            await asyncio.to_thread(server.start)
            assert (await engine.state("s")).step_number in (0, 1)
            assert (await engine.run(1, "s", wait_s=60)).outputs == [3]
            assert (await engine.manager.verify("s")).intact


@pytest.mark.slow
@SERVERS_ONLY
async def test_many_more_sessions_than_connections(place: str) -> None:
    """A crowd on the smallest pool: all of them end, none is lost, and the pool is whole."""
    option = "connections=2" if backend_of(place) == "postgres" else "pool=1"
    workflow = line("w", {"a": adds_one, "b": adds_one, "c": adds_one}).build()
    store: Store = open_store(f"{place}&{option}")
    async with running(workflow, store) as engine:
        results = await asyncio.gather(*(engine.run(n, f"s{n:02}") for n in range(40)))
        assert [result.outputs for result in results] == [[n + 3] for n in range(40)]
        looks = await asyncio.gather(*(engine.manager.verify(f"s{n:02}") for n in range(40)))
        assert all(look.intact for look in looks)


@pytest.mark.slow
async def test_a_postgres_without_a_free_connection() -> None:
    """All places taken by others: calls wait, then tell; when one is free, the run goes on."""
    with postgres.running("max_connections=8", "superuser_reserved_connections=0") as server:
        url = f"{server.url}?retry_s=1"
        gate, ledger = Gate(), Ledger()
        async with running(stopped(gate, ledger), url) as engine:
            task = asyncio.create_task(engine.run(1, "s"))
            await gate.reached.wait()
            others = taken(server.url)
            assert others
            with pytest.raises(StoreError, match="too many clients"):
                async with running(line("w", {"n": passes}).build(), url) as late:
                    await late.run(1, "t")
            for each in others:
                each.close()
            gate.open.set()
            assert (await task).outputs == [3]
            assert (await engine.manager.verify("s")).intact


def taken(url: str) -> list[psycopg.Connection]:
    """Every connection that the server still gives."""
    found: list[psycopg.Connection] = []
    while True:
        try:
            found.append(psycopg.connect(url))
        except psycopg.OperationalError:
            return found


@pytest.mark.slow
async def test_a_redis_without_a_free_connection() -> None:
    """The same with `maxclients`."""
    with valkey.running("--maxclients", "6") as server:
        url = f"{server.url}?retry_s=1"
        gate, ledger = Gate(), Ledger()
        async with running(stopped(gate, ledger), url) as engine:
            task = asyncio.create_task(engine.run(1, "s"))
            await gate.reached.wait()
            others = [server.client() for _ in range(8)]
            for each in others:
                try:
                    each.ping()
                except Exception:  # noqa: BLE001 - refused, which is the point
                    break
            with pytest.raises(StoreUnavailableError, match="max number of clients"):
                async with running(line("w", {"n": passes}).build(), url) as late:
                    await late.run(1, "t")
            for each in others:
                each.close()
            gate.open.set()
            assert (await task).outputs == [3]
            assert (await engine.manager.verify("s")).intact
