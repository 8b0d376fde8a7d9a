"""Forks: a new session from a checkpoint of another, standing alone."""

import asyncio
from typing import Any

import pytest

from raf import Context, LoopOptions, RetryPolicy, WorkflowBuilder
from raf.errors import (
    CheckpointNotFoundError,
    EffectInDoubtError,
    NothingToResumeError,
    RunFailedError,
    SessionExistsError,
    SessionNotFoundError,
    TopologyChangedError,
)
from raf.store.memory import MemoryStore
from raf.store.urls import open_store
from raf.testing import ManualClock
from tests.servers.places import SLOW_ON_SERVERS
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
    small_chains,
)


async def notes(ctx: Context, value: int) -> int:
    """A node that keeps what it saw, privately and shared."""
    ctx.state["last"] = value
    ctx.scope("log").append("seen", [ctx.session_id, value])
    return value + 1


def looping(times: int = 6) -> Any:
    builder = WorkflowBuilder("looping").add_node("n", notes).add_node("end", passes)
    builder.add_edge("n", "end").add_loop("n", "n", LoopOptions(times)).set_start("n")
    return builder.build()


async def test_a_fork_goes_on_from_its_checkpoint() -> None:
    """From any checkpoint the fork ends as the origin did; the origin is only read."""
    async with running(looping()) as engine:
        origin = await engine.run(0, "origin")
        history = await engine.history("origin")
        for info in history:
            fork = f"fork {info.commit}"
            assert await engine.fork("origin", fork, info.checkpoint_id) == f"{fork}@0"
            result = await engine.run(0, fork)
            assert result.outputs == origin.outputs
            seen = (await engine.state(fork)).state_data["::log"]["seen"]
            assert [value for _, value in seen] == list(range(6))
            mine = [name for name, _ in seen if name == fork]
            assert len(mine) == max(0, 6 - info.commit)
        assert await engine.history("origin") == history


async def test_a_fork_begins_with_a_full_of_its_own() -> None:
    """Its entry names no parent, tells where it came from, and is the first event."""
    async with running(looping()) as engine:
        await engine.run(0, "origin")
        await engine.fork("origin", "fork", 3)
        entry = (await engine.history("fork"))[0]
        assert (entry.is_full_snapshot, entry.parent_checkpoint_id) == (True, None)
        assert (await engine.manager.head("fork")).summary.forked_from == "origin@3"
        events = await engine.manager.events("fork")
        assert events[1][0].what.data["from"] == "origin@3"
        await engine.run(0, "fork")
        assert (await engine.manager.head("fork")).summary.forked_from == "origin@3"
        assert kinds(await events_of(engine, "fork"))[:1] == ["forked"]


@SLOW_ON_SERVERS
async def test_forking_pruning_and_deleting_in_any_order(place: str) -> None:
    """Fork an old checkpoint, run both on, prune both, delete the origin: what is kept loads."""
    config = small_chains(interval=3, most=6)
    store = open_store(place)
    async with running(looping(40), store, checkpoints=config) as engine:
        await engine.run(0, "origin", max_steps=10)
        await engine.fork("origin", "fork", (await engine.history("origin"))[-1].commit - 2)
        while (await engine.resume("fork")).status == "limited":
            await engine.prune("fork")
        for info in await engine.history("origin"):
            if info.byte_size:
                assert (await engine.state("origin", info.commit)).step_number == info.step_number
        await engine.resume("origin", max_steps=999)
        await engine.prune("origin")
        for session in ("origin", "fork"):
            assert (await engine.manager.verify(session)).intact
            for info in await engine.history(session):
                if info.byte_size:
                    await engine.state(session, info.commit)
                else:
                    with pytest.raises(CheckpointNotFoundError, match="pruned"):
                        await engine.state(session, info.commit)
        await engine.delete("origin")
        with pytest.raises(SessionNotFoundError):
            await engine.state("origin")
        assert (await engine.run(0, "fork")).outputs == [40]
        assert (await engine.manager.verify("fork")).intact


async def test_a_fork_of_the_head_brings_the_open_step_along() -> None:
    """Finished results and effects of the step in flight are the fork's too, under its own keys."""
    ledger, gate, store = Ledger(), Gate(), MemoryStore()
    keys: list[str] = []

    async def quick(value: int) -> int:
        ledger.note("quick")
        return value

    async def pays(ctx: Context, value: int) -> int:
        keys.append(ctx.idempotency_key("pay"))
        paid: int = await ctx.effect("pay", ledger.note, "pay")
        if not gate.open.is_set():
            await gate.stop()
        return paid

    workflow = fan("w", passes, {"pays": pays, "quick": quick}, collects).build()
    async with running(workflow, store) as engine:
        task = asyncio.create_task(engine.run(1, "origin"))
        await gate.reached.wait()
        for _ in range(1000):
            if len(await journal_of(store, "origin")) == 2:
                break
            await asyncio.sleep(0.001)
        await kill(task)
        await engine.fork("origin", "head")
        await engine.fork("origin", "older", 0)
        gate.open.set()
        assert (await engine.resume("head")).outputs == [[1, 1]]
        assert ledger == {"quick": 1, "pay": 1}
        assert (await engine.resume("older")).outputs == [[2, 1]]
        assert (await engine.resume("origin")).outputs == [[1, 1]]
        assert ledger == {"quick": 2, "pay": 2}
        assert len(set(keys)) == 3


async def test_a_fork_of_an_older_checkpoint_leaves_the_journal_behind() -> None:
    """Only the head has a step in flight; of an older checkpoint everything runs again."""
    ledger, broken = Ledger(), [True]

    async def node(value: int) -> int:
        ledger.note("node")
        if broken[0]:
            raise ValueError
        return value

    workflow = fan("w", passes, {"a": adds_one, "node": node}, collects).build()
    async with running(workflow) as engine:
        await engine.run(1, "origin", check=False)
        broken[0] = False
        await engine.fork("origin", "old", 0)
        await engine.fork("origin", "new")
        assert (await engine.resume("old")).outputs == (await engine.resume("new")).outputs
        assert (await engine.manager.head("origin")).summary.status == "failed"


async def test_an_effect_in_doubt_refuses_the_fork_unless_it_is_allowed() -> None:
    """Whether the action was done is not known: a fork would be a second try."""
    gate, ledger = Gate(), Ledger()

    async def act() -> str:
        ledger.note("act")
        if not gate.open.is_set():
            await gate.stop()
        return "done"

    async def node(ctx: Context, value: int) -> str:
        return str(await ctx.effect("pay", act, on_doubt="fail"))

    async with running(line("w", {"node": node}).build()) as engine:
        task = asyncio.create_task(engine.run(1, "origin"))
        await gate.reached.wait()
        await kill(task)
        with pytest.raises(EffectInDoubtError, match="'pay' of node 'node'"):
            await engine.fork("origin", "fork")
        gate.open.set()
        with pytest.raises(RunFailedError):
            await engine.resume("origin")
        await engine.fork("origin", "fork", allow_in_doubt=True)
        assert (await engine.resume("fork")).outputs == ["done"]
        assert ledger["act"] == 2


async def test_counts_pins_and_inbox_stay_behind_and_deadlines_are_kept() -> None:
    """A fork has its own losses, failures, pins and requests; a recorded time stays what it is."""
    clock = ManualClock()
    calls = Ledger()

    async def node(value: int) -> int:
        if calls.note("node") == 1:
            raise ConnectionError
        return value

    retry = RetryPolicy(attempts=2, backoff_s=500, max_backoff_s=500, jitter="none")
    workflow = line("w", {"node": node}, retry=retry).build()
    async with running(workflow, MemoryStore(clock=clock)) as engine:
        first = await engine.run(1, "origin", wait=False)
        await engine.pin("origin", 0)
        clock.advance(100)
        await engine.fork("origin", "fork")
        head = await engine.manager.head("fork")
        assert head.summary.wake_at == first.wake_at
        assert head.requests == 0
        assert (await engine.resume("fork", wait=False)).wake_at == first.wake_at
        clock.advance(400)
        assert (await engine.resume("fork", wait=False)).status == "completed"
        restored = await engine.manager.restore("fork")
        assert restored is not None
        assert restored.snapshot.pins == set()


async def test_the_records_of_finished_runs_come_along() -> None:
    """A fork of a fork still knows what earlier turns gave, and does not run them again."""
    calls = Ledger()

    async def node(ctx: Context, value: int) -> int:
        calls.note("node")
        ctx.state["turns"] = ctx.state.get("turns", 0) + 1
        return value * 10

    async with running(line("w", {"node": node}).build()) as engine:
        await engine.run(1, "a", run_id="one")
        await engine.run(2, "a", run_id="two")
        await engine.fork("a", "b")
        await engine.fork("b", "c")
        await engine.delete("a")
        await engine.delete("b")
        assert (await engine.run(1, "c", run_id="one")).outputs == [10]
        assert (await engine.run(2, "c", run_id="two")).outputs == [20]
        assert calls["node"] == 2
        assert (await engine.run(3, "c", run_id="three")).outputs == [30]
        assert (await engine.state("c")).state_data["node"]["turns"] == 3
        with pytest.raises(NothingToResumeError):
            await engine.resume("c")


async def test_a_fork_between_two_runs_knows_only_the_earlier() -> None:
    """What was finished after the checkpoint that is forked has not happened in the fork."""
    async with running(line("w", {"node": adds_one}).build()) as engine:
        await engine.run(1, "a", run_id="one")
        middle = (await engine.history("a"))[-1].checkpoint_id
        await engine.run(2, "a", run_id="two")
        await engine.fork("a", "b", middle)
        assert (await engine.run(1, "b", run_id="one")).resumed_from is None
        assert (await engine.run(5, "b", run_id="two")).outputs == [6]


async def test_a_fork_needs_a_free_name_and_a_checkpoint() -> None:
    """A taken name, an unknown origin and another session's checkpoint are refused by name."""
    async with running(looping()) as engine:
        await engine.run(0, "a")
        await engine.run(0, "b")
        before = await engine.history("b")
        with pytest.raises(SessionExistsError, match="'b'"):
            await engine.fork("a", "b")
        with pytest.raises(SessionNotFoundError, match="'x'"):
            await engine.fork("x", "y")
        with pytest.raises(CheckpointNotFoundError, match="belongs to session 'b'"):
            await engine.fork("a", "y", "b@1")
        with pytest.raises(CheckpointNotFoundError):
            await engine.fork("a", "y", 99)
        assert await engine.history("b") == before
        with pytest.raises(SessionNotFoundError):
            await engine.history("y")


async def test_a_fork_onto_another_graph_needs_places_for_what_is_in_flight() -> None:
    """The remedy for a changed graph: it goes when every pending thing has its place there."""
    gate = Gate()

    async def node(value: int) -> int:
        if not gate.open.is_set():
            await gate.stop()
        return value

    store = MemoryStore()
    old = line("w", {"a": adds_one, "node": node, "end": adds_one}).build()
    wider = line("w", {"a": adds_one, "node": node, "more": adds_one, "end": adds_one}).build()
    other = line("w", {"a": adds_one, "renamed": node, "end": adds_one}).build()
    async with (
        running(old, store) as before,
        running(wider, store) as after,
        running(other, store) as stranger,
    ):
        task = asyncio.create_task(before.run(1, "s"))
        await gate.reached.wait()
        await kill(task)
        with pytest.raises(TopologyChangedError, match="more"):
            await after.resume("s")
        with pytest.raises(TopologyChangedError, match="node 'node', which is gone"):
            await stranger.fork("s", "t")
        await after.fork("s", "wide")
        gate.open.set()
        assert (await after.resume("wide")).outputs == [4]
        assert (await before.resume("s")).outputs == [3]


async def test_a_fork_that_was_cut_off_can_be_made_again() -> None:
    """Killed before its entry was committed, a fork leaves no session and its name is free."""
    store = MemoryStore()
    async with running(looping(), store) as engine:
        await engine.run(0, "a")
        claimed = await store.claim(
            "b", engine.machine.owner, lease_s=30, create=True
        )  # as far as a fork got that was killed
        await store.release(claimed.lease)
        assert [head.session_id async for head in engine.manager.heads()] == ["a"]
        await engine.fork("a", "b", 2)
        assert (await engine.resume("b")).outputs == [6]


async def test_a_message_in_flight_keeps_its_time_in_a_fork() -> None:
    """What a node derives from the time of its message finds its recorded effect in the fork too."""
    clock, gate, ledger = ManualClock(), Gate(), Ledger()

    async def node(ctx: Context, value: int) -> int:
        paid: int = await ctx.effect("pay", ledger.note, f"at {ctx.now()}")
        if not gate.open.is_set():
            await gate.stop()
        return paid

    workflow = line("w", {"first": passes, "node": node}).build()
    async with running(workflow, MemoryStore(clock=clock)) as engine:
        task = asyncio.create_task(engine.run(1, "origin"))
        await gate.reached.wait()
        await kill(task)
        clock.advance(100)
        await engine.fork("origin", "fork")
        clock.advance(100)
        await engine.fork("fork", "again")
        gate.open.set()
        for session in ("again", "fork", "origin"):
            assert (await engine.resume(session)).outputs == [1]
        assert ledger.total() == 1
