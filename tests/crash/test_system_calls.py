"""A small session is killed, or told of an error, at every system call that may change the disk.

`kill -9` comes before the n-th call of a kind, so between any two calls.  An error is what the
kernel answers instead of doing the n-th call.
"""

import shutil
import signal
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.crash.backends import url_of
from tests.crash.small_parity import SmallModel, goes_on, small_model
from tests.crash.small_run import FAILED, SmallJob, lines_of
from tests.crash.system_calls import WRITE_SIDE, injecting, recorded, recording, run_small

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

KILLED = -signal.SIGKILL
# The kinds that each store makes; the first test looks for others.
FILE = ("write", "fsync", "link", "unlink", "rename", "mkdir")
SQLITE = ("pwrite64", "fdatasync", "unlink", "ftruncate")
KINDS = [*(("file", call) for call in FILE), *(("sqlite", call) for call in SQLITE)]
ERRORS = {
    "write": ("EIO", "ENOSPC"),
    "pwrite64": ("EIO", "ENOSPC"),
    "fsync": ("EIO", "ENOSPC"),
    "fdatasync": ("EIO", "ENOSPC"),
    "link": ("EIO", "ENOSPC"),
    "rename": ("EIO", "ENOSPC"),
    "mkdir": ("EIO", "ENOSPC"),
    "ftruncate": ("EIO",),
    "unlink": ("EIO",),
}
FAULTS = [(backend, call, error) for backend, call in KINDS for error in ERRORS[call]]
TOLD = {"CommitError", "StoreFullError", "StoreUnavailableError"}


@pytest.fixture(scope="module", autouse=True)
def strace() -> None:
    """The tracer; the gate installs it, and elsewhere the tests say that it is not there."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")


@pytest.fixture
async def model(tmp_path: Path) -> SmallModel:
    """The session unbroken."""
    folder = tmp_path / "model"
    folder.mkdir()
    return await small_model(folder, SmallJob(folder=str(folder), url=""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """How a store stands before the process that is killed.

    Calls are counted by thread, and SQLite opens its file in another thread than it writes in: on a
    new store the first of one thread hide the first of the other.
    """

    name: str
    made: bool = False
    run: bool = True

    def __str__(self) -> str:
        return self.name


NEW = Scene(name="new store")
MADE = Scene(name="made store", made=True)
# A killed process left a log of SQLite, which the next one that closes the file folds in.
LEFT = Scene(name="open and close", made=True, run=False)


def new_job(backend: str, folder: Path, scene: Scene) -> SmallJob:
    """The job of a process on a store in a new folder."""
    folder.mkdir()
    return SmallJob(folder=str(folder), url=url_of(backend, folder), run=scene.run)


async def set_up(scene: Scene, backend: str, folder: Path) -> SmallJob:
    """A store as the scene has it, and the job of the process that is killed."""
    job = new_job(backend, folder, scene)
    if scene.made:
        assert await run_small(replace(job, run=False)) == 0
        job.told.unlink()
    if not scene.run:
        kill = injecting("fdatasync" if backend == "sqlite" else "fsync", "signal=SIGKILL", 12)
        assert await run_small(replace(job, run=True), *kill) == KILLED
    return job


async def kill_at(
    backend: str, scene: Scene, call: str, n: int, folder: Path, model: SmallModel
) -> bool:
    """Kill a process before its n-th call of a kind, go on and compare; whether it was killed."""
    job = await set_up(scene, backend, folder)
    code = await run_small(job, *injecting(call, "signal=SIGKILL", n))
    assert code in (0, KILLED), lines_of(job)[-1:]
    await goes_on(replace(job, run=True), model)
    shutil.rmtree(folder)
    return code != 0


async def count_of(call: str, scene: Scene, backend: str, folder: Path) -> int:
    """How many calls of a kind the thread makes that makes most of them."""
    job = await set_up(scene, backend, folder)
    log = folder / "calls"
    assert await run_small(job, *recording(log, [call])) == 0
    threads = Counter(one.thread for one in recorded(log))
    shutil.rmtree(folder)
    return max(threads.values(), default=0)


SAMPLE = [
    ("file", MADE, "write", 4),
    ("file", NEW, "link", 3),
    ("file", NEW, "fsync", 8),
    ("sqlite", MADE, "pwrite64", 10),
    ("sqlite", MADE, "fdatasync", 4),
]


@pytest.mark.parametrize(("backend", "kinds"), [("file", FILE), ("sqlite", SQLITE)])
async def test_no_kind_is_forgotten(backend: str, kinds: tuple[str, ...], tmp_path: Path) -> None:
    """The stores change the disk by the calls that are told here, and by no others."""
    job = await set_up(NEW, backend, tmp_path / "s")
    assert await run_small(job, *recording(tmp_path / "calls", WRITE_SIDE)) == 0
    assert {call.name for call in recorded(tmp_path / "calls")} == set(kinds)


@pytest.mark.parametrize(("backend", "scene", "call", "n"), SAMPLE, ids=str)
async def test_a_kill_at_a_system_call(
    backend: str, scene: Scene, call: str, n: int, tmp_path: Path, model: SmallModel
) -> None:
    """Some of the calls of the next test, for every day; early ones, which any run makes."""
    assert await kill_at(backend, scene, call, n, tmp_path / "s", model)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "call"), KINDS)
async def test_a_kill_at_every_system_call(
    backend: str, call: str, tmp_path: Path, model: SmallModel, campaign: str
) -> None:
    """Killed between any two changes of the disk, the session ends as an unbroken one."""
    stride = 1 if campaign == "long" else 4
    killed = 0
    for scene in (NEW,) if backend == "file" else (NEW, MADE, LEFT):
        last = await count_of(call, scene, backend, tmp_path / "s")
        for n in range(1, last + 1, stride):
            killed += await kill_at(backend, scene, call, n, tmp_path / "s", model)
    assert killed


async def fail_at(
    backend: str, call: str, fault: str, n: int, folder: Path, model: SmallModel
) -> str:
    """Fail the n-th call of a kind; returns the error that was told, empty for none."""
    job = await set_up(NEW if backend == "file" else MADE, backend, folder)
    code = await run_small(job, *injecting(call, f"error={fault}", n))
    end = lines_of(job)[-1]
    error = str(end.get("error", ""))
    assert (code, bool(error)) in [(0, False), (FAILED, True)]
    assert error in {"", *TOLD}, end
    await goes_on(job, model)
    shutil.rmtree(folder)
    return error


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "call", "fault"), FAULTS)
async def test_an_error_at_every_system_call(
    backend: str, call: str, fault: str, tmp_path: Path, model: SmallModel, campaign: str
) -> None:
    """The old state can be read, the run stops with a typed error, and goes on when all is well."""
    stride = 1 if campaign == "long" else 4
    scene = NEW if backend == "file" else MADE
    last = await count_of(call, scene, backend, tmp_path / "s")
    told = {
        await fail_at(backend, call, fault, n, tmp_path / "s", model)
        for n in range(1, last + 1, stride)
    }
    assert told
    if call in ("write", "pwrite64", "fsync", "fdatasync", "link"):
        assert "CommitError" in told
