"""Real workers on one store: killed, frozen, drained; every session ends all the same."""

import asyncio
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest

from raf import WorkflowEngine
from raf.store.model import Head
from raf.topology.workflow import Workflow
from tests.e2e import witnessed
from tests.e2e.shell import ROOT, Ended, Shell, ended
from tests.servers import places
from tests.servers.places import SERVERS
from tests.unit.engine.stage import events_of, kinds

FLOWS = "tests.e2e.witnessed"
BACKENDS = ("sqlite:raf.db", "file:runs")
ALSO_ON_SERVERS = pytest.mark.parametrize(
    "floor",
    [BACKENDS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in SERVERS)],
    ids=["sqlite", *SERVERS],
    indirect=True,
)


class Floor:
    """A folder with a store, the workers on it, and what their nodes left."""

    def __init__(self, folder: Path, store: str) -> None:
        self.shell = Shell(folder, store)
        self.folder = folder
        scheme, _, place = store.partition(":")
        self.url = store if "//" in store else f"{scheme}:{folder / place}"
        self.workers: list[subprocess.Popen[str]] = []

    def worker(self, *words: str, failpoint: str = "") -> subprocess.Popen[str]:
        """A worker process; words without a dash are workflows."""
        flows = [f"{FLOWS}:{word}" if word.isidentifier() else word for word in words]
        env = {"RAF_FAILPOINT": failpoint} if failpoint else {}
        self.shell.env = env
        self.workers.append(self.shell.start("worker", *flows, "--poll-s", "0.1"))
        return self.workers[-1]

    def once(self, *words: str) -> Ended:
        """A worker that runs what is due, and its end."""
        self.shell.env = {"PYTHONPATH": str(ROOT)}
        return self.shell.raf("worker", f"{FLOWS}:{words[0]}", *words[1:], "--once")

    def ledger(self) -> Counter[str]:
        """How often each thing was done, in all processes together."""
        path = self.folder / "ledger"
        return Counter(path.read_text().splitlines()) if path.exists() else Counter()

    async def noted(self, holds: Callable[[Counter[str]], bool]) -> None:
        """Return when the ledger says so."""
        while not holds(self.ledger()):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)

    def open(self) -> None:
        """Let the nodes go on."""
        (self.folder / "open").touch()

    @asynccontextmanager
    async def engine(self, workflow: Workflow) -> AsyncIterator[WorkflowEngine]:
        """An engine of this process on the same store, to submit and to look."""
        async with WorkflowEngine(workflow, self.url) as engine:
            yield engine


async def heads(engine: WorkflowEngine) -> dict[str, Head]:
    return {head.session_id: head async for head in engine.manager.heads()}


async def stand(engine: WorkflowEngine, status: str) -> dict[str, Head]:
    """The sessions, once all of them stand so."""
    while True:
        found = await heads(engine)
        if {head.summary.status for head in found.values()} == {status}:
            return found
        await asyncio.sleep(0.02)


@pytest.fixture
def floor(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Floor]:
    """A floor; whatever a test does, no worker outlives it."""
    param = getattr(request, "param", BACKENDS[0])
    with (
        places.made(param, tmp_path / "place") if param in SERVERS else nullcontext(param) as store
    ):
        made = Floor(tmp_path, store)
        yield made
        for process in made.workers:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.mark.parametrize(
    "floor",
    [
        BACKENDS[0],
        *(pytest.param(name, marks=pytest.mark.slow) for name in (BACKENDS[1], *SERVERS)),
    ],
    ids=["sqlite", "file", *SERVERS],
    indirect=True,
)
async def test_a_killed_worker_leaves_nothing_undone(floor: Floor) -> None:
    """Two workers, thirty sessions, one killed somewhere: all end, and next to nothing runs twice."""
    concurrency = 4
    async with floor.engine(witnessed.crowd) as engine:
        for number in range(30):
            await engine.submit(number, f"s{number:02}")
        two = [floor.worker("crowd", "--concurrency", str(concurrency)) for _ in range(2)]
        some = random.Random(os.urandom(8)).randint(10, 60)  # a kill at any moment will do
        await floor.noted(lambda ledger: ledger.total() >= some)
        killed = random.choice(two)
        killed.kill()
        found = await stand(engine, "completed")
        assert len(found) == 30
        for number in range(30):
            result = await engine.run(number, f"s{number:02}")
            assert (result.status, result.outputs) == ("completed", [number + 5])
        ledger = floor.ledger()
        effects = {what: n for what, n in ledger.items() if what.startswith("effect ")}
        nodes = {what: n for what, n in ledger.items() if what.startswith("s")}
        assert (len(effects), len(nodes)) == (30 * 5, 30 * 5)
        # What the dead worker had in flight runs again: one node of each of its sessions, at most.
        assert sum(nodes.values()) - len(nodes) <= concurrency, some
        assert sum(effects.values()) - len(effects) <= concurrency, some
        taken = [s for s in found if "taken_over" in kinds(await events_of(engine, s))]
        assert len(taken) <= concurrency
        for session in (taken or ["s00"])[:3]:
            assert (await engine.manager.verify(session)).intact
    alive = next(process for process in two if process is not killed)
    alive.send_signal(signal.SIGTERM)
    assert ended(alive).code == 0


async def test_a_drained_worker_gives_back_and_ends_well(floor: Floor) -> None:
    """SIGTERM: the step in flight ends, the session is free at once, the exit code is 0."""
    async with floor.engine(witnessed.slow) as engine:
        await engine.submit(1, "s")
        worker = floor.worker("slow", "--json")
        await floor.noted(lambda ledger: ledger["s waits"] == 1)
        await engine.submit(1, "t", queue="nobody")
        worker.send_signal(signal.SIGTERM)
        assert worker.stderr is not None
        while "stopping at the end of this step" not in worker.stderr.readline():
            pass
        floor.open()
        end = ended(worker)
        assert (end.code, '"status": "drained"' in end.out) == (0, True)
        found = await heads(engine)
        assert {head.held for head in found.values()} == {None}
        assert (found["s"].summary.status, found["s"].summary.step) == ("running", 0)
        end = floor.once("slow")
        assert (end.code, "session s, run main: completed" in end.out) == (0, True)
        assert "taken_over" not in kinds(await events_of(engine, "s"))
        assert floor.ledger()["s waits"] == 1


@pytest.mark.slow
async def test_a_worker_that_stood_still_is_replaced_and_goes_on(floor: Floor) -> None:
    """Stopped past its lease: another runs its session; woken, it drops that and takes the next."""
    async with floor.engine(witnessed.slow) as engine:
        await engine.submit(1, "s")
        frozen = floor.worker("slow", "--lease-s", "1")
        await floor.noted(lambda ledger: ledger["s waits"] == 1)
        frozen.send_signal(signal.SIGSTOP)
        heir = floor.worker("slow", "--lease-s", "1")
        await floor.noted(lambda ledger: ledger["s waits"] == 2)
        floor.open()
        await stand(engine, "completed")
        heir.send_signal(signal.SIGTERM)
        assert ended(heir).code == 0
        before = (await heads(engine))["s"]  # released, too
        frozen.send_signal(signal.SIGCONT)
        await engine.submit(1, "t")
        found = await stand(engine, "completed")
        assert found["s"] == before
        assert (await engine.run(1, "s")).outputs == [3]
        frozen.send_signal(signal.SIGTERM)
        end = ended(frozen)
        assert (end.code, "session t, run main: completed" in end.out) == (0, True)
        assert "session 's' is dropped" in end.err
        assert floor.ledger()["s waits"] == 2
        assert (await engine.manager.verify("s")).intact


@ALSO_ON_SERVERS
@pytest.mark.parametrize("hit", [1, pytest.param(3, marks=pytest.mark.slow)])
async def test_a_kill_between_two_steps_blocks_no_narrow_queue(floor: Floor, hit: int) -> None:
    """Killed behind a commit and before the next step, at a limit of one: all six end."""
    async with floor.engine(witnessed.crowd) as engine:
        for number in range(6):
            await engine.submit(number, f"s{number}", queue="narrow")
        narrow = ("--queue", "narrow=1", "--concurrency", "4")
        first = floor.worker("crowd", *narrow, failpoint=f"engine.commit.after:{hit}:kill")
        assert first.wait(60) == -signal.SIGKILL
        found = await heads(engine)
        assert sum(head.held is not None for head in found.values()) == 1
        end = floor.once("crowd", *narrow)
        assert end.code == 0, end.err
        found = await heads(engine)
        assert [head.summary.status for head in found.values()] == ["completed"] * 6
        nodes = {what: n for what, n in floor.ledger().items() if what.startswith("s")}
        assert set(nodes.values()) == {1}


@ALSO_ON_SERVERS
async def test_a_node_that_kills_its_workers_ends_as_poison(floor: Floor) -> None:
    """Three workers die of it by the ledger; the fourth gives the run up, and nobody takes it again."""
    async with floor.engine(witnessed.poison) as engine:
        await engine.submit(1, "s")
        assert [floor.once("poison").code for _ in range(3)] == [9] * 3
        end = floor.once("poison")
        assert (end.code, "failed" in end.out, "vanished 3 times" in end.out) == (0, True, True)
        assert floor.once("poison").out == ""
        assert floor.ledger() == {"exits": 3}
        assert (await heads(engine))["s"].summary.status == "failed"


@ALSO_ON_SERVERS
@pytest.mark.slow
async def test_a_retry_whose_worker_died_comes_all_the_same(floor: Floor) -> None:
    """Killed in its backoff, with the failure on record: another worker makes the second attempt."""
    async with floor.engine(witnessed.backoff) as engine:
        await engine.submit(1, "s")
        first = floor.worker("backoff")
        await floor.noted(lambda ledger: ledger["late"] == 1)
        first.kill()
        first.wait()
        end = floor.once("backoff")
        assert (end.code, floor.ledger()["late"]) == (0, 2)
        assert (await engine.run(1, "s")).outputs == [2]


@pytest.mark.slow
async def test_a_second_signal_stops_at_once(floor: Floor) -> None:
    """Also where a step does not end; the session is given back in any case."""
    async with floor.engine(witnessed.slow) as engine:
        await engine.submit(1, "s")
        worker = floor.worker("slow")
        await floor.noted(lambda ledger: ledger["s waits"] == 1)
        worker.send_signal(signal.SIGINT)
        assert worker.stderr is not None
        while "stopping" not in worker.stderr.readline():
            pass
        worker.send_signal(signal.SIGTERM)
        assert ended(worker).code == 128 + signal.SIGTERM
        found = await heads(engine)
        assert (found["s"].held, found["s"].summary.status) == (None, "running")


def test_submit_and_look(tmp_path: Path) -> None:
    """The commands of the how-to: submit, list what is due with queue and code, work, look again."""
    shell = Shell(tmp_path)
    answer = shell.raf("submit", "flows:flow", "hi", "--session", "a", "--json")
    assert answer.json == {"session": "a", "run": "main", "status": "submitted"}
    later = ("--at", "2999-01-01T00:00:00Z", "--queue", "nightly")
    assert shell.raf("submit", "flows:flow", "hi", "--session", "b", *later).code == 0
    again = shell.raf("submit", "flows:flow", "ho", "--session", "a")
    assert (again.code, "run 'main'" in again.err) == (5, True)
    listed = shell.raf("sessions", "--json").json["sessions"]
    told = [(s["session"], s["status"], s["queue"], s["wake_at"]) for s in listed]
    assert told == [
        ("a", "submitted", "default", None),
        ("b", "submitted", "nightly", "2999-01-01T00:00:00Z"),
    ]
    assert {len(s["code"]) for s in listed} == {12}
    assert all(s["code"] in s["fingerprint"] for s in listed)
    due = shell.raf("sessions", "--due", "--json").json["sessions"]
    assert [s["session"] for s in due] == ["a"]
    end = shell.raf("worker", "flows:flow", "flows:other", "--once", "--json")
    assert (end.code, '"outcomes": {"completed": 1}' in end.out) == (0, True)
    [done] = shell.raf("sessions", "--status", "completed", "--json").json["sessions"]
    assert (done["session"], done["code"]) == ("a", None)


@pytest.mark.slow
def test_what_the_commands_refuse(tmp_path: Path) -> None:
    """By exit code, before anything is written."""
    shell = Shell(tmp_path)
    assert shell.raf("submit", "flows:flow", "hi", "--session", "a").code == 0
    for words, code in (
        (("submit", "flows:flow", "hi", "--session", "a"), 0),
        (("submit", "flows:flow", "x", "--session", "a", "--run", "2"), 4),
        (("submit", "flows:flow", "x", "--at", "2999-01-01"), 2),
        (("submit", "flows:flow", "x", "--store", "memory:"), 2),
        (("worker", "flows:flow", "--queue", "a=b"), 2),
        (("worker", "flows:flow", "--queue", "a=0"), 2),
        (("worker", "flows:flow", "--store", "memory:"), 2),
        (("worker", "flows:flow", "--poll-s", "0"), 2),
        (("worker",), 2),
        (("worker", "flows:flow", "--once", "--store", "sqlite:/no/such/dir/x"), 7),
        (("worker", "flows:other", "--once"), 0),  # of another graph: nothing to do
    ):
        assert shell.raf(*words).code == code, words
    listed = shell.raf("sessions", "--due", "--json").json["sessions"]
    assert [s["session"] for s in listed] == ["a"]
