"""Draining: an orderly stop that is not the end of a run."""

import asyncio

import pytest

from raf import Context, RetryPolicy
from raf.errors import ConfigurationError
from raf.store.memory import MemoryStore
from raf.store.model import Select
from raf.testing import ManualClock
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    adds_one,
    collects,
    fan,
    journal_of,
    line,
    passes,
    running,
    settle,
    until,
)


async def test_a_drain_stops_at_the_end_of_the_step() -> None:
    """The step in flight is committed, the run returns `drained`, and anybody may go on."""
    gate, ledger, store = Gate(), Ledger(), MemoryStore()

    async def node(value: int) -> int:
        ledger.note("node")
        await gate.stop()
        return value + 1

    workflow = line("w", {"a": adds_one, "node": node, "b": adds_one}).build()
    async with running(workflow, store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        draining = asyncio.create_task(engine.drain())
        await settle()
        assert not draining.done()
        gate.open.set()
        await draining
        result = await task
        assert (result.status, result.steps, result.pending) == ("drained", 2, (("b", 3),))
        head = await engine.manager.head("s")
        assert (head.summary.status, head.held) == ("running", None)
    async with running(workflow, store) as other:
        assert (await other.run(1, "s")).outputs == [4]
        assert ledger["node"] == 1


async def test_past_its_grace_a_drain_keeps_what_finished() -> None:
    """The step is cut off, the finished node's result is kept, and no loss is counted."""
    gate, ledger, store = Gate(), Ledger(), MemoryStore()

    async def quick(value: int) -> int:
        ledger.note("quick")
        return value

    async def slow(ctx: Context, value: int) -> int:
        ledger.note("slow")
        if ctx.attempt == 1 and not gate.open.is_set():
            await gate.stop()
        return ctx.attempt

    workflow = fan("w", passes, {"quick": quick, "slow": slow}, collects).build()
    async with running(workflow, store) as engine:
        for _ in range(4):
            gate.reached.clear()
            task = asyncio.create_task(engine.run(1, "s"))
            await gate.reached.wait()
            await engine.drain(grace_s=0.05)
            assert (await task).status == "drained"
        assert [entry[0] for entry in await journal_of(store, "s")] == ["result"]
        gate.open.set()
        assert (await engine.resume("s")).outputs == [[1, 1]]
        assert ledger == {"quick": 1, "slow": 5}


async def test_an_engine_that_drains_starts_no_run() -> None:
    """New runs are refused until the drain is over; then the engine is of use again."""
    gate = Gate()

    async def node(value: int) -> int:
        await gate.stop()
        return value

    async with running(line("w", {"node": node}).build()) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        draining = asyncio.create_task(engine.drain())
        await settle()
        with pytest.raises(ConfigurationError, match="drains"):
            await engine.run(1, "other")
        gate.open.set()
        await draining
        await task
        assert (await engine.run(1, "other")).status == "completed"


async def test_a_sleeping_run_is_drained_at_once() -> None:
    """A run that waits for a retry needs no grace: its time is in the checkpoint."""
    clock = ManualClock()

    async def node(value: int) -> int:
        raise ConnectionError

    retry = RetryPolicy(attempts=3, backoff_s=500, max_backoff_s=500, jitter="none")
    workflow = line("w", {"node": node}, retry=retry).build()
    async with running(workflow, MemoryStore(clock=clock)) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await until(lambda: clock.sleeping > 0)
        await engine.drain()
        assert (await task).status == "drained"
        assert (await engine.manager.head("s")).summary.status == "sleeping"


async def test_a_drained_session_is_given_back_before_the_drain_is_over() -> None:
    """Whoever leaves after `drain` leaves no lease behind that others would take for a loss."""
    gate, released = Gate(), []

    class SlowRelease(MemoryStore):
        async def release(self, lease: object) -> None:
            await asyncio.sleep(0.1)
            await super().release(lease)  # type: ignore[arg-type]
            released.append(lease)

    async def node(value: int) -> int:
        await gate.stop()
        return value

    store = SlowRelease()
    async with running(line("w", {"node": node}).build(), store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        draining = asyncio.create_task(engine.drain())
        await settle()
        gate.open.set()
        await draining
        assert len(released) == 1
        await task
        reading = await store.read("s", Select())
        assert reading is not None
        assert reading.head.held is None


async def test_a_run_that_waited_for_its_session_is_drained_too() -> None:
    """A call that gets its session while the engine drains does not keep the drain waiting."""
    gate, store = Gate(), MemoryStore()

    async def node(value: int) -> int:
        if not gate.open.is_set():
            await gate.stop()
        return value

    workflow = line("w", {"node": node, "last": passes}).build()
    async with running(workflow, store) as owner, running(workflow, store) as engine:
        first = asyncio.create_task(owner.run(1, "s"))
        await gate.reached.wait()
        waiting = asyncio.create_task(engine.run(1, "s", wait_s=30))
        other = asyncio.create_task(engine.run(1, "other"))
        await settle()
        draining = asyncio.create_task(engine.drain(grace_s=0))
        await settle()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await draining
        assert (await other).status == "drained"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (await owner.manager.head("s")).summary.status == "running"
