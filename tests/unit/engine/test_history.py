"""What stays of a run: the same on every store, whole over pages, and unchanged by who resumes it."""

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from raf import Context, LoopOptions, RetryPolicy, WorkflowBuilder, WorkflowEngine
from raf.errors import SessionBusyError
from raf.store.memory import MemoryStore
from raf.store.urls import open_store
from raf.testing import CrashError, crash_at
from tests.servers import places
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    adds_one,
    collects,
    events_of,
    kill,
    line,
    passes,
    running,
    small_chains,
)


def busy(ledger: Ledger) -> Any:
    """A graph with a loop, a barrier, state of all kinds, effects, outputs and a retry."""

    async def worker(ctx: Context, value: int) -> int:
        ledger.note(f"{ctx.node} {value}")
        ctx.scope("all").append("seen", [ctx.node, value])
        ctx.scope("all").update("last", {ctx.node: value})
        got: int = await ctx.effect("get", passes, value)
        if ctx.attempt == 1 and value == 1 and ctx.node == "b":
            raise ConnectionError
        ctx.output({ctx.node: got})
        return got + 1

    async def join(ctx: Context, values: dict[str, int]) -> int:
        ctx.state["joined"] = dict(values)
        return values["a"]

    builder = WorkflowBuilder("busy").add_node("start", passes).set_start("start")
    for name in "ab":
        builder.add_node(name, worker, retry=RetryPolicy(attempts=2, backoff_s=0))
    builder.add_node("join", join).add_node("end", passes)
    builder.add_fan_out("start", ["a", "b"]).add_fan_in(["a", "b"], "join").add_edge("join", "end")
    builder.add_loop("join", "start", LoopOptions(3))
    for key, reducer in (("seen", "append"), ("last", "merge")):
        kind = list[list[Any]] if key == "seen" else dict[str, int]
        builder.with_state(key, kind, scope="all", reducer=reducer)
    return builder.build()


async def dump(engine: WorkflowEngine, session: str) -> list[Any]:
    """All that can be seen of a session, times aside."""
    found: list[Any] = []
    for info in await engine.history(session):
        restored = await engine.manager.restore(session, info.commit)
        assert restored is not None
        part = restored.parts[-1]
        found.append([info.commit, info.step_number, info.is_full_snapshot, part.ops, part.digest])
    _, events = await engine.manager.events(session)
    return found + [(e.number, e.step, e.run_id, e.what) for e in events]


async def test_a_killed_and_resumed_run_is_the_same_on_every_store(tmp_path: Path) -> None:
    """Checkpoints and events of the same story, commit by commit, whatever keeps them."""
    dumps = []
    for backend in places.BACKENDS:
        workflow = busy(Ledger())
        with places.made(backend, tmp_path / backend) as place:
            store = open_store(place)
        async with running(workflow, store, checkpoints=small_chains(4)) as engine:
            for hit in (2, 3):
                with crash_at("engine.commit.after", hit=hit, how="raise"), suppress(CrashError):
                    await engine.run(0, "s")
            await engine.run(0, "s")
            await engine.edit("s", lambda e: e.scope("all").append("seen", ["hand", 0]), reason="r")
            await engine.run(1, "s", run_id="two")
            dumps.append(await dump(engine, "s"))
    assert len(dumps[0]) > 60
    assert [found == dumps[0] for found in dumps] == [True] * len(places.BACKENDS)


async def test_a_checkpoint_is_not_changed_by_who_resumes_from_it(place: str) -> None:
    """From one checkpoint any number of runs go on, each to the same end; it stays as it is."""
    ledger, store = Ledger(), open_store(place)
    async with running(busy(ledger), store, checkpoints=small_chains(4)) as engine:
        with crash_at("engine.commit.after", hit=4, how="raise"), suppress(CrashError):
            await engine.run(0, "s")
        before = await dump(engine, "s")
        ends: list[Any] = []
        for number in range(3):
            await engine.fork("s", f"fork {number}")
            ends.append((await engine.resume(f"fork {number}")).outputs)
            ends.append((await engine.state(f"fork {number}")).state_data)
            assert await dump(engine, "s") == before
        ends += [(await engine.resume("s")).outputs, (await engine.state("s")).state_data]
        assert ends[0::2] == [ends[0]] * 4
        assert ends[1::2] == [ends[1]] * 4


async def test_a_long_session_is_read_whole() -> None:
    """More commits than any page holds: events, verify, history and recovery miss none of them."""
    builder = WorkflowBuilder("w").add_node("n", adds_one).set_start("n")
    workflow = builder.add_loop("n", "n", LoopOptions(700)).build()
    async with running(workflow, durability="async") as engine:
        await engine.run(0, "s")
        events = await events_of(engine, "s")
        assert [e.number for e in events] == list(range(1, len(events) + 1))
        assert len([e for e in events if e.kind == "step_committed"]) == 700
        found = await engine.manager.verify("s")
        assert (found.intact, found.events) == (True, len(events))
        assert len(await engine.history("s")) == 701


async def test_equal_step_numbers_do_not_confuse() -> None:
    """Requests, edits and resumes repeat a step number: the commit number says which is latest."""
    broken = [True]

    async def node(ctx: Context, value: int) -> int:
        if broken[0]:
            raise ValueError
        return int(ctx.scope("s")["k"])

    async with running(line("w", {"a": passes, "node": node}).build()) as engine:
        await engine.run(1, "s", check=False)
        for number in range(3):
            await engine.edit("s", lambda e, n=number: e.scope("s").__setitem__("k", n), reason="r")  # type: ignore[misc]
            await engine.pin("s", number)
        history = await engine.history("s")
        assert [info.step_number for info in history] == [-1, 0, *[0] * (len(history) - 2)]
        assert [info.commit for info in history] == list(range(len(history)))
        assert (await engine.state("s")).checkpoint_id == history[-1].checkpoint_id
        broken[0] = False
        assert (await engine.resume("s")).outputs == [2]


async def test_a_fallback_that_was_committed_does_not_run_again(place: str) -> None:
    """A later failure and its resume repeat neither the failed node nor its fallback."""
    ledger, broken = Ledger(), [True]

    async def main(value: int) -> int:
        ledger.note("main")
        raise ConnectionError

    async def spare(value: int) -> int:
        ledger.note("spare")
        return value

    async def last(value: int) -> int:
        ledger.note("last")
        if broken[0]:
            raise ValueError
        return value

    builder = WorkflowBuilder("w").add_node("main", main, fallback="spare").set_start("main")
    builder.add_node("spare", spare).add_node("last", last)
    workflow = builder.add_edge("main", "last").add_edge("spare", "last").build()
    async with running(workflow, place) as engine:
        await engine.run(1, "s", check=False)
        broken[0] = False
        assert (await engine.resume("s")).outputs == [1]
        assert ledger == {"main": 1, "spare": 1, "last": 2}


async def test_a_long_node_keeps_its_session() -> None:
    """A node that lasts several leases is not started a second time beside itself."""
    gate, ledger, store = Gate(), Ledger(), MemoryStore()

    async def node(value: int) -> int:
        ledger.note("node")
        await gate.stop()
        return value

    workflow = line("w", {"node": node}).build()
    async with running(workflow, store, lease_s=0.8) as owner, running(workflow, store) as other:
        task = asyncio.create_task(owner.run(1, "s"))
        await gate.reached.wait()
        try:
            await other.run(1, "s", wait_s=1.7)
        except SessionBusyError:
            gate.open.set()
        assert (await task).outputs == [1]
        assert ledger["node"] == 1


async def test_a_copy_of_the_database_file_shows_no_broken_chain(tmp_path: Path) -> None:
    """Copied without its log in mid-run, a file may lack the newest steps; what it shows is whole."""
    copies: list[Path] = []
    path = tmp_path / "runs.db"

    async def node(ctx: Context, value: int) -> int:
        ctx.scope("s").append("list", value)
        if value % 7 == 3:
            copies.append(tmp_path / f"copy {value}.db")
            shutil.copy(path, copies[-1])
        return value + 1

    builder = WorkflowBuilder("w").add_node("n", node).set_start("n")
    workflow = builder.add_loop("n", "n", LoopOptions(30)).build()
    async with running(workflow, f"sqlite:{path}", checkpoints=small_chains(5)) as engine:
        await engine.run(0, "s")
    assert len(copies) == 4
    for copy in [*copies, path]:
        async with running(workflow, f"sqlite:{copy}") as engine:
            for head in [head async for head in engine.manager.heads()]:
                assert (await engine.manager.verify(head.session_id)).intact
                state = await engine.state("s")
                listed = state.state_data.get("::s", {}).get("list", [])
                assert listed == list(range(state.step_number + 1))
            assert (await engine.run(0, "s")).outputs == [30]


async def test_a_map_of_many_nodes_is_ordered_by_name() -> None:
    """The order of a step is that of the graph, not of completion nor of insertion."""
    order: list[str] = []

    def node(name: str, turns: int) -> Any:
        async def run(ctx: Context, value: int) -> int:
            for _ in range(turns):
                await asyncio.sleep(0)
            order.append(name)
            ctx.scope("s").append("order", name)
            return value

        return run

    builder = WorkflowBuilder("w").add_node("start", passes).add_node("end", collects)
    names = ["d", "a", "c", "b"]
    for turns, name in enumerate(names):
        builder.add_node(name, node(name, 9 - 2 * turns))
    builder.add_fan_out("start", names).add_fan_in(names, "end").set_start("start")
    builder.with_state("order", list[str], scope="s", reducer="append")
    async with running(builder.build()) as engine:
        await engine.run(1, "s")
        assert order != sorted(order)
        assert (await engine.state("s")).state_data["::s"]["order"] == sorted(names)


async def test_a_run_stopped_in_its_first_node_and_left_is_found_again() -> None:
    """What was admitted and never ran is in the list of sessions, and goes on."""
    gate, store = Gate(), MemoryStore()

    async def node(value: int) -> int:
        if not gate.open.is_set():
            await gate.stop()
        return value

    workflow = line("w", {"node": node}).build()
    async with running(workflow, store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        await kill(task)
    gate.open.set()
    async with running(workflow, store) as engine:
        assert [h.session_id async for h in engine.manager.heads()] == ["s"]
        assert [r.outputs for r in await engine.recover()] == [[1]]
