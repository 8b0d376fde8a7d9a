"""What is on disk when, and what happens when the disk says no."""

import asyncio
import logging
from typing import Any

import pytest

from raf import Context, WorkflowEngine
from raf.errors import CommitError, StoreBusyError, StoreFullError, StoreUnavailableError
from raf.store.memory import MemoryStore
from raf.testing import ManualClock
from tests.unit.engine.stage import (
    BrokenStore,
    Gate,
    Ledger,
    SlowStore,
    VanishingStore,
    adds_one,
    collects,
    events_of,
    fan,
    kill,
    line,
    logical,
    passes,
    running,
    small_chains,
)

FULL = StoreFullError("memory:", "no room")
AWAY = StoreUnavailableError("memory:", "away")
MODES = ["sync", "async", "exit"]


def counted(ledger: Ledger, names: str = "abcde") -> Any:
    """A line of nodes that each count their calls and keep what they saw."""

    def node(name: str) -> Any:
        async def run(ctx: Context, value: int) -> int:
            ledger.note(name)
            ctx.scope("all").append("seen", name)
            return value + 1

        return run

    return line("w", {name: node(name) for name in names}).build()


@pytest.mark.parametrize("durability", MODES)
async def test_admission_is_durable_before_the_first_node(durability: Any) -> None:
    """In every mode the input is on disk, as step -1, before any node runs."""
    seen: list[Any] = []

    async def node(value: int) -> int:
        state = await engine.state("s")
        seen.append((state.step_number, state.pending_messages[0]["payload"], state.status))
        return value

    async with running(line("w", {"node": node}).build(), durability=durability) as engine:
        await engine.run(7, "s")
    assert seen == [(-1, 7, "running")]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "error", [FULL, AWAY, StoreBusyError("memory:", 10.0)], ids=lambda e: e.code
)
@pytest.mark.parametrize("number", range(1, 7))
async def test_a_failed_commit_stops_the_run_and_it_can_be_resumed(
    number: int, error: Any, after: bool
) -> None:
    """Any commit that fails, written or not, is a `CommitError`; the session goes on from its last."""
    ledger = Ledger()
    store = BrokenStore("commit", number, error, after=after)
    async with running(counted(ledger), store) as engine:
        with pytest.raises(CommitError, match=r"resumed") as failed:
            await engine.run(0, "s")
        assert failed.value.__cause__ is error
        result = await engine.run(0, "s")
        assert (result.status, result.outputs) == ("completed", [5])
        state = (await engine.state("s")).state_data["::all"]
        assert state == {"seen": list("abcde")}
        assert ledger.total() == 5 + (number > 1 and not after)
        assert (await engine.manager.verify("s")).intact


async def test_a_run_that_could_not_be_admitted_leaves_no_trace() -> None:
    """When the entry is not written no node runs, and the same call starts the run."""
    ledger = Ledger()
    async with running(counted(ledger), BrokenStore("commit", 1, FULL)) as engine:
        with pytest.raises(CommitError):
            await engine.run(0, "s")
        assert not ledger
        assert [head async for head in engine.manager.heads()] == []
        assert (await engine.run(0, "s")).outputs == [5]


@pytest.mark.parametrize("durability", ["async", "exit"])
@pytest.mark.parametrize("number", [2, 3, 5])
async def test_a_failed_commit_is_told_in_every_mode(durability: Any, number: int) -> None:
    """A commit that fails behind the run's back ends it, at the latest at its outcome."""
    ledger = Ledger()
    store = BrokenStore("commit", number if durability == "async" else 2, FULL)
    async with running(counted(ledger), store, durability=durability) as engine:
        with pytest.raises(CommitError):
            await engine.run(0, "s")
        assert (await engine.run(0, "s")).outputs == [5]
        state = (await engine.state("s")).state_data["::all"]
        assert state == {"seen": list("abcde")}


async def test_after_a_failed_commit_at_most_one_more_step_ran() -> None:
    """Under "async" one commit is in flight: no second step begins before it is known."""
    ledger = Ledger()
    async with running(
        counted(ledger), BrokenStore("commit", 3, FULL), durability="async"
    ) as engine:
        with pytest.raises(CommitError):
            await engine.run(0, "s")
        assert ledger == {"a": 1, "b": 1, "c": 1}


async def test_a_failed_record_of_an_effect_stops_the_run() -> None:
    """An effect whose result could not be recorded is not returned as done."""
    ledger, reached = Ledger(), Ledger()

    async def node(ctx: Context, value: int) -> int:
        await ctx.effect("pay", ledger.note, "pay")
        reached.note("behind")
        return value

    async with running(line("w", {"n": node}).build(), BrokenStore("append", 1, FULL)) as engine:
        with pytest.raises(CommitError):
            await engine.run(0, "s")
        assert (ledger["pay"], reached["behind"]) == (1, 0)
        assert (await engine.run(0, "s")).outputs == [0]
        assert ledger["pay"] == 2


async def test_a_failed_record_of_a_failure_stops_the_run() -> None:
    """No attempt follows one whose failure could not be counted."""
    calls = Ledger()

    async def node(value: int) -> int:
        calls.note("node")
        raise ValueError

    store = BrokenStore("append", 1, FULL)
    async with running(line("w", {"n": node}, retry=3).build(), store) as engine:
        with pytest.raises(CommitError):
            await engine.run(0, "s", check=False)
        assert calls["node"] == 1


async def test_a_failed_record_of_a_finished_sibling_stops_the_run() -> None:
    """A result of a long step that could not be kept is told when the step would be committed."""

    async def slow(value: int) -> int:
        await asyncio.sleep(0.03)
        return value

    store = BrokenStore("append", 1, FULL)
    workflow = fan("w", passes, {"quick": adds_one, "slow": slow}, collects).build()
    async with running(workflow, store) as engine:
        with pytest.raises(CommitError):
            await engine.run(0, "s")
        assert (await engine.run(0, "s")).outputs == [[1, 0]]


async def test_pruning_that_fails_is_put_off(caplog: pytest.LogCaptureFixture) -> None:
    """Retention is no reason to stop a run: it is logged, and done the next time."""
    ledger = Ledger()
    store = BrokenStore("prune", 1, AWAY)
    config = small_chains(interval=2, most=2)
    workflow = counted(ledger, "abcdefghijkl")
    with caplog.at_level(logging.WARNING, logger="raf.checkpoint"):
        async with running(workflow, store, checkpoints=config) as engine:
            assert (await engine.run(0, "s")).outputs == [12]
            kept = [i for i in await engine.history("s") if i.byte_size]
            assert "put off" in caplog.text
            assert len(kept) <= 6


async def test_a_lease_that_cannot_be_given_back_hides_no_outcome() -> None:
    """The run's own result is returned; the lease runs out by itself."""
    async with running(counted(Ledger()), BrokenStore("release", 1, AWAY)) as engine:
        assert (await engine.run(0, "s")).outputs == [5]


@pytest.mark.parametrize("durability", MODES)
@pytest.mark.parametrize("at", "abcde")
async def test_killed_in_any_step_in_any_mode(durability: Any, at: str) -> None:
    """Killed while a node runs, the run gives what an unbroken one gives; less is on disk, that is all."""
    ledger, gate = Ledger(), Gate()

    def node(name: str) -> Any:
        async def run(ctx: Context, value: int) -> int:
            ctx.scope("all").append("seen", name)
            if ledger.note(name) == 1 and name == at and ctx.session_id == "s":
                await gate.stop()
            return value + 1

        return run

    workflow = line("w", {name: node(name) for name in "abcde"}).build()
    async with running(workflow, durability=durability) as engine:
        task = asyncio.create_task(engine.run(0, "s"))
        await gate.reached.wait()
        await kill(task)
        again = await engine.run(0, "s")
        whole = await engine.run(0, "whole")
        assert (again.outputs, again.steps) == (whole.outputs, whole.steps)
        assert (await engine.state("s")).state_data == (await engine.state("whole")).state_data
        assert logical(await events_of(engine, "s")) == logical(await events_of(engine, "whole"))
        if durability == "sync":
            assert ledger.total() == 11


async def test_exit_writes_once_and_journals_effects_only() -> None:
    """Under "exit" a run of many steps is two commits; each effect is recorded all the same."""
    store, ledger = SlowStore("never"), Ledger()

    async def pays(ctx: Context, value: int) -> int:
        await ctx.effect("pay", ledger.note, "pay")
        return value

    async with running(counted(Ledger()), store, durability="exit") as engine:
        await engine.run(0, "s")
    assert store.log == ["commit 0", "commit 1"]
    store.log.clear()
    nodes: dict[str, Any] = {"a": passes, "pays": pays, "b": passes, "c": passes}
    async with running(line("w", nodes).build(), store, durability="exit") as engine:
        await engine.run(0, "t")
    assert store.log == ["commit 0", "commit 1", "append", "commit 2"]


async def test_the_mode_of_a_call_overrides_that_of_the_engine() -> None:
    """`durability` of `run` and `resume` holds for that call."""
    store, broken = SlowStore("never"), [True]

    async def node(value: int) -> int:
        if broken[0]:
            raise ValueError
        return value

    workflow = line("w", {"a": passes, "b": passes, "n": node, "c": passes}).build()
    async with running(workflow, store) as engine:
        await engine.run(0, "s", durability="exit", check=False)
        assert [entry for entry in store.log if entry != "append"] == ["commit 0", "commit 1"]
        broken[0] = False
        await engine.resume("s", durability="exit")
        assert [entry for entry in store.log if entry != "append"][2:] == ["commit 2", "commit 3"]


async def test_an_engine_can_be_opened_again() -> None:
    """A closed engine starts anew on its store; what it committed is there."""
    store = MemoryStore()
    engine = WorkflowEngine(counted(Ledger()), store=store)
    for number in range(3):
        async with engine:
            assert (await engine.run(number, f"s{number}")).outputs == [number + 5]
            assert (await engine.run(0, "s0")).outputs == [5]


async def test_losses_of_gathered_steps_do_not_add_up() -> None:
    """Under "exit" a step that got through ends the row of losses before it."""
    ledger, gate = Ledger(), Gate()

    async def first(value: int) -> int:
        if ledger.note("first") <= 2:
            await gate.stop()
        await engine.pin("s", 0)  # has the steps so far committed
        return value

    async def second(value: int) -> int:
        if ledger.note("second") == 1:
            await gate.stop()
        return value

    store = VanishingStore(ManualClock())
    workflow = line("w", {"first": first, "second": second}).build()
    async with running(workflow, store, durability="exit") as engine:
        for _ in range(3):
            gate.reached.clear()
            task = asyncio.create_task(engine.run(0, "s"))
            await gate.reached.wait()
            await kill(task)
        assert ledger == {"first": 3, "second": 1}
        assert (await engine.run(0, "s")).outputs == [0]
        assert ledger == {"first": 3, "second": 2}
