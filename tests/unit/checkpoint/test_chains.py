"""Chains in a running session: compaction, restarts, pins, pruning while somebody reads."""

import asyncio
import itertools
from typing import Any

import pytest

from raf import CheckpointConfig, Context, LoopOptions, WorkflowBuilder, WorkflowEngine
from raf.errors import CheckpointNotFoundError, SessionNotFoundError
from raf.store.memory import MemoryStore
from raf.store.model import Lease
from raf.store.urls import open_store
from tests.servers.places import SLOW_ON_SERVERS
from tests.unit.engine.stage import events_of, running, small_chains


async def counts(ctx: Context, value: int) -> int:
    """A node that adds to a list, a map and a number, and deletes what it set before."""
    scope = ctx.scope("s")
    scope.append("list", value)
    scope.update("map", {str(value % 5): value})
    scope["last"] = value
    scope[f"once {value}"] = value
    if value:
        del scope[f"once {value - 1}"]
    return value + 1


def loop(times: int) -> Any:
    builder = WorkflowBuilder("loop").add_node("n", counts).set_start("n")
    return builder.add_loop("n", "n", LoopOptions(times)).build()


def state_after(step: int) -> dict[str, Any]:
    """The state that the loop has behind this step."""
    if step < 0:
        return {}
    return {
        "list": list(range(step + 1)),
        "map": {
            str(n): max(v for v in range(step + 1) if v % 5 == n) for n in range(min(5, step + 1))
        },
        "last": step,
        f"once {step}": step,
    }


async def check_all(engine: WorkflowEngine, session: str) -> list[int]:
    """Each checkpoint that is left loads with its state; the others say that they are gone."""
    left = []
    for info in await engine.history(session):
        if not info.byte_size:
            with pytest.raises(CheckpointNotFoundError, match="pruned"):
                await engine.state(session, info.commit)
            continue
        found = await engine.state(session, info.commit)
        assert found.state_data.get("::s", {}) == state_after(found.step_number)
        left.append(info.commit)
    assert (await engine.manager.verify(session)).intact
    return left


@SLOW_ON_SERVERS
@pytest.mark.parametrize(("interval", "most"), [(100, 50), (5, 10), (1, 1), ("auto", 12)])
async def test_no_setting_loses_the_base_of_a_chain(place: str, interval: Any, most: int) -> None:
    """The interval above the maximum too: every checkpoint that is left loads, at every moment."""
    config = CheckpointConfig(full_snapshot_interval=interval, max_checkpoints=most)
    steps = 170 if interval == 100 else 60
    store = open_store(place)
    async with running(loop(steps), store, checkpoints=config, durability="async") as engine:
        await engine.run(0, "s")
        left = await check_all(engine, "s")
        assert left[-1] == steps
        fulls = [i.commit for i in await engine.history("s") if i.is_full_snapshot]
        if interval == 100:
            assert fulls == [0, 50, 100, 150]
            assert left == list(range(steps + 1))[-len(left) :]
        numbers = [e.number for e in await events_of(engine, "s")]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_the_interval_is_counted_from_the_store() -> None:
    """Restarted in every step, a session has its fulls where an unbroken one has them."""
    store = MemoryStore()
    config = small_chains(interval=5)
    async with running(loop(23), store, checkpoints=config) as engine:
        await engine.run(0, "whole")
    result = None
    while result is None or result.status == "limited":
        async with running(loop(23), store, checkpoints=config, max_steps=1) as engine:
            result = await (engine.run(0, "s") if result is None else engine.resume("s"))
    async with running(loop(23), store, checkpoints=config) as engine:
        whole = [i.is_full_snapshot for i in await engine.history("whole")]
        assert [i for i, full in enumerate(whole) if full] == [0, 5, 10, 15, 20]
        broken = await engine.history("s")
        members = 0
        for info in broken:
            members = 1 if info.is_full_snapshot else members + 1
            assert members <= 5
        assert sum(i.is_full_snapshot for i in broken) == -(-len(broken) // 5)
        await check_all(engine, "s")


@pytest.mark.parametrize("before", [3, 4, 5])
async def test_restarted_around_compaction(before: int) -> None:
    """Stopped just before, at and behind a full: the chain goes on and the state is whole."""
    store, config = MemoryStore(), small_chains(interval=5)
    async with running(loop(12), store, checkpoints=config) as engine:
        await engine.run(0, "s", max_steps=before)
    async with running(loop(12), store, checkpoints=config) as engine:
        assert (await engine.resume("s", max_steps=99)).outputs == [12]
        await check_all(engine, "s")


async def test_the_next_checkpoint_follows_the_one_resumed_from() -> None:
    """Ancestry: ids link through parents without a break over resumes, and fulls name none."""
    store = MemoryStore()
    async with running(loop(8), store, checkpoints=small_chains(4)) as engine:
        first = await engine.run(0, "s", max_steps=2)
        head = (await engine.history("s"))[-1].checkpoint_id
        second = await engine.resume("s", max_steps=999)
        assert (first.resumed_from, second.resumed_from) == (None, head)
        history = await engine.history("s")
        for one, two in itertools.pairwise(history):
            assert two.commit == one.commit + 1
            expected = None if two.is_full_snapshot else one.checkpoint_id
            assert two.parent_checkpoint_id == expected


# -- pins ------------------------------------------------------------------------------------------


async def test_a_pin_holds_a_checkpoint_and_its_chain_up_to_it() -> None:
    """Whatever retention drops, the pinned one loads; unpinned it goes with the next pruning."""
    store = MemoryStore()
    config = small_chains(interval=4, most=4)
    async with running(loop(60), store, checkpoints=config) as engine:
        await engine.run(0, "s", max_steps=6)
        await engine.pin("s", "s@2")
        await engine.resume("s", max_steps=999)
        kept = await check_all(engine, "s")
        assert kept[:3] == [0, 1, 2]
        assert 3 not in kept
        await engine.pin("s", 2, keep=False)
        assert await engine.prune("s") == 3
        assert 2 not in await check_all(engine, "s")


async def test_a_running_session_takes_a_pin_at_its_next_step() -> None:
    """The owner is not disturbed; the request is in its inbox and consumed between steps."""
    store = MemoryStore()
    pinned = asyncio.Event()

    async def node(ctx: Context, value: int) -> int:
        if value == 3:
            await engine.pin("s", 1)
            pinned.set()
        return await counts(ctx, value)

    builder = WorkflowBuilder("loop").add_node("n", node).set_start("n")
    workflow = builder.add_loop("n", "n", LoopOptions(40)).build()
    async with running(workflow, store, checkpoints=small_chains(3, most=3)) as engine:
        await engine.run(0, "s")
        assert pinned.is_set()
        kept = [i.commit for i in await engine.history("s") if i.byte_size]
        assert {0, 1} <= set(kept)
        events = await events_of(engine, "s")
        assert [e.data["commit"] for e in events if e.kind == "pinned"] == [1]


async def test_what_cannot_be_pinned() -> None:
    """An unknown session, a commit that never was, and one that was pruned are named."""
    async with running(loop(60), checkpoints=small_chains(3, most=3)) as engine:
        await engine.run(0, "s")
        with pytest.raises(SessionNotFoundError):
            await engine.pin("nobody", 0)
        for commit in (0, 999):
            with pytest.raises(CheckpointNotFoundError):
                await engine.pin("s", commit)


# -- reading while somebody writes -----------------------------------------------------------------


@SLOW_ON_SERVERS
async def test_readers_see_whole_steps_only_and_never_go_back(place: str) -> None:
    """State, history, forks and heads, read at full speed beside a writer that compacts and prunes."""
    store = open_store(place)
    async with running(loop(100), store, checkpoints=small_chains(5, most=5)) as engine:
        begun, over = asyncio.Event(), asyncio.Event()

        async def look(reader: int) -> int:
            await begun.wait()
            last, looks = [-1, -1, -1], 0
            while not over.is_set():
                sight = await seen(engine, f"fork {reader} {looks}" if looks % 7 == 3 else "")
                assert all(new >= old for new, old in zip(sight, last, strict=True))
                last, looks = sight, looks + 1
                await asyncio.sleep(0)
            return looks

        await engine.run(0, "s", max_steps=1)
        readers = [asyncio.create_task(look(reader)) for reader in range(3)]
        begun.set()
        await engine.resume("s", max_steps=999)
        over.set()
        assert min(await asyncio.gather(*readers)) > 2


async def seen(engine: WorkflowEngine, fork: str) -> list[int]:
    """What one reader sees of session s: the step, the last commit in the list, and in the head."""
    state = await engine.state("s")
    assert state.state_data.get("::s", {}) == state_after(state.step_number)
    history = await engine.history("s")
    heads = [head.commit async for head in engine.manager.heads() if head.session_id == "s"]
    if fork:
        await engine.fork("s", fork)
        forked = await engine.state(fork)
        assert forked.state_data.get("::s", {}) == state_after(forked.step_number)
    return [state.step_number, history[-1].commit, heads[0]]


async def test_a_reader_in_a_chain_that_is_pruned_gets_all_or_an_error() -> None:
    """Cut off after each record, a prune leaves every remaining checkpoint whole."""

    class Cut(MemoryStore):
        cut = 10**9

        async def prune(
            self, lease: Lease, bodies: Any, *, events_before: int | None = None
        ) -> None:
            await super().prune(lease, list(bodies)[: self.cut], events_before=events_before)

    for cut in range(6):
        store = Cut()
        store.cut = cut
        async with running(loop(30), store, checkpoints=small_chains(3, most=3)) as engine:
            await engine.run(0, "s")
            await check_all(engine, "s")


async def test_a_commit_costs_what_changed() -> None:
    """Beside a large state that does not change, the deltas stay small."""
    big = "x" * 200_000

    async def node(ctx: Context, value: int) -> int:
        if value == 0:
            ctx.scope("s")["big"] = [f"{big}{n}" for n in range(3)]
        ctx.scope("s").append("list", value)
        return value + 1

    builder = WorkflowBuilder("w").add_node("n", node).set_start("n")
    workflow = builder.add_loop("n", "n", LoopOptions(30)).build()
    async with running(workflow) as engine:
        await engine.run(0, "s")
        sizes = [info.byte_size for info in await engine.history("s")]
        assert max(sizes[2:]) < 600
        assert max(sizes[2:]) - min(sizes[2:]) < 100
