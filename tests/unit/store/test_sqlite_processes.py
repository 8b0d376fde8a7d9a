"""Several processes on one SQLite file, processes that are killed, and ones that never close."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raf.clock import SystemClock
from raf.store.model import Reading
from raf.store.sqlite import SqliteStore
from raf.testing.store_suite.base import EVERYTHING, Pen, bodies, claim, head_of, must_read

ROOT = Path(__file__).parents[3]
CONTENDER = Path(__file__).with_name("contender.py")
STEPS = 40


def start(mode: str, path: Path | str, name: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(CONTENDER), mode, str(path), name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


@pytest.mark.slow
async def test_five_processes_at_full_speed(tmp_path: Path) -> None:
    """Nobody sees a locked database, no commit is lost, and one at a time owns a session."""
    path = tmp_path / "runs.db"
    processes = [start("race", path, f"own {n}") for n in range(5)]
    ends = [(process.communicate(timeout=100), process.returncode) for process in processes]
    assert [(errors, code) for (_, errors), code in ends] == [("", 0)] * 5
    async with SqliteStore(path) as store:
        shared = await must_read(store, "shared")
        assert [info.commit for info in shared.infos] == list(range(5 * STEPS))
        written = bodies(shared)
        assert {name: written.count(name) for name in set(written)} == {
            f"own {n}".encode(): STEPS for n in range(5)
        }
        assert len({info.epoch for info in shared.infos}) == 5 * STEPS
        for n in range(5):
            assert (await head_of(store, f"own {n}")).commit == STEPS - 1


async def after_kill(path: Path) -> Reading | None:
    async with SqliteStore(path) as store:
        return await store.read("s", EVERYTHING)


@pytest.mark.parametrize("end", ["before", "after"])
@pytest.mark.parametrize("op", ["claim", "commit", "append", "request", "prune", "delete"])
async def test_killed_at_a_commit(tmp_path: Path, op: str, end: str) -> None:
    """Killed right before its COMMIT an operation left nothing, right after it left all."""
    path = tmp_path / "runs.db"
    process = start("once", path, "s", RAF_FAILPOINT=f"store.sqlite.{op}.{end}:1:kill")
    process.communicate(timeout=60)
    assert process.returncode == -9
    reading = await after_kill(path)
    done = end == "after"
    if op in ("claim", "delete"):
        assert (reading is not None) is (done if op == "claim" else not done)
        return
    assert reading is not None
    found = {
        "commit": reading.head.commit == 0,
        "append": [record.body for record in reading.journal] == [b"journal"],
        "request": len(reading.requests) == 1,
        "prune": reading.chain == (),
    }
    assert found[op] is done


async def test_a_killed_owner_is_taken_over_at_once(tmp_path: Path) -> None:
    """The lease of a killed process binds nobody, and the claim says what happened."""
    path = tmp_path / "runs.db"
    process = start("once", path, "s", RAF_FAILPOINT="store.sqlite.append.after")
    process.communicate(timeout=60)
    async with SqliteStore(path, clock=SystemClock()) as store:
        lease = await claim(store)
        reading = await must_read(store)
        assert [record.info.took_over for record in reading.journal] == [False, True]
        await Pen(store, lease, reading.head).write()
        assert bodies(await must_read(store)) == [b"body 0", b"body 1"]


async def test_a_store_that_is_never_closed_does_not_hold_the_process(tmp_path: Path) -> None:
    """A program that forgets to close ends, and what it was told is stored is stored."""
    path = tmp_path / "runs.db"
    process = start("leave", path, "s")
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0
    reading = await after_kill(path)
    assert reading is not None
    assert bodies(reading) == [b"body 0", b"body 1", b"body 2"]
