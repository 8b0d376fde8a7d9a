"""State over steps: who sees what when, conflicts by name, and nothing shared by accident."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from raf import Context, LoopOptions, WorkflowBuilder
from raf.errors import (
    ReadOnlyError,
    RunFailedError,
    StateConflictError,
    UnsavedChangeError,
)
from raf.store.memory import MemoryStore
from raf.store.urls import open_store
from tests.servers.places import SLOW_ON_SERVERS
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    collects,
    fan,
    kill,
    line,
    passes,
    running,
    small_chains,
)


class Basket(BaseModel):
    items: list[str] = []


@dataclass
class Total:
    amount: int = 0


@pytest.mark.parametrize("first", ["writer", "reader"])
async def test_a_write_is_seen_by_its_node_at_once_and_by_others_in_the_next_step(
    first: str,
) -> None:
    """Siblings read the state as of the step's start, whichever of them comes first."""
    seen: dict[str, Any] = {}

    async def start(ctx: Context, value: int) -> int:
        ctx.scope("all")["k"] = "old"
        return value

    async def writer(ctx: Context, value: int) -> int:
        await turns(first != "writer")
        ctx.scope("all")["k"] = "new"
        seen["writer"] = ctx.scope("all")["k"]
        return value

    async def reader(ctx: Context, value: int) -> int:
        await turns(first != "reader")
        seen["reader"] = ctx.scope("all")["k"]
        return value

    async def end(ctx: Context, values: list[int]) -> None:
        seen["end"] = ctx.scope("all")["k"]

    workflow = fan("w", start, {"writer": writer, "reader": reader}, end).build()
    async with running(workflow) as engine:
        await engine.run(1, "s")
    assert seen == {"writer": "new", "reader": "old", "end": "new"}


async def turns(wait: bool) -> None:
    """Let the others go first, or not."""
    for _ in range(9 * wait):
        await asyncio.sleep(0)


async def test_two_writers_of_one_key_are_a_conflict_that_names_both() -> None:
    """Nothing of the step is committed; with a reducer both contribute."""

    async def node(ctx: Context, value: int) -> int:
        ctx.scope("all")["k"] = value
        return value

    def build(reducer: str | None) -> Any:
        builder = fan("w", passes, {"one": node, "two": node}, collects)
        return builder.with_state("k", int, scope="all", reducer=reducer).build()

    async with running(build(None)) as engine:
        with pytest.raises(RunFailedError, match=r"node 'one'.*node 'two'.*'k'") as failed:
            await engine.run(3, "s")
        assert isinstance(failed.value.__cause__, StateConflictError)
        assert (await engine.state("s")).state_data == {}
    for reducer, expected in (("sum", 6), ("last", 3)):
        async with running(build(reducer)) as engine:
            await engine.run(3, "s")
            assert (await engine.state("s")).state_data["::all"]["k"] == expected


async def test_two_invocations_of_one_node_conflict_too() -> None:
    """The unit of conflict is the invocation, in the node's own scope as in a shared one."""

    async def start(ctx: Context, value: int) -> None:
        ctx.send(1)
        ctx.send(2)

    async def node(ctx: Context, value: int) -> None:
        ctx.state["k"] = value

    async with running(line("w", {"start": start, "node": node}).build()) as engine:
        with pytest.raises(
            RunFailedError, match=r"message 2.*message 3.*state of 'node'\['k'\]"
        ) as failed:
            await engine.run(0, "s")
        assert isinstance(failed.value.__cause__, StateConflictError)


async def test_a_private_scope_is_the_nodes_own() -> None:
    """Two nodes have keys of one name each for itself; sessions and runs of them are apart."""

    async def node(ctx: Context, value: int) -> int:
        ctx.state["k"] = [ctx.node, *ctx.state.get("k", [])]
        return value

    async with running(line("w", {"a": node, "b": node}).build()) as engine:
        await engine.run(1, "s")
        await engine.run(1, "t")
        await engine.run(2, "s", run_id="two")
        assert (await engine.state("s")).state_data == {
            "a": {"k": ["a", "a"]},
            "b": {"k": ["b", "b"]},
        }
        assert (await engine.state("t")).state_data == {"a": {"k": ["a"]}, "b": {"k": ["b"]}}


async def test_names_with_colons_are_kept_apart() -> None:
    """A node called like a shared scope's text does not write into that scope."""

    async def node(ctx: Context, value: int) -> int:
        ctx.state["k"] = f"private of {ctx.node}"
        ctx.scope("chat")["k"] = "shared chat"
        ctx.scope("a::chat")["k"] = "shared a::chat"
        return value

    async def other(ctx: Context, value: int) -> int:
        ctx.state["k"] = f"private of {ctx.node}"
        return value

    nodes = {"::chat": node, "a::chat": other, "a": other}
    async with running(line("w", nodes).build()) as engine:
        await engine.run(1, "s")
        state = (await engine.state("s")).state_data
        assert sorted(values["k"] for values in state.values()) == [
            "private of ::chat",
            "private of a",
            "private of a::chat",
            "shared a::chat",
            "shared chat",
        ]
        assert state["::chat"]["k"] == "shared chat"
        assert state["a"]["k"] == "private of a"


async def test_a_model_changed_in_place_and_not_assigned_fails_its_node() -> None:
    """Silence would lose the change: the error names node, scope and key, and nothing is written."""

    async def node(ctx: Context, value: int) -> int:
        basket = ctx.scope("all").get("basket") or Basket()
        basket.items.append("x")
        if value:
            ctx.scope("all")["basket"] = basket
        return 0

    builder = line("w", {"a": node, "b": node})
    workflow = builder.with_state("basket", Basket, scope="all").build()
    async with running(workflow) as engine:
        with pytest.raises(RunFailedError, match=r"'b'.*scope\('all'\)\['basket'\]") as failed:
            await engine.run(1, "s")
        assert isinstance(failed.value.__cause__, UnsavedChangeError)
        assert (await engine.state("s")).state_data["::all"]["basket"] == Basket(items=["x"])


async def test_a_container_changed_in_place_fails_its_node() -> None:
    """A list from state refuses `append`, naming the way to write."""

    async def node(ctx: Context, value: int) -> int:
        ctx.state.get("items", []).append(value)
        ctx.state["items"] = [value]
        return value

    builder = line("w", {"a": node}).add_node("b", passes).add_edge("a", "b")
    async with running(builder.build()) as engine:
        await engine.run(1, "s")
        with pytest.raises(RunFailedError, match="read-only") as failed:
            await engine.run(2, "s", run_id="two")
        assert isinstance(failed.value.__cause__, ReadOnlyError)


async def test_live_and_resumed_nodes_see_equal_values_of_equal_type(place: str) -> None:
    """A payload, a state value and an effect's result come in a resumed run as they came live."""
    gate = Gate()
    seen: list[list[Any]] = []
    value = {
        (1, 2): 0,
        frozenset({1}): 1,
        None: 2,
        b"k": 3,
        1.5: 4,
        (("a",),): 5,
        "deep": [{"set": {1, 2}}, 2**80, "\x00", "\ud800", float("inf")],
    }

    async def start(ctx: Context, _value: int) -> Any:
        ctx.scope("all")["value"] = value
        ctx.scope("all")["model"] = Basket(items=["a"])
        ctx.scope("all")["total"] = Total(5)
        return value

    async def node(ctx: Context, payload: Any) -> None:
        scope = ctx.scope("all")
        effect = await ctx.effect("get", lambda: value)
        found = [payload, scope["value"], effect, scope["model"], scope["total"]]
        seen.append([found, shape(found)])
        if not gate.open.is_set():
            await gate.stop()

    builder = line("w", {"start": start, "node": node})
    builder.with_state("model", Basket, scope="all").with_state("total", Total, scope="all")
    store = open_store(place)
    async with running(builder.build(), store) as engine:
        task = asyncio.create_task(engine.run(0, "s"))
        await gate.reached.wait()
        await kill(task)
        gate.open.set()
        await engine.run(0, "s")
        assert len(seen) == 2
        assert seen[0] == seen[1]
        assert seen[0][0][0] == value
        assert list(seen[0][0][0]) == list(value)


def shape(value: Any) -> Any:
    """The types of a value to its depth, with the order of mappings."""
    if isinstance(value, dict):
        return [type(value).__mro__[-2], [(shape(k), shape(v)) for k, v in value.items()]]
    if isinstance(value, (list, tuple)):
        return [type(value).__mro__[-2], [shape(item) for item in value]]
    return type(value)


class Odd:
    """Values that cannot be kept."""

    @staticmethod
    def values() -> list[Any]:
        async def coroutine() -> None: ...

        made = coroutine()
        made.close()
        return [
            Basket,
            passes,
            asyncio,
            (number for number in (1, 2)),
            made,
            asyncio.Lock(),
            {"deep": [len]},
            Path,
            3j,
        ]


@pytest.mark.parametrize("number", range(9))
async def test_what_cannot_be_kept_is_refused_when_it_is_set(number: int) -> None:
    """A class, function, module, generator, coroutine, lock: refused with its path, nothing written."""
    odd = Odd.values()[number]

    async def node(ctx: Context, value: int) -> int:
        ctx.scope("all")["fine"] = 1
        ctx.scope("all")["odd"] = {"here": odd}
        return value

    async with running(line("w", {"node": node}).build()) as engine:
        with pytest.raises(RunFailedError, match=r"\['odd'\].*here"):
            await engine.run(1, "s")
        assert (await engine.state("s")).state_data == {}


@SLOW_ON_SERVERS
async def test_any_text_is_stored_exactly_wherever_it_goes(place: str) -> None:
    """NUL, lone surrogates and a long text in payload, state, output, event, effect, reason and error."""
    odd = ["\x00", "a\x00b", "\ud800", "\udfff\ud800", "\u2028", "x" * 1_000_000]

    async def node(ctx: Context, text: str) -> str:
        ctx.state[f"key {text[:20]}"] = text
        ctx.scope(f"scope {text[:20]}")["k"] = text
        ctx.output(text)
        ctx.emit(text)
        return str(await ctx.effect(text[:20], lambda: text))

    async def fails(text: str) -> str:
        raise ValueError(text)

    store = open_store(place)
    workflow = line("w", {"node": node, "next": forwards}).build()
    broken = line("broken", {"fails": fails}).build()
    async with running(workflow, store) as engine, running(broken, store) as failing:
        for number, text in enumerate(odd):
            session = f"s{number}"
            assert (await engine.run(text, session)).outputs == [text, text]
            state = (await engine.state(session)).state_data
            assert state["node"] == {f"key {text[:20]}": text}
            events = [e async for e in engine.stream(session_id=session, after=0)]
            assert [e.value for e in events if e.kind == "custom"] == [text]
            await engine.edit(session, lambda editor: None, reason=f"why {text}")
            events = [e async for e in engine.stream(session_id=session, after=0)]
            assert [e.data["reason"] for e in events if e.kind == "edited"] == [f"why {text}"]
            assert (await engine.manager.verify(session)).intact
            assert (await engine.run(text, session)).status == "completed"
            result = await failing.run(text, f"f{number}", check=False)
            assert result.status == "failed"
            assert (await failing.manager.head(f"f{number}")).summary.status == "failed"
            assert (await failing.resume(f"f{number}", check=False)).status == "failed"


async def forwards(text: str) -> str:
    return text


async def test_every_key_so_far_is_there_at_each_step(place: str) -> None:
    """Loaded cold at any step, from any store: all keys of all nodes so far, in delta and full."""

    def node(name: str) -> Any:
        async def run(ctx: Context, value: int) -> int:
            ctx.scope("all")[name] = value
            return value + 1

        return run

    url = place
    names = list("abcdefgh")
    workflow = line("w", {name: node(name) for name in names}).build()
    store = open_store(url)
    for interval in (1, 3, 100):
        session = f"s{interval}"
        async with running(workflow, store, checkpoints=small_chains(interval)) as engine:
            await engine.run(0, session)
            for info in await engine.history(session):
                found = (await engine.state(session, info.commit)).state_data.get("::all", {})
                assert found == {name: place for place, name in enumerate(names[: info.commit])}


async def test_a_deleted_key_stays_deleted_through_compaction() -> None:
    """A key that was deleted is gone in every later delta and full, live and loaded."""
    calls = Ledger()

    async def node(ctx: Context, value: int) -> int:
        scope = ctx.scope("all")
        turn = calls.note("node")
        if turn == 1:
            scope["gone"] = 1
            scope["back"] = 1
        elif turn == 2:
            del scope["gone"]
            del scope["back"]
        else:
            assert "gone" not in scope
            if turn == 6:
                scope["back"] = 2
        return value

    builder = WorkflowBuilder("w").add_node("node", node).set_start("node")
    builder.add_loop("node", "node", LoopOptions(9))
    store = MemoryStore()
    async with running(builder.build(), store, checkpoints=small_chains(3)) as engine:
        await engine.run(0, "s")
        fulls = [info for info in await engine.history("s") if info.is_full_snapshot]
        assert len(fulls) >= 3
        for info in await engine.history("s"):
            found = (await engine.state("s", info.commit)).state_data.get("::all", {})
            expected: dict[str, int] = {"gone": 1, "back": 1} if info.commit == 1 else {}
            assert found == (expected if info.commit < 6 else {"back": 2})
        assert (await engine.manager.verify("s")).intact


async def test_the_last_write_of_a_step_does_not_alias_the_nodes_object() -> None:
    """What a node goes on doing with an object that it wrote changes nothing that is stored."""
    kept: list[list[int]] = []

    async def first(ctx: Context, value: int) -> list[int]:
        mine = [value]
        kept.append(mine)
        ctx.state["mine"] = mine
        mine.append(99)
        ctx.output(mine)
        mine.append(100)
        return mine

    async def second(payload: list[int]) -> list[int]:
        kept[0].append(101)
        return list(payload)

    async with running(line("w", {"first": first, "second": second}).build()) as engine:
        assert (await engine.run(1, "s")).outputs == [[1, 99], [1, 99, 100]]
        assert (await engine.state("s")).state_data == {"first": {"mine": [1]}}
