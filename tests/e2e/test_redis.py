"""A workflow on a real Redis server: killed and resumed, and asked across processes."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from raf import WorkflowEngine
from tests.servers.valkey import forget, prefix_of, redis_url, running
from tests.unit.engine import actor
from tests.unit.engine.stage import events_of, kinds, logical

__all__ = ["redis_url"]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def url(redis_url: str, tmp_path: Path) -> Iterator[str]:
    """A place of this test alone."""
    actor.folder = tmp_path
    yield f"{redis_url}?prefix={prefix_of(tmp_path)}"
    forget(redis_url, prefix_of(tmp_path))


async def start(role: str, url: str, folder: Path) -> asyncio.subprocess.Process:
    """A process that plays a role."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.unit.engine.actor", role, url, "s", str(folder)),
        cwd=ROOT,
        env=dict(os.environ),
        stdout=asyncio.subprocess.PIPE,
    )


def ledger(folder: Path) -> Counter[str]:
    """How often each node was called, in all processes together."""
    path = folder / "ledger"
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


async def reached(folder: Path, what: str, process: asyncio.subprocess.Process) -> None:
    """Return when this was noted."""
    while not ledger(folder)[what]:
        assert process.returncode is None
        await asyncio.sleep(0.01)


async def test_a_killed_run_goes_on_where_it_was(url: str, tmp_path: Path) -> None:
    """Killed in the sixth of twenty nodes: the heir runs that one and the rest, and then is done."""
    first = await start("chain", url, tmp_path)
    await reached(tmp_path, "n05", first)
    first.kill()
    await first.wait()
    (tmp_path / "open").touch()
    async with WorkflowEngine(actor.chain(), store=url) as engine:
        [result] = await engine.recover()  # at once: its owner is provably dead
        assert (result.status, result.outputs) == ("completed", [20])
        assert ledger(tmp_path) == {f"n{n:02}": 2 if n == 5 else 1 for n in range(20)}
        assert (await engine.run(0, "whole")).outputs == [20]
        events = await events_of(engine, "s")
        assert logical(events) == logical(await events_of(engine, "whole"))
        assert "taken_over" in kinds(events)
        assert (await engine.manager.verify("s")).intact


@pytest.mark.slow
async def test_a_run_outlives_its_server(tmp_path: Path) -> None:
    """Worker and server killed in mid-run and started again: the run ends as if nothing was."""
    actor.folder = tmp_path
    with running() as server:
        first = await start("chain", server.url, tmp_path)
        await reached(tmp_path, "n05", first)
        server.kill()
        (tmp_path / "open").touch()
        await asyncio.to_thread(server.start)
        out, _ = await first.communicate()
        assert json.loads(out)[0] == "completed"
        assert ledger(tmp_path) == {f"n{n:02}": 1 for n in range(20)}
        async with WorkflowEngine(actor.chain(), store=server.url) as engine:
            assert (await engine.run(0, "s")).outputs == [20]
            assert (await engine.manager.verify("s")).intact
