"""The backups that the docs advise, taken while somebody writes: whole, and not too old."""

import asyncio
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from raf import WorkflowEngine
from raf.store.model import Select
from raf.store.urls import open_store
from tests.servers import places, postgres, valkey
from tests.unit.engine.stage import Ledger, running, small_chains, until
from tests.unit.engine.test_fork import looping

pytestmark = pytest.mark.slow


async def taken_beside_a_writer(place: str, take: Callable[[], None]) -> str:
    """Run sessions, take a backup in the middle, and return the newest run acknowledged before it."""
    ledger = Ledger()
    async with running(looping(), place, checkpoints=small_chains(4), lease_s=2.0) as engine:

        async def work() -> None:
            for number in range(60):
                await engine.run(number, "s", run_id=f"run {number}")
                ledger["done"] = number

        writing = asyncio.create_task(work())
        await until(lambda: ledger["done"] >= 10)
        known = ledger["done"]
        await asyncio.to_thread(take)
        assert not writing.done()
        await writing
    return f"run {known}"


async def check(url: str, known: str) -> None:
    """The copy holds the run, verifies, and goes on."""
    async with WorkflowEngine(looping(), open_store(url)) as engine:
        reading = await engine.manager.store.read("s", Select(run=known))
        assert reading is not None
        assert reading.run is not None
        assert (await engine.manager.verify("s")).intact
        if (await engine.manager.head("s")).summary.status == "running":
            await engine.resume("s", wait_s=40)
        assert (await engine.run(5, "s", run_id="after", wait_s=40)).status == "completed"


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_sqlites_own_backup(place: str, tmp_path: Path) -> None:
    """The copy that SQLite makes is one moment of the file, with what stands in its log."""
    copy = tmp_path / "copy.db"

    def take() -> None:
        with (
            closing(sqlite3.connect(tmp_path / "place" / "runs.db")) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)

    await check(f"sqlite:{copy}", await taken_beside_a_writer(place, take))


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_pg_dump(place: str, tmp_path: Path) -> None:
    """A dump of the schema is one moment of all sessions; it is read into another database."""
    server, file = postgres.shared_url(), tmp_path / "dump.sql"
    programs = Path(postgres.package().__file__).parent / "pginstall18" / "bin"

    def program(name: str, *words: str) -> None:
        subprocess.run([str(programs / name), *words], check=True, capture_output=True)

    known = await taken_beside_a_writer(
        place, lambda: program("pg_dump", "-n", places.schema(), "-f", str(file), "-d", server)
    )
    postgres.execute("DROP DATABASE IF EXISTS copied")
    postgres.execute("CREATE DATABASE copied")
    copied = f"{server.rpartition('/')[0]}/copied"
    program("psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(file), "-d", copied)
    await check(postgres.with_options(copied, schema=places.schema()), known)
    postgres.execute("DROP DATABASE copied WITH (FORCE)")


async def test_bgsave(tmp_path: Path) -> None:
    """A snapshot of the server is one moment of all sessions; a server that appends nothing reads it."""
    with valkey.running() as server:

        def take() -> None:
            with server.client() as client:
                client.bgsave()
                while client.info("persistence")["rdb_bgsave_in_progress"]:
                    pass
            shutil.copy(server.folder / "dump.rdb", tmp_path / "dump.rdb")

        known = await taken_beside_a_writer(server.url, take)
    copy = valkey.Valkey(tmp_path, "--appendonly", "no")
    copy.start()
    try:
        with copy.client() as client:
            client.config_set("appendonly", "yes")
        await check(copy.url, known)
    finally:
        copy.kill()
