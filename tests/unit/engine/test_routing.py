"""Where messages go: conditions, switches, choosers, dead letters, outputs and their order."""

import asyncio
from typing import Any

import pytest

from raf import Context, LoopOptions, WorkflowBuilder, named
from raf.errors import DeadLetterError, GraphError, RunFailedError
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    adds_one,
    events_of,
    kill,
    kinds,
    line,
    passes,
    running,
)


def is_odd(value: int) -> bool:
    return value % 2 == 1


def is_big(value: int) -> bool:
    return value > 10


def switched() -> Any:
    builder = WorkflowBuilder("w").add_node("start", passes).set_start("start")
    for name in ("odd", "big", "rest"):
        builder.add_node(name, names(name))
    return builder.add_switch("start", [(is_odd, "odd"), (is_big, "big")], "rest").build()


def names(name: str) -> Any:
    async def node(value: int) -> str:
        return name

    return node


@pytest.mark.parametrize(
    ("value", "taken"), [(1, "odd"), (11, "odd"), (12, "big"), (2, "rest"), (-1, "odd")]
)
async def test_a_switch_takes_its_first_match_and_nothing_else(value: int, taken: str) -> None:
    """Only one case is taken; the default is, when none is."""
    async with running(switched()) as engine:
        assert (await engine.run(value, "s")).outputs == [taken]


async def test_each_group_of_edges_judges_on_its_own() -> None:
    """A switch, a conditional edge and a plain edge of one node all see the message."""
    builder = WorkflowBuilder("w").add_node("start", passes).set_start("start")
    for name in ("odd", "rest", "when", "plain"):
        builder.add_node(name, names(name))
    builder.add_switch("start", [(is_odd, "odd")], "rest").add_edge("start", "when", when=is_big)
    builder.add_edge("start", "plain")
    async with running(builder.build()) as engine:
        assert sorted((await engine.run(12, "a")).outputs) == ["plain", "rest", "when"]
        assert sorted((await engine.run(1, "b")).outputs) == ["odd", "plain"]


async def test_a_condition_is_asked_once_and_sees_the_state_behind_the_step() -> None:
    """It gets a copy of the payload and the state after the step's writes, of all nodes."""
    asked: list[Any] = []

    async def start(ctx: Context, value: int) -> dict[str, int]:
        ctx.state["mine"] = "own"
        ctx.scope("all")["seen"] = value
        return {"value": value}

    def fits(payload: dict[str, int], state: Any) -> bool:
        asked.append((payload["value"], state["mine"], state.scope("all")["seen"]))
        payload["value"] = 99
        return True

    got: list[Any] = []

    async def end(payload: dict[str, int]) -> None:
        got.append(payload["value"])

    builder = WorkflowBuilder("w").add_node("start", start).add_node("end", end)
    async with running(builder.add_edge("start", "end", when=fits).set_start("start").build()) as e:
        await e.run(5, "s")
    assert (asked, got) == ([(5, "own", 5)], [5])


async def test_a_condition_cannot_write_the_state() -> None:
    """The state that a condition sees is for reading."""

    def writes(payload: int, state: Any) -> bool:
        state.scope("all")["k"] = 1
        return True

    builder = WorkflowBuilder("w").add_node("start", passes).add_node("end", passes)
    workflow = builder.add_edge("start", "end", when=writes).set_start("start").build()
    async with running(workflow) as engine:
        with pytest.raises(RunFailedError, match="TypeError"):
            await engine.run(1, "s")


async def test_a_chooser_picks_any_of_its_targets_in_declared_order() -> None:
    """One name, several in any order, or none."""
    picked: list[Any] = [None]

    def choose(value: int) -> Any:
        return picked[0]

    builder = WorkflowBuilder("w").add_node("start", passes).set_start("start")
    for name in "abc":
        builder.add_node(name, names(name))
    workflow = builder.add_fan_out("start", ["c", "a", "b"], choose=choose).build()
    async with running(workflow) as engine:
        for number, (answer, expected) in enumerate(
            [("a", ["a"]), (["b", "c"], ["b", "c"]), ({"a", "b", "c"}, ["a", "b", "c"]), ([], [])]
        ):
            picked[0] = answer
            assert (await engine.run(1, str(number))).outputs == expected
        events = await events_of(engine, "3")
        assert "dead_letter" in kinds(events)


async def test_a_skipped_node_is_not_waited_for() -> None:
    """Past B to C: only C goes on after a kill, A is not called again, B is not waited for."""
    gate, ledger = Gate(), Ledger()

    def skips(value: int) -> bool:
        return value > 0

    async def a(value: int) -> int:
        ledger.note("a")
        return value

    async def c(value: int) -> int:
        if ledger.note("c") == 1:
            await gate.stop()
        return value

    async def b(value: int) -> int:
        ledger.note("b")
        return value

    builder = WorkflowBuilder("w").add_node("a", a).add_node("b", b).add_node("c", c)
    builder.add_switch("a", [(skips, "c")], "b").add_edge("b", "c").set_start("a")
    async with running(builder.build()) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        await kill(task)
        assert (await engine.run(1, "s")).outputs == [1]
        assert ledger == {"a": 1, "c": 2}


# -- sending ---------------------------------------------------------------------------------------


async def test_send_goes_along_the_edges_or_to_one_declared_target() -> None:
    """`send(payload)` is routed as a return value is; `to` skips the conditions and picks one."""
    got: list[tuple[str, int]] = []

    async def start(ctx: Context, value: int) -> None:
        ctx.send(1)
        ctx.send(2, to="when")
        ctx.send(4)

    def node(name: str) -> Any:
        async def run(value: int) -> None:
            got.append((name, value))

        return run

    builder = WorkflowBuilder("w").add_node("start", start).set_start("start")
    builder.add_node("when", node("when")).add_node("plain", node("plain"))
    builder.add_edge("start", "when", when=is_odd).add_edge("start", "plain")
    async with running(builder.build()) as engine:
        await engine.run(0, "s")
    assert sorted(got) == [("plain", 1), ("plain", 4), ("when", 1), ("when", 2)]


async def test_a_node_may_take_its_loop_by_name() -> None:
    """`send(to=...)` along a loop edge goes back, within the limit."""

    async def counts(ctx: Context, value: int) -> None:
        turn = dict(ctx.path)["body>body"]
        ctx.send(value + 1, to="body" if turn < 2 else "end")

    builder = WorkflowBuilder("w").add_node("body", counts).add_node("end", passes)
    builder.add_edge("body", "end").add_loop("body", "body", LoopOptions(5)).set_start("body")
    async with running(builder.build()) as engine:
        assert (await engine.run(0, "s")).outputs == [2]


async def test_none_sends_nothing_and_zero_is_a_message() -> None:
    """A node that returns None has sent nothing; other empty values are messages."""
    for value, expected in ((None, []), (0, [0]), ("", [""]), ([], [[]]), (False, [False])):

        async def node(_value: int, value: Any = value) -> Any:
            return value

        async with running(line("w", {"node": node, "next": forwards}).build()) as engine:
            assert (await engine.run(1, "s")).outputs == expected


async def forwards(value: Any) -> Any:
    return value


async def test_two_receivers_never_share_a_payload() -> None:
    """What one receiver does to its payload the other does not see, nor the sender."""
    kept: list[Any] = []
    got: list[Any] = []

    async def start(value: int) -> dict[str, list[int]]:
        kept.append({"items": [value]})
        made: dict[str, list[int]] = kept[0]
        return made

    async def spoils(payload: dict[str, list[int]]) -> None:
        got.append(list(payload["items"]))
        payload["items"].append(99)
        payload["more"] = []

    builder = WorkflowBuilder("w").add_node("start", start).set_start("start")
    for name in "abc":
        builder.add_node(name, spoils).add_edge("start", name)
    async with running(builder.build()) as engine:
        await engine.run(1, "s")
    assert (got, kept) == ([[1], [1], [1]], [{"items": [1]}])


# -- dead letters ----------------------------------------------------------------------------------


def never(value: int) -> bool:
    return False


def undeliverable() -> Any:
    builder = WorkflowBuilder("w").add_node("start", adds_one).add_node("end", passes)
    return builder.add_edge("start", "end", when=never).set_start("start").build()


async def test_a_message_that_nobody_takes_is_told_of() -> None:
    """It is a durable event with its payload, and the run completes."""
    async with running(undeliverable()) as engine:
        assert (await engine.run(1, "s")).status == "completed"
        letters = [e for e in await events_of(engine, "s") if e.kind == "dead_letter"]
        assert [(e.node, e.message, e.value) for e in letters] == [("start", 1, 2)]


async def test_under_strict_a_dead_letter_fails_the_run() -> None:
    """Nothing of its step is committed, and the error says what to do."""
    async with running(undeliverable(), strict=True) as engine:
        with pytest.raises(RunFailedError, match="strict=True") as failed:
            await engine.run(1, "s")
        assert isinstance(failed.value.__cause__, DeadLetterError)
        assert (await engine.state("s")).step_number == -1
    async with running(line("w", {"a": passes, "b": passes}).build(), strict=True) as engine:
        assert (await engine.run(1, "s")).outputs == [1]


# -- outputs ---------------------------------------------------------------------------------------


async def test_outputs_are_ordered_by_step_node_and_call() -> None:
    """Whatever ended first: step, then node, then message, then the order of the calls."""

    def node(name: str, turns: int) -> Any:
        async def run(ctx: Context, value: int) -> str:
            ctx.output(f"{name}{value} first")
            for _ in range(turns):
                await asyncio.sleep(0)
            ctx.output(f"{name}{value} second")
            return f"{name}{value} returned"

        return run

    async def start(ctx: Context, value: int) -> None:
        ctx.output("start")
        ctx.send(1)
        ctx.send(2)

    builder = WorkflowBuilder("w").add_node("start", start).set_start("start")
    builder.add_node("b", node("b", 0)).add_node("a", node("a", 9))
    builder.add_edge("start", "b").add_edge("start", "a")
    async with running(builder.build()) as engine:
        result = await engine.run(0, "s")
        expected = ["start"] + [
            f"{name}{number} {what}"
            for name in "ab"
            for number in (1, 2)
            for what in ("first", "second", "returned")
        ]
        assert result.outputs == expected
        shown = [e.value for e in await events_of(engine, "s") if e.kind == "output"]
        assert shown == expected
        assert (await engine.run(0, "s")).outputs == expected


async def test_outputs_come_from_the_named_nodes() -> None:
    """`with_output_from` names whose returns count; by default nodes that nothing follows."""
    nodes = {"a": adds_one, "b": adds_one, "c": adds_one}
    async with running(line("w", nodes).build()) as engine:
        assert (await engine.run(0, "s")).outputs == [3]
    async with running(line("w", nodes).with_output_from("a", "b").build()) as engine:
        assert (await engine.run(0, "s")).outputs == [1, 2]


async def test_outputs_of_finished_steps_survive_a_kill() -> None:
    """Outputs given before the kill are in the result once, in their place."""
    gate, calls = Gate(), Ledger()

    async def first(ctx: Context, value: int) -> int:
        ctx.output("first")
        return value

    async def second(ctx: Context, value: int) -> int:
        ctx.output("second")
        if calls.note("second") == 1:
            await gate.stop()
        return value

    async with running(line("w", {"a": first, "b": second}).build()) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        await kill(task)
        assert (await engine.run(1, "s")).outputs == ["first", "second", 1]


def test_a_condition_needs_a_name() -> None:
    """A lambda is refused when the workflow is built; `named` is the remedy."""
    builder = WorkflowBuilder("w").add_node("a", passes).add_node("b", passes).set_start("a")
    with pytest.raises(GraphError, match=r"named\("):
        builder.add_edge("a", "b", when=lambda value: True).build()
    builder = WorkflowBuilder("w").add_node("a", passes).add_node("b", passes).set_start("a")
    workflow = builder.add_edge("a", "b", when=named("ok", lambda value: True)).build()
    assert list(workflow.conditions) == ["ok"]
