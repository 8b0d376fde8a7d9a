"""Which call of `run` starts a run, continues one, returns what is recorded, or is refused."""

import asyncio
from typing import Any

import pytest

from raf import AgentSession, Context, RunResult, WorkflowEngine
from raf.errors import (
    ConfigurationError,
    NothingToResumeError,
    RunFailedError,
    RunInputMismatchError,
    RunUnfinishedError,
    SessionNotFoundError,
    WorkflowMismatchError,
)
from raf.store.memory import MemoryStore
from raf.store.urls import open_store
from tests.unit.engine.stage import Gate, Ledger, events_of, kill, kinds, line, running


class Fickle:
    """A workflow of two nodes whose second fails while `broken` is set."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.broken = False

    async def first(self, ctx: Context, value: int) -> int:
        self.ledger.note("first")
        ctx.state["runs"] = ctx.state.get("runs", 0) + 1
        return value + 1

    async def second(self, value: int) -> int:
        self.ledger.note("second")
        if self.broken:
            raise ValueError("broken")
        return value * 2

    def engine(
        self, store: Any = "memory:", name: str = "fickle", **options: Any
    ) -> WorkflowEngine:
        workflow = line(name, {"first": self.first, "second": self.second}).build()
        return WorkflowEngine(workflow, store=store, **options)


async def test_a_finished_run_gives_its_record_and_nothing_runs() -> None:
    """The same call again, in this engine or in another, returns the recorded result."""
    stage, store = Fickle(), MemoryStore()
    async with stage.engine(store) as engine:
        first = await engine.run(1, "s")
        again = await engine.run(1, "s")
        async with stage.engine(store) as other:
            elsewhere = await other.run(1, "s")
        assert first.outputs == again.outputs == elsewhere.outputs == [4]
        assert [first.status, again.status, elsewhere.status] == ["completed"] * 3
        assert (again.steps, again.run_id, again.session_id) == (2, "main", "s")
        assert stage.ledger == {"first": 1, "second": 1}
        assert len(await engine.history("s")) == 3


@pytest.mark.parametrize("finished", [True, False])
async def test_another_input_under_a_known_run_id_is_refused(finished: bool) -> None:
    """A run id belongs to one input, finished or not; nothing runs and nothing is written."""
    stage = Fickle()
    async with stage.engine() as engine:
        stage.broken = not finished
        await engine.run(1, "s", check=False)
        before = await engine.history("s")
        with pytest.raises(RunInputMismatchError, match="another input"):
            await engine.run(2, "s")
        assert await engine.history("s") == before
        assert stage.ledger["first"] == 1


@pytest.mark.parametrize(
    ("one", "two"), [(1, 1.0), (1, True), (0.0, -0.0), ([1], (1,)), ("a", b"a"), ({1: 2}, {1.0: 2})]
)
async def test_inputs_are_compared_by_what_is_stored(one: Any, two: Any) -> None:
    """Values that Python calls equal but that are stored differently are different inputs."""

    async def show(value: Any) -> str:
        return repr(value)

    async with running(line("w", {"show": show}).build()) as engine:
        await engine.run(one, "s")
        with pytest.raises(RunInputMismatchError):
            await engine.run(two, "s")


async def test_another_run_waits_for_the_unfinished_one() -> None:
    """While a run is unfinished another is refused, naming it; the unfinished one goes on."""
    stage = Fickle()
    async with stage.engine() as engine:
        stage.broken = True
        await engine.run(1, "s", check=False)
        with pytest.raises(RunUnfinishedError, match="'main'") as refused:
            await engine.run(5, "s", run_id="next")
        assert (refused.value.unfinished, refused.value.status) == ("main", "failed")
        stage.broken = False
        assert (await engine.run(1, "s")).outputs == [4]
        assert (await engine.run(5, "s", run_id="next")).outputs == [12]


async def test_run_with_equal_input_continues_an_unfinished_run() -> None:
    """On a run that failed, `run` with its input is `resume`: what is committed stays done."""
    stage = Fickle()
    async with stage.engine() as engine:
        stage.broken = True
        with pytest.raises(RunFailedError):
            await engine.run(1, "s")
        stage.broken = False
        result = await engine.run(1, "s")
        assert result.outputs == [4]
        assert result.resumed_from is not None
        assert result.resumed_from.startswith("s@")
        assert stage.ledger == {"first": 1, "second": 2}


async def test_another_run_keeps_the_state_and_starts_anew_otherwise() -> None:
    """A second run finds the state of the first; its steps and outputs are its own."""
    stage = Fickle()
    async with stage.engine() as engine:
        await engine.run(1, "s")
        second = await engine.run(2, "s", run_id="second")
        state = (await engine.state("s")).state_data
        assert (second.outputs, second.steps) == ([6], 2)
        assert state["first"]["runs"] == 2
        assert (await engine.run(1, "s")).outputs == [4]
        assert stage.ledger == {"first": 2, "second": 2}


async def test_a_run_asked_for_twice_at_once_runs_once(place: str) -> None:
    """Calls at the same moment make one entry and one run, in one engine or two; all get the result."""
    stage, store = Fickle(), open_store(place)
    async with stage.engine(store) as engine, stage.engine(store) as other:
        results = await asyncio.gather(
            *(each.run(1, "s", wait_s=30) for each in (engine, other, engine)),
            return_exceptions=True,
        )
        assert [r.outputs for r in results if isinstance(r, RunResult)] == [[4]] * 3
        assert stage.ledger == {"first": 1, "second": 1}
        assert kinds(await events_of(engine, "s")).count("run_started") == 1
        assert [info.step_number for info in await engine.history("s")] == [-1, 0, 1]


async def test_a_run_killed_before_its_reply_is_not_started_twice(place: str) -> None:
    """A call repeated after a kill continues the run: one entry, one message, one result."""
    gate, ledger = Gate(), Ledger()

    async def node(value: int) -> int:
        if ledger.note("node") == 1:
            await gate.stop()
        return value + 1

    async with running(line("w", {"node": node}).build(), place) as engine:
        task = asyncio.create_task(engine.run(1, "s", run_id="r"))
        await gate.reached.wait()
        await kill(task)
        assert len((await engine.state("s")).pending_messages) == 1
        assert (await engine.run(1, "s", run_id="r")).outputs == [2]
        events = await events_of(engine, "s")
        assert kinds(events).count("run_started") == 1
        assert [e.message for e in events if e.kind == "node_completed"] == [1]


@pytest.mark.parametrize("finished", [True, False])
async def test_a_session_of_another_workflow_is_refused(place: str, finished: bool) -> None:
    """Another workflow under a used session id is refused, naming both; the first is untouched."""
    stage, store = Fickle(), open_store(place)
    async with stage.engine(store) as mine, stage.engine(store, "stranger") as stranger:
        stage.broken = not finished
        await mine.run(1, "s", check=False)
        before = await mine.history("s")
        for call in (stranger.run(1, "s"), stranger.run(7, "s"), stranger.run(7, "s", run_id="x")):
            with pytest.raises(WorkflowMismatchError, match=r"'fickle'.*'stranger'"):
                await call
        if not finished:
            with pytest.raises(WorkflowMismatchError):
                await stranger.resume("s")
        assert await mine.history("s") == before
        stage.broken = False
        assert (await mine.run(1, "s")).outputs == [4]


async def test_resume_needs_something_to_resume() -> None:
    """An unknown session and a finished run are named errors, and make nothing."""
    stage = Fickle()
    async with stage.engine() as engine:
        with pytest.raises(SessionNotFoundError, match="'s'"):
            await engine.resume("s")
        with pytest.raises(SessionNotFoundError):
            await engine.history("s")
        await engine.run(1, "s")
        with pytest.raises(NothingToResumeError, match="completed"):
            await engine.resume("s")


@pytest.mark.parametrize("run_id", ["", "a\x00b", "\ud800", "x" * 513, 5, None])
async def test_a_run_id_that_could_not_be_found_again_is_refused(run_id: Any) -> None:
    """A run id is text of 1 to 512 characters; another is refused before anything is written."""
    async with Fickle().engine() as engine:
        with pytest.raises(ConfigurationError, match="run_id"):
            await engine.run(1, "s", run_id=run_id)
        with pytest.raises(SessionNotFoundError):
            await engine.history("s")


async def test_turns_of_a_conversation() -> None:
    """With a key a turn is repeated by its record; without one it is the next turn."""
    stage = Fickle()
    async with stage.engine() as engine:
        talk = AgentSession.with_id("talk", engine)
        assert (await talk.send(1)).run_id == "turn-1"
        assert (await talk.send(1)).run_id == "turn-2"
        keyed = await talk.send(3, key="k")
        assert keyed.outputs == (await talk.send(3, key="k")).outputs == [8]
        with pytest.raises(RunInputMismatchError):
            await talk.send(4, key="k")
        assert (await talk.send(9)).run_id == "turn-3"
        assert stage.ledger["first"] == 4


async def test_an_unfinished_turn_is_continued_by_an_equal_message() -> None:
    """Without a key, an unfinished turn takes an equal message and refuses another."""
    stage = Fickle()
    async with stage.engine() as engine:
        talk = AgentSession.with_id("talk", engine)
        stage.broken = True
        await talk.send(1, check=False)
        stage.broken = False
        with pytest.raises(RunInputMismatchError):
            await talk.send(2)
        assert (await talk.send(1)).run_id == "turn-1"
        assert (await talk.send(2)).run_id == "turn-2"


async def test_a_session_without_an_id_gets_a_new_one() -> None:
    """Calls without a session id do not meet."""
    async with Fickle().engine() as engine:
        one, two = await engine.run(1), await engine.run(2)
        assert one.session_id != two.session_id
        assert (one.outputs, two.outputs) == ([4], [6])
