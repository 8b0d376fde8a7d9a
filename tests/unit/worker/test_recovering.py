"""Recovery that overlaps with other recovery, or dies in the middle, leaves no session stuck."""

import asyncio
from contextlib import suppress

import pytest

from raf import Context, Worker, Workflow, WorkflowEngine
from raf.store.port import Store
from raf.store.urls import open_store
from raf.testing import CrashError, crash_at
from tests.servers.places import OFTEN_ON_SQLITE, SLOW_ON_SERVERS
from tests.unit.engine.stage import Ledger, line, running

SESSIONS = [f"s{number}" for number in range(6)]


def counted(ledger: Ledger) -> Workflow:
    """Three nodes with an effect each, counted outside."""

    async def node(ctx: Context, value: int) -> int:
        await ctx.effect("act", ledger.note, f"{ctx.session_id} {ctx.node}")
        return value + 1

    return line("w", dict.fromkeys("abc", node)).build()


async def abandoned(engine: WorkflowEngine) -> None:
    """Sessions whose owner stopped behind their first step."""
    for session in SESSIONS:
        with crash_at("engine.commit.after", hit=2, how="raise"), suppress(CrashError):
            await engine.run(0, session)


async def all_done(engine: WorkflowEngine, ledger: Ledger) -> None:
    """Every session is completed, free and intact, and each effect was done once."""
    heads = [head async for head in engine.manager.heads()]
    assert {head.session_id for head in heads} == set(SESSIONS)
    assert {head.summary.status for head in heads} == {"completed"}
    assert [head.session_id for head in heads if head.held] == []
    for session in SESSIONS:
        assert (await engine.run(0, session)).outputs == [3]
        assert (await engine.manager.verify(session)).intact
    assert ledger == {f"{session} {node}": 1 for session in SESSIONS for node in "abc"}


@OFTEN_ON_SQLITE
@pytest.mark.parametrize("how", ["engines", "workers", "both"])
async def test_two_that_recover_at_once(place: str, how: str) -> None:
    """Engines and workers of one program that recover the same sessions share them: none runs twice."""
    ledger, store = Ledger(), open_store(place)
    workflow = counted(ledger)
    async with running(workflow, store) as one, running(workflow, store) as two:
        await abandoned(one)
        recovering = [one.recover(), two.recover()] if how != "workers" else []
        working = [Worker([workflow], store, concurrency=2) for _ in range(2 * (how != "engines"))]
        await asyncio.gather(*recovering, *(worker.run(once=True) for worker in working))
        await one.recover()  # what the other held at that moment is done by now
        await all_done(one, ledger)


@OFTEN_ON_SQLITE
@pytest.mark.parametrize("point", ["engine.commit.before", "engine.commit.after"])
@pytest.mark.parametrize("hit", [1, 4])
async def test_a_crash_inside_the_recovery(place: str, point: str, hit: int) -> None:
    """Stopped in mid-recovery, at a commit of one of the sessions: the next recovery ends them all."""
    ledger, store = Ledger(), open_store(place)
    workflow = counted(ledger)
    async with running(workflow, store) as engine:
        await abandoned(engine)
        with crash_at(point, hit=hit, how="raise") as armed, suppress(CrashError):
            await engine.recover()
        assert armed.fired
    async with running(workflow, store) as engine:
        await engine.recover()
        await all_done(engine, ledger)


@SLOW_ON_SERVERS
async def test_a_session_that_is_deleted_while_a_worker_polls(place: str) -> None:
    """Whatever moment it is: the worker goes on, the session stays gone, and its name can be used."""
    ledger, store = Ledger(), open_store(place)
    workflow = counted(ledger)
    async with running(workflow, store) as engine:
        worker = Worker([workflow], store, poll_s=0.005, concurrency=2)
        task = asyncio.create_task(worker.run())
        for number in range(8):
            await engine.submit(0, "fleeting")
            for _ in range(number):
                await asyncio.sleep(0)
            await gone(engine, store)
        await engine.submit(0, "lasting")
        result = await engine.run(0, "lasting", wait_s=30)
        await engine.submit(0, "fleeting")
        again = await engine.run(0, "fleeting", wait_s=30)
        assert (result.outputs, again.outputs) == ([3], [3])
        await worker.drain()
        await task
        heads = {head.session_id: head async for head in engine.manager.heads()}
        assert {name: head.held for name, head in heads.items()} == {
            "fleeting": None,
            "lasting": None,
        }


async def gone(engine: WorkflowEngine, store: Store) -> None:
    """Delete the session as soon as whoever holds it lets it go."""
    from raf.errors import SessionBusyError

    while True:
        try:
            await engine.delete("fleeting")
        except SessionBusyError:
            await asyncio.sleep(0.005)
        else:
            return


@OFTEN_ON_SQLITE
async def test_two_versions_of_a_workflow_on_one_store(place: str) -> None:
    """Workers of an older and a newer graph side by side: each takes its own, nothing is refused."""
    ledger, store = Ledger(), open_store(place)
    old = counted(ledger)

    async def node(ctx: Context, value: int) -> int:
        ledger.note(f"new {ctx.session_id}")
        return value + 1

    new = line("w", dict.fromkeys("abcd", node)).build()
    async with running(old, store) as before, running(new, store) as after:
        await abandoned(before)
        for number in range(4):
            await after.submit(0, f"new {number}")
        told: list[tuple[str, str]] = []
        workers = [
            Worker([flow], store, on_outcome=lambda r: told.append((r.session_id, r.status)))
            for flow in (old, new, old, new)
        ]
        await asyncio.gather(*(worker.run(once=True) for worker in workers))
        assert sorted(told) == sorted(
            (name, "completed") for name in [*SESSIONS, *(f"new {n}" for n in range(4))]
        )
        assert {count for what, count in ledger.items() if what.startswith("new")} == {4}
        assert {n for what, n in ledger.items() if not what.startswith("new")} == {1}
        assert await before.recover() == await after.recover() == []
