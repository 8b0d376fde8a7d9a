"""Loops: how often a body runs, what its counter shows, and what a kill in the middle changes."""

import asyncio
from typing import Any

import pytest

from raf import Context, LoopOptions, WorkflowBuilder
from raf.store.memory import MemoryStore
from raf.store.port import Store
from raf.store.urls import open_store
from raf.testing import ManualClock
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    VanishingStore,
    adds_one,
    events_of,
    kill,
    kinds,
    logical,
    passes,
    running,
)

# -- one loop --------------------------------------------------------------------------------------


def below_limit(value: int) -> bool:
    """Whether three passes are behind it."""
    return value >= 3


@pytest.mark.parametrize(
    ("most", "until", "calls"),
    [(1, None, 1), (5, None, 5), (5, below_limit, 3), (2, below_limit, 2)],
)
async def test_the_body_runs_at_most_so_often(most: int, until: Any, calls: int) -> None:
    """Iteration 1 is the first pass; the loop ends by its condition or at its limit."""
    ledger, paths = Ledger(), []

    async def body(ctx: Context, value: int) -> int:
        ledger.note("body")
        paths.append(ctx.path)
        return value + 1

    builder = WorkflowBuilder("w").add_node("body", body).add_node("end", passes)
    builder.add_edge("body", "end").set_start("body")
    builder.add_loop("body", "body", LoopOptions(most, until=until))
    async with running(builder.build()) as engine:
        result = await engine.run(0, "s")
        assert (result.outputs, ledger["body"]) == ([calls], calls)
        assert paths == [(("body>body", n),) for n in range(1, calls + 1)]
        state = (await engine.state("s")).state_data
        assert state["body"]["__loop_body"] == calls
        limit = kinds(await events_of(engine, "s")).count("loop_limit")
        assert limit == (1 if calls == most and not (until and calls == 3) else 0)


async def test_the_counter_shows_in_the_state_under_its_own_name() -> None:
    """`loop_variable` names the key; the node reads there which pass it is in."""
    seen: list[tuple[int, int]] = []

    async def body(ctx: Context, value: int) -> int:
        seen.append((ctx.state["round"], dict(ctx.path)["body>body"]))
        return value

    builder = WorkflowBuilder("w").add_node("body", body).set_start("body")
    builder.add_loop("body", "body", LoopOptions(3, loop_variable="round"))
    async with running(builder.build()) as engine:
        await engine.run(0, "s")
    assert seen == [(1, 1), (2, 2), (3, 3)]


def cycle(ledger: Ledger, gate: Gate, at: tuple[str, int]) -> Any:
    """Nodes a -> b -> a until the third pass, then c; stops once, at the n-th call of a node."""

    def node(name: str) -> Any:
        async def run(ctx: Context, value: int) -> int:
            calls = ledger.note(f"{ctx.session_id} {name}")
            if (name, calls) == at and ctx.session_id == "s" and not gate.open.is_set():
                await gate.stop()
            ctx.scope("log").append("passes", [name, value, list(map(list, ctx.path))])
            return value + (name == "b")

        return run

    builder = WorkflowBuilder("w").set_start("a")
    for name in "abc":
        builder.add_node(name, node(name))
    builder.add_edge("a", "b").add_edge("b", "c")
    return builder.add_loop("b", "a", LoopOptions(3)).build()


@pytest.mark.parametrize("at", [(name, n) for name in "ab" for n in (1, 2, 3)])
async def test_killed_in_any_pass_the_loop_goes_on_in_it(at: tuple[str, int]) -> None:
    """Before and behind the loop edge, in any pass: three passes in all, then the exit."""
    ledger, gate = Ledger(), Gate()
    async with running(cycle(ledger, gate, at)) as engine:
        task = asyncio.create_task(engine.run(0, "s"))
        await gate.reached.wait()
        await kill(task)
        gate.open.set()
        assert (await engine.resume("s")).outputs == [3]
        assert (await engine.run(0, "whole")).outputs == [3]
        for session in ("s", "whole"):
            state = (await engine.state(session)).state_data
            assert [p[:2] for p in state["::log"]["passes"]] == [
                ["a", 0],
                ["b", 0],
                ["a", 1],
                ["b", 1],
                ["a", 2],
                ["b", 2],
                ["c", 3],
            ]
            assert state["b"]["__loop_b"] == 3
        assert logical(await events_of(engine, "s")) == logical(await events_of(engine, "whole"))
        assert ledger.total() == 15


async def test_a_second_run_loops_as_the_first_did() -> None:
    """The counter of an earlier run, kept in the state, ends no loop of a later one."""
    ledger = Ledger()
    async with running(cycle(ledger, Gate(), ("", 0))) as engine:
        for number in range(1, 4):
            result = await engine.run(0, "s", run_id=f"run {number}")
            assert result.outputs == [3]
            assert ledger["s a"] == 3 * number


async def test_only_the_loop_edge_is_taken_while_it_turns() -> None:
    """While the loop goes back, the node's other edges stay silent; at its end all are asked."""
    ledger = Ledger()

    async def count(value: int) -> int:
        ledger.note("side")
        return value

    builder = WorkflowBuilder("w").add_node("body", adds_one).add_node("side", count)
    builder.add_node("end", passes).add_edge("body", "side").add_edge("body", "end")
    builder.add_loop("body", "body", LoopOptions(4)).set_start("body")
    async with running(builder.build()) as engine:
        assert sorted((await engine.run(0, "s")).outputs) == [4, 4]
        assert ledger["side"] == 1


# -- loops in loops --------------------------------------------------------------------------------


class Nested:
    """outer -> inner (3 passes) -> outer again (2 passes) -> end; stops at one call of inner."""

    def __init__(self, stop: int = 0) -> None:
        self.ledger, self.gate, self.stop = Ledger(), Gate(), stop
        self.seen: list[tuple[int, int]] = []

    async def inner(self, ctx: Context, value: int) -> int:
        if self.ledger.note("inner") == self.stop and not self.gate.open.is_set():
            await self.gate.stop()
        path = dict(ctx.path)
        self.seen.append((path["tail>head"], path["inner>inner"]))
        assert ctx.state["__loop_inner"] == path["inner>inner"]
        return value + 1

    def workflow(self) -> Any:
        builder = WorkflowBuilder("w").add_node("head", passes).add_node("inner", self.inner)
        builder.add_node("tail", passes).add_node("end", passes).set_start("head")
        builder.add_edge("head", "inner").add_edge("inner", "tail").add_edge("tail", "end")
        builder.add_loop("inner", "inner", LoopOptions(3))
        return builder.add_loop("tail", "head", LoopOptions(2)).build()


async def test_an_inner_loop_starts_anew_in_each_outer_pass() -> None:
    """Outer 2 x inner 3 is six passes, and both counters are right in each."""
    nested = Nested()
    async with running(nested.workflow()) as engine:
        assert (await engine.run(0, "s")).outputs == [6]
        assert nested.seen == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]


@pytest.mark.parametrize("stop", range(1, 7))
async def test_killed_in_an_inner_pass_both_counters_are_right(stop: int) -> None:
    """Killed in any of the six inner passes, each pass still runs once more at most, in its place."""
    nested = Nested(stop)
    async with running(nested.workflow()) as engine:
        task = asyncio.create_task(engine.run(0, "s"))
        await nested.gate.reached.wait()
        await kill(task)
        nested.gate.open.set()
        assert (await engine.run(0, "s")).outputs == [6]
        assert nested.seen == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
        state = (await engine.state("s")).state_data
        assert (state["inner"]["__loop_inner"], state["tail"]["__loop_tail"]) == (3, 2)


async def test_two_loops_that_leave_one_node_are_asked_from_the_inside() -> None:
    """The inner loop turns until it is done, then the outer one; each has its own variable."""
    seen: list[tuple[int, int]] = []

    async def body(ctx: Context, value: int) -> int:
        path = dict(ctx.path)
        seen.append((path["body>head"], path["body>body"]))
        return value + 1

    builder = WorkflowBuilder("w").add_node("head", passes).add_node("body", body)
    builder.add_node("end", passes).add_edge("head", "body").add_edge("body", "end")
    builder.add_loop("body", "head", LoopOptions(2, loop_variable="outer"))
    builder.add_loop("body", "body", LoopOptions(2, loop_variable="inner"))
    async with running(builder.set_start("head").build()) as engine:
        assert (await engine.run(0, "s")).outputs == [4]
        assert seen == [(1, 1), (1, 2), (2, 1), (2, 2)]


# -- barriers in loops -----------------------------------------------------------------------------


class Rounds:
    """Each pass: head -> quick and slow -> join -> back; `slow` takes two steps."""

    def __init__(self, stop: str = "", call: int = 0) -> None:
        self.ledger, self.gate = Ledger(), Gate()
        self.stop, self.call = stop, call
        self.joins: list[list[int]] = []

    def node(self, name: str, factor: int) -> Any:
        async def run(value: int) -> int:
            stops = self.ledger.note(name) == self.call and name == self.stop
            if stops and not self.gate.open.is_set():
                await self.gate.stop()
            return value + factor

        return run

    async def join(self, values: list[int]) -> int:
        self.joins.append(list(values))
        return values[0]

    def workflow(self, passes_: int = 3) -> Any:
        builder = WorkflowBuilder("w").add_node("head", passes).set_start("head")
        builder.add_node("quick", self.node("quick", 1)).add_node("slow", self.node("slow", 0))
        builder.add_node("slower", self.node("slower", 100)).add_node("join", self.join)
        builder.add_node("end", passes)
        builder.add_edge("head", "quick").add_edge("head", "slow").add_edge("slow", "slower")
        builder.add_fan_in(["quick", "slower"], "join").add_edge("join", "end")
        return builder.add_loop("join", "head", LoopOptions(passes_)).build()


async def test_a_barrier_fires_in_every_pass() -> None:
    """Three rounds, three joins, each of one round's messages."""
    rounds = Rounds()
    async with running(rounds.workflow()) as engine:
        assert (await engine.run(0, "s")).outputs == [3]
        assert rounds.joins == [[1, 100], [2, 101], [3, 102]]


@pytest.mark.parametrize("vanish", [False, True])
@pytest.mark.parametrize("stop", ["slow", "slower"])
@pytest.mark.parametrize("call", [1, 2, 3])
async def test_a_half_filled_barrier_survives_a_kill_in_any_pass(
    stop: str, call: int, vanish: bool
) -> None:
    """Killed, twice, while the barrier holds one of two messages of a round: no round mixes."""
    await killed_in_a_round(stop, call, VanishingStore(ManualClock()) if vanish else MemoryStore())


async def test_a_half_filled_barrier_is_kept_by_every_store(place: str) -> None:
    """The same in the second pass, wherever the session is kept."""
    await killed_in_a_round("slower", 2, open_store(place))


async def killed_in_a_round(stop: str, call: int, store: Store) -> None:
    """Kill a run twice at this node in this pass and in the next, and let it end."""
    rounds = Rounds(stop, call)
    async with running(rounds.workflow(), store) as engine:
        for _ in range(2):
            rounds.gate.reached.clear()
            task = asyncio.create_task(engine.run(0, "s"))
            await rounds.gate.reached.wait()
            await kill(task)
            rounds.call += 1
        held = (await engine.state("s")).edge_state_data["barriers"]
        if stop == "slower":
            assert list(held.values()) == [{"quick": call}]
        rounds.gate.open.set()
        assert (await engine.run(0, "s")).outputs == [3]
        assert rounds.joins == [[1, 100], [2, 101], [3, 102]]
        assert (await engine.manager.verify("s")).intact


async def test_every_pass_of_a_loop_that_is_wide_is_one_round() -> None:
    """Fan-out and fan-in in a loop of many passes: as many joins, none short."""
    seen: list[int] = []

    async def join(values: list[int]) -> int:
        seen.append(len(values))
        return sum(values) // 4

    builder = WorkflowBuilder("w").add_node("start", passes).add_node("end", join)
    names = [f"w{n}" for n in range(4)]
    for name in names:
        builder.add_node(name, adds_one)
    builder.add_fan_out("start", names).add_fan_in(names, "end").set_start("start")
    builder.add_node("out", passes).add_edge("end", "out")
    builder.add_loop("end", "start", LoopOptions(20))
    async with running(builder.build()) as engine:
        assert (await engine.run(0, "s")).outputs == [20]
        assert seen == [4] * 20


# -- limits ----------------------------------------------------------------------------------------


async def test_a_loop_that_stops_at_its_limit_is_granted_more() -> None:
    """`on_limit="stop"` parks the message; each resume grants as many passes again."""
    ledger = Ledger()

    async def body(value: int) -> int:
        ledger.note("body")
        return value + 1

    def enough(value: int) -> bool:
        return value >= 7

    builder = WorkflowBuilder("w").add_node("body", body).add_node("end", passes)
    builder.add_edge("body", "end").set_start("body")
    builder.add_loop("body", "body", LoopOptions(3, until=enough, on_limit="stop"))
    async with running(builder.build()) as engine:
        first = await engine.run(0, "s")
        assert (first.status, ledger["body"]) == ("limited", 3)
        assert "body>body" in first.reason
        assert "resume" in first.next_step
        again = await engine.run(0, "s")
        assert (again.status, ledger["body"]) == ("limited", 3)
        assert (await engine.resume("s")).status == "limited"
        assert ledger["body"] == 6
        last = await engine.resume("s")
        assert (last.status, last.outputs, ledger["body"]) == ("completed", [7], 7)
        assert (await engine.manager.verify("s")).intact


async def test_a_grant_holds_for_one_stay_in_the_loop() -> None:
    """What an inner loop was granted in one outer pass it has not in the next."""
    passes_seen: list[tuple[int, int]] = []

    async def inner(ctx: Context, value: int) -> int:
        path = dict(ctx.path)
        passes_seen.append((path["tail>inner"], path["inner>inner"]))
        return value

    def done(value: int) -> bool:
        return passes_seen[-1] in ((1, 3), (2, 2))

    builder = WorkflowBuilder("w").add_node("inner", inner).add_node("tail", passes)
    builder.add_node("end", passes).add_edge("inner", "tail").add_edge("tail", "end")
    builder.add_loop("inner", "inner", LoopOptions(2, until=done, on_limit="stop"))
    builder.add_loop("tail", "inner", LoopOptions(2)).set_start("inner")
    async with running(builder.build()) as engine:
        assert (await engine.run(0, "s")).status == "limited"
        assert (await engine.resume("s")).status == "completed"
        assert passes_seen == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]


async def test_steps_are_limited_and_granted() -> None:
    """At `max_steps` the run pauses with its messages pending; `resume` grants more, `run` does not."""
    ledger = Ledger()

    async def body(value: int) -> int:
        ledger.note("body")
        return value + 1

    builder = WorkflowBuilder("w").add_node("body", body).set_start("body")
    builder.add_loop("body", "body", LoopOptions(25))
    async with running(builder.build(), max_steps=10) as engine:
        first = await engine.run(0, "s")
        assert (first.status, first.steps, ledger["body"]) == ("limited", 10, 10)
        assert "10 steps" in first.reason
        assert (await engine.run(0, "s")).status == "limited"
        assert ledger["body"] == 10
        second = await engine.resume("s")
        assert (second.status, second.steps) == ("limited", 20)
        last = await engine.resume("s")
        assert (last.status, last.steps, last.outputs) == ("completed", 25, [25])


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_a_run_killed_at_its_step_limit_makes_progress(limit: int) -> None:
    """Killed in the first step after a grant, a run that stood at its limit still goes on."""
    ledger, gate = Ledger(), Gate()

    async def body(value: int) -> int:
        if ledger.note("body") == limit + 1:
            await gate.stop()
        return value + 1

    builder = WorkflowBuilder("w").add_node("body", body).set_start("body")
    builder.add_loop("body", "body", LoopOptions(4))
    async with running(builder.build(), max_steps=limit) as engine:
        await engine.run(0, "s")
        task = asyncio.create_task(engine.resume("s"))
        await gate.reached.wait()
        await kill(task)
        result = await engine.resume("s")
        for _ in range(10):
            if result.status == "limited":
                result = await engine.resume("s")
        assert (result.status, result.outputs) == ("completed", [4])


async def test_a_run_that_ends_at_its_limit_is_complete() -> None:
    """Exactly as many steps as allowed is no limit passed."""
    builder = WorkflowBuilder("w").add_node("body", adds_one).set_start("body")
    builder.add_loop("body", "body", LoopOptions(5))
    async with running(builder.build()) as engine:
        assert (await engine.run(0, "s", max_steps=5)).status == "completed"
        assert (await engine.run(0, "t", max_steps=4)).status == "limited"
