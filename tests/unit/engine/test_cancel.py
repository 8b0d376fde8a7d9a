"""Cancelling: a state of the run, written once, final, heard by every kind of node."""

import asyncio
from typing import Any

import pytest

from raf import Context, RetryPolicy
from raf.errors import ConfigurationError, NothingToResumeError, SessionNotFoundError
from raf.store.memory import MemoryStore
from raf.store.port import Store
from raf.store.urls import open_store
from raf.testing import ManualClock
from tests.servers.places import clocked
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    VanishingStore,
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
    settle,
    until,
)


async def test_a_running_node_is_stopped_and_the_outcome_is_final() -> None:
    """The node is cancelled in mid-step; the outcome is `cancelled`, here and for whoever asks."""
    gate, ended = Gate(), Ledger()

    async def node(value: int) -> int:
        try:
            await gate.stop()
        finally:
            ended.note("node")
        return value

    async with running(line("w", {"first": adds_one, "node": node}).build()) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        assert await engine.cancel("s") == "cancelled"
        result = await task
        assert (result.status, result.steps, ended["node"]) == ("cancelled", 1, 1)
        assert "cancelled" in result.reason
        again = await engine.run(1, "s")
        assert (again.status, again.steps) == ("cancelled", 1)
        for call in (engine.resume("s"), engine.cancel("s")):
            with pytest.raises(NothingToResumeError, match="cancelled"):
                await call
        events = await events_of(engine, "s")
        assert kinds(events)[-2:] == ["cancel_requested", "outcome"]
        assert events[-1].data["status"] == "cancelled"


async def test_nothing_of_the_step_is_committed() -> None:
    """Finished siblings of a cancelled step leave no state and no output; earlier outputs stay."""
    gate = Gate()

    async def first(ctx: Context, value: int) -> int:
        ctx.output("kept")
        return value

    async def quick(ctx: Context, value: int) -> int:
        ctx.scope("s")["quick"] = 1
        ctx.output("dropped")
        return value

    async def slow(value: int) -> int:
        await gate.stop()
        return value

    async with running(fan("w", first, {"q": quick, "z": slow}, collects).build()) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        await engine.cancel("s")
        assert (await task).outputs == ["kept"]
        assert (await engine.run(1, "s")).outputs == ["kept"]
        assert (await engine.state("s")).state_data == {}


async def test_another_engine_cancels_a_running_session() -> None:
    """The request goes through the inbox: the owner hears of it within its poll period."""
    gate, store = Gate(), MemoryStore()

    async def node(value: int) -> int:
        await gate.stop()
        return value

    workflow = line("w", {"node": node}).build()
    async with running(workflow, store) as owner, running(workflow, store) as other:
        task = asyncio.create_task(owner.run(1, "s"))
        await gate.reached.wait()
        assert await other.cancel("s") == "cancelled"
        assert (await task).status == "cancelled"


async def test_a_session_that_nobody_runs_is_cancelled_by_the_caller() -> None:
    """An unowned run, failed, limited or left by a dead owner, is claimed and cancelled."""
    broken = [True]

    async def node(value: int) -> int:
        if broken[0]:
            raise ValueError
        return value

    workflow = line("w", {"a": passes, "node": node}).build()
    async with running(workflow) as engine:
        await engine.run(1, "failed", check=False)
        await engine.run(1, "limited", max_steps=1)
        for session in ("failed", "limited"):
            assert await engine.cancel(session) == "cancelled"
            assert (await engine.run(1, session)).status == "cancelled"
        with pytest.raises(SessionNotFoundError):
            await engine.cancel("nobody")
        await engine.run(1, "failed", run_id="next", check=False)
        assert (await engine.manager.head("failed")).summary.run_id == "next"


async def test_between_the_claim_and_the_first_node() -> None:
    """Cancelled when it was admitted and no node had run, its owner gone: no node ever runs."""
    await cancelled_before_its_first_node(VanishingStore(ManualClock()))


async def test_admitted_and_cancelled_on_every_store(place: str) -> None:
    """The same, wherever the session is kept."""
    await cancelled_before_its_first_node(open_store(place))


async def cancelled_before_its_first_node(store: Store) -> None:
    """Stop a run behind its entry, cancel it, and look whether anything of it runs."""
    calls = Ledger()

    async def node(value: int) -> int:
        calls.note("node")
        return value

    from raf.testing import CrashError, crash_at

    async with running(line("w", {"node": node}).build(), store) as engine:
        with (
            crash_at("engine.step.before_run", how="raise"),
            pytest.raises(CrashError),
        ):
            await engine.run(1, "s")
        assert await engine.cancel("s") == "cancelled"
        assert (await engine.run(1, "s")).status == "cancelled"
        assert not calls


@pytest.mark.parametrize("backoff_s", [30.0, 600.0])
async def test_a_cancelled_run_is_not_started_again_by_its_retry(
    place: str, backoff_s: float
) -> None:
    """Cancelled while an attempt waits, in the step or out of it: no later attempt comes."""
    clock, calls = ManualClock(), Ledger()
    store, passing = clocked(place, clock)

    async def node(value: int) -> int:
        calls.note("node")
        raise ConnectionError

    retry = RetryPolicy(attempts=5, backoff_s=backoff_s, max_backoff_s=backoff_s, jitter="none")
    workflow = line("w", {"node": node}, retry=retry).build()
    async with running(workflow, store, lease_s=86_400) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await until(lambda: clock.sleeping > 0)
        assert await engine.cancel("s") == "cancelled"
        assert (await task).status == "cancelled"
        await passing(10_000)
        await settle()
        assert calls["node"] == 1
        with pytest.raises(NothingToResumeError):
            await engine.resume("s", wait=False)
        assert await engine.recover() == []


async def test_a_run_that_waits_at_a_barrier(place: str) -> None:
    """What a half-filled barrier held is dropped with the run; the next run starts with it empty."""
    gate = Gate()

    async def slow(value: int) -> int:
        if not gate.open.is_set():
            await gate.stop()
        return value

    builder = line("w", {"start": passes, "mid": passes, "late": slow})
    builder.add_node("early", passes).add_node("end", collects)
    builder.add_edge("start", "early").add_fan_in(["early", "late"], "end")
    async with running(builder.build(), place) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        await engine.cancel("s")
        await task
        gate.open.set()
        assert (await engine.run(2, "s", run_id="two")).outputs == [[2, 2]]


async def test_a_node_that_swallows_its_cancellation_writes_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run ends all the same; what the node does later, effects too, is refused."""
    monkeypatch.setattr("raf.engine.executor.ABANDON_AFTER_S", 0.05)
    gate, done = Gate(), Gate()
    store = MemoryStore()
    ledger, refused = Ledger(), []

    async def stubborn(ctx: Context, value: int) -> int:
        gate.reached.set()
        while not gate.open.is_set():
            try:
                await gate.open.wait()
            except (asyncio.CancelledError, Exception):  # noqa: BLE001 - it will not listen
                ledger.note("told")
        try:
            await ctx.effect("late", ledger.note, "late")
        except ConfigurationError as error:
            refused.append(error)
        done.open.set()
        return value

    async with running(line("w", {"node": stubborn}).build(), store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        assert await engine.cancel("s") == "cancelled"
        assert (await task).status == "cancelled"
        before = await engine.manager.head("s")
        gate.open.set()
        await done.open.wait()
        await settle()
        assert await engine.manager.head("s") == before
        assert await journal_of(store, "s") == []
        assert (len(refused), ledger["late"]) == (1, 0)


async def test_an_effect_in_hand_when_the_run_is_cancelled_reaches_no_later_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An action that ends after its run is not recorded for the message of that number next time."""
    monkeypatch.setattr("raf.engine.executor.ABANDON_AFTER_S", 0.05)
    gate, done = Gate(), Gate()
    store, answers = MemoryStore(), []

    async def act() -> str:
        gate.reached.set()
        while not gate.open.is_set():
            try:
                await gate.open.wait()
            except asyncio.CancelledError:
                continue
        return "stale"

    async def node(ctx: Context, value: int) -> str:
        if value == 1:
            try:
                return str(await ctx.effect("k", act))
            finally:
                done.open.set()
        return str(await ctx.effect("k", lambda: "fresh"))

    async with running(line("w", {"node": node}).build(), store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        await engine.cancel("s")
        await task
        gate.open.set()
        await done.open.wait()
        await settle()
        answers = (await engine.run(2, "s", run_id="two")).outputs
        assert answers == ["fresh"]


async def test_a_cancel_that_comes_too_late_does_not_hit_the_next_run() -> None:
    """A request that its run never consumed, since it ended first, cancels no other run."""
    gate, store = Gate(), MemoryStore()

    async def node(value: int) -> int:
        await gate.stop()
        return value

    workflow = line("w", {"node": node}).build()
    async with running(workflow, store) as owner, running(workflow, store) as other:
        task = asyncio.create_task(owner.run(1, "s"))
        await gate.reached.wait()
        assert await other.cancel("s", wait_s=0) == "running"
        gate.open.set()
        assert (await task).status == "completed"
        assert (await owner.run(2, "s", run_id="next")).status == "completed"
        assert (await owner.manager.head("s")).consumed == 1


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_committed_steps_stay_in_every_mode(durability: Any) -> None:
    """What was done before the cancelled step is in the state that a fork goes on from."""
    gate = Gate()

    async def first(ctx: Context, value: int) -> int:
        ctx.state["seen"] = value
        return value + 1

    async def node(value: int) -> int:
        if not gate.open.is_set():
            await gate.stop()
        return value * 10

    workflow = line("w", {"first": first, "node": node}).build()
    async with running(workflow, durability=durability) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        await engine.cancel("s")
        assert (await task).status == "cancelled"
        assert (await engine.state("s")).state_data == {"first": {"seen": 1}}
        gate.open.set()
        await engine.fork("s", "again")
        assert (await engine.resume("again")).outputs == [20]
        assert (await engine.run(1, "s")).status == "cancelled"


async def test_leaving_the_call_is_no_cancel() -> None:
    """Cancelling the task of `run` stops it as a kill would: the run stays unfinished."""
    gate = Gate()

    async def node(value: int) -> int:
        if not gate.open.is_set():
            await gate.stop()
        return value

    async with running(line("w", {"node": node}).build()) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        await kill(task)
        assert task.cancelled()
        assert (await engine.manager.head("s")).summary.status == "running"
        gate.open.set()
        assert (await engine.resume("s")).outputs == [1]


async def test_a_node_that_fails_when_it_is_told_to_stop_has_not_failed() -> None:
    """An error in answer to a cancellation counts no failure, and no other attempt follows."""
    gate, calls, store = Gate(), Ledger(), MemoryStore()

    async def node(value: int) -> int:
        calls.note("node")
        if gate.open.is_set():
            return value
        try:
            await gate.stop()
        except asyncio.CancelledError:
            raise RuntimeError("interrupted") from None
        return value

    workflow = line("w", {"node": node}, retry=RetryPolicy(attempts=5, backoff_s=0)).build()
    async with running(workflow, store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        await engine.drain(grace_s=0)
        assert (await task).status == "drained"
        assert await journal_of(store, "s") == []
        gate.open.set()
        assert (await engine.run(1, "s")).outputs == [1]
        assert calls["node"] == 2
