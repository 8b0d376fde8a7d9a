"""Barriers: when a fan-in fires, with what, in which order, and what it refuses."""

import asyncio
import itertools
import random
from typing import Any

import pytest

from raf import Context, WorkflowBuilder
from raf.errors import RunFailedError
from raf.store.memory import MemoryStore
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    adds_one,
    collects,
    events_of,
    fan,
    kill,
    kinds,
    passes,
    running,
)


async def joined(values: list[str]) -> str:
    """A node that shows what a barrier gave it."""
    return "".join(values)


def says(text: str, turns: int = 0, ledger: Ledger | None = None) -> Any:
    """A node that says its name after so many turns of the loop."""

    async def node(value: int) -> str:
        for _ in range(turns):
            await asyncio.sleep(0)
        if ledger is not None:
            ledger.note(text)
        return text

    return node


def says_number(turns: int) -> Any:
    """A node that gives what it gets after so many turns of the loop."""

    async def node(value: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return value

    return node


async def test_a_join_gets_its_messages_in_declared_order() -> None:
    """Whatever the order of completion, in a hundred runs: the declared order, the same bytes."""
    chance = random.Random(3)
    bodies = set()
    for _ in range(100):
        names = {name: says(name, chance.randrange(6)) for name in "cab"}
        store = MemoryStore()
        async with running(fan("w", passes, names, joined).build(), store) as engine:
            assert (await engine.run(1, "s")).outputs == ["cab"]
            restored = await engine.manager.restore("s", 2)
            assert restored is not None
            bodies.add(repr(restored.parts[-1].ops))
    assert len(bodies) == 1


async def test_the_order_holds_when_one_was_done_before_a_kill() -> None:
    """Killed when the last of three sources is done: the list is in declared order all the same."""
    gate, ledger = Gate(), Ledger()

    async def slow(value: int) -> str:
        if ledger.note("slow") == 1:
            await gate.stop()
        return "a"

    names = {"a": slow, "b": says("b", 1, ledger), "c": says("c", 0, ledger)}
    async with running(fan("w", passes, names, joined).build()) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        await asyncio.sleep(0.03)
        await kill(task)
        gate.open.set()
        assert (await engine.run(1, "s")).outputs == ["abc"]
        assert ledger == {"slow": 2, "b": 1, "c": 1}


async def test_a_mapping_gets_its_messages_by_name() -> None:
    """A target annotated as a mapping gets the source of each message with it."""
    got: list[dict[str, str]] = []

    async def end(values: dict[str, str]) -> None:
        got.append(dict(values))

    names = {name: says(name.upper()) for name in "ba"}
    async with running(fan("w", passes, names, end).build()) as engine:
        await engine.run(1, "s")
    assert got == [{"b": "B", "a": "A"}]
    assert list(got[0]) == ["b", "a"]


def uneven(wait: Any, ledger: Ledger, gate: Gate) -> Any:
    """From s over a, and over b, c and d, into j; d stops in its first call."""

    async def node(ctx: Context, value: int) -> int:
        if ledger.note(ctx.node) == 1 and ctx.node == "d" and not gate.open.is_set():
            await gate.stop()
        return value

    builder = WorkflowBuilder("w").set_start("s")
    for name in "sabcd":
        builder.add_node(name, node)
    builder.add_edge("s", "a").add_edge("s", "b").add_edge("b", "c").add_edge("c", "d")
    if wait is None:
        builder.add_node("j", passes).add_edge("a", "j").add_edge("d", "j")
    else:
        builder.add_node("j", collects).add_fan_in(["a", "d"], "j", wait=wait)
    return builder.build()


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(
    ("wait", "outputs"), [("all", [[1, 1]]), (2, [[1, 1]]), ("quiescent", [[1, 1]]), (None, [1, 1])]
)
async def test_branches_of_unequal_length(wait: Any, outputs: list[Any], killed: bool) -> None:
    """A barrier calls its target once; plain edges call it once for each message; killed or not."""
    gate, ledger = Gate(), Ledger()
    async with running(uneven(wait, ledger, gate)) as engine:
        if killed:
            task = asyncio.create_task(engine.run(1, "s"))
            await gate.reached.wait()
            await kill(task)
        gate.open.set()
        assert (await engine.run(1, "s")).outputs == outputs
        assert ledger == {"s": 1, "a": 1, "b": 1, "c": 1, "d": 2 if killed else 1}


# -- quorum ----------------------------------------------------------------------------------------


async def test_a_quorum_takes_all_that_are_there() -> None:
    """At least n, all that are present, in declared order; each source once."""
    names = {name: says(name) for name in "abcd"}
    builder = WorkflowBuilder("w").add_node("start", passes).add_node("end", joined)
    for name, node in names.items():
        builder.add_node(name, node)
    builder.add_fan_out("start", names).add_fan_in(list(names), "end", wait=2)
    async with running(builder.set_start("start").build()) as engine:
        assert (await engine.run(1, "s")).outputs == ["abcd"]


def late_one(wait: Any) -> Any:
    """Sources a and b in one step, c a step later."""
    builder = WorkflowBuilder("w").add_node("start", passes).add_node("end", joined)
    builder.add_node("mid", passes).add_edge("start", "mid")
    for name in "abc":
        builder.add_node(name, says(name))
        builder.add_edge("mid" if name == "c" else "start", name)
    return builder.add_fan_in(["c", "b", "a"], "end", wait=wait).set_start("start").build()


async def test_what_comes_after_a_quorum_fired_is_an_event() -> None:
    """A late message is told of, is no error, and starts no second join."""
    async with running(late_one(2)) as engine:
        assert (await engine.run(1, "s")).outputs == ["ba"]
        late = [e for e in await events_of(engine, "s") if e.kind == "late"]
        assert [(e.node, e.value) for e in late] == [("c", "c")]
    async with running(late_one("all")) as engine:
        assert (await engine.run(1, "s")).outputs == ["cba"]


async def test_a_late_message_is_still_late_after_a_kill() -> None:
    """That a quorum has fired is in the checkpoint: the late source does not begin a new round."""
    gate = Gate()
    ledger = Ledger()

    async def slow(value: int) -> str:
        if ledger.note("c") == 1:
            await gate.stop()
        return "c"

    builder = WorkflowBuilder("w").add_node("start", passes).add_node("end", joined)
    builder.add_node("a", says("a")).add_node("b", says("b")).add_node("c", slow)
    builder.add_node("mid", passes).add_edge("start", "mid").add_edge("mid", "c")
    builder.add_edge("start", "a").add_edge("start", "b")
    builder.add_fan_in(["a", "b", "c"], "end", wait=2).set_start("start")
    async with running(builder.build()) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        await kill(task)
        gate.open.set()
        assert (await engine.run(1, "s")).outputs == ["ab"]
        assert kinds(await events_of(engine, "s")).count("late") == 1


# -- untaken branches ------------------------------------------------------------------------------


def chooses_a(value: int) -> str:
    return "a"


def one_branch(wait: Any) -> Any:
    """A chooser takes one of two branches into a join."""
    builder = WorkflowBuilder("w").add_node("start", passes).add_node("end", joined)
    for name in "ab":
        builder.add_node(name, says(name))
    builder.add_fan_out("start", ["a", "b"], choose=chooses_a)
    return builder.add_fan_in(["a", "b"], "end", wait=wait).set_start("start").build()


async def test_an_untaken_branch_does_not_hold_up_a_quiescent_join() -> None:
    """It fires when nothing else can run, with what is there."""
    async with running(one_branch("quiescent")) as engine:
        assert (await engine.run(1, "s")).outputs == ["a"]


@pytest.mark.parametrize("wait", ["all", 2])
async def test_a_join_that_can_never_fill_fails_the_run_by_name(wait: Any) -> None:
    """The run does not hang and does not end in silence: the missing source is named."""
    async with running(one_branch(wait)) as engine:
        with pytest.raises(RunFailedError, match=r"waits for \('b',\)") as failed:
            await engine.run(1, "s")
        assert failed.value.result.status == "failed"
        with pytest.raises(RunFailedError, match="'b'"):
            await engine.resume("s")


async def test_quiescent_joins_fire_in_the_order_of_the_graph() -> None:
    """One that another filled barrier can still feed waits for it."""
    builder = WorkflowBuilder("w").add_node("start", passes).set_start("start")
    for name in "abc":
        builder.add_node(name, says(name))
    builder.add_fan_out("start", ["a", "c"])
    builder.add_node("first", joined).add_fan_in(["a", "b"], "first", wait="quiescent")
    builder.add_node("second", joined).add_fan_in(["first", "c"], "second", wait="quiescent")
    builder.add_edge("start", "b", when=never)
    async with running(builder.build()) as engine:
        assert (await engine.run(1, "s")).outputs == ["ac"]


def never(value: int) -> bool:
    return False


# -- conflicts -------------------------------------------------------------------------------------


async def test_a_second_message_of_one_source_is_a_conflict() -> None:
    """Before the barrier fired it is an error that names both messages and the remedy."""

    async def twice(ctx: Context, value: int) -> None:
        ctx.send(1)
        ctx.send(2)

    builder = WorkflowBuilder("w").add_node("start", passes).add_node("end", collects)
    builder.add_node("twice", twice).add_node("mid", passes).add_node("late", passes)
    builder.add_edge("start", "twice").add_edge("start", "mid").add_edge("mid", "late")
    builder.add_fan_in(["twice", "late"], "end").set_start("start")
    async with running(builder.build()) as engine:
        with pytest.raises(
            RunFailedError, match=r"'twice\+late>end'.*message \d+ from 'twice'.*add_map"
        ):
            await engine.run(1, "s")
        assert (await engine.state("s")).step_number == 0


async def test_two_messages_in_one_step_are_a_conflict_whatever_ran_first() -> None:
    """Both sources get two messages: the second of the first source finds its slot taken."""

    async def twice(ctx: Context, value: int) -> None:
        ctx.send(1)
        ctx.send(2)

    builder = WorkflowBuilder("w").add_node("start", twice).add_node("end", collects)
    for name, turns in (("x", 3), ("y", 0)):
        builder.add_node(name, says_number(turns))
    builder.add_fan_out("start", ["x", "y"]).add_fan_in(["x", "y"], "end").set_start("start")
    async with running(builder.build()) as engine:
        result = await engine.run(1, "s", check=False)
        assert result.status == "failed"
        assert "from 'x'" in result.reason


async def test_after_it_fired_a_barrier_may_fill_anew() -> None:
    """Each source sends in two steps: the barrier fires after each."""
    builder = WorkflowBuilder("w").add_node("start", passes).add_node("end", collects)
    builder.add_node("mid", adds_one).add_edge("start", "mid")
    for name in "xy":
        builder.add_node(name, passes).add_edge("start", name).add_edge("mid", name)
    builder.add_fan_in(["x", "y"], "end").set_start("start")
    async with running(builder.build()) as engine:
        assert (await engine.run(1, "s")).outputs == [[1, 1], [2, 2]]


async def test_a_join_is_one_message_whatever_order_it_filled_in() -> None:
    """A fired barrier takes a number from the same counter as messages do."""
    for order in itertools.permutations("abc"):
        names = {name: says(name, order.index(name)) for name in "abc"}
        async with running(fan("w", passes, names, joined).build()) as engine:
            await engine.run(1, "s")
            events = await events_of(engine, "s")
            done = [(e.node, e.message) for e in events if e.kind == "node_completed"]
            assert done == [("start", 1), ("a", 2), ("b", 3), ("c", 4), ("end", 8)]


async def test_barriers_hold_messages_and_not_counts() -> None:
    """What a half-filled barrier holds can be looked at: who sent what."""
    gate = Gate()

    async def slow(value: int) -> int:
        await gate.stop()
        return value

    builder = WorkflowBuilder("w").add_node("start", adds_one).add_node("end", collects)
    builder.add_node("a", adds_one).add_node("mid", passes).add_node("b", slow)
    builder.add_edge("start", "a").add_edge("start", "mid").add_edge("mid", "b")
    builder.add_fan_in(["a", "b"], "end").set_start("start")
    async with running(builder.build()) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        state = await engine.state("s")
        assert state.edge_state_data["barriers"] == {"a+b>end": {"a": 3}}
        await kill(task)
