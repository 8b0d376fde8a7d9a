"""However a worker ends, it gives back what it has."""

import asyncio

import pytest

from raf import Worker
from raf.errors import ConfigurationError
from raf.store.memory import MemoryStore
from raf.store.model import Claimed, Due, Owner
from tests.unit.engine.stage import (
    Gate,
    adds_one,
    events_of,
    kill,
    kinds,
    line,
    running,
    settle,
)
from tests.unit.worker.floor import (
    QUICK,
    TWO_STEPS,
    at_work,
    held,
    statuses,
)


async def test_a_drain_stops_at_the_end_of_the_step_and_gives_all_back() -> None:
    """Nothing new is taken; what ran can be taken by another worker at once."""
    gate, store = Gate(), MemoryStore()

    async def node(value: int) -> int:
        await gate.stop()
        return value

    workflow = line("w", {"node": node, "last": adds_one}).build()
    async with running(workflow, store) as engine:
        await engine.submit(1, "a")
        await engine.submit(1, "b")
        worker = Worker([workflow], store, concurrency=1, **QUICK)
        task = asyncio.create_task(worker.run())
        await gate.reached.wait()
        draining = asyncio.create_task(worker.drain())
        await settle()
        assert not draining.done()
        gate.open.set()
        await draining
        await task
        assert await statuses(store) == {"a": "running", "b": "submitted"}
        assert (await held(store), worker.outcomes) == ([], {"drained": 1})
        await Worker([workflow], store).run(once=True)
        assert await statuses(store) == {"a": "completed", "b": "completed"}
        assert "taken_over" not in kinds(await events_of(engine, "a"))


@pytest.mark.parametrize("how", ["grace", "cancelled"])
async def test_a_step_that_does_not_end_is_interrupted(how: str) -> None:
    """After the grace, or when the worker itself is cancelled; its sessions are given back."""
    gate, store = Gate(), MemoryStore()

    async def node(value: int) -> int:
        await gate.stop()
        return value

    workflow = line("w", {"node": node}).build()
    async with running(workflow, store) as engine:
        await engine.submit(1, "s")
        worker = Worker([workflow], store, **QUICK)
        task = asyncio.create_task(worker.run())
        await gate.reached.wait()
        if how == "grace":
            await worker.drain(grace_s=0.0)
            await task
        else:
            await kill(task)
            assert task.cancelled()
        assert (await statuses(store), await held(store)) == ({"s": "running"}, [])
        assert worker.running == frozenset()
        gate.open.set()
        assert (await engine.run(1, "s")).outputs == [1]


async def test_a_worker_that_is_stopped_while_it_claims_keeps_nothing() -> None:
    """What the store gave to a worker that was gone already is given back."""
    gate = Gate()

    class Slow(MemoryStore):
        async def claim_due(
            self, owner: Owner, due: Due, *, lease_s: float, limit: int
        ) -> list[Claimed]:
            found = await super().claim_due(owner, due, lease_s=lease_s, limit=limit)
            await gate.stop()
            return found

    for how in ("cancelled", "drained"):
        store = Slow()
        gate.reached.clear()
        gate.open.clear()
        async with running(TWO_STEPS, store) as engine:
            await engine.submit(1, "s")
            worker = Worker([TWO_STEPS], store)
            task = asyncio.create_task(worker.run())
            await gate.reached.wait()
            assert await held(store) == ["s"]
            drain = asyncio.create_task(worker.drain()) if how == "drained" else None
            if drain is None:
                task.cancel()
            await settle()
            gate.open.set()
            await asyncio.gather(task, *([drain] if drain else []), return_exceptions=True)
            assert (await statuses(store), await held(store)) == ({"s": "submitted"}, [])


async def test_a_worker_can_work_again() -> None:
    """Drained or done, it may be run again; not twice at the same time."""
    store = MemoryStore()
    async with running(TWO_STEPS, store) as engine:
        worker = Worker([TWO_STEPS], store, **QUICK)
        for session in "ab":
            await engine.submit(1, session)
            await worker.run(once=True)
        async with at_work(worker):
            await settle()
            with pytest.raises(ConfigurationError, match="at work"):
                await worker.run()
        await worker.drain()  # of one that does not work: nothing to do
        assert worker.outcomes == {"completed": 2}
