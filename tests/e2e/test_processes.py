"""Real processes on one store: killed, frozen, cancelled from outside, many at once."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raf import Event, WorkflowEngine
from raf.errors import RunFailedError, SessionBusyError
from tests.servers.places import SERVERS, made
from tests.unit.engine import actor
from tests.unit.engine.stage import events_of, kinds, logical

ROOT = Path(__file__).parents[2]
BACKENDS = ("sqlite", "file", *(pytest.param(name, marks=pytest.mark.slow) for name in SERVERS))
ONE_OFTEN = pytest.mark.parametrize(
    "stage",
    ["sqlite", *(pytest.param(name, marks=pytest.mark.slow) for name in ("file", *SERVERS))],
    indirect=True,
)
ONE = pytest.mark.parametrize("stage", ["sqlite"], indirect=True)  # the other is no other case


class Stage:
    """A folder, a store in it, and the processes that a test has started."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.store = store
        self.started: list[asyncio.subprocess.Process] = []
        actor.folder = folder

    async def start(
        self, role: str, session: str = "s", seed: str = "0"
    ) -> asyncio.subprocess.Process:
        """A process that plays a role."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.unit.engine.actor"),
            *(role, self.store, session, str(self.folder)),
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=asyncio.subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def ledger(self) -> Counter[str]:
        """How often each thing was done, in all processes together."""
        path = self.folder / "ledger"
        return Counter(path.read_text().splitlines()) if path.exists() else Counter()

    async def reached(self, what: str, times: int = 1) -> None:
        """Return when this was noted so often."""
        while self.ledger()[what] < times:  # noqa: ASYNC110 - another process notes it
            await asyncio.sleep(0.01)

    def open(self) -> None:
        """Let the nodes go on, here and in every process."""
        (self.folder / "open").touch()

    def engine(self, workflow: str, **options: Any) -> WorkflowEngine:
        """An engine of this process on the same store."""
        return WorkflowEngine(actor.WORKFLOWS[workflow](), store=self.store, **options)


async def told(process: asyncio.subprocess.Process) -> Any:
    """What a process told of its end; None when it told nothing."""
    out, _ = await process.communicate()
    return json.loads(out) if out.strip() else None


async def kill(process: asyncio.subprocess.Process) -> None:
    """End a process as a power cut would."""
    process.kill()
    await process.wait()


@pytest.fixture(params=BACKENDS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A stage for each store that outlives a process."""
    with made(request.param, tmp_path / "place") as store:
        on = Stage(tmp_path, store.partition("?synchronous")[0])
        yield on
        for process in on.started:
            if process.returncode is None:
                process.kill()


async def test_a_killed_run_goes_on_where_it_was(stage: Stage) -> None:
    """Killed in the sixth of twenty nodes: the heir runs that one and the rest, and then is done."""
    first = await stage.start("chain")
    await stage.reached("n05")
    await kill(first)
    stage.open()
    async with stage.engine("chain") as engine:
        [result] = await engine.recover()  # at once: its owner is provably dead
        assert (result.status, result.outputs) == ("completed", [20])
        assert stage.ledger() == {f"n{n:02}": 2 if n == 5 else 1 for n in range(20)}
        assert (await engine.run(0, "whole")).outputs == [20]
        events = await events_of(engine, "s")
        assert logical(events) == logical(await events_of(engine, "whole"))
        assert "taken_over" in kinds(events)
        assert (await engine.manager.verify("s")).intact


@ONE
async def test_a_node_that_takes_its_process_along_is_given_up(stage: Stage) -> None:
    """Three calls by the ledger, then the run fails and says so; mended, it goes on."""
    for _ in range(3):
        assert await told(await stage.start("exits")) is None
    assert stage.ledger() == {"exits": 3}
    async with stage.engine("exits") as engine:
        with pytest.raises(RunFailedError, match="vanished 3 times"):
            await engine.run(0, "s")
        assert stage.ledger() == {"exits": 3}
        stage.open()
        assert (await engine.resume("s")).outputs == [1]


@pytest.mark.parametrize(
    ("stage", "node"),
    [
        ("sqlite", "silent"),
        ("sqlite", "deaf"),
        ("file", "thread"),
        *(
            pytest.param(backend, node, marks=pytest.mark.slow)
            for backend in SERVERS
            for node in ("silent", "deaf", "thread")
        ),
    ],
    indirect=["stage"],
)
async def test_cancelled_from_another_process(node: str, stage: Stage) -> None:
    """Whatever the node does, its run is cancelled, and it leaves nothing afterwards."""
    owner = await stage.start(node)
    await stage.reached("reached")
    async with stage.engine(node) as engine:
        assert await engine.cancel("s") == "cancelled"
        head = await engine.manager.head("s")
        stage.open()
        assert (await told(owner))[0] == "cancelled"
        assert (await engine.run(0, "s")).status == "cancelled"
        after = await engine.manager.head("s")
        assert (after.commit, after.events) == (head.commit, head.events)
        assert stage.ledger()["late effect"] == 0


@ONE_OFTEN
async def test_an_owner_frozen_past_its_lease_is_replaced_and_refused(stage: Stage) -> None:
    """Stopped in mid-step and replaced: its late commit is refused, and it is told."""
    owner = await stage.start("frozen")
    await stage.reached("reached")
    async with stage.engine("frozen", lease_s=1.0) as engine:
        with pytest.raises(SessionBusyError, match=f"pid {owner.pid}"):
            await engine.run(0, "s")
        owner.send_signal(signal.SIGSTOP)
        heir = asyncio.create_task(engine.run(0, "s", wait_s=30))
        await stage.reached("reached", 2)
        stage.open()
        assert (await heir).outputs == [2]
        before = await engine.manager.head("s")
        owner.send_signal(signal.SIGCONT)
        assert (await told(owner))[0] == "LeaseLostError"
        assert await engine.manager.head("s") == before
        assert (await engine.manager.verify("s")).intact


async def test_a_reader_of_another_process_has_no_gap_and_no_double(stage: Stage) -> None:
    """Reading at full speed beside the writer, from the first event to the outcome."""
    owner = await stage.start("turns")
    await stage.reached("s")
    async with stage.engine("turns") as engine:

        async def read() -> list[Event]:
            return [event async for event in engine.stream(session_id="s", after=0)]

        readers = await asyncio.gather(*(read() for _ in range(3)))
        assert await told(owner) == ["completed", [40]]
        everything = await events_of(engine, "s")
        assert [e.number for e in everything] == list(range(1, len(everything) + 1))
        for seen in readers:
            assert seen == everything


async def test_many_processes_on_one_store(stage: Stage) -> None:
    """Four processes, each its own session and all of them three shared ones: each node ran once.

    Nobody hears that a file is locked: whoever comes second waits for the owner, and gets the result.
    """
    processes = [await stage.start("turns/race", f"own {n}") for n in range(4)]
    for process in processes:
        assert await told(process) == [[40]] * 4
    assert all(count == 40 for count in stage.ledger().values())
    assert len(stage.ledger()) == 4 + 3


@ONE
async def test_resumed_under_other_hash_seeds(stage: Stage) -> None:
    """Killed and taken up by processes with other hash seeds, a run is the run it was."""
    for number, seed in enumerate(("1", "77"), start=1):
        process = await stage.start("chain", seed=seed)
        await stage.reached("n05", number)
        await kill(process)
    stage.open()
    assert await told(await stage.start("chain", seed="4242")) == ["completed", [20]]
    assert stage.ledger() == {f"n{n:02}": 3 if n == 5 else 1 for n in range(20)}
