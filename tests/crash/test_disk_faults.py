"""Real errors of the disk, given by the kernel's answers: strace fails the n-th call of a kind.

Whatever the call was for, the process ends with an error of raf or does without (a prune or a
release can wait), and the next process of the session ends it as if nothing had been.
"""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from raf import CheckpointManager
from tests.crash.backends import DATABASE, FOLDER
from tests.crash.conftest import MakeLife
from tests.crash.life import Life
from tests.crash.processes import interpreter, told
from tests.crash.script import FAILED, SESSION
from tests.crash.trace import Trace, open_brackets

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(300)]

# What saves a run tells so; a claim or a request tells what the store said.
SAVING = {"commit", "append"}
ANSWERS = {"", "CommitError", "StoreFullError", "StoreUnavailableError"}


@pytest.fixture
def strace() -> str:
    """The tracer; the gate installs it, and elsewhere the test says that it is not there."""
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed")
    return found


async def run_traced(one: Life, tracer: list[str]) -> tuple[int, dict[str, object], set[str]]:
    """Run the script under a tracer: exit code, what it told, and which operations are open."""
    process = await asyncio.to_thread(interpreter, one.job, *tracer)
    _, errors = await asyncio.to_thread(process.communicate)
    trace = Trace(one.job.trace, one.job.names)
    counts: Counter[str] = trace.counts()
    trace.close()
    answer = told(one.job)
    assert answer, errors[-2000:]
    words = {word for stem in open_brackets(counts) for word in stem.split(".")}
    return process.returncode, answer, words


def inject(strace: str, call: str, error: str, when: int, *paths: Path) -> list[str]:
    """The command that fails one call: the `when`-th, on these files if any are named."""
    places = [part for path in paths for part in ("-P", str(path))]
    fault = f"inject={call}:error={error}:when={when}"
    return [strace, "-f", "-qq", "-o", "/dev/null", *places, "-e", f"trace={call}", "-e", fault]


async def check_next(one: Life) -> None:
    """The next process goes on, and all is as in an unbroken session."""
    async with CheckpointManager(one.job.url) as manager:
        verified = await manager.verify(SESSION)
        assert verified.findings == ()
    assert not await one._process(None)
    if not one.faults:
        await one._check_end()
    assert one.faults == []


def check_answer(code: int, answer: dict[str, object], words: set[str]) -> str:
    """What failed is told with the right error; returns the error's name, empty for none.

    An operation that stands open when the process has ended is the one that failed.
    """
    name = str(answer.get("error", ""))
    assert name in ({"CommitError"} if words & SAVING else ANSWERS), f"{words}: {answer}"
    assert (code, bool(name)) in [(0, False), (FAILED, True)]
    return name


def the_log(folder: Path) -> Path:
    """The file that a commit of SQLite goes to."""
    return folder / f"{DATABASE}-wal"


def the_session(folder: Path) -> Path:
    """The folder that records of the file store are linked into."""
    return folder / FOLDER / "the%20session" / "s00000001"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A kind of call that fails, each time at another one of `times`.

    Calls are counted by thread.  The first ones make the store, which is another story.
    """

    backend: str
    call: str
    error: str
    times: tuple[int, ...]
    place: Callable[[Path], Path] | None = None

    def __str__(self) -> str:
        return f"{self.backend}-{self.call}-{self.error}"


FAULTS = [
    Fault(backend="sqlite", call="fdatasync", error="EIO", times=(12, 15, 24, 40)),
    Fault(backend="sqlite", call="fdatasync", error="ENOSPC", times=(13, 22, 31)),
    Fault(backend="sqlite", call="pwrite64", error="ENOSPC", times=(55, 75, 120), place=the_log),
    Fault(backend="file", call="link,linkat", error="ENOSPC", times=(4, 9, 20, 33)),
    Fault(backend="file", call="fsync", error="EIO", times=(3, 7, 21), place=the_session),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_a_failing_call(fault: Fault, life: MakeLife, strace: str) -> None:
    """The run stops with CommitError, loses nothing that was kept, and the next process ends it."""
    names: list[str] = []
    for when in fault.times:
        one = life(fault.backend)
        places = [fault.place(one.folder)] if fault.place else []
        command = inject(strace, fault.call, fault.error, when, *places)
        names.append(check_answer(*await run_traced(one, command)))
        await check_next(one)
        shutil.rmtree(one.folder)
    assert "CommitError" in names
