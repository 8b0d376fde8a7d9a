"""Two processes want one session: one runs it, and nothing of a former owner gets in."""

import asyncio
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from raf import CheckpointManager
from raf.clock import SystemClock
from raf.errors import StoreBusyError
from raf.store.model import Head
from raf.store.owner import this_owner
from raf.store.sqlite import SqliteStore
from tests.crash.backends import DATABASE
from tests.crash.conftest import MakeLife
from tests.crash.forking import over
from tests.crash.life import PATIENCE_S, POLL_S, Life
from tests.crash.processes import fork, told
from tests.crash.script import FAILED, SESSION, TURNS, Job
from tests.crash.trace import Trace
from tests.crash.workflow import read_ledger

pytestmark = pytest.mark.crash

UTC = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
# Where an owner is frozen.  Inside a transaction of SQLite it would hold the file: see below.
OFTEN = [
    ("file", "script.node.before:9"),
    ("file", "store.file.link.before:12"),
    ("sqlite", "script.node.before:9"),
    ("sqlite", "engine.commit.before:4"),
]
ANYWHERE = [
    "script.node.before:3",
    "script.effect.before:2",
    "script.effect.after:2",
    "engine.step.after_run:4",
    "engine.commit.before:6",
    "engine.commit.after:4",
]
IN_THE_FILE_STORE = [
    "store.file.commit.put.before:6",
    "store.file.write.before:20",
    "store.file.write.after:20",
    "store.file.link.before:16",
    "store.file.link.after:12",
    "store.file.append.put.before:2",
    "store.file.renew.before:1",
    "store.file.prune.pack.before:1",
    "store.file.prune.clean.before:1",
]
SELDOM = [
    *[("file", point) for point in [*ANYWHERE, *IN_THE_FILE_STORE]],
    *[("sqlite", point) for point in [*ANYWHERE, "store.sqlite.commit.after:4"]],
]
SHORT_LEASE_S = 0.4
LONG_S = 30.0


def second(job: Job, folder: Path) -> Job:
    """The same work for another process, with a trace and an answer of its own."""
    folder.mkdir(exist_ok=True)
    return replace(job, folder=str(folder), stop="", linger_s=0.0)


async def end_of(job: Job) -> tuple[int | None, dict[str, object]]:
    """Run a forked process to its end."""
    process = fork(job)
    await over(process)
    code = process.exitcode
    process.close()
    return code, told(job)


@asynccontextmanager
async def frozen_owner(job: Job) -> AsyncIterator[Callable[[], Awaitable[int | None]]]:
    """A process that has come to its point and frozen; the answer lets it go on to its end."""
    trace = Trace(job.trace, job.names)
    process = fork(job)
    name, _, hit = job.stop.partition(":")

    async def go_on() -> int | None:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGCONT)
        await over(process, PATIENCE_S)
        return process.exitcode

    try:
        while trace.counts()[name] < int(hit):
            assert process.is_alive(), told(job)
            await asyncio.sleep(POLL_S)
        yield go_on
    finally:
        trace.close()
        process.kill()
        await over(process)
        process.close()


async def head_of(job: Job) -> Head:
    async with CheckpointManager(job.url) as manager:
        return await manager.head(SESSION)


@pytest.mark.parametrize("backend", ["file", "sqlite"])
async def test_the_second_is_told_who_and_until_when(
    backend: str, life: MakeLife, tmp_path: Path
) -> None:
    """A live owner keeps others out; killed, it is replaced at once, whatever its lease says."""
    one = life(backend, linger_s=600.0)
    owner = fork(one.job)
    while not read_ledger(one.job.ledger):
        assert owner.is_alive()
        await asyncio.sleep(POLL_S)
    other = second(one.job, tmp_path / "other")
    code, answer = await end_of(other)
    assert (code, answer["error"]) == (FAILED, "SessionBusyError")
    assert f"{socket.gethostname()}/pid {owner.pid}" in str(answer["text"])
    assert re.search(UTC, str(answer["text"]))
    assert read_ledger(other.ledger) == []
    owner.kill()
    await over(owner)
    owner.close()
    assert await end_of(other) == (0, {"outputs": one.model.outputs})


@pytest.mark.parametrize(
    ("backend", "point"), [*OFTEN, *(pytest.param(*row, marks=pytest.mark.slow) for row in SELDOM)]
)
async def test_a_former_owner_writes_nothing(
    backend: str, point: str, life: MakeLife, tmp_path: Path
) -> None:
    """Frozen past its lease, replaced and let go on, an owner is refused and ends with that."""
    linger_s = 0.8 if "renew" in point else 0.0
    one = life(backend, lease_s=SHORT_LEASE_S, stop=point, linger_s=linger_s)
    async with frozen_owner(one.job) as go_on:
        seen = read_ledger(one.job.ledger)
        other = replace(second(one.job, tmp_path / "other"), wait_s=PATIENCE_S, lease_s=LONG_S)
        assert await end_of(other) == (0, {"outputs": one.model.outputs})
        before = await head_of(one.job)
        assert await go_on() == FAILED
    assert told(one.job)["error"] == "LeaseLostError"
    assert await head_of(one.job) == before
    late = read_ledger(one.job.ledger)[len(seen) :]
    # What was already begun is not called back; nothing else outside is done, and no other step.
    begun = ["effect"] if point.startswith("script.effect.before") else []
    assert [line["what"] for line in late if line["what"] == "effect"] == begun
    assert {line["step"] for line in late} <= {max(line["step"] for line in seen)}
    await check_line(one)


async def check_line(one: Life) -> None:
    """The session is one line, equal to the unbroken one."""
    async with CheckpointManager(one.job.url) as manager:
        verified = await manager.verify(SESSION)
        assert verified.findings == ()
        await one._check_history(manager)
    assert one.faults == []


async def test_a_late_release_is_no_harm(life: MakeLife, tmp_path: Path) -> None:
    """An owner that comes back only to let go finds the session another's and leaves it so."""
    one = life("file", lease_s=SHORT_LEASE_S, stop="store.file.release.before:1")
    async with frozen_owner(one.job) as go_on:
        other = replace(second(one.job, tmp_path / "other"), wait_s=PATIENCE_S, lease_s=LONG_S)
        successor = fork(replace(other, linger_s=600.0))
        while not any(line["run"] == TURNS[1] for line in read_ledger(other.ledger)):
            assert successor.is_alive()
            await asyncio.sleep(POLL_S)
        before = await head_of(one.job)
        assert before.held is not None
        assert await go_on() == FAILED
        assert await head_of(one.job) == before
        successor.kill()
        await over(successor)
        successor.close()
    assert told(one.job)["error"] == "SessionBusyError"
    assert await end_of(other) == (0, {"outputs": one.model.outputs})
    await check_line(one)


async def test_an_owner_frozen_inside_a_commit_of_sqlite(life: MakeLife) -> None:
    """It holds the file: others are told that it is busy and may read; let go on, it is the owner."""
    one = life("sqlite", stop="store.sqlite.commit.before:4")
    async with frozen_owner(one.job) as go_on:
        clock = SystemClock()
        async with SqliteStore(one.folder / DATABASE, busy_timeout_s=0.1, clock=clock) as store:
            with pytest.raises(StoreBusyError):
                await store.claim(SESSION, this_owner(clock), lease_s=LONG_S)
            async with CheckpointManager(store) as manager:
                assert (await manager.head(SESSION)).commit == 2
        assert await go_on() == 0
    assert told(one.job) == {"outputs": one.model.outputs}
    await check_line(one)
