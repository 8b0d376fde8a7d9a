"""A session meets other code: what goes on, what is refused, and how a difference is named."""

import asyncio
from collections.abc import Callable
from dataclasses import make_dataclass
from typing import Any

import pytest

from raf import Context, LoopOptions, Workflow, WorkflowBuilder, WorkflowEngine, named
from raf.errors import (
    ConfigurationError,
    MigrationRefusedError,
    TopologyChangedError,
    UndecodableError,
    WorkflowMismatchError,
)
from raf.store.memory import MemoryStore
from raf.store.port import Store
from raf.store.urls import open_store
from tests.unit.engine.stage import (
    Gate,
    adds_one,
    collects,
    events_of,
    kill,
    kinds,
    passes,
    running,
)

GATE = Gate()


async def stops(value: int) -> int:
    """A node that stands still until its gate is open."""
    if not GATE.open.is_set():
        await GATE.stop()
    return value


def fits(value: int) -> bool:
    return value > 0


def base(**changes: Any) -> WorkflowBuilder:
    """A graph with one of each thing; `changes` alter one of them."""
    builder = WorkflowBuilder("w").set_start("start")
    builder.add_node("start", passes, version=changes.get("version", ""))
    builder.add_node("node", changes.get("handler", stops), retry=changes.get("retry"))
    builder.add_node("a", adds_one).add_node("b", adds_one)
    builder.add_node("join", collects).add_node(
        "end", lists, on_failure=changes.get("fail", "fail")
    )
    builder.add_edge("start", "node", when=changes.get("when", named("fits", fits)))
    builder.add_switch("node", changes.get("cases", [(named("odd", odd), "a")]), "b")
    builder.add_fan_in(["a", "b"], "join", wait=changes.get("wait", "quiescent"))
    builder.add_loop("join", "end", LoopOptions(1)) if changes.get("loop") else None
    builder.add_edge("join", "end")
    builder.with_state("k", int, scope="s", reducer=changes.get("reducer", "sum"))
    if changes.get("more"):
        builder.add_node("more", passes).add_edge("start", "more")
    if changes.get("output"):
        builder.with_output_from("join", "end")
    return builder


async def lists(values: list[int]) -> list[int]:
    return list(values)


def odd(value: int) -> bool:
    return value % 2 == 1


def even(value: int) -> bool:
    return value % 2 == 0


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "another condition": ({"when": named("other", fits)}, "other"),
    "no condition": ({"when": None}, "fits"),
    "another case": ({"cases": [(named("even", even), "a")]}, "even"),
    "another barrier mode": ({"wait": 1}, "quiescent"),
    "another reducer": ({"reducer": "last"}, "last"),
    "another version": ({"version": "2"}, "start"),
    "another node": ({"more": True}, "more"),
    "another output": ({"output": True}, "join"),
    "another way to fail": ({"fail": "skip"}, "end"),
}


@pytest.fixture(autouse=True)
def _closed_gate() -> None:
    GATE.reached, GATE.open = asyncio.Event(), asyncio.Event()


async def stopped(store: Store, workflow: Workflow) -> None:
    """Session s stands in the middle of its second node, and nobody runs it."""
    async with running(workflow, store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await GATE.reached.wait()
        await kill(task)
    GATE.open.set()


@pytest.mark.parametrize("name", CHANGES)
async def test_a_changed_graph_is_refused_and_the_difference_named(name: str) -> None:
    """Resume and run are refused with what differs and the remedies; the old code still goes on."""
    changes, told = CHANGES[name]
    store = MemoryStore()
    await stopped(store, base().build())
    async with running(base(**changes).build(), store) as engine:
        before = await engine.history("s")
        for call in (engine.resume("s"), engine.run(1, "s")):
            with pytest.raises(TopologyChangedError) as refused:
                await call
            error = refused.value
            assert error.saved != error.current
            assert error.differences
            assert any(told in difference for difference in error.differences)
            assert "run the old code, migrate" in str(error)
        assert await engine.history("s") == before
    async with running(base().build(), store) as engine:
        assert (await engine.resume("s")).status == "completed"


UNSEEN: dict[str, dict[str, Any]] = {
    "retry": {"retry": 3},
    "handler": {"handler": passes},
}


@pytest.mark.parametrize("name", UNSEEN)
async def test_what_is_not_part_of_the_graph_may_change(name: str) -> None:
    """Retry, handler bodies and the order of calls to the builder do not bind a session."""
    store = MemoryStore()
    await stopped(store, base().build())
    async with running(base(**UNSEEN[name]).build(), store) as engine:
        assert (await engine.resume("s")).outputs == [[2]]


async def test_an_equal_graph_built_in_another_order_goes_on() -> None:
    """The fingerprint does not depend on the order in which nodes and edges were added."""
    store = MemoryStore()
    builder = WorkflowBuilder("w")
    builder.with_state("k", int, scope="s", reducer="sum")
    builder.add_edge("join", "end").add_fan_in(["a", "b"], "join", wait="quiescent")
    builder.add_node("end", lists).add_node("join", collects)
    builder.add_node("b", adds_one).add_node("a", adds_one)
    builder.add_switch("node", [(named("odd", odd), "a")], "b")
    builder.add_edge("start", "node", when=named("fits", fits))
    builder.add_node("node", stops).add_node("start", passes).set_start("start")
    await stopped(store, base().build())
    async with running(builder.build(), store) as engine:
        assert (await engine.resume("s")).outputs == [[2]]


async def test_a_finished_parallel_block_is_no_changed_graph() -> None:
    """Fan-out and fan-in done, the next node fails: the session is resumed twice, and goes on."""
    broken = [True]

    async def node(values: list[int]) -> int:
        if broken[0]:
            raise ValueError
        return sum(values)

    def build() -> Workflow:
        builder = WorkflowBuilder("w").add_node("start", passes).set_start("start")
        for name in "cab":
            builder.add_node(name, adds_one)
        builder.add_fan_out("start", ["c", "a", "b"]).add_node("join", collects)
        builder.add_fan_in(["c", "a", "b"], "join").add_node("node", node)
        return builder.add_edge("join", "node").build()

    store = MemoryStore()
    for _ in range(3):
        async with running(build(), store) as engine:
            assert (await engine.run(1, "s", check=False)).status == "failed"
    broken[0] = False
    async with running(build(), store) as engine:
        assert (await engine.resume("s")).outputs == [6]


def condition(body: int) -> Callable[[int], bool]:
    """One of two conditions of one name whose source differs."""

    def first(value: int) -> bool:
        return value > 0

    def second(value: int) -> bool:
        return value > -1

    return (first, second)[body]


async def test_a_changed_condition_under_the_same_name_is_told() -> None:
    """Another source of a condition lets the session go on, and leaves an event that names it."""
    store = MemoryStore()
    await stopped(store, base(when=named("fits", condition(0))).build())
    async with running(base(when=named("fits", condition(0))).build(), store) as engine:
        await engine.edit("s", lambda editor: None, reason="nothing")
        assert "code_changed" not in kinds(await events_of_open(engine))
    async with running(base(when=named("fits", condition(1))).build(), store) as engine:
        assert (await engine.resume("s")).status == "completed"
        changed = [e for e in await events_of(engine, "s") if e.kind == "code_changed"]
        assert [list(e.data["names"]) for e in changed] == [["fits"]]


async def events_of_open(engine: Any) -> list[Any]:
    """The durable events so far of a session that is not finished."""
    _, stored = await engine.manager.events("s")
    from raf.engine.hub import shown_event

    return [shown_event("s", event, engine.workflow.types) for event in stored]


async def test_a_session_of_another_workflow_recovers_untouched(place: str) -> None:
    """Another workflow that is run under a used id, here and in another engine, breaks nothing."""
    store = open_store(place)
    await stopped(store, base().build())
    other = WorkflowBuilder("other").add_node("n", passes).set_start("n").build()
    async with running(other, store) as stranger:
        for call in (
            stranger.run(1, "s"),
            stranger.run(1, "s", run_id="x"),
            stranger.resume("s"),
            stranger.edit("s", lambda editor: None, reason="r"),
        ):
            with pytest.raises(WorkflowMismatchError, match=r"'w'.*'other'"):
                await call
        assert await stranger.recover() == []
    async with running(base().build(), store) as engine:
        assert [r.outputs for r in await engine.recover()] == [[[2]]]


async def test_a_type_that_changed_its_shape_fails_the_node_that_needs_it() -> None:
    """What was stored no longer fits the receiver: the error names the payload; old code goes on."""

    async def takes_text(ctx: Context, value: str) -> str:
        return value

    async def takes_number(ctx: Context, value: int) -> int:
        if not GATE.open.is_set():
            await GATE.stop()
        return value

    async def gives(value: int) -> Any:
        return value

    def build(handler: Any) -> Workflow:
        builder = WorkflowBuilder("w").add_node("gives", gives).add_node("takes", handler)
        return builder.add_edge("gives", "takes").set_start("gives").build()

    store = MemoryStore()
    await stopped(store, build(takes_number))
    async with running(build(takes_text), store) as engine:
        result = await engine.resume("s", check=False)
        assert result.status == "failed"
        assert "payload for 'takes'" in result.reason
    async with running(build(takes_number), store) as engine:
        assert (await engine.resume("s")).outputs == [1]


# -- compatible changes ----------------------------------------------------------------------------


def onward(*more: str) -> Workflow:
    """`start` to `node` (the gate) to `end`; from `start` also to these."""
    builder = WorkflowBuilder("w").add_node("start", passes).set_start("start")
    builder.add_node("node", stops).add_node("end", adds_one)
    builder.add_edge("start", "node").add_edge("node", "end")
    for name in more:
        builder.add_node(name, passes).add_edge("start", name)
    return builder.with_output_from("end").build()


async def test_a_compatible_change_goes_on_when_it_is_allowed() -> None:
    """Nothing held can meet it: refused with that hint, or allowed, and then recorded in a full."""
    store = MemoryStore()
    await stopped(store, onward())
    async with running(onward("more"), store) as engine:
        with pytest.raises(TopologyChangedError, match="on_change") as refused:
            await engine.resume("s")
        assert refused.value.compatible
    async with running(onward("more"), store, on_change="compatible") as engine:
        at = (await engine.manager.head("s")).commit
        result = await engine.resume("s")
        assert (result.outputs, result.resumed_from) == ([2], f"s@{at}")
        history = await engine.history("s")
        assert history[at + 1].is_full_snapshot
        [switch] = [e for e in await events_of(engine, "s") if e.kind == "migrated"]
        assert switch.data["reason"] == "a compatible change"
        assert list(switch.data["changes"]) == [
            "node 'more' was added",
            "edge start -> more was added",
        ]
        assert (await engine.manager.verify("s")).intact
        assert (await engine.run(5, "s", run_id="2")).outputs == [6]
    async with running(onward(), store) as engine:
        with pytest.raises(TopologyChangedError):
            await engine.run(5, "s", run_id="3")


async def test_a_change_that_something_held_can_meet_is_refused_all_the_same() -> None:
    """Allowing compatible changes allows no other: the difference is named, nothing is written."""
    store = MemoryStore()
    await stopped(store, base().build())
    async with running(base(fail="skip").build(), store, on_change="compatible") as engine:
        before = await engine.history("s")
        for call in (engine.resume("s"), engine.run(1, "s"), engine.run(2, "s", run_id="2")):
            with pytest.raises(TopologyChangedError) as refused:
                await call
            assert not refused.value.compatible
            assert "on_change" not in str(refused.value)
        assert await engine.history("s") == before


async def test_every_call_that_goes_on_records_the_change_once() -> None:
    """A finished session's next run, a submitted one and an edit record it before they write."""
    store = MemoryStore()
    async with running(onward(), store) as engine:
        GATE.open.set()
        for name in ("next", "edited", "submitted"):
            await engine.run(1, name)
        await engine.submit(1, "waiting")
    async with running(onward("more"), store, on_change="compatible") as engine:
        assert (await engine.run(1, "next")).outputs == [2]  # what is recorded needs no graph
        assert (await engine.run(4, "next", run_id="2")).outputs == [5]
        await engine.edit("edited", lambda e: e.scope("s").update("k", {"a": 1}), reason="r")
        await engine.submit(4, "submitted", run_id="2")
        with pytest.raises(TopologyChangedError):
            await engine.resume("waiting")  # its start is ahead of it
        for name in ("next", "edited", "submitted"):
            _, events = await engine.manager.events(name)
            told = [event.what.kind.text for event in events]
            assert told.count("migrated") == 1
            assert (
                await engine.manager.head(name)
            ).summary.fingerprint == engine.workflow.fingerprint


def test_an_unknown_way_to_meet_a_change() -> None:
    """There is no way to force it."""
    with pytest.raises(ConfigurationError, match="on_change is refuse or compatible"):
        WorkflowEngine(onward(), on_change="force")  # type: ignore[arg-type]


# -- classes that changed ----------------------------------------------------------------------------


def a_parcel(weight: Any) -> Any:
    """A class as one version of the code has it."""
    made = make_dataclass("Parcel", [("weight", weight)])
    made.__module__ = "depot"
    return made


def carrying(parcel: Any, value: Any) -> Workflow:
    """`gives` makes a parcel, `takes` stands at the gate with it."""

    async def gives(_: int) -> Any:
        return parcel(value)

    async def takes(payload: Any) -> Any:
        if not GATE.open.is_set():
            await GATE.stop()
        return payload.weight

    gives.__annotations__["return"] = parcel
    takes.__annotations__["payload"] = parcel
    builder = WorkflowBuilder("w").add_node("gives", gives).add_node("takes", takes)
    return builder.add_edge("gives", "takes").set_start("gives").build()


async def test_a_field_of_another_type_is_refused_by_name() -> None:
    """The class has no new version, and what is held has the old type: nothing runs with it."""
    store = MemoryStore()
    await stopped(store, carrying(a_parcel(int), 3))
    async with running(carrying(a_parcel(str), "3"), store) as engine:
        before = await engine.history("s")
        told = r"message 2 for node 'takes'\.weight \(depot:Parcel\) holds int and is declared str"
        with pytest.raises(UndecodableError, match=told):
            await engine.resume("s")
        assert await engine.history("s") == before
    for fits in (float, int | str):
        async with running(carrying(a_parcel(fits), 3), store) as engine:
            await engine.fork("s", f"{fits}")
            assert (await engine.resume(f"{fits}")).outputs == [3]


async def test_a_plan_names_what_the_code_cannot_read() -> None:
    """A field that is gone and one of another type are refusals, before anything is moved."""
    store = MemoryStore()
    await stopped(store, carrying(a_parcel(int), 3))
    lost = make_dataclass("Parcel", [("size", int, 0)])
    lost.__module__ = "depot"
    for parcel, told in ((a_parcel(str), "is declared str now"), (lost, "has no field 'weight'")):
        workflow = carrying(parcel, 3)
        wider = WorkflowBuilder("w").set_start("gives").add_node("more", passes)
        for name in ("gives", "takes"):
            wider.add_node(name, workflow.nodes[name].call)
        new = wider.add_edge("gives", "takes").add_edge("takes", "more").build()
        async with running(new, store) as engine:
            [plan] = await engine.plan_migration("s")
            assert plan.verdict == "refused"
            assert any(told in refusal for refusal in plan.refusals)
            with pytest.raises(MigrationRefusedError, match=told):
                await engine.migrate("s", reason="r")
