"""Attempts: when a failed one is tried again, after how long, and when a node is given up."""

import asyncio
from typing import Any

import pytest

from raf import Context, RetryPolicy
from raf.engine.retry import HELD_IN_STEP_S, Again, decide, nominal_delay
from raf.errors import ConfigurationError, EffectInDoubtError, NodePoisonedError, RunFailedError
from raf.store.memory import MemoryStore
from raf.testing import ManualClock
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    VanishingStore,
    adds_one,
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

# -- the decision, pure ----------------------------------------------------------------------------

FIXED = RetryPolicy(attempts=4, backoff_s=1.0, factor=2.0, max_backoff_s=5.0, jitter="none")


@pytest.mark.parametrize(
    ("failures", "expected"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (5000, 5.0)]
)
def test_the_nominal_delay_grows_to_its_bound(failures: int, expected: float) -> None:
    """The delay grows by the factor up to its bound, and no count is too high for it."""
    assert nominal_delay(FIXED, failures) == expected


@pytest.mark.parametrize(
    ("policy", "failures", "error", "elapsed_s", "chance", "expected"),
    [
        (FIXED, 1, ValueError(), 0.0, 0.3, Again(1.0, in_step=True)),
        (FIXED, 3, ValueError(), 0.0, 0.3, Again(4.0, in_step=True)),
        (FIXED, 4, ValueError(), 0.0, 0.3, None),
        (FIXED, 1, ConfigurationError("no"), 0.0, 0.3, None),
        (FIXED, 1, EffectInDoubtError("n", "k", "i"), 0.0, 0.3, None),
        (RetryPolicy(attempts=3), 1, ValueError(), 0.0, 0.0, Again(0.0, in_step=True)),
        (RetryPolicy(attempts=3), 1, ValueError(), 0.0, 0.5, Again(0.5, in_step=True)),
        (RetryPolicy(attempts=3), 2, ValueError(), 0.0, 0.5, Again(1.0, in_step=True)),
        (RetryPolicy(attempts=3, on=(OSError,)), 1, ValueError(), 0.0, 0.5, None),
        (
            RetryPolicy(attempts=3, on=(OSError,)),
            1,
            ConnectionError(),
            0.0,
            0.5,
            Again(0.5, in_step=True),
        ),
        (RetryPolicy(attempts=3, total_s=1.0), 1, ValueError(), 0.4, 0.5, Again(0.5, in_step=True)),
        (RetryPolicy(attempts=3, total_s=1.0), 1, ValueError(), 0.6, 0.5, None),
        (
            RetryPolicy(attempts=3, backoff_s=60, max_backoff_s=600),
            1,
            ValueError(),
            0.0,
            0.9,
            Again(54.0, in_step=True),
        ),
        (
            RetryPolicy(attempts=3, backoff_s=61, max_backoff_s=600),
            1,
            ValueError(),
            0.0,
            0.0,
            Again(0.0, in_step=False),
        ),
    ],
)
def test_what_follows_a_failure(
    policy: RetryPolicy,
    failures: int,
    error: Exception,
    elapsed_s: float,
    chance: float,
    expected: Again | None,
) -> None:
    """The policy decides: how often, for which errors, within what time, in or out of the step."""
    found = decide(policy, failures, error, elapsed_s=elapsed_s, chance=chance)
    assert found == expected


def test_full_jitter_is_drawn_from_zero_to_the_nominal_delay() -> None:
    """Every delay lies between zero and the nominal one, and all of that range is used."""
    clock, policy = ManualClock(), RetryPolicy(attempts=9, backoff_s=8.0)
    found = [
        decide(policy, 1, ValueError(), elapsed_s=0.0, chance=clock.chance()) for _ in range(500)
    ]
    delays = [again.delay_s for again in found if again is not None]
    assert len(delays) == 500
    assert 0.0 <= min(delays) < 1.0
    assert 7.0 < max(delays) < 8.0


# -- in a run --------------------------------------------------------------------------------------


class Unlucky:
    """A node whose first so many calls fail."""

    def __init__(self, times: int, error: type[Exception] = ValueError) -> None:
        self.left = times
        self.error = error
        self.attempts: list[int] = []

    async def __call__(self, ctx: Context, value: int) -> int:
        self.attempts.append(ctx.attempt)
        ctx.scope("s").append("tries", ctx.attempt)
        ctx.output(f"try {ctx.attempt}")
        ctx.emit(f"try {ctx.attempt}")
        ctx.send(value, to="next")
        if self.left:
            self.left -= 1
            raise self.error(f"{self.left} left")
        return value + 1


async def test_a_failed_attempt_leaves_nothing_but_its_count() -> None:
    """Messages, outputs, writes and events of failed attempts vanish; those of the last stay."""
    node, clock = Unlucky(2), ManualClock(auto_advance=True)
    got: list[int] = []

    async def after(value: int) -> None:
        got.append(value)

    workflow = line("w", {"node": node, "next": after}, retry=RetryPolicy(attempts=3)).build()
    async with running(workflow, MemoryStore(clock=clock)) as engine:
        result = await engine.run(5, "s")
        assert node.attempts == [1, 2, 3]
        assert result.outputs == ["try 3"]
        assert sorted(got) == [5, 6]
        assert (await engine.state("s")).state_data["::s"] == {"tries": [3]}
        shown = [e.value for e in await events_of(engine, "s") if e.kind == "custom"]
        assert shown == ["try 3"]


async def test_the_wait_follows_the_policy() -> None:
    """Attempts are as far apart as the policy says, by the clock."""
    clock, times = ManualClock(auto_advance=True), []

    async def node(value: int) -> int:
        times.append(clock.monotonic())
        if len(times) < 4:
            raise ValueError
        return value

    retry = RetryPolicy(attempts=4, backoff_s=1.0, factor=3.0, jitter="none")
    async with running(line("w", {"n": node}, retry=retry).build(), MemoryStore(clock=clock)) as e:
        await e.run(1, "s")
    assert times == [0.0, 1.0, 4.0, 13.0]


@pytest.mark.parametrize(
    ("retry", "error", "calls"),
    [
        (1, ValueError, 1),
        (3, ValueError, 3),
        (RetryPolicy(attempts=3, on=(OSError,)), ValueError, 1),
        (RetryPolicy(attempts=3, on=(OSError,)), ConnectionError, 3),
        (
            RetryPolicy(attempts=9, backoff_s=1.0, factor=1.0, jitter="none", total_s=2.5),
            OSError,
            3,
        ),
    ],
)
async def test_a_node_is_given_up_after_its_attempts(
    retry: Any, error: type[Exception], calls: int
) -> None:
    """After the last attempt the run fails, and says which attempt it was."""
    node, clock = Unlucky(99, error), ManualClock(auto_advance=True)
    workflow = line("w", {"node": node, "next": adds_one}, retry=retry).build()
    async with running(workflow, MemoryStore(clock=clock)) as engine:
        with pytest.raises(RunFailedError, match=f"attempt {calls}: {error.__name__}"):
            await engine.run(5, "s")
        assert len(node.attempts) == calls


async def test_a_join_fires_once_although_sources_were_retried() -> None:
    """Five sources, two of them fail once: the barrier gives five results, once."""
    ledger, joins, clock = Ledger(), [], ManualClock(auto_advance=True)

    def source(name: str) -> Any:
        async def node(value: int) -> str:
            if ledger.note(name) == 1 and name in "bd":
                raise ConnectionError
            return name

        return node

    async def join(values: list[str]) -> str:
        joins.append(list(values))
        return "".join(values)

    builder = fan("w", passes, {name: source(name) for name in "abcde"}, join, retry=2)
    async with running(builder.build(), MemoryStore(clock=clock)) as engine:
        assert (await engine.run(1, "s")).outputs == ["abcde"]
        assert joins == [list("abcde")]
        assert ledger == {"a": 1, "b": 2, "c": 1, "d": 2, "e": 1}


async def test_a_join_fires_once_after_a_kill_between_failure_and_retry() -> None:
    """Killed while a source waits for its retry: its count stands, and the join fires once."""
    ledger, joins = Ledger(), []
    store = MemoryStore(clock=ManualClock())

    def source(name: str) -> Any:
        async def node(ctx: Context, value: int) -> str:
            if ledger.note(name) == 1 and name == "b":
                raise ConnectionError
            return f"{name}{ctx.attempt}"

        return node

    async def join(values: list[str]) -> str:
        joins.append(list(values))
        return "".join(values)

    retry = RetryPolicy(attempts=2, jitter="none")
    workflow = fan("w", passes, {n: source(n) for n in "abc"}, join, retry=retry).build()
    async with running(workflow, store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await until(lambda: ledger.total() == 3)
        await settle()
        await kill(task)
        assert (await engine.run(1, "s")).outputs == ["a1b2c1"]
        assert joins == [["a1", "b2", "c1"]]
        assert ledger["b"] == 2


async def test_failures_are_counted_across_kills() -> None:
    """Three attempts are three, however often the process goes away between them."""
    node = Unlucky(99)
    store = MemoryStore(clock=ManualClock())
    retry = RetryPolicy(attempts=3, jitter="none")
    workflow = line("w", {"node": node, "next": adds_one}, retry=retry).build()
    async with running(workflow, store) as engine:
        for tries in (1, 2):
            task = asyncio.create_task(engine.run(1, "s"))
            await until(lambda tries=tries: len(node.attempts) == tries)  # type: ignore[misc]
            await settle()
            await kill(task)
        result = await engine.run(1, "s", check=False)
        assert (result.status, node.attempts) == ("failed", [1, 2, 3])
        counts = [entry[2] for entry in await journal_of(store, "s") if entry[0] == "failure"]
        assert counts == [1, 2, 3]


async def test_a_failed_run_that_is_continued_counts_anew() -> None:
    """Whoever continues a failed run gives its nodes all their attempts again."""
    node, clock = Unlucky(5), ManualClock(auto_advance=True)
    workflow = line("w", {"node": node, "next": adds_one}, retry=3).build()
    async with running(workflow, MemoryStore(clock=clock)) as engine:
        assert (await engine.run(5, "s", check=False)).status == "failed"
        assert (await engine.resume("s")).status == "completed"
        assert node.attempts == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize(("attempts", "calls"), [(1, 3), (2, 3), (3, 3), (5, 5)])
async def test_a_node_that_loses_its_owner_each_time_is_poison(attempts: int, calls: int) -> None:
    """Losses are counted apart from failures; after max(3, attempts) of them the node is given up."""
    clock = ManualClock()
    store, ledger, gate = VanishingStore(clock), Ledger(), Gate()

    async def node(value: int) -> int:
        ledger.note("node")
        await gate.stop()
        return value

    workflow = line("w", {"node": node}, retry=attempts).build()
    async with running(workflow, store) as engine:
        for tries in range(1, calls + 1):
            task = asyncio.create_task(engine.run(1, "s"))
            await until(lambda tries=tries: ledger["node"] == tries)  # type: ignore[misc]
            await kill(task)
        with pytest.raises(RunFailedError, match=f"vanished {calls} times") as failed:
            await engine.run(1, "s")
        assert isinstance(failed.value.__cause__, NodePoisonedError)
        assert ledger["node"] == calls
        gate.open.set()
        assert (await engine.resume("s")).outputs == [1]


async def test_a_run_that_is_stopped_in_an_orderly_way_counts_no_loss() -> None:
    """A released lease is no loss: a run may be interrupted and resumed any number of times."""
    ledger, gate = Ledger(), Gate()

    async def node(ctx: Context, value: int) -> int:
        ledger.note("node")
        await gate.stop()
        return ctx.attempt

    async with running(line("w", {"node": node}).build()) as engine:
        for tries in range(1, 8):
            task = asyncio.create_task(engine.run(1, "s"))
            await until(lambda tries=tries: ledger["node"] == tries)  # type: ignore[misc]
            await kill(task)
        gate.open.set()
        assert (await engine.run(1, "s")).outputs == [1]


async def test_progress_ends_a_row_of_losses() -> None:
    """A node that records an effect before each loss is not poison: it gets further every time."""
    clock = ManualClock()
    store, ledger, gate = VanishingStore(clock), Ledger(), Gate()

    async def node(ctx: Context, value: int) -> int:
        tries = ledger.note("node")
        for number in range(1, 6):
            await ctx.effect(f"part {number}", ledger.note, f"part {number}")
            if number == tries:
                await gate.stop()
        return value

    async with running(line("w", {"node": node}).build(), store) as engine:
        for tries in range(1, 6):
            task = asyncio.create_task(engine.run(1, "s"))
            await until(lambda tries=tries: ledger["node"] == tries and gate.reached.is_set())  # type: ignore[misc]
            gate.reached.clear()
            await kill(task)
        gate.open.set()
        assert (await engine.run(1, "s")).outputs == [1]
        assert {key: n for key, n in ledger.items() if key != "node"} == {
            f"part {number}": 1 for number in range(1, 6)
        }


# -- waits that leave the step ---------------------------------------------------------------------

LONG = RetryPolicy(attempts=3, backoff_s=100.0, factor=2.0, max_backoff_s=3600.0, jitter="none")


async def test_a_long_wait_leaves_the_step() -> None:
    """Beyond a minute the invocation is suspended: its sibling commits, and the run sleeps."""
    assert LONG.backoff_s > HELD_IN_STEP_S
    clock, node = ManualClock(), Unlucky(1)
    got: list[int] = []

    async def sibling(value: int) -> None:
        got.append(value)

    builder = line("w", {"start": passes, "next": adds_one})
    builder.add_node("node", node, retry=LONG).add_node("sibling", sibling)
    builder.add_edge("start", "node").add_edge("start", "sibling").add_edge("node", "next")
    async with running(builder.build(), MemoryStore(clock=clock)) as engine:
        result = await engine.run(5, "s", wait=False)
        assert (result.status, got, node.attempts) == ("sleeping", [5], [1])
        assert result.wake_at == clock.now() + 100
        head = await engine.manager.head("s")
        assert head.summary.wake_at == clock.now() + 100
        again = await engine.resume("s", wait=False)
        assert (again.status, again.wake_at) == ("sleeping", result.wake_at)
        assert (await engine.manager.head("s")).summary.wake_at == result.wake_at
        clock.advance(99)
        assert (await engine.resume("s", wait=False)).status == "sleeping"
        assert node.attempts == [1]
        clock.advance(1)
        last = await engine.resume("s", wait=False)
        assert (last.status, node.attempts, got) == ("completed", [1, 2], [5])


async def test_a_long_wait_is_waited_for_in_process() -> None:
    """With `wait` (the default) the call sleeps until the time has come, and goes on."""
    clock, node = ManualClock(auto_advance=True), Unlucky(2)
    workflow = line("w", {"node": node, "next": adds_one}, retry=LONG).build()
    async with running(workflow, MemoryStore(clock=clock)) as engine:
        assert (await engine.run(5, "s")).status == "completed"
        assert node.attempts == [1, 2, 3]
        assert clock.monotonic() == 300.0
        assert kinds(await events_of(engine, "s")).count("node_retry") == 2


async def test_the_time_of_a_retry_is_kept_over_kills() -> None:
    """Killed while it sleeps, a run wakes at the time that was recorded, not later."""
    clock, node = ManualClock(), Unlucky(1)
    workflow = line("w", {"node": node, "next": adds_one}, retry=LONG).build()
    async with running(workflow, MemoryStore(clock=clock)) as engine:
        task = asyncio.create_task(engine.run(5, "s"))
        await until(lambda: clock.sleeping > 0)
        wake_at = (await engine.manager.head("s")).summary.wake_at
        clock.advance(70)
        await kill(task)
        result = await engine.resume("s", wait=False)
        assert result.wake_at == wake_at
        clock.advance(30)
        assert (await engine.resume("s", wait=False)).status == "completed"
        assert node.attempts == [1, 2]


async def test_a_sleeper_whose_owner_died_is_recovered_when_its_time_has_come() -> None:
    """`recover` adopts a sleeping run once it is due, and leaves it alone before."""
    clock, node = ManualClock(), Unlucky(1)
    store = VanishingStore(clock)
    workflow = line("w", {"node": node, "next": adds_one}, retry=LONG).build()
    async with running(workflow, store, lease_s=5.0) as engine:
        await engine.run(5, "s", wait=False)
        clock.advance(10)
        assert await engine.recover() == []
        clock.advance(100)
        assert [r.status for r in await engine.recover()] == ["completed"]
        assert node.attempts == [1, 2]


async def test_a_due_retry_is_not_held_up_by_a_run_that_goes_on() -> None:
    """A retry whose time has come joins the next step, although other nodes still run."""
    clock, node = ManualClock(), Unlucky(1)
    turns: list[int] = []

    async def ticker(value: int) -> int | None:
        turns.append(len(node.attempts))
        clock.advance(30)
        return value + 1 if len(turns) < 10 else None

    from raf import LoopOptions

    builder = line("w", {"start": passes, "next": adds_one})
    builder.add_node("node", node, retry=LONG).add_node("ticker", ticker)
    builder.add_edge("start", "node").add_edge("start", "ticker").add_edge("node", "next")
    builder.add_loop("ticker", "ticker", LoopOptions(100))
    async with running(builder.build(), MemoryStore(clock=clock), lease_s=10_000) as engine:
        result = await engine.run(5, "s", wait=False)
        assert result.status == "completed"
        assert turns[0] == 1
        assert turns[-1] == 2


async def test_effects_and_counts_survive_a_long_wait() -> None:
    """What an attempt did outside is not repeated by one that comes hours later."""
    clock, ledger = ManualClock(), Ledger()

    async def node(ctx: Context, value: int) -> str:
        got = await ctx.effect("pay", ledger.note, "paid")
        if ctx.attempt < 3:
            raise ConnectionError
        return f"paid {got} time, attempt {ctx.attempt}"

    workflow = line("w", {"node": node}, retry=LONG).build()
    async with running(workflow, MemoryStore(clock=clock)) as engine:
        for _ in range(2):
            assert (await engine.run(5, "s", wait=False)).status == "sleeping"
            clock.advance(200)
        assert (await engine.run(5, "s", wait=False)).outputs == ["paid 1 time, attempt 3"]
        assert ledger["paid"] == 1


async def test_a_woken_attempt_has_the_time_of_its_message() -> None:
    """What is derived from the invocation stays equal over a long wait, so its effects are found."""
    clock, ledger = ManualClock(), Ledger()
    seen: list[tuple[float, str]] = []

    async def node(ctx: Context, value: int) -> int:
        seen.append((ctx.now(), ctx.uuid("k")))
        got: int = await ctx.effect("pay", ledger.note, f"paid at {ctx.now()}")
        if ctx.attempt < 3:
            raise ConnectionError
        return got

    workflow = line("w", {"first": passes, "node": node}, retry=LONG).build()
    async with running(workflow, MemoryStore(clock=clock)) as engine:
        for _ in range(2):
            clock.advance(7)
            assert (await engine.run(5, "s", wait=False)).status == "sleeping"
            clock.advance(200)
        assert (await engine.run(5, "s", wait=False)).outputs == [1]
        assert len(set(seen)) == 1
        assert ledger.total() == 1
