"""Who may run a session: one owner, takeover of dead ones, and late writes that are refused."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from raf import Context, RetryPolicy, WorkflowEngine
from raf.errors import (
    LeaseLostError,
    SessionBusyError,
    SessionNotFoundError,
    StoreUnavailableError,
    TopologyChangedError,
)
from raf.store.memory import MemoryStore
from raf.store.model import Lease
from raf.store.owner import this_owner
from raf.store.port import Store
from raf.store.urls import open_store
from raf.testing import CrashError, ManualClock, crash_at
from tests.servers.places import SLOW_ON_SERVERS, clocked
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    VanishingStore,
    adds_one,
    collects,
    events_of,
    fan,
    kill,
    kinds,
    line,
    passes,
    running,
    settle,
    until,
)


class Held:
    """A workflow whose second node stops at a gate in its first call."""

    def __init__(self) -> None:
        self.gate, self.ledger = Gate(), Ledger()
        nodes = {"first": adds_one, "node": self.node, "last": adds_one}
        self.workflow = line("w", nodes).build()

    async def node(self, value: int) -> int:
        if self.ledger.note("node") == 1:
            await self.gate.stop()
        return value

    async def begin(self, engine: WorkflowEngine) -> "asyncio.Task[Any]":
        task = asyncio.create_task(engine.run(1, "s"))
        await self.gate.reached.wait()
        return task


async def test_a_session_has_one_owner(place: str) -> None:
    """A second engine is told who runs the session and until when; the first is not disturbed."""
    held = Held()
    store = open_store(place)
    async with running(held.workflow, store) as owner, running(held.workflow, store) as other:
        task = await held.begin(owner)

        def nothing(_editor: Any) -> None:
            raise AssertionError("it must not be asked")

        for call in (
            other.run(1, "s"),
            other.resume("s"),
            owner.run(1, "s"),
            other.edit("s", nothing, reason="r"),
            other.delete("s"),
            other.prune("s"),
        ):
            with pytest.raises(SessionBusyError) as busy:
                await call
            assert busy.value.session_id == "s"
            assert "pid" in busy.value.owner
            assert busy.value.until.endswith("Z")
        assert (await other.state("s")).step_number == 0
        held.gate.open.set()
        assert (await task).outputs == [3]


async def test_a_caller_may_wait_for_the_owner() -> None:
    """With `wait_s` a call gets the session when its owner lets it go, here with the result."""
    held, store = Held(), MemoryStore()
    async with running(held.workflow, store) as owner, running(held.workflow, store) as other:
        task = await held.begin(owner)
        waiting = asyncio.create_task(other.run(1, "s", wait_s=30))
        await settle()
        held.gate.open.set()
        assert (await task).outputs == (await waiting).outputs == [3]
        assert held.ledger["node"] == 1


async def test_a_late_commit_of_a_replaced_owner_is_refused(place: str) -> None:
    """An owner that stood still past its lease and was replaced writes nothing, and learns it."""
    held = Held()
    store, passing = clocked(place, ManualClock())
    async with running(held.workflow, store) as frozen, running(held.workflow, store) as heir:
        task = await held.begin(frozen)
        await frozen.machine.keeper.close()  # it stands still: nothing of it renews
        await passing(31)
        result = await heir.run(1, "s")
        assert (result.outputs, held.ledger["node"]) == ([3], 2)
        after = await heir.manager.head("s")
        held.gate.open.set()
        with pytest.raises(LeaseLostError, match="'s'"):
            await task
        assert await heir.manager.head("s") == after
        assert "taken_over" in kinds(await events_of(heir, "s"))
        assert (await heir.manager.verify("s")).intact


@pytest.mark.parametrize("set_by", [0.0, -3600.0])
async def test_a_replaced_owner_starts_no_effect(set_by: float) -> None:
    """After its lease ran out an owner begins no outside action until a renewal succeeds.

    Neither does one whose wall clock was set back meanwhile.
    """
    clock, gate, ledger = ManualClock(), Gate(), Ledger()
    store = MemoryStore(clock=clock)

    async def node(ctx: Context, value: int) -> int:
        if ledger.note("node") == 1:
            await gate.stop()
        await ctx.effect("pay", ledger.note, "pay")
        return value

    workflow = line("w", {"node": node}).build()
    async with running(workflow, store) as frozen, running(workflow, store) as heir:
        task = asyncio.create_task(frozen.run(1, "s"))
        await gate.reached.wait()
        clock.advance(31)
        clock.step_wall(set_by)
        await heir.run(1, "s")
        gate.open.set()
        with pytest.raises(LeaseLostError):
            await task
        assert ledger["pay"] == 1


async def test_an_owner_that_was_late_and_not_replaced_goes_on() -> None:
    """A lease that ran out and that nobody took is renewed before the next step."""
    clock, times = ManualClock(), Ledger()

    async def slow(value: int) -> int:
        clock.advance(100)
        times.note("slow")
        return value + 1

    workflow = line("w", dict.fromkeys("abc", slow)).build()
    async with running(workflow, MemoryStore(clock=clock)) as engine:
        assert (await engine.run(1, "s")).outputs == [4]
        assert "taken_over" not in kinds(await events_of(engine, "s"))


async def test_a_wall_clock_that_is_set_back_changes_nothing() -> None:
    """Leases live on the boot clock, order on commit numbers: the wall clock may jump either way."""
    clock, held = ManualClock(), Held()
    store = MemoryStore(clock=clock)

    async def jumps(value: int) -> int:
        clock.step_wall(-86_400.0 * value)
        return value + 1

    workflow = line("w", {"a": jumps, "b": jumps, "c": jumps}).build()
    async with running(workflow, store) as engine, running(held.workflow, store) as other:
        task = await held.begin(other)
        clock.step_wall(-3600.0)
        with pytest.raises(SessionBusyError):
            await other.run(1, "s")
        held.gate.open.set()
        assert (await task).outputs == [3]
        result = await engine.run(1, "t")
        assert result.outputs == [4]
        assert (await engine.state("t")).step_number == 2
        assert [info.commit for info in await engine.history("t")] == [0, 1, 2, 3]
        assert (await engine.run(1, "t")).outputs == [4]
        assert (await engine.manager.verify("t")).intact


async def test_a_sleeper_that_lost_its_session_ends() -> None:
    """A run that waits for a retry hears of its lost lease, and does not wait or spin on."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)

    async def node(value: int) -> int:
        raise ConnectionError

    retry = RetryPolicy(attempts=3, backoff_s=500, max_backoff_s=500, jitter="none")
    workflow = line("w", {"node": node}, retry=retry).build()
    async with running(workflow, store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await until(lambda: clock.sleeping > 0)
        clock.advance(31)
        claimed = await store.claim("s", replace(this_owner(clock), token="heir"), lease_s=30)
        assert claimed.took_over
        with pytest.raises(LeaseLostError):
            await task


async def test_a_deleted_session_does_not_come_back_by_a_late_write() -> None:
    """Deleted behind a frozen owner, and made anew under its name: the late write reaches neither."""
    held, clock = Held(), ManualClock()
    store = MemoryStore(clock=clock)
    async with running(held.workflow, store) as frozen, running(held.workflow, store) as other:
        task = await held.begin(frozen)
        clock.advance(31)
        await other.delete("s")
        with pytest.raises(SessionNotFoundError):
            await other.history("s")
        await other.run(5, "s")
        before = await other.manager.head("s")
        held.gate.open.set()
        with pytest.raises(LeaseLostError):
            await task
        assert await other.manager.head("s") == before
        assert (await other.run(5, "s")).outputs == [7]


async def test_a_run_whose_session_was_deleted_is_interrupted() -> None:
    """The owner of a session that is gone stops in mid-step."""
    held, clock = Held(), ManualClock()
    store = MemoryStore(clock=clock)
    async with running(held.workflow, store) as frozen, running(held.workflow, store) as other:
        task = await held.begin(frozen)
        clock.advance(31)
        await other.delete("s")
        with pytest.raises(LeaseLostError):
            await task
        assert not held.gate.open.is_set()


# -- recovery --------------------------------------------------------------------------------------


async def test_recover_adopts_what_dead_owners_left() -> None:
    """Every session that ran and whose owner is gone is continued; the others are left alone."""
    clock, ledger, gate = ManualClock(), Ledger(), Gate()
    store = MemoryStore(clock=clock)

    async def node(ctx: Context, value: int) -> int:
        if ledger.note(ctx.session_id) == 1 and value < 5:
            await gate.stop()
        return value

    workflow = line("w", {"node": node}).build()
    stranger = line("other", {"node": node}).build()
    dying = WorkflowEngine(workflow, store=store)
    await dying.open()
    foreign = WorkflowEngine(stranger, store=store)
    await foreign.open()
    await dying.run(5, "done")
    tasks = [asyncio.create_task(dying.run(n, f"s{n}")) for n in range(3)]
    tasks.append(asyncio.create_task(foreign.run(0, "foreign")))
    await until(lambda: ledger.total() == 5)
    store.release = forget_to_release  # type: ignore[method-assign]
    for task in tasks:
        await kill(task)
    del store.release
    async with running(workflow, store) as engine:
        assert await engine.recover() == []  # the leases still bind
        clock.advance(31)
        gate.open.set()
        results = await engine.recover()
        assert sorted(r.session_id for r in results) == ["s0", "s1", "s2"]
        assert {r.status for r in results} == {"completed"}
        assert await engine.recover() == []
        assert ledger == {"done": 1, "s0": 2, "s1": 2, "s2": 2, "foreign": 1}
    await dying.close()
    await foreign.close()


async def forget_to_release(lease: Lease) -> None:
    """What the store's `release` is when the owner's process dies."""


async def test_one_session_that_cannot_go_on_keeps_no_other_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A session saved under another graph is told of, and the rest is recovered."""
    store, gate = MemoryStore(), Gate()

    async def node(value: int) -> int:
        if not gate.open.is_set():
            await gate.stop()
        return value

    old = line("w", {"node": node, "gone": passes}).build()
    new = line("w", {"node": node, "next": passes}).build()
    async with running(old, store) as before, running(new, store) as engine:
        for owner, session in ((before, "a-old"), (engine, "b"), (engine, "c")):
            gate.reached.clear()
            task = asyncio.create_task(owner.run(1, session))
            await gate.reached.wait()
            await kill(task)
        gate.open.set()
        with caplog.at_level(logging.ERROR, logger="raf.engine"):
            results = await engine.recover()
        assert [r.session_id for r in results] == ["b", "c"]
        assert "'a-old'" in caplog.text
        with pytest.raises(TopologyChangedError):
            await engine.recover(check=True)


async def test_nothing_stands_still_between_two_steps() -> None:
    """Killed between the commit of a step and the start of the next, a run is recovered and ends."""
    store = VanishingStore(ManualClock())
    workflow = line("w", {"a": adds_one, "b": adds_one, "c": adds_one}).build()
    async with running(workflow, store) as engine:
        for point in ("engine.commit.after", "engine.step.before_run", "engine.commit.before"):
            for hit in (1, 2, 3):
                session = f"{point} {hit}"
                with crash_at(point, hit=hit, how="raise"), pytest.raises(CrashError):
                    await engine.run(1, session)
        results = await engine.recover()
        assert {tuple(r.outputs) for r in results} == {(4,)}
        done = [head.summary.status async for head in engine.manager.heads()]
        assert done == ["completed"] * 9


@SLOW_ON_SERVERS
async def test_a_run_cut_off_at_every_point_equals_an_unbroken_one(place: str) -> None:
    """Stopped at each pass of each point of the engine, a resumed run gives the same in the end."""
    from tests.unit.engine.stage import logical

    workflow = fan("w", adds_one, {"x": adds_one, "y": adds_one}, collects).build()
    store: Store = open_store(place)
    async with running(workflow, store) as engine:
        await engine.run(1, "whole")
        whole = logical(await events_of(engine, "whole"))
        for point in (
            "engine.step.before_run",
            "engine.step.after_run",
            "engine.commit.before",
            "engine.commit.after",
        ):
            for hit in (1, 2, 3):
                session = f"{point}/{hit}"
                with crash_at(point, hit=hit, how="raise"), pytest.raises(CrashError):
                    await engine.run(1, session)
                assert (await engine.run(1, session)).outputs == [[3, 3]]
                assert logical(await events_of(engine, session)) == whole
                assert (await engine.manager.verify(session)).intact


async def test_a_store_that_is_away_for_a_while_does_not_end_a_run() -> None:
    """Renewals that fail are tried again; the run goes on as long as its commits succeed."""

    class Away(MemoryStore):
        renewals = 0

        async def renew(self, leases: Sequence[Lease]) -> list[bool]:
            type(self).renewals += 1
            if self.renewals == 1:
                raise StoreUnavailableError("memory:", "away")
            return await super().renew(leases)

    async def slow(value: int) -> int:
        await until(lambda: Away.renewals >= 2)
        return value

    async with running(line("w", {"slow": slow}).build(), Away(), lease_s=1.6) as engine:
        assert (await engine.run(1, "s")).outputs == [1]
