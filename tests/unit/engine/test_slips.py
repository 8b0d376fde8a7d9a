"""Slips of those who write nodes: each ends in a typed error that says what to do, none is silent."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from raf import Context, LoopOptions, RetryPolicy, WorkflowBuilder, WorkflowEngine
from raf.engine.editing import StateEditor
from raf.errors import (
    ConfigurationError,
    EffectNotAwaitedError,
    GraphError,
    RunFailedError,
    UnsavedChangeError,
)


def engine_of(node: Callable[..., Any], **options: Any) -> WorkflowEngine:
    """An engine whose workflow is this node alone."""
    workflow = WorkflowBuilder("w").add_node("node", node, **options).set_start("node").build()
    return WorkflowEngine(workflow)


async def test_sync_nodes_of_one_step_read_the_same() -> None:
    """Threads that read one grown list side by side all see it as of the step's start."""
    sizes: list[list[int]] = []

    async def grow(ctx: Context, value: int) -> int:
        ctx.scope("shared").extend("log", [[n, "x"] for n in range(2000)])
        return value

    def read(ctx: Context, value: int) -> int:
        return len(ctx.scope("shared")["log"])

    async def join(found: list[int]) -> int:
        sizes.append(found)
        return 1

    readers = [f"r{n}" for n in range(4)]
    builder = WorkflowBuilder("w").add_node("grow", grow).add_node("join", join)
    for name in readers:
        builder.add_node(name, read)
    builder.set_start("grow").add_fan_out("grow", readers).add_fan_in(readers, "join")
    workflow = builder.add_loop("join", "grow", LoopOptions(5)).build()
    async with WorkflowEngine(workflow) as engine:
        await engine.run(1, "s")
    assert sizes == [[2000 * turn] * 4 for turn in range(1, 6)]


def stop(_value: int) -> int:
    """A sync node that raises StopIteration."""
    return int(next(iter([])))


class Mute(Exception):  # noqa: N818 - as somebody might call it
    """An error that cannot be printed."""

    def __str__(self) -> str:
        """Fails."""
        raise ValueError("no text")


class Rude(BaseException):
    """An error outside of `Exception`."""


async def mute(_value: int) -> int:
    """Raises what cannot be printed."""
    raise Mute


async def rude(_value: int) -> int:
    """Raises what is no Exception."""
    raise Rude


async def leave(_value: int) -> int:
    """Raises GeneratorExit."""
    raise GeneratorExit


async def cancel_itself(_value: int) -> int:
    """Cancels its own task."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return 1


@pytest.mark.parametrize("node", [stop, mute, rude, leave, cancel_itself])
async def test_whatever_a_node_raises_is_a_counted_failure(node: Callable[..., Any]) -> None:
    """It ends the attempt, is tried again by the policy, and ends the run as failed."""
    async with engine_of(node, retry=RetryPolicy(attempts=2, backoff_s=0.0)) as engine:
        with pytest.raises(RunFailedError):
            await engine.run(1, "s")
        assert (await engine.manager.head("s")).summary.status == "failed"


async def test_an_effect_that_nobody_awaits_is_named() -> None:
    """A forgotten await is found at the node's end, whether or not a task was made of it."""
    ran: list[str] = []

    async def forgets(ctx: Context, _value: int) -> None:
        ctx.effect("pay", ran.append, "paid")  # type: ignore[unused-coroutine]  # the slip

    async def drops(ctx: Context, _value: int) -> None:
        kept.append(asyncio.create_task(ctx.effect("pay", ran.append, "paid")))

    kept: list[asyncio.Task[Any]] = []
    for node in (forgets, drops):
        async with engine_of(node) as engine:
            with pytest.raises(RunFailedError) as failed:
                await engine.run(1, "s")
            assert isinstance(failed.value.__cause__, EffectNotAwaitedError)
    for task in kept:
        task.cancel()
    await asyncio.gather(*kept, return_exceptions=True)


@pytest.mark.parametrize(("key", "doubt"), [("", "retry"), (1, "retry"), ("k", "Fail")])
async def test_an_effect_is_asked_for_in_known_words(key: Any, doubt: Any) -> None:
    """A key that is no text, or a misspelt policy, is refused before anything is done."""

    async def node(ctx: Context, value: int) -> int:
        await ctx.effect(key, int, "1", on_doubt=doubt)
        return value

    async with engine_of(node) as engine:
        with pytest.raises(RunFailedError) as failed:
            await engine.run(1, "s")
    assert isinstance(failed.value.__cause__, ConfigurationError)


async def test_state_is_closed_when_the_node_has_ended() -> None:
    """A task that a node left behind cannot write: it is told so."""
    told: list[BaseException | None] = []
    gate = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def late(ctx: Context) -> None:
        await gate.wait()
        try:
            ctx.state["late"] = 1
        except ConfigurationError as error:
            told.append(error)

    async def node(ctx: Context, value: int) -> int:
        tasks.append(asyncio.create_task(late(ctx)))
        return value

    async with engine_of(node) as engine:
        await engine.run(1, "s")
        gate.set()
        await asyncio.gather(*tasks)
    assert len(told) == 1


@dataclass
class Note:
    """A value that can be changed in place."""

    text: str


async def change_after_write(ctx: Context) -> None:
    """Changes a model that this node itself had stored before it read it."""
    ctx.state["note"] = Note("a")
    ctx.state["note"].text = "b"


async def change_and_append(ctx: Context) -> None:
    """Changes an old item of a list and appends a new one."""
    ctx.state.append("notes", Note("a"))
    ctx.state["notes"][0].text = "b"
    ctx.state.append("notes", Note("c"))


@pytest.mark.parametrize("change", [change_after_write, change_and_append])
async def test_a_change_in_place_is_found_beside_other_writes(change: Any) -> None:
    """Only an assignment behind the read saves a changed model."""

    async def node(ctx: Context, value: int) -> int:
        await change(ctx)
        return value

    builder = WorkflowBuilder("w").add_node("node", node).set_start("node")
    builder.with_state("note", Note).with_state("notes", list[Note])
    async with WorkflowEngine(builder.build()) as engine:
        with pytest.raises(RunFailedError) as failed:
            await engine.run(1, "s")
    assert isinstance(failed.value.__cause__, UnsavedChangeError)


async def test_a_closed_stream_has_stopped_its_call() -> None:
    """Behind `aclosing` the run is stopped and its session free, at once."""

    async def node(value: int) -> int:
        await asyncio.Event().wait()
        return value

    async with engine_of(node) as engine:
        stream = engine.stream(1, "s")
        async with aclosing(stream) as events:  # type: ignore[type-var]
            async for _ in events:
                break
        assert engine.machine.keeper.of("s") is None
        assert (await engine.manager.head("s")).held is None


async def test_a_limited_run_is_granted_what_it_was_allowed() -> None:
    """`resume` grants the run's own allowance again, or what it is told."""

    async def node(value: int) -> int:
        return value + 1

    builder = WorkflowBuilder("w").add_node("node", node).set_start("node")
    workflow = builder.add_loop("node", "node", LoopOptions(9)).build()
    async with WorkflowEngine(workflow) as engine:
        assert (await engine.run(0, "s", max_steps=2)).steps == 2
        assert (await engine.resume("s")).steps == 4
        assert (await engine.resume("s", max_steps=1)).steps == 5
        assert (await engine.resume("s", max_steps=99)).outputs == [9]


@pytest.mark.parametrize("limit", [0, -1, True, 10**30])
async def test_limits_that_cannot_be_meant(limit: Any) -> None:
    """They are refused by name, at the engine, at a call and in a loop."""

    async def node(value: int) -> int:
        return value

    async with engine_of(node) as engine:
        with pytest.raises(ConfigurationError):
            await engine.recover(limit=limit)
        with pytest.raises(ConfigurationError):
            await engine.run(1, "s", max_steps=limit)
    builder = WorkflowBuilder("w").add_node("node", node).set_start("node")
    with pytest.raises(GraphError):
        builder.add_loop("node", "node", LoopOptions(limit)).build()


@pytest.mark.parametrize("value", ["x", -1, True, 1.5])
async def test_numbers_and_waits_that_cannot_be_meant(value: Any) -> None:
    """A cursor, a bound of pruning and a time to wait are looked at before anything is read."""

    async def node(value: int) -> int:
        return value

    async with engine_of(node) as engine:
        await engine.run(1, "s")
        with pytest.raises(ConfigurationError):
            await anext(engine.stream(session_id="s", after=value))
        with pytest.raises(ConfigurationError):
            await engine.prune("s", events_before=value)
        if value != 1.5:
            with pytest.raises(ConfigurationError):
                await engine.run(1, "s", wait_s=value)


async def test_edits_that_cannot_be_meant() -> None:
    """An async function, no reason, an unknown node or an empty scope change nothing."""

    async def node(value: int) -> int:
        return value

    async def change(editor: StateEditor) -> None:
        editor.scope("x")["a"] = 1

    def at(place: Callable[[StateEditor], Any]) -> Callable[[StateEditor], None]:
        def write(editor: StateEditor) -> None:
            place(editor)["a"] = 1

        return write

    good = at(lambda editor: editor.scope("x"))
    edits: list[tuple[Any, Any]] = [
        (change, "async"),
        (good, ""),
        (good, None),
        (at(lambda editor: editor.node("typo")), "unknown"),
        (at(lambda editor: editor.scope("")), "empty"),
    ]
    async with engine_of(node) as engine:
        await engine.run(1, "s")
        before = await engine.history("s")
        for function, reason in edits:
            with pytest.raises(ConfigurationError):
                await engine.edit("s", function, reason=reason)
        assert await engine.history("s") == before


async def test_what_cannot_be_read_is_not_skipped(tmp_path: Path) -> None:
    """A stored payload that this code cannot rebuild fails the run, whatever the node's policy."""

    async def first(value: int) -> Note:
        return Note(str(value))

    async def second(note: Note) -> str:
        raise RuntimeError(note.text)

    def build(returns: Any) -> Any:
        first.__annotations__["return"] = returns
        second.__annotations__["note"] = returns
        builder = WorkflowBuilder("w").add_node("first", first)
        builder.add_node("second", second, on_failure="skip", version="1")
        return builder.set_start("first").add_edge("first", "second").build()

    url = f"sqlite:{tmp_path / 'runs.db'}"
    async with WorkflowEngine(build(Note), store=url, max_steps=1) as engine:
        assert (await engine.run(1, "s")).status == "limited"
    async with WorkflowEngine(build(Any), store=url) as engine:
        result = await engine.resume("s", check=False)
        assert result.status == "failed"
        assert "unknown type tag" in result.reason
