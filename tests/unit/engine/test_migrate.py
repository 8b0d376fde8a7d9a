"""Sessions that move to another graph: everything held finds its place, or is refused by name."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raf import Context, LoopOptions, RetryPolicy, Workflow, WorkflowBuilder, WorkflowEngine
from raf.errors import (
    ConfigurationError,
    MigrationRefusedError,
    SessionBusyError,
    SessionNotFoundError,
    TopologyChangedError,
    WorkflowMismatchError,
)
from raf.store.memory import MemoryStore
from raf.testing import ManualClock
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    adds_one,
    collects,
    events_of,
    fan,
    journal_of,
    kill,
    kinds,
    line,
    passes,
    running,
    until,
)

WHY = "new names"


class Stage:
    """A store, a clock, a gate at which a node stops, and a ledger of what ran."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.gate = Gate()
        self.ledger = Ledger()

    def noting(self, name: str) -> Callable[..., Any]:
        """A node that keeps how often it ran, in its own state too, and counts on."""

        async def node(ctx: Context, value: int) -> int:
            ctx.state["ran"] = ctx.state.get("ran", 0) + 1
            self.ledger.note(name)
            return value + 1

        return node

    async def gated(self, value: int) -> int:
        """A node that stands still until the gate is open."""
        self.ledger.note("gated")
        if not self.gate.open.is_set():
            await self.gate.stop()
        return value

    async def stop(self, workflow: Workflow, **options: Any) -> None:
        """Session s stands in the middle of its gated node, and nobody runs it."""
        async with running(workflow, self.store, **options) as engine:
            task = asyncio.create_task(engine.run(1, "s"))
            await self.gate.reached.wait()
            await kill(task)
        self.gate.open.set()

    def engine(self, workflow: Workflow, **options: Any) -> WorkflowEngine:
        """An engine of this store."""
        return WorkflowEngine(workflow, self.store, **options)


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def lists(values: list[int]) -> list[int]:
    return list(values)


# -- messages, state, events -----------------------------------------------------------------------


async def test_a_message_and_the_state_of_its_node_move_with_it(stage: Stage) -> None:
    """One full commit, with an event that tells from what to what; the rest is as it was."""
    old = line("w", {"first": stage.noting("first"), "node": stage.gated, "end": passes}).build()
    new = line("w", {"begin": stage.noting("first"), "named": stage.gated, "end": passes}).build()
    names = {"first": "begin", "node": "named"}
    await stage.stop(old)
    async with stage.engine(new) as engine:
        before = await engine.state("s")
        made = await engine.migrate("s", names, reason=WHY)
        after = await engine.state("s")
        assert made == after.checkpoint_id
        assert after.is_full_snapshot
        assert after.graph_fingerprint == new.fingerprint
        assert after.state_data == {"begin": before.state_data["first"]}
        [was], [now] = before.pending_messages, after.pending_messages
        assert now == {**was, "source": "begin", "target": "named"}
        assert (await engine.resume("s")).outputs == [2]
        events = await events_of(engine, "s")
        [moved] = [event for event in events if event.kind == "migrated"]
        assert (moved.data["from"], moved.data["to"]) == (old.fingerprint, new.fingerprint)
        assert (moved.data["reason"], moved.data["mapping"]) == (WHY, names)
        assert "node 'node' was removed" in moved.data["changes"]
        assert (await engine.manager.verify("s")).intact
    assert stage.ledger == {"first": 1, "gated": 2}


async def test_a_migration_is_made_once(stage: Stage) -> None:
    """A session that has the graph already is left alone, whatever the mapping says."""
    old = line("w", {"first": passes, "node": stage.gated}).build()
    new = line("w", {"first": passes, "other": stage.gated}).build()
    await stage.stop(old)
    async with stage.engine(new) as engine:
        made = await engine.migrate("s", {"node": "other"}, reason=WHY)
        history = await engine.history("s")
        assert await engine.migrate("s", {"node": "other"}, reason=WHY) == made
        assert await engine.history("s") == history


@pytest.mark.parametrize("target", ["nope", "other=x"])
async def test_a_mapping_to_a_node_that_is_not_there(stage: Stage, target: str) -> None:
    """Refused in a plan, a move and a fork alike; it names the node and those that there are."""
    old = line("w", {"first": passes, "node": stage.gated}).build()
    new = line("w", {"first": passes, "other": passes}).build()
    await stage.stop(old)
    told = f"leads 'node' to '{target}', but the new graph has no node so named; .*first, other"
    async with stage.engine(new) as engine:
        history = await engine.history("s")
        with pytest.raises(MigrationRefusedError, match=told):
            await engine.migrate("s", {"node": target}, reason=WHY)
        with pytest.raises(MigrationRefusedError, match=told):
            await engine.fork("s", "t", mapping={"node": target})
        [planned] = await engine.plan_migration(mapping={"node": target})
        assert (planned.verdict, len(planned.refusals)) == ("refused", 1)
        assert await engine.history("s") == history


async def test_what_has_no_place_is_named_and_nothing_is_written(stage: Stage) -> None:
    """Without a mapping the node is gone; with `drop` its message is a dead letter that holds it."""
    old = line("w", {"first": passes, "node": stage.gated}).build()
    new = line("w", {"first": passes, "other": passes}).build()
    await stage.stop(old)
    async with stage.engine(new) as engine:
        history = await engine.history("s")
        with pytest.raises(MigrationRefusedError, match=r"message 2 .*'node', which is gone") as no:
            await engine.migrate("s", reason=WHY)
        assert "drop=['node'] gives it up" in str(no.value)
        assert isinstance(no.value, TopologyChangedError)
        with pytest.raises(MigrationRefusedError, match="'nobody', which is not in the graph"):
            await engine.migrate("s", {"nobody": "other"}, drop=["node"], reason=WHY)
        with pytest.raises(MigrationRefusedError, match="drop names 'nood', which is not in"):
            await engine.migrate("s", drop=["node", "nood"], reason=WHY)
        with pytest.raises(ConfigurationError, match="drop is a collection"):
            await engine.migrate("s", drop=5, reason=WHY)  # type: ignore[arg-type]
        assert await engine.history("s") == history
        await engine.migrate("s", drop=["node"], reason=WHY)
        result = await engine.resume("s")
        assert (result.status, result.outputs) == ("completed", [])
        [lost] = [event for event in await events_of(engine, "s") if event.kind == "dead_letter"]
        assert (lost.node, lost.message, lost.value) == ("first", 2, 1)
        assert lost.data == {"to": "node", "dropped": True}


async def test_state_of_a_node_that_is_gone_stays_unless_it_is_dropped(stage: Stage) -> None:
    """Nothing is lost without a word: it stays where it was; in the way of another's, it is named."""
    nodes = {"a": stage.noting("a"), "b": stage.noting("b"), "node": stage.gated}
    old = line("w", nodes).build()
    without = line("w", {"b": stage.noting("b"), "node": stage.gated}).build()
    taken = line("w", {"a": stage.noting("b"), "node": stage.gated}).build()
    await stage.stop(old)
    async with stage.engine(without) as engine, stage.engine(taken) as other:
        with pytest.raises(MigrationRefusedError, match="state 'ran' of 'a' is in the way"):
            await other.migrate("s", {"b": "a"}, reason=WHY)
        await engine.migrate("s", reason=WHY)
        assert set((await engine.state("s")).state_data) == {"a", "b"}
    async with stage.engine(old) as engine, stage.engine(taken) as other:
        await engine.migrate("s", reason="back")
        await other.migrate("s", {"b": "a"}, drop=["a"], reason=WHY)
        assert (await other.state("s")).state_data == {"a": {"ran": 1}}
        assert (await other.resume("s")).outputs == [3]


async def test_the_state_is_changed_behind_the_move(stage: Stage) -> None:
    """`state=` sees new names, and is part of the one commit; if it raises, nothing is written."""
    old = line("w", {"first": stage.noting("first"), "node": stage.gated}).build()
    new = line("w", {"begin": stage.noting("first"), "node": stage.gated}).build()
    names = {"first": "begin"}

    def change(editor: Any) -> None:
        editor.node("begin")["ran"] += 10
        editor.scope("s")["note"] = "moved"

    def breaks(editor: Any) -> None:
        editor.node("begin")["ran"] = 0
        raise LookupError("no such row")

    await stage.stop(old)
    async with stage.engine(new) as engine:
        commits = len(await engine.history("s"))
        with pytest.raises(LookupError):
            await engine.migrate("s", names, state=breaks, reason=WHY)
        [plan] = await engine.plan_migration("s", names, state=breaks)
        assert (plan.verdict, plan.refusals) == ("refused", ("LookupError: no such row",))
        [plan] = await engine.plan_migration("s", names, state=change)
        assert plan.verdict == "moves"
        assert len(await engine.history("s")) == commits
        await engine.migrate("s", names, state=change, reason=WHY)
        assert len(await engine.history("s")) == commits + 1
        found = (await engine.state("s")).state_data
        assert found == {"begin": {"ran": 11}, "::s": {"note": "moved"}}


# -- barriers --------------------------------------------------------------------------------------


def joined(stage: Stage, *sources: str, target: str = "join", wait: Any = "all") -> Workflow:
    """Workers side by side before a barrier; `slow` goes through a gated node and comes last."""
    builder = WorkflowBuilder("w").add_node("start", passes).set_start("start")
    builder.add_node("gate", stage.gated).add_node(target, lists)
    for name in sources:
        builder.add_node(name, stage.noting(name))
    quick = [name for name in sources if name != "slow"]
    builder.add_fan_out("start", ["gate", *quick]).add_edge("gate", "slow")
    return builder.add_fan_in(list(sources), target, wait=wait).build()


async def half_filled(stage: Stage, workflow: Workflow) -> None:
    """The barrier holds what the quick workers sent; `slow` has its message."""
    async with running(workflow, stage.store) as engine:
        stage.gate.open.set()
        result = await engine.run(1, "s", max_steps=2, check=False)
        assert result.status == "limited"


@pytest.mark.parametrize(
    ("sources", "target", "mapping", "outputs"),
    [
        (("x", "slow"), "join", {"a": "x"}, [[2, 2]]),
        (("a", "slow"), "meet", {"join": "meet"}, [[2, 2]]),
        (("slow", "a"), "join", {}, [[2, 2]]),
        (("a", "slow"), "join", {}, [[2, 2]]),
    ],
)
async def test_what_a_barrier_holds_moves(
    stage: Stage, sources: Any, target: str, mapping: dict[str, str], outputs: Any
) -> None:
    """Renamed sources or target, another order: the slot keeps what it held, and fires once."""
    await half_filled(stage, joined(stage, "a", "slow"))
    async with stage.engine(joined(stage, *sources, target=target, wait=2)) as engine:
        await engine.migrate("s", mapping, reason=WHY)
        assert (await engine.resume("s")).outputs == outputs
        assert (await engine.manager.verify("s")).intact
    assert stage.ledger == {"a": 1, "slow": 1, "gated": 1}


async def test_a_slot_or_a_barrier_that_is_gone_is_named(stage: Stage) -> None:
    """A source that feeds the barrier no more, and a barrier that is gone: named, or dropped."""
    await half_filled(stage, joined(stage, "a", "b", "slow"))
    builder = WorkflowBuilder("w").add_node("start", passes).set_start("start")
    for name in ("a", "b"):
        builder.add_node(name, passes)
    builder.add_node("gate", passes).add_node("slow", adds_one).add_node("end", passes)
    builder.add_fan_out("start", ["gate", "a", "b"]).add_edge("gate", "slow")
    none = builder.add_edge("slow", "end").build()
    async with stage.engine(none) as engine:
        with pytest.raises(MigrationRefusedError) as gone:
            await engine.migrate("s", reason=WHY)
        assert len(gone.value.differences) == 2
        assert "barrier 'a+b+slow>join' holds message 5 of 'a', and is gone" in str(gone.value)
    async with stage.engine(joined(stage, "a", "c", "slow", wait=2)) as engine:
        with pytest.raises(MigrationRefusedError, match="of 'b', which feeds it no more"):
            await engine.migrate("s", reason=WHY)
        await engine.migrate("s", drop=["a+b+slow>join"], reason=WHY)
        assert (await engine.resume("s")).outputs == [[2, 2]]
        [lost] = [event for event in await events_of(engine, "s") if event.kind == "dead_letter"]
        assert (lost.node, lost.data["to"], lost.value) == ("b", "join", 2)


async def test_what_a_barrier_gave_up_moves_with_it(stage: Stage) -> None:
    """A message of a fired barrier is in flight: its senders are told under their new names."""

    async def by_name(values: dict[str, int]) -> dict[str, int]:
        await stage.gated(0)
        return values

    def built(a: str, join: str) -> Workflow:
        builder = WorkflowBuilder("w").add_node("start", passes).set_start("start")
        builder.add_node(a, adds_one).add_node("b", adds_one).add_node(join, by_name)
        builder.add_fan_out("start", [a, "b"])
        return builder.add_fan_in([a, "b"], join, collect="dict").build()

    await stage.stop(built("a", "join"))
    async with stage.engine(built("x", "meet")) as engine:
        with pytest.raises(MigrationRefusedError, match="'join', which is gone"):
            await engine.migrate("s", {"a": "x"}, reason=WHY)
        await engine.migrate("s", {"a": "x", "join": "meet"}, reason=WHY)
        assert (await engine.resume("s")).outputs == [{"x": 2, "b": 2}]


# -- loops -----------------------------------------------------------------------------------------


def looping(
    body: str, tail: str, *, times: int = 3, last: Any = passes, **options: Any
) -> Workflow:
    """A loop of two nodes, and what follows it."""
    builder = WorkflowBuilder("w").add_node(body, adds_one).add_node(tail, last)
    builder.add_node("end", passes).set_start(body).add_edge(body, tail).add_edge(tail, "end")
    return builder.add_loop(tail, body, LoopOptions(times, **options)).build()


async def test_a_loop_goes_on_in_its_pass(stage: Stage) -> None:
    """In the second pass of three its nodes get other names: one more pass, and the variable moved."""

    async def second(value: int) -> int:
        return await stage.gated(value) if value == 3 else value

    await stage.stop(looping("body", "tail", last=second))
    async with stage.engine(looping("trunk", "rear", last=second)) as engine:
        assert (await engine.state("s")).state_data == {"tail": {"__loop_tail": 2}}
        with pytest.raises(MigrationRefusedError, match="whose loops are others now"):
            await engine.migrate("s", {"tail": "rear"}, drop=["body"], reason=WHY)
        await engine.migrate("s", {"tail": "rear", "body": "trunk"}, reason=WHY)
        assert (await engine.state("s")).state_data == {"rear": {"__loop_rear": 2}}
        assert (await engine.resume("s")).outputs == [4]


async def test_a_loop_that_closes_elsewhere_needs_its_own_name(stage: Stage) -> None:
    """Another node closes the loop now: mapping the loop's id leads everything inside it along."""

    async def second(value: int) -> int:
        return await stage.gated(value) if value == 3 else value

    await stage.stop(looping("body", "tail", last=second))
    builder = WorkflowBuilder("w").add_node("body", adds_one).add_node("tail", second)
    builder.add_node("more", passes).add_node("end", passes).set_start("body")
    builder.add_edge("body", "tail").add_edge("tail", "more").add_edge("more", "end")
    new = builder.add_loop("more", "body", LoopOptions(3)).build()
    async with stage.engine(new) as engine:
        with pytest.raises(MigrationRefusedError, match="loops are others now"):
            await engine.migrate("s", reason=WHY)
        await engine.migrate("s", {"tail>body": "more>body"}, reason=WHY)
        assert (await engine.state("s")).state_data == {"more": {"__loop_more": 2}}
        assert (await engine.resume("s")).outputs == [4]


async def test_a_parked_message_and_what_its_loop_was_granted_move(stage: Stage) -> None:
    """At its limit and granted more once, the loop goes on under its new name with what was granted."""
    old, new = (
        looping(*names, times=2, on_limit="stop", until=None)
        for names in (("body", "tail"), ("trunk", "rear"))
    )
    async with stage.engine(old) as engine:
        assert (await engine.run(0, "s")).status == "limited"
        assert (await engine.resume("s")).status == "limited"
        loops = (await engine.state("s")).edge_state_data["granted"]
        assert loops == {"tail>body[]": 2}
    names = {"tail": "rear", "body": "trunk"}
    gone = line("w", {"trunk": passes, "rear": passes, "end": passes}).build()
    async with stage.engine(new) as engine, stage.engine(gone) as other:
        with pytest.raises(MigrationRefusedError, match="loop 'tail>body' is gone"):
            await other.migrate("s", names, reason=WHY)
        await engine.migrate("s", names, reason=WHY)
        assert (await engine.state("s")).edge_state_data["granted"] == {"rear>trunk[]": 2}
        again = await engine.resume("s")
        assert (again.status, again.reason) == ("limited", "loop rear>trunk reached its limit")
        await other.migrate("s", drop=["rear>trunk"], reason=WHY)
        result = await other.resume("s")
        assert (result.status, result.outputs) == ("completed", [])
        assert (await other.state("s")).edge_state_data["granted"] == {}
        [lost] = [event for event in await events_of(other, "s") if event.kind == "dead_letter"]
        assert (lost.node, lost.data["to"], lost.value) == ("rear", "trunk", 6)


# -- suspended and journaled -----------------------------------------------------------------------


async def test_a_suspended_invocation_keeps_its_time_and_effects(stage: Stage) -> None:
    """Renamed while it waits for its next attempt, it wakes at its time and repeats no effect."""

    async def node(ctx: Context, value: int) -> int:
        paid: int = await ctx.effect("pay", stage.ledger.note, "pay")
        if stage.ledger.note("node") == 1:
            raise ConnectionError("later")
        return paid + value

    retry = RetryPolicy(attempts=2, backoff_s=1000, max_backoff_s=1000, jitter="none")
    old, new = (
        line("w", {"first": passes, name: node}, retry=retry).build() for name in ("node", "named")
    )
    async with stage.engine(old) as engine:
        asleep = await engine.run(1, "s", wait=False)
        assert asleep.status == "sleeping"
    async with stage.engine(new) as engine:
        await engine.migrate("s", {"node": "named"}, reason=WHY)
        still = await engine.resume("s", wait=False)
        assert (still.status, still.wake_at) == ("sleeping", asleep.wake_at)
        stage.clock.advance(1001)
        assert (await engine.resume("s", wait=False)).outputs == [2]
    assert stage.ledger == {"pay": 1, "node": 2}


async def test_a_sleeping_run_whose_sleeper_is_dropped_goes_on(stage: Stage) -> None:
    """Nothing waits any more, so the run does not: what is left of it runs, or it is over."""

    async def node(_value: int) -> int:
        raise ConnectionError("later")

    retry = RetryPolicy(attempts=2, backoff_s=1000, max_backoff_s=1000, jitter="none")
    async with stage.engine(line("w", {"first": passes, "node": node}, retry=retry).build()) as e:
        assert (await e.run(1, "s", wait=False)).status == "sleeping"
    async with stage.engine(line("w", {"first": passes}).build()) as engine:
        await engine.migrate("s", drop=["node"], reason=WHY)
        assert (await engine.manager.head("s")).summary.status == "running"
        result = await engine.resume("s")
        assert (result.status, result.outputs) == ("completed", [])


async def side_by_side(stage: Stage, names: dict[str, str]) -> Workflow:
    """`pays` (an effect, then the gate), `quick` (own state, a named target), and what follows."""

    async def pays(ctx: Context, value: int) -> int:
        paid: int = await ctx.effect("pay", stage.ledger.note, "pay")
        await stage.gated(0)
        return paid + value

    async def quick(ctx: Context, value: int) -> None:
        stage.ledger.note("quick")
        ctx.state["seen"] = value
        ctx.emit("quick is done")
        ctx.send(value, names.get("left", "left"))

    def to(name: str) -> str:
        return names.get(name, name)

    builder = WorkflowBuilder("w").add_node("start", passes).set_start("start")
    builder.add_node(to("pays"), pays).add_node(to("quick"), quick)
    builder.add_node(to("left"), adds_one).add_node("right", adds_one)
    builder.add_fan_out("start", [to("pays"), to("quick")])
    builder.add_edge(to("quick"), to("left")).add_edge(to("quick"), "right")
    return builder.add_edge(to("pays"), "right").with_output_from(to("left"), "right").build()


async def journaled(stage: Stage, entries: int) -> None:
    """Return when the journal of session s has so many entries."""
    while len(await journal_of(stage.store, "s")) < entries:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.001)


async def in_its_open_step(stage: Stage, workflow: Workflow) -> None:
    """`quick` is journaled as finished and the effect of `pays` as done, when the process goes."""
    async with running(workflow, stage.store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await stage.gate.reached.wait()

        await journaled(stage, 2)
        await kill(task)
    stage.gate.open.set()


async def test_the_journal_of_the_open_step_moves(stage: Stage) -> None:
    """What is journaled under old names counts under the new: nothing runs or happens twice."""
    names = {"pays": "charge", "quick": "fast", "left": "port"}
    await in_its_open_step(stage, await side_by_side(stage, {}))
    async with stage.engine(await side_by_side(stage, names)) as engine:
        [plan] = await engine.plan_migration("s", names)
        assert [node for node, _ in plan.next] == ["charge", "fast"]
        await engine.migrate("s", names, reason=WHY)
        assert (await engine.manager.verify("s")).intact
        result = await engine.resume("s")
        assert sorted(result.outputs) == [2, 3]
        assert (await engine.state("s")).state_data == {"fast": {"seen": 1}}
        told = [event for event in await events_of(engine, "s") if event.kind == "custom"]
        assert [event.node for event in told] == ["fast"]
    assert stage.ledger == {"pay": 1, "quick": 1, "gated": 2}


async def test_a_moved_journal_is_not_lost_by_another_crash(stage: Stage) -> None:
    """Killed in the same step once more behind the move, and moved back: still nothing twice."""
    names = {"pays": "charge", "quick": "fast", "left": "port"}
    await in_its_open_step(stage, await side_by_side(stage, {}))
    stage.gate = Gate()
    async with stage.engine(await side_by_side(stage, names)) as engine:
        await engine.migrate("s", names, reason=WHY)
        task = asyncio.create_task(engine.resume("s"))
        await stage.gate.reached.wait()
        await kill(task)
        await engine.fork("s", "t")
    stage.gate.open.set()
    async with stage.engine(await side_by_side(stage, {})) as engine:
        back = {new: old for old, new in names.items()}
        await engine.migrate("s", back, reason="back")
        await engine.migrate("t", back, reason="back")
        assert sorted((await engine.resume("s")).outputs) == [2, 3]
        assert sorted((await engine.resume("t")).outputs) == [2, 3]
    assert stage.ledger == {"pay": 1, "quick": 1, "gated": 4}


async def test_a_journaled_result_that_sends_where_no_edge_leads_is_named(stage: Stage) -> None:
    """Its target is gone: refused, or given up, and then it is a dead letter of the step."""
    await in_its_open_step(stage, await side_by_side(stage, {}))
    names = {"left": "left"}
    builder = WorkflowBuilder("w").add_node("start", passes).set_start("start")
    workflow = await side_by_side(stage, names)
    for name in ("pays", "quick"):
        builder.add_node(name, workflow.nodes[name].call)
    builder.add_node("right", adds_one).add_fan_out("start", ["pays", "quick"])
    new = builder.add_edge("quick", "right").add_edge("pays", "right").build()
    async with stage.engine(new) as engine:
        with pytest.raises(MigrationRefusedError, match="is for 'left', where no edge leads"):
            await engine.migrate("s", reason=WHY)
        await engine.migrate("s", drop=["left"], reason=WHY)
        assert (await engine.resume("s")).outputs == [3]
        [lost] = [event for event in await events_of(engine, "s") if event.kind == "dead_letter"]
        assert (lost.node, lost.data["to"], lost.value) == ("quick", "left", 1)


async def test_without_new_names_the_journal_stays_as_it_is(stage: Stage) -> None:
    """A node is added elsewhere: only the fingerprint of the body changes, and counts go on."""
    old = fan("w", passes, {"a": stage.noting("a"), "b": stage.gated}, collects).build()
    builder = fan("w", passes, {"a": stage.noting("a"), "b": stage.gated}, collects)
    new = builder.add_node("x", passes).add_edge("start", "x").build()
    async with running(old, stage.store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await stage.gate.reached.wait()
        await journaled(stage, 1)
        await kill(task)
    stage.gate.open.set()
    async with stage.engine(new) as engine:
        journal = await journal_of(stage.store, "s")
        before = await engine.state("s")
        await engine.migrate("s", reason=WHY)
        assert await journal_of(stage.store, "s") == journal
        after = await engine.state("s")
        assert after.pending_messages == before.pending_messages
        assert after.state_data == before.state_data
        assert (await engine.resume("s")).outputs == [[2, 1]]
    assert stage.ledger == {"a": 1, "gated": 2}


# -- who, and which --------------------------------------------------------------------------------


async def test_a_live_owner_is_not_disturbed(stage: Stage) -> None:
    """Busy while somebody runs it; of another workflow, unknown, or without a reason: refused."""
    old = line("w", {"first": passes, "node": stage.gated}).build()
    new = line("w", {"first": passes, "node": stage.gated, "end": passes}).build()
    other = line("other", {"first": passes}).build()
    async with stage.engine(old) as owner, stage.engine(new) as engine, stage.engine(other) as far:
        task = asyncio.create_task(owner.run(1, "s"))
        await stage.gate.reached.wait()
        with pytest.raises(SessionBusyError):
            await engine.migrate("s", reason=WHY)
        [plan] = await engine.plan_migration("s")
        assert plan.verdict == "moves"
        stage.gate.open.set()
        assert (await task).outputs == [1]
        with pytest.raises(SessionNotFoundError):
            await engine.migrate("nobody", reason=WHY)
        with pytest.raises(SessionNotFoundError):
            await engine.plan_migration("nobody")
        for call in (far.migrate("s", reason=WHY), far.plan_migration("s")):
            with pytest.raises(WorkflowMismatchError):
                await call
        for wrong in (
            engine.migrate("s", reason=" "),
            engine.migrate("s", {"a": 1}, reason=WHY),  # type: ignore[dict-item]
            engine.migrate("s", drop="node", reason=WHY),
            engine.migrate("s", state=3, reason=WHY),  # type: ignore[arg-type]
        ):
            with pytest.raises(ConfigurationError):
                await wrong
        assert await far.plan_migration() == []


async def test_a_finished_session_moves_with_its_state(stage: Stage) -> None:
    """Its next run starts under the new graph on the state that was kept, under new names."""
    old = line("w", {"first": stage.noting("first")}).build()
    new = line("w", {"begin": stage.noting("first"), "end": passes}).build()
    async with stage.engine(old) as engine:
        await engine.run(1, "s")
    async with stage.engine(new) as engine:
        with pytest.raises(TopologyChangedError) as refused:
            await engine.run(1, "s", run_id="2")
        assert refused.value.compatible
        [plan] = await engine.plan_migration("s", {"first": "begin"})
        assert (plan.verdict, plan.next, plan.status) == ("finished", (), "completed")
        await engine.migrate("s", {"first": "begin"}, reason=WHY)
        assert (await engine.run(1, "s")).outputs == [2]
        assert (await engine.run(5, "s", run_id="2")).outputs == [6]
        assert (await engine.state("s")).state_data == {"begin": {"ran": 2}}


async def test_what_a_cancelled_run_holds_needs_no_place(stage: Stage) -> None:
    """It runs no more: what has no place is given up unasked; before it, it can still be forked."""
    old = line("w", {"first": passes, "node": stage.gated}).build()
    new = line("w", {"first": passes}).build()
    await stage.stop(old)
    async with stage.engine(old) as engine:
        assert await engine.cancel("s") == "cancelled"
    async with stage.engine(new) as engine:
        made = await engine.migrate("s", reason=WHY)
        assert "dead_letter" in kinds(await events_of(engine, "s"))
        assert (await engine.run(4, "s", run_id="2")).outputs == [4]
    async with stage.engine(old) as engine:
        await engine.fork("s", "t", int(made.partition("@")[2]) - 1)
        assert (await engine.resume("t")).outputs == [1]


async def test_a_plan_lists_every_session_of_the_workflow(stage: Stage) -> None:
    """Each with what would happen to it, why, and what its next step would run; nothing is written."""

    async def stops(value: int) -> int:
        stage.ledger.note("stops")
        if not stage.gate.open.is_set():
            await stage.gate.stop()
        return value

    old = line("w", {"first": passes, "node": stops, "late": stops}).build()
    new = line("w", {"first": passes, "late": stops, "end": passes}).build()
    async with stage.engine(old) as engine:
        tasks = [asyncio.create_task(engine.run(1, name)) for name in ("refused", "moves")]
        await until(lambda: stage.ledger["stops"] == len(tasks))
        for task in tasks:
            await kill(task)
        done = WorkflowBuilder("other").add_node("n", passes).set_start("n").build()
        async with stage.engine(done) as stranger:
            await stranger.run(1, "stranger")
        stage.gate.open.set()
        await engine.run(1, "finished")
        await engine.run(1, "later", max_steps=2)
        await engine.edit("moves", lambda e: e.scope("s").update("k", {"a": 1}), reason="r")
    async with stage.engine(new) as engine:
        await engine.run(1, "equal")
        plans = {plan.session_id: plan for plan in await engine.plan_migration()}
        verdicts = {name: plan.verdict for name, plan in plans.items()}
        assert verdicts == {
            "equal": "equal",
            "finished": "finished",
            "later": "moves",
            "moves": "refused",
            "refused": "refused",
        }
        assert plans["later"].next == (("late", 3),)
        assert "edge late -> end was added" in plans["later"].differences
        assert "'node', which is gone" in plans["refused"].refusals[0]
        dropped = {p.session_id: p for p in await engine.plan_migration(drop=["node"])}
        assert (dropped["refused"].verdict, dropped["refused"].dropped) == ("moves", 1)
        led = {p.session_id: p for p in await engine.plan_migration(None, {"node": "end"})}
        assert led["moves"].next == (("end", 2),)
        assert led["moves"].moves == ("message 2 for 'node' goes to 'end'",)
        assert (await engine.manager.head("moves")).commit == 2
