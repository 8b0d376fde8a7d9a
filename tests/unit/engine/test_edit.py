"""Editing the state of a session at rest."""

import asyncio
from typing import Any

import pytest

from raf import Context, WorkflowBuilder
from raf.errors import (
    NotSerializableError,
    PayloadTypeError,
    RunFailedError,
    SessionBusyError,
    SessionNotFoundError,
    TopologyChangedError,
)
from raf.store.memory import MemoryStore
from tests.unit.engine.stage import Gate, Ledger, events_of, line, passes, running


async def reads(ctx: Context, value: int) -> list[Any]:
    """A node that shows what it finds."""
    if not ctx.scope("config").get("ok"):
        raise ValueError("not ok")
    return [value, ctx.scope("config")["ok"], ctx.state.get("private"), ctx.state.get("gone")]


async def writes(ctx: Context, value: int) -> int:
    ctx.scope("list").extend("items", [1, 2])
    ctx.scope("config")["ok"] = False
    return value


def workflow() -> Any:
    builder = line("w", {"writes": writes, "reads": reads})
    return builder.with_state("ok", bool, scope="config").build()


async def test_an_edit_mends_a_failed_run() -> None:
    """The state is changed between two attempts; the run goes on with it, and an event tells why."""
    async with running(workflow()) as engine:
        await engine.run(7, "s", check=False)

        def change(editor: Any) -> None:
            editor.scope("config")["ok"] = True
            editor.node("reads")["private"] = "set"
            editor.scope("list").append("items", 3)

        made = await engine.edit("s", change, reason="mended by hand")
        last = (await engine.history("s"))[-1]
        assert (made, last.is_full_snapshot) == (last.checkpoint_id, True)
        assert (await engine.state("s")).status == "failed"
        assert (await engine.resume("s")).outputs == [[7, True, "set", None]]
        assert (await engine.state("s")).state_data["::list"] == {"items": [1, 2, 3]}
        edited = [e for e in await events_of(engine, "s") if e.kind == "edited"]
        assert [e.data["reason"] for e in edited] == ["mended by hand"]
        assert (await engine.manager.verify("s")).intact


async def test_an_edit_of_a_finished_session_is_seen_by_its_next_run() -> None:
    """The first change of a session at rest is not lost; deleting leaves a tombstone."""
    async with running(line("w", {"writes": writes}).build()) as engine:
        await engine.run(1, "s")

        def change(editor: Any) -> None:
            del editor.scope("list")["items"]

        await engine.edit("s", change, reason="r")
        assert "::list" not in (await engine.state("s")).state_data
        await engine.run(2, "s", run_id="next")
        assert (await engine.state("s")).state_data["::list"] == {"items": [1, 2]}


async def test_an_edit_obeys_the_declared_types() -> None:
    """What the state would refuse from a node it refuses from an edit; nothing is written."""

    def wrong(editor: Any) -> None:
        editor.scope("config")["ok"] = "yes"

    def odd(editor: Any) -> None:
        editor.scope("x")["y"] = object()

    def fails(editor: Any) -> None:
        editor.scope("x")["y"] = 1
        raise RuntimeError("mine")

    async with running(workflow()) as engine:
        await engine.run(7, "s", check=False)
        before = await engine.history("s")
        for change, error in ((wrong, PayloadTypeError), (odd, NotSerializableError)):
            with pytest.raises(error):
                await engine.edit("s", change, reason="r")
        with pytest.raises(RuntimeError, match="mine"):
            await engine.edit("s", fails, reason="r")
        assert await engine.history("s") == before


async def test_an_edit_keeps_what_the_open_step_has() -> None:
    """Finished siblings and recorded effects of the step in flight survive an edit."""
    ledger, broken = Ledger(), [True]

    async def quick(value: int) -> int:
        ledger.note("quick")
        return value

    async def node(ctx: Context, value: int) -> int:
        await ctx.effect("pay", ledger.note, "pay")
        if broken[0]:
            raise ValueError
        return value

    builder = WorkflowBuilder("w").add_node("start", passes).set_start("start")
    builder.add_node("quick", quick).add_node("node", node)
    builder.add_edge("start", "quick").add_edge("start", "node")
    async with running(builder.build()) as engine:
        with pytest.raises(RunFailedError):
            await engine.run(1, "s")
        await engine.edit("s", lambda e: e.scope("x").update("m", {"a": 1}), reason="r")
        broken[0] = False
        assert (await engine.resume("s")).outputs == [1, 1]
        assert ledger == {"quick": 1, "pay": 1}


async def test_who_may_edit() -> None:
    """A live owner makes it busy, an unknown session is named, another graph is refused."""
    gate, store = Gate(), MemoryStore()

    async def node(value: int) -> int:
        await gate.stop()
        return value

    def nothing(_editor: Any) -> None: ...

    mine = line("w", {"node": node}).build()
    other = line("w", {"node": node, "more": passes}).build()
    async with running(mine, store) as engine, running(other, store) as changed:
        with pytest.raises(SessionNotFoundError):
            await engine.edit("nobody", nothing, reason="r")
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        with pytest.raises(SessionBusyError):
            await engine.edit("s", nothing, reason="r")
        gate.open.set()
        await task
        with pytest.raises(TopologyChangedError):
            await changed.edit("s", nothing, reason="r")
