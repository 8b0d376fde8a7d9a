"""What is written before what, on every store: killed between any two writes, nothing is lost or doubled."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from raf import Context
from raf.store.urls import open_store
from raf.testing import CrashError, count_failpoints, crash_at
from tests.servers.places import OFTEN_ON_SQLITE, backend_of
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    collects,
    events_of,
    fan,
    journal_of,
    kill,
    line,
    logical,
    passes,
    running,
)

MODES = ("sync", "async", "exit")


def paying(ledger: Ledger) -> Any:
    """Two nodes side by side, each with an effect, of which one lasts long enough to be journaled."""

    def node(name: str, delay: float) -> Any:
        async def work(ctx: Context, value: int) -> int:
            await ctx.effect("pay", ledger.note, f"{ctx.session_id} {name}")
            await asyncio.sleep(delay)
            ctx.scope("s")[name] = value
            return value + 1

        return work

    workers = {"slow": node("slow", 0.02), "slower": node("slower", 0.03)}
    return fan("w", passes, workers, collects).build()


@OFTEN_ON_SQLITE
async def test_stopped_between_the_journal_and_the_commit(place: str) -> None:
    """At each write of results, effects and commits: no effect is lost or doubled, the end is the same."""
    ledger = Ledger()
    backend = backend_of(place)
    async with running(paying(ledger), open_store(place)) as engine:
        with count_failpoints() as passed:
            await engine.run(1, "whole")
        whole = logical(await events_of(engine, "whole"))
        points = [f"store.{backend}.{what}" for what in ("append.after", "commit.before")]
        points += ["engine.commit.before", "engine.commit.after", "engine.step.after_run"]
        for point in points:
            for hit in range(1, passed[point] + 1):
                session = f"{point} {hit}"
                with crash_at(point, hit=hit, how="raise"), suppress(Exception):
                    await engine.run(1, session)
                assert (await engine.run(1, session)).outputs == [[2, 2]]
                assert logical(await events_of(engine, session)) == whole
                assert (await engine.manager.verify(session)).intact
        # The store told "done" by an error that came behind its write: then the effect is in doubt.
        doubt = f"store.{backend}.append.after"
        for what, count in ledger.items():
            assert count == 1 or (count == 2 and what.startswith(doubt)), what


async def test_a_journal_that_was_written_and_no_commit(place: str) -> None:
    """Results that are recorded and not committed are taken from the record, never run again."""
    ledger, gate, store = Ledger(), Gate(), open_store(place)

    async def quick(value: int) -> int:
        ledger.note("quick")
        return value

    async def long(ctx: Context, value: int) -> int:
        await ctx.effect("pay", ledger.note, "pay")
        if not gate.open.is_set():
            await gate.stop()
        return value

    workflow = fan("w", passes, {"quick": quick, "long": long}, collects).build()
    async with running(workflow, store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        for _ in range(1000):
            if len(await journal_of(store, "s")) >= 2:
                break
            await asyncio.sleep(0.001)
        assert (await engine.manager.head("s")).commit == 1
        await kill(task)
        gate.open.set()
        with crash_at("engine.commit.before", how="raise"), pytest.raises(CrashError):
            await engine.run(1, "s")
        assert (await engine.run(1, "s")).outputs == [[1, 1]]
        assert ledger == {"quick": 1, "pay": 1}


@pytest.mark.parametrize("durability", MODES)
async def test_lost_before_its_first_checkpoint_of_a_step(place: str, durability: Any) -> None:
    """Stopped right behind its entry, a run is there, is found, and is ended by `recover`."""
    ledger = Ledger()

    async def node(value: int) -> int:
        ledger.note("node")
        return value + 1

    workflow = line("w", {"node": node}).build()
    store = open_store(place)
    async with running(workflow, store, durability=durability) as engine:
        with crash_at("engine.step.before_run", how="raise"), pytest.raises(CrashError):
            await engine.run(1, "s")
        assert not ledger
        state = await engine.state("s")
        assert (state.step_number, state.pending_messages[0]["payload"]) == (-1, 1)
    async with running(workflow, store) as engine:
        assert [r.outputs for r in await engine.recover()] == [[2]]
        assert ledger == {"node": 1}


@pytest.mark.parametrize(("durability", "behind"), [("sync", 0), ("async", 1)])
async def test_the_disk_is_never_far_behind(place: str, durability: Any, behind: int) -> None:
    """However quick the nodes are, what is not yet durable is one commit under `async`, none else."""
    lags: list[int] = []

    async def node(value: int) -> int:
        lags.append(value - (await engine.manager.head("s")).commit)
        return value + 1

    workflow = line("w", {f"n{number:02}": node for number in range(30)}).build()
    async with running(workflow, open_store(place), durability=durability) as engine:
        assert (await engine.run(0, "s")).outputs == [30]
    assert max(lags) <= behind
