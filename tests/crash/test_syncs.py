"""What is synced, and when: the system calls of a real process show the syncs that the docs claim."""

import shutil
from pathlib import Path

import pytest

from raf.engine.commits import Durability
from tests.crash.backends import DATABASE, url_of
from tests.crash.small_run import SmallJob
from tests.crash.system_calls import Call, recorded, recording, run_small

pytestmark = pytest.mark.crash

# Three chains: nothing is pruned meanwhile.
ROUNDS = 3


@pytest.fixture(autouse=True)
def strace() -> None:
    """The tracer; the gate installs it, and elsewhere the tests say that it is not there."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")


async def syncs(
    tmp_path: Path,
    backend: str,
    *,
    durability: Durability = "sync",
    options: str = "",
    effects: bool = False,
) -> list[list[Path]]:
    """The files that were synced between the starts of any two steps, in order."""
    url = url_of(backend, tmp_path) + options
    job = SmallJob(
        folder=str(tmp_path), url=url, durability=durability, effects=effects, rounds=ROUNDS
    )
    log = tmp_path / "log"
    assert await run_small(job, *recording(log, ["fsync", "fdatasync", "writev"])) == 0
    return between_starts(list(recorded(log)))


def between_starts(calls: list[Call]) -> list[list[Path]]:
    """The synced files by step, without what came before the first start or after the last."""
    steps: list[list[Path]] = [[]]
    for call in calls:
        if call.name != "writev":
            steps[-1].append(call.path)
        elif call.told["what"] == "start":
            steps.append([])
    assert len(steps) == ROUNDS + 2
    return steps[1:-1]


async def test_sqlite_syncs_once_a_step(tmp_path: Path) -> None:
    """One commit of SQLite is one sync of its log, and nothing else is synced between two steps."""
    log = tmp_path / f"{DATABASE}-wal"
    assert await syncs(tmp_path, "sqlite") == [[log]] * ROUNDS


async def test_sqlite_syncs_an_effect_too(tmp_path: Path) -> None:
    """An effect's record is on the disk before the node has the result, then the step's commit is."""
    log = tmp_path / f"{DATABASE}-wal"
    assert await syncs(tmp_path, "sqlite", effects=True) == [[log, log]] * ROUNDS


async def test_sqlite_with_synchronous_normal_does_not_sync(tmp_path: Path) -> None:
    """With synchronous=normal no step waits for the disk."""
    found = await syncs(tmp_path, "sqlite", options="?synchronous=normal", effects=True)
    assert found == [[]] * ROUNDS


@pytest.mark.parametrize("effects", [False, True])
async def test_the_file_store_syncs_file_and_folder(tmp_path: Path, effects: bool) -> None:
    """A record is synced before it has its name, and its name before anybody is told."""
    found = await syncs(tmp_path, "file", effects=effects)
    assert [len(step) for step in found] == [4 if effects else 2] * ROUNDS
    for step in found:
        for record, folder in zip(step[::2], step[1::2], strict=True):
            assert record.name.startswith(".tmp-")
            assert record.parent == folder


async def test_at_exit_nothing_is_synced_on_the_way(tmp_path: Path) -> None:
    """With durability="exit" steps are saved together at the outcome."""
    for backend in ("sqlite", "file"):
        folder = tmp_path / backend
        folder.mkdir()
        assert await syncs(folder, backend, durability="exit") == [[]] * ROUNDS


async def test_async_syncs_each_step_beside_the_next(tmp_path: Path) -> None:
    """With durability="async" each commit is synced all the same, one step later at the most."""
    found = await syncs(tmp_path, "sqlite", durability="async")
    total = 0
    for number, step in enumerate(found, start=1):
        total += len(step)
        assert number - 1 <= total <= number
