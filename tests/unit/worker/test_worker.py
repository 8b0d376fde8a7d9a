"""A worker runs what is due, as much as it may, and nothing else."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from raf import CheckpointConfig, RetryPolicy, RunResult, Worker, WorkflowEngine
from raf.errors import ConfigurationError
from raf.store.memory import MemoryStore
from raf.store.model import Lease
from raf.store.owner import this_owner
from raf.testing import ManualClock
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    adds_one,
    events_of,
    kill,
    kinds,
    line,
    running,
    until,
)
from tests.unit.worker.floor import (
    QUICK,
    TWO_STEPS,
    at_work,
    heads,
    held,
    stand,
    statuses,
)

# -- what it takes ---------------------------------------------------------------------------------


async def test_it_runs_what_is_submitted_while_it_works() -> None:
    """Also what comes later; each outcome is told once."""
    store = MemoryStore()
    told: list[RunResult] = []
    worker = Worker([TWO_STEPS], store, on_outcome=told.append, **QUICK)
    async with running(TWO_STEPS, store) as engine:
        await engine.submit(1, "before")
        async with at_work(worker):
            await stand(store, "completed")
            for number in range(20):
                await engine.submit(number, f"s{number:02}")
            await stand(store, *["completed"] * 21)
        assert sorted(r.session_id for r in told) == sorted(await heads(store))
        assert {r.session_id: r.output for r in told}["s07"] == 9
        assert worker.outcomes == {"completed": 21}
        assert await held(store) == []


async def test_nothing_runs_before_its_time() -> None:
    """By the store's clock, to the second; what has no time runs at once."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    worker = Worker([TWO_STEPS], store)
    async with running(TWO_STEPS, store) as engine:
        await engine.submit(1, "at-60", at=clock.now() + 60)
        await engine.submit(1, "now")
        await worker.run(once=True)
        assert await statuses(store) == {"at-60": "submitted", "now": "completed"}
        clock.advance(59.9)
        await worker.run(once=True)
        assert (await statuses(store))["at-60"] == "submitted"
        clock.advance(0.1)
        await worker.run(once=True)
        assert (await statuses(store))["at-60"] == "completed"


async def test_the_longest_due_is_taken_first() -> None:
    """With one slot: by the time for which each was submitted."""
    clock, order = ManualClock(), []

    async def node(value: int) -> int:
        order.append(value)
        return value

    workflow, store = line("w", {"node": node}).build(), MemoryStore(clock=clock)
    async with running(workflow, store) as engine:
        for value in (3, 1, 2):
            await engine.submit(value, f"s{value}", at=clock.now() + value)
        clock.advance(10)
        await Worker([workflow], store, concurrency=1).run(once=True)
        assert order == [1, 2, 3]


async def test_each_worker_takes_its_queues_and_its_graphs() -> None:
    """Sessions of another queue, another graph or another workflow are left alone."""
    other = line("w", {"a": adds_one, "b": adds_one, "c": adds_one}).build()
    store = MemoryStore()
    async with running(TWO_STEPS, store) as engine, running(other, store) as changed:
        await engine.submit(1, "a")
        await engine.submit(1, "b", queue="heavy")
        await changed.submit(1, "c")
        await Worker([TWO_STEPS], store).run(once=True)
        assert await statuses(store) == {"a": "completed", "b": "submitted", "c": "submitted"}
        await Worker([TWO_STEPS, other], store, queues={"heavy": 1}).run(once=True)
        assert (await statuses(store))["b"] == "completed"
        await Worker([TWO_STEPS, other], store).run(once=True)
        assert (await changed.run(1, "c")).outputs == [4]


async def test_a_failed_or_limited_run_waits_for_a_caller() -> None:
    """What is asked of it is consumed all the same, and nothing of it runs."""
    ledger, store = Ledger(), MemoryStore()

    async def node(value: int) -> int:
        ledger.note("node")
        raise ValueError("no")

    bad = line("bad", {"node": node}).build()
    async with running(bad, store) as engine, running(TWO_STEPS, store) as other:
        await engine.run(1, "failed", check=False)
        await other.run(1, "limited", max_steps=1)
        await other.run(1, "cancel-me", max_steps=1)
        worker = Worker([bad, TWO_STEPS], store)
        await worker.run(once=True)
        assert worker.outcomes == {}
        for session, kind, body in (
            ("failed", "pin", b"0"),
            ("limited", "pin", b"1"),
            ("cancel-me", "cancel", b"main"),
        ):
            await store.request(session, f"{session}-1", kind, body)
        await worker.run(once=True)
        told = await statuses(store)
        assert told == {"cancel-me": "cancelled", "failed": "failed", "limited": "limited"}
        assert all(head.consumed == 1 for head in (await heads(store)).values())
        assert ledger["node"] == 1
        assert kinds(await events_of(engine, "failed")).count("pinned") == 1
        assert await held(store) == []


async def test_a_submitted_session_that_was_cancelled_does_not_run() -> None:
    """Also when the request reached the store only."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with running(TWO_STEPS, store) as engine:
        await engine.submit(1, "s", at=clock.now() + 60)
        await store.request("s", "r", "cancel", b"main")
        await Worker([TWO_STEPS], store).run(once=True)
        assert await statuses(store) == {"s": "cancelled"}
        assert "node_completed" not in kinds(await events_of(engine, "s"))


async def test_a_sleeper_whose_process_died_is_woken() -> None:
    """Its retry was written with its time; any worker wakes it then, and none before."""
    ledger, clock = Ledger(), ManualClock()
    store = MemoryStore(clock=clock)

    async def node(value: int) -> int:
        if ledger.note("node") == 1:
            raise ValueError("not yet")
        return value

    retry = RetryPolicy(attempts=2, backoff_s=600, max_backoff_s=600, jitter="none")
    workflow = line("w", {"node": node}, retry=retry).build()
    async with running(workflow, store) as engine:
        await engine.submit(1, "s")
        await Worker([workflow], store).run(once=True)
        assert await statuses(store) == {"s": "sleeping"}
        # Its next owner dies while it waits: it holds the lease, and arms no timer any more.
        dead = await store.claim("s", this_owner(clock), lease_s=30)
        clock.advance(599)
        await Worker([workflow], store).run(once=True)
        assert (await statuses(store), ledger["node"]) == ({"s": "sleeping"}, 1)
        clock.advance(1)
        await Worker([workflow], store).run(once=True)
        assert (await statuses(store), ledger["node"]) == ({"s": "completed"}, 2)
        assert dead.lease.epoch < (await heads(store))["s"].epoch


# -- how much it takes -----------------------------------------------------------------------------


class Crowd:
    """A workflow that counts how many of it run at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.workflow = line("w", {"node": self.node}).build()

    async def node(self, value: int) -> int:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return value


@pytest.mark.parametrize(
    "count", [100, pytest.param(2_000, marks=pytest.mark.slow)], ids=lambda n: f"{n}"
)
async def test_a_backlog_holds_no_more_leases_than_slots(count: int) -> None:
    """However many wait, four slots own four sessions at most, and all are done in the end."""
    crowd, store = Crowd(), MemoryStore()
    most = 0

    async def look() -> None:
        nonlocal most
        while True:
            most = max(most, len(await held(store)))
            await asyncio.sleep(0.005)

    async with running(crowd.workflow, store) as engine:
        for number in range(count):
            await engine.submit(number, f"s{number:04}")
        looking = asyncio.create_task(look())
        await Worker([crowd.workflow], store, concurrency=4).run(once=True)
        await kill(looking)
        assert set((await statuses(store)).values()) == {"completed"}
        assert (crowd.most, await held(store)) == (4, [])
        assert most <= 4


async def test_a_queue_is_narrow_for_all_workers_together() -> None:
    """Three workers with eight slots each, a limit of two: never more than two at once."""
    crowd, store = Crowd(), MemoryStore()
    async with running(crowd.workflow, store) as engine:
        for number in range(30):
            await engine.submit(number, f"s{number}", queue="narrow")
        workers = [Worker([crowd.workflow], store, queues={"narrow": 2}, **QUICK) for _ in "abc"]
        async with at_work(workers[0]), at_work(workers[1]), at_work(workers[2]):
            await stand(store, *["completed"] * 30)
        assert 1 <= crowd.most <= 2


# -- how it is made --------------------------------------------------------------------------------


async def test_engines_with_settings_of_their_own() -> None:
    """An engine that is given stays open, and its settings count."""
    store = MemoryStore()
    async with running(TWO_STEPS, store, checkpoints=CheckpointConfig(max_checkpoints=1)) as engine:
        await engine.submit(1, "s")
        await Worker([engine]).run(once=True)
        assert (await engine.run(1, "s")).outputs == [3]


def _of(*parts: Any, **options: Any) -> Callable[[], Worker]:
    return lambda: Worker(*parts, **options)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_of([]), "at least one workflow"),
        (_of(TWO_STEPS, "memory:"), "list"),
        (_of([TWO_STEPS]), "name the store"),
        (_of([TWO_STEPS, TWO_STEPS], "memory:"), "one graph"),
        (_of([TWO_STEPS], "memory:", queues={}), "queue"),
        (_of([TWO_STEPS], "memory:", queues={"": None}), "queue"),
        (_of([TWO_STEPS], "memory:", queues={"a": 0}), "limit"),
        (_of([TWO_STEPS], "memory:", queues=["a"]), "queues maps"),
        (_of([TWO_STEPS], "memory:", queues="default"), "queues maps"),
        (_of([TWO_STEPS], "memory:", queues=5), "queues maps"),
        (_of([TWO_STEPS], "memory:", lease_s=1e300), "lease_s"),
        (_of([TWO_STEPS], "memory:", concurrency=0), "concurrency"),
        (_of([TWO_STEPS], "memory:", poll_s=0), "poll_s"),
        (_of([TWO_STEPS], "memory:", lease_s=float("inf")), "lease_s"),
        (_of([TWO_STEPS], "memory:", on_outcome=5), "on_outcome is a function"),
        (_of([TWO_STEPS], "memory:", on_aside="x"), "on_aside is a function"),
        (_of(5, "memory:"), "a list of at least one workflow"),
        (_of([WorkflowEngine(TWO_STEPS)], "memory:"), "another store"),
        (
            _of([WorkflowEngine(TWO_STEPS, checkpoints=CheckpointConfig.disabled())]),
            "another store",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(make: Callable[[], Worker], says: str) -> None:
    """By name, before anything is opened."""
    with pytest.raises(ConfigurationError, match=says):
        make()


async def test_leases_are_renewed_in_batches() -> None:
    """Many sessions of one worker: one call to the store renews them all."""
    gate = Gate()

    class Counting(MemoryStore):
        renewals: list[int] = []  # noqa: RUF012 - of this test alone

        async def renew(self, leases: Sequence[Lease]) -> list[bool]:
            self.renewals.append(len(leases))
            return await super().renew(leases)

    async def node(value: int) -> int:
        await gate.stop()
        return value

    workflow, store = line("w", {"node": node}).build(), Counting()
    async with running(workflow, store) as engine:
        for number in range(8):
            await engine.submit(number, f"s{number}")
        async with at_work(Worker([workflow], store, lease_s=1.2, **QUICK)):
            await until(lambda: store.renewals != [])
            gate.open.set()
            await stand(store, *["completed"] * 8)
        assert store.renewals[0] == 8
