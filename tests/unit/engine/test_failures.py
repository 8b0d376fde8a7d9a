"""A node that fails: what the caller gets, what is kept, and how the run goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raf import Context, LoopOptions, RetryPolicy, WorkflowBuilder
from raf.errors import (
    ConditionError,
    NotSerializableError,
    PayloadTypeError,
    ReducerError,
    RunFailedError,
    UndeclaredTargetError,
)
from raf.store.memory import MemoryStore
from tests.unit.engine.stage import (
    Ledger,
    adds_one,
    collects,
    events_of,
    fan,
    journal_of,
    kinds,
    line,
    logical,
    passes,
    running,
)

Node = Callable[[int], Awaitable[int]]


class Switchable:
    """Nodes that fail while their name is in `broken`, and a ledger of their calls."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.ledger = Ledger()

    def node(self, name: str, error: type[Exception] = ValueError) -> Node:
        async def run(value: int) -> int:
            self.ledger.note(name)
            if name in self.broken:
                raise error(f"{name} is broken")
            return value + 1

        return run


async def test_a_failed_run_raises_with_its_result() -> None:
    """`RunFailedError` carries the result and the cause, and says how to go on."""
    stage = Switchable("b")
    workflow = line("w", {"a": stage.node("a"), "b": stage.node("b")}).build()
    async with running(workflow) as engine:
        with pytest.raises(RunFailedError) as failed:
            await engine.run(1, "s")
        error = failed.value
        assert (error.session_id, error.run_id, error.step) == ("s", "main", 1)
        assert error.result.status == "failed"
        assert error.result.steps == 1
        assert error.result.pending == (("b", 2),)
        assert isinstance(error.__cause__, ValueError)
        for part in ("node 'b'", "step 1", "attempt 1", "ValueError: b is broken", "resume"):
            assert part in str(error)


async def test_check_false_returns_a_failed_run() -> None:
    """`check=False` returns what else would raise, from `run` and from `resume`."""
    stage = Switchable("a")
    async with running(line("w", {"a": stage.node("a")}).build()) as engine:
        for result in (
            await engine.run(1, "s", check=False),
            await engine.resume("s", check=False),
        ):
            assert result.status == "failed"
            assert "a is broken" in result.reason
            assert "resume" in result.next_step


async def test_resume_after_a_failure_runs_the_node_that_failed() -> None:
    """Resuming a failed run calls the failed node again and no committed one."""
    stage = Switchable("b")
    nodes = {name: stage.node(name) for name in "abc"}
    async with running(line("w", nodes).build()) as engine:
        await engine.run(1, "s", check=False)
        stage.broken.clear()
        assert (await engine.resume("s")).outputs == [4]
        assert stage.ledger == {"a": 1, "b": 2, "c": 1}


@pytest.mark.parametrize("slow", [False, True])
async def test_a_finished_sibling_of_a_failed_node_does_not_run_again(slow: bool) -> None:
    """One node's failure lets its siblings finish, and keeps their results for the resume."""
    stage = Switchable("b")

    async def sibling(value: int) -> int:
        stage.ledger.note("sibling")
        await asyncio.sleep(0.03 if slow else 0)
        return value * 10

    workers = {"a": sibling, "b": stage.node("b"), "c": sibling}
    seen: list[list[int]] = []

    async def end(values: list[int]) -> int:
        seen.append(values)
        return sum(values)

    async with running(fan("w", passes, workers, end).build()) as engine:
        result = await engine.run(1, "s", check=False)
        assert result.status == "failed"
        assert stage.ledger["sibling"] == 2
        stage.broken.clear()
        assert (await engine.resume("s")).outputs == [22]
        assert stage.ledger == {"sibling": 2, "b": 2}
        assert seen == [[10, 2, 10]]


async def test_a_failed_step_leaves_nothing() -> None:
    """State, messages, outputs and events of a failed step are not to be seen; of the rest, all."""

    async def good(ctx: Context, value: int) -> int:
        ctx.scope("shared")["good"] = 1
        ctx.output("kept back")
        ctx.emit("kept back")
        return value

    async def bad(ctx: Context, value: int) -> int:
        ctx.scope("shared")["bad"] = 1
        raise ValueError("no")

    workflow = fan("w", passes, {"good": good, "bad": bad}, collects).build()
    async with running(workflow) as engine:
        before = await engine.run(1, "s", check=False)
        assert before.outputs == []
        assert (await engine.state("s")).state_data == {}
        assert [p["target"] for p in (await engine.state("s")).pending_messages] == ["good", "bad"]
        assert not {"custom", "output"} & set(kinds(await events_of(engine, "s")))


async def test_of_several_failures_the_first_by_name_is_reported() -> None:
    """Two nodes fail in one step in either order of time: always the same error, both recorded."""
    for first, second in (("a", "b"), ("b", "a")):
        turn = asyncio.Event()

        def failing(
            name: str, late: str, error: type[Exception], turn: asyncio.Event = turn
        ) -> Node:
            async def node(value: int) -> int:
                if name == late:
                    await turn.wait()
                turn.set()
                raise error(name)

            return node

        workers = {"a": failing("a", second, KeyError), "b": failing("b", second, OSError)}
        del first
        store = MemoryStore()
        async with running(fan("w", passes, workers, collects).build(), store) as engine:
            result = await engine.run(1, "s", check=False)
            assert "node 'a' failed in step 1, attempt 1: KeyError" in result.reason
            events = [e for e in await events_of(engine, "s") if e.kind == "node_failed"]
            assert [e.node for e in events] == ["a", "b"]
            counted = [entry for entry in await journal_of(store, "s") if entry[0] == "failure"]
            assert sorted(entry[1] for entry in counted) == [2, 3]


async def test_a_node_that_gives_what_cannot_be_stored_fails_alone() -> None:
    """The error names the node and the path; nothing is committed, and the mended node goes on."""
    store = MemoryStore()
    mended = False

    async def node(ctx: Context, value: int) -> Any:
        ctx.state["seen"] = value
        return {"deep": [1, {"x": print if not mended else "text"}]}

    workflow = line("w", {"first": adds_one, "node": node}).build()
    async with running(workflow, store) as engine:
        with pytest.raises(RunFailedError) as failed:
            await engine.run(1, "s")
        assert isinstance(failed.value.__cause__, NotSerializableError)
        assert "return value of 'node'" in str(failed.value)
        assert "deep[1].x" in str(failed.value)
        assert (await engine.state("s")).state_data == {}
        assert (await engine.manager.verify("s")).intact
        mended = True
        assert (await engine.resume("s")).outputs == [{"deep": [1, {"x": "text"}]}]


async def test_a_value_that_the_declared_state_refuses_fails_its_node() -> None:
    """A typed key takes only its type; older history loads, and the run goes on once mended."""
    given: list[Any] = ["abc"]

    async def node(ctx: Context, value: int) -> int:
        ctx.scope("person")["age"] = given[0]
        return value

    builder = line("w", {"first": adds_one, "node": node, "last": adds_one})
    workflow = builder.with_state("age", int, scope="person").build()
    async with running(workflow) as engine:
        with pytest.raises(RunFailedError, match=r"age.*expected int") as failed:
            await engine.run(1, "s")
        assert isinstance(failed.value.__cause__, PayloadTypeError)
        assert (await engine.state("s", 1)).step_number == 0
        given[0] = 41
        assert (await engine.resume("s")).outputs == [3]
        assert (await engine.state("s")).state_data["::person"] == {"age": 41}


async def test_a_payload_that_its_receiver_cannot_take_fails_the_step() -> None:
    """A payload is checked against the receiver before it is committed; resume calls the sender."""
    given: list[Any] = ["text"]
    ledger = Ledger()

    async def sender(value: int) -> Any:
        ledger.note("sender")
        return given[0]

    workflow = line("w", {"sender": sender, "receiver": adds_one}).build()
    async with running(workflow) as engine:
        with pytest.raises(RunFailedError, match="payload from 'sender' to 'receiver'"):
            await engine.run(1, "s")
        given[0] = 5
        assert (await engine.resume("s")).outputs == [6]
        assert ledger["sender"] == 2


async def test_a_send_along_no_edge_is_the_nodes_error() -> None:
    """`send(to=...)` refuses what no declared edge reaches, naming what is declared."""

    async def node(ctx: Context, value: int) -> None:
        ctx.send(value, to="nowhere")

    async with running(line("w", {"node": node, "next": adds_one}).build()) as engine:
        with pytest.raises(RunFailedError, match=r"'nowhere'.*'next'") as failed:
            await engine.run(1, "s")
        assert isinstance(failed.value.__cause__, UndeclaredTargetError)


@pytest.mark.parametrize("slow", [False, True])
async def test_a_condition_that_raises_fails_the_run_and_is_judged_anew(slow: bool) -> None:
    """Nothing of the step is committed; resumed, the condition is asked and the node is not."""
    ledger, broken = Ledger(), [True]

    async def node(value: int) -> int:
        ledger.note("node")
        await asyncio.sleep(0.03 if slow else 0)
        return value + 1

    def fits(value: int) -> bool:
        if broken[0]:
            raise LookupError("no table")
        return True

    builder = WorkflowBuilder("w").add_node("node", node).add_node("next", passes)
    workflow = builder.add_edge("node", "next", when=fits).set_start("node").build()
    async with running(workflow) as engine:
        with pytest.raises(RunFailedError, match=r"'fits' after node 'node'.*no table") as failed:
            await engine.run(1, "s")
        assert isinstance(failed.value.__cause__, ConditionError)
        assert (await engine.state("s")).step_number == -1
        broken[0] = False
        assert (await engine.resume("s")).outputs == [2]
        assert ledger["node"] == 1


@pytest.mark.parametrize("answer", [1, None, "yes", [], 0.0])
async def test_a_condition_answers_with_a_bool(answer: Any) -> None:
    """What is no bool is refused: nobody's truth is guessed."""

    def fits(value: int) -> Any:
        return answer

    builder = WorkflowBuilder("w").add_node("node", passes).add_node("next", passes)
    workflow = builder.add_edge("node", "next", when=fits).set_start("node").build()
    async with running(workflow) as engine:
        with pytest.raises(RunFailedError, match="not a bool"):
            await engine.run(1, "s")


@pytest.mark.parametrize("answer", ["c", ["a", "c"], 1, None, {"a": 1}])
async def test_a_chooser_answers_with_declared_names(answer: Any) -> None:
    """A target that the fan-out does not have fails the run; it is not left out in silence."""

    def choose(value: int) -> Any:
        return answer

    builder = WorkflowBuilder("w").add_node("s", passes)
    for name in "ab":
        builder.add_node(name, passes)
    workflow = builder.add_fan_out("s", ["a", "b"], choose=choose).set_start("s").build()
    async with running(workflow) as engine:
        with pytest.raises(RunFailedError, match="names among"):
            await engine.run(1, "s")


async def test_a_reducer_that_raises_fails_the_run() -> None:
    """The error names reducer and key; nothing is committed."""

    def worst(current: int, new: int) -> int:
        raise ZeroDivisionError

    async def node(ctx: Context, value: int) -> int:
        ctx.scope("all")["best"] = value
        return value

    builder = fan("w", passes, {"a": node, "b": node}, collects)
    workflow = builder.with_state("best", int, scope="all", reducer=worst).build()
    async with running(workflow) as engine:
        with pytest.raises(RunFailedError, match="'worst'") as failed:
            await engine.run(1, "s", check=True)
        assert isinstance(failed.value.__cause__, ReducerError)
        assert (await engine.state("s")).state_data == {}


async def test_skip_goes_on_without_the_result() -> None:
    """`on_failure="skip"`: the run goes on, an event tells of it, and nothing is sent."""
    stage = Switchable("bad")
    builder = WorkflowBuilder("w").add_node("start", passes).add_node("end", adds_one)
    builder.add_node("bad", stage.node("bad"), on_failure="skip").add_node("good", passes)
    builder.add_fan_out("start", ["bad", "good"]).add_edge("bad", "end").add_edge("good", "end")
    async with running(builder.set_start("start").build()) as engine:
        assert (await engine.run(1, "s")).outputs == [2]
        skipped = [e for e in await events_of(engine, "s") if e.kind == "node_skipped"]
        assert [(e.node, e.data["error_type"]) for e in skipped] == [("bad", "ValueError")]


async def test_a_fallback_node_really_runs() -> None:
    """After the last attempt the fallback gets the message; the failed node's edges stay silent."""
    stage = Switchable("main")
    got: list[int] = []

    async def spare(value: int) -> int:
        got.append(value)
        return value * 100

    builder = WorkflowBuilder("w").add_node(
        "main", stage.node("main"), retry=RetryPolicy(attempts=2, backoff_s=0), fallback="spare"
    )
    builder.add_node("spare", spare).add_node("a", adds_one).add_node("b", adds_one)
    workflow = builder.add_edge("main", "a").add_edge("spare", "b").set_start("main").build()
    async with running(workflow) as engine:
        result = await engine.run(7, "s")
        assert (got, result.outputs) == ([7], [701])
        assert stage.ledger["main"] == 2
        completed = [e.node for e in await events_of(engine, "s") if e.kind == "node_completed"]
        assert completed == ["spare", "b"]


async def test_a_fallback_in_a_loop_keeps_its_pass() -> None:
    """The fallback's message belongs to the pass of the message that it takes over."""
    paths: list[Any] = []

    async def main(value: int) -> int:
        raise ValueError

    async def spare(ctx: Context, value: int) -> int:
        paths.append(ctx.path)
        return value + 1

    builder = WorkflowBuilder("w").add_node("main", main, fallback="spare")
    builder.add_node("spare", spare).add_node("end", passes)
    builder.add_edge("main", "spare").add_edge("spare", "end")
    builder.add_loop("spare", "main", LoopOptions(3))
    async with running(builder.set_start("main").build()) as engine:
        assert (await engine.run(0, "s")).outputs == [3]
        assert [dict(path)["spare>main"] for path in paths] == [1, 2, 3]


@pytest.mark.parametrize("times", [1, 3])
async def test_a_run_resumed_after_failures_equals_an_unbroken_one(times: int) -> None:
    """Outputs, state and logical events of a mended run are those of one that never failed.

    The failure itself is a logical event of its own; it and its outcome are left out.
    """
    stage = Switchable("b", "c")

    def nodes() -> dict[str, Node]:
        return {name: stage.node(name) for name in "abcd"}

    async with running(line("w", nodes()).build()) as engine:
        await engine.run(1, "broken", check=False)
        for _ in range(times - 1):
            await engine.resume("broken", check=False)
        stage.broken = {"c"}
        await engine.resume("broken", check=False)
        stage.broken = set()
        resumed = await engine.resume("broken")
        whole = await engine.run(1, "whole")
        assert (resumed.outputs, resumed.steps) == (whole.outputs, whole.steps)
        assert [
            entry
            for entry in logical(await events_of(engine, "broken"))
            if entry[0] != "node_failed" and entry[5:] is not None
            if not (entry[0] == "outcome" and entry[4]["status"] == "failed")
        ] == logical(await events_of(engine, "whole"))
