"""Effects: done once, recorded, never repeated once recorded, and reported when in doubt."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from raf import Context, LoopOptions, RetryPolicy, WorkflowBuilder
from raf.errors import (
    ConfigurationError,
    DuplicateEffectKeyError,
    EffectChangedError,
    EffectInDoubtError,
    EffectNotAwaitedError,
    NotSerializableError,
    RunFailedError,
)
from raf.store.memory import MemoryStore
from raf.store.model import Commit, Lease
from raf.testing import ManualClock
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    SlowStore,
    VanishingStore,
    journal_of,
    kill,
    line,
    passes,
    running,
    settle,
)


def one(node: Any, **options: Any) -> Any:
    """A workflow of one node."""
    return line("w", {"node": node}, **options).build()


async def test_a_recorded_effect_is_returned_and_not_repeated_after_a_kill() -> None:
    """Two of three effects are recorded, then the run is killed: on resume only the third runs."""
    ledger, gate = Ledger(), Gate()

    async def node(ctx: Context, value: int) -> list[Any]:
        got = []
        for key in ("a", "b", "c"):
            got.append(await ctx.effect(key, ledger.note, key))
            if key == "b" and not gate.open.is_set():
                await gate.stop()
        return got

    async with running(one(node)) as engine:
        task = asyncio.create_task(engine.run(0, "s"))
        await gate.reached.wait()
        await kill(task)
        gate.open.set()
        assert (await engine.run(0, "s")).outputs == [[1, 1, 1]]
        assert ledger == {"a": 1, "b": 1, "c": 1}


async def test_effects_of_a_failed_attempt_are_served_to_the_next() -> None:
    """An attempt that failed leaves its recorded effects, and nothing else."""
    ledger = Ledger()

    async def node(ctx: Context, value: int) -> int:
        got: int = await ctx.effect("pay", ledger.note, "pay")
        if ctx.attempt < 3:
            raise ValueError
        return got

    async with running(one(node, retry=RetryPolicy(attempts=3, backoff_s=0))) as engine:
        assert (await engine.run(0, "s")).outputs == [1]
        assert ledger["pay"] == 1


async def test_effects_survive_the_failure_of_their_run() -> None:
    """Effects 1 and 2 done, 3 fails the run; mended and resumed, each was done once."""
    ledger, broken = Ledger(), [True]

    def third() -> int:
        if broken[0]:
            raise ConnectionError
        return ledger.note("3")

    async def node(ctx: Context, value: int) -> int:
        await ctx.effect("1", ledger.note, "1")
        await ctx.effect("2", ledger.note, "2")
        result: int = await ctx.effect("3", third)
        return result

    async with running(one(node)) as engine:
        for _ in range(3):
            assert (await engine.run(0, "s", check=False)).status == "failed"
        broken[0] = False
        assert (await engine.resume("s")).outputs == [1]
        assert ledger == {"1": 1, "2": 1, "3": 1}


async def test_an_effect_that_fails_raises_what_it_raised_and_may_run_again() -> None:
    """A failed effect is not recorded: its error is the node's to handle, and it may be retried."""
    tries = Ledger()

    def shaky() -> str:
        if tries.note("shaky") == 1:
            raise TimeoutError("slow")
        return "done"

    async def node(ctx: Context, value: int) -> str:
        result: str = await ctx.effect("shaky", shaky)
        return result

    async with running(one(node, retry=RetryPolicy(attempts=2, backoff_s=0))) as engine:
        assert (await engine.run(0, "s")).outputs == ["done"]


async def test_a_key_twice_in_one_attempt_is_an_error() -> None:
    """Two live effects with one key cannot be told apart; the second is not run."""
    ledger = Ledger()

    async def node(ctx: Context, value: int) -> None:
        await ctx.effect("k", ledger.note, "first")
        await ctx.effect("k", ledger.note, "second")

    async with running(one(node)) as engine:
        with pytest.raises(RunFailedError, match="'k' twice") as failed:
            await engine.run(0, "s")
        assert isinstance(failed.value.__cause__, DuplicateEffectKeyError)
        assert ledger == {"first": 1}


async def test_other_arguments_under_a_recorded_key_are_an_error() -> None:
    """A record answers only for the arguments it was made with; it is neither used nor redone."""
    ledger, amount = Ledger(), [10]

    async def node(ctx: Context, value: int) -> None:
        await ctx.effect("pay", ledger.note, str(amount[0]))
        raise ValueError

    async with running(one(node)) as engine:
        await engine.run(0, "s", check=False)
        amount[0] = 11
        with pytest.raises(RunFailedError, match=r"'pay'.*other arguments") as failed:
            await engine.resume("s")
        assert isinstance(failed.value.__cause__, EffectChangedError)
        assert ledger == {"10": 1}


async def test_arguments_that_cannot_be_stored_are_refused_and_partial_binds_a_client() -> None:
    """What cannot be compared after a crash is refused before the effect runs; clients are bound."""
    ledger = Ledger()
    bound = [False]

    class Client:
        def call(self, text: str) -> int:
            return ledger.note(text)

    def send(client: Client, text: str) -> int:
        return client.call(text)

    async def node(ctx: Context, value: int) -> int:
        client = Client()
        if bound[0]:
            result: int = await ctx.effect("send", partial(send, client), "x")
            return result
        await ctx.effect("send", send, client, "x")
        return 0

    async with running(one(node)) as engine:
        with pytest.raises(RunFailedError, match="argument of effect 'send'") as failed:
            await engine.run(0, "s")
        assert isinstance(failed.value.__cause__, NotSerializableError)
        assert not ledger
        bound[0] = True
        assert (await engine.resume("s")).outputs == [1]


async def test_a_result_comes_live_as_it_comes_from_the_record() -> None:
    """The first call returns an equal value of equal type as the recorded one: a copy."""
    shared = {"rows": [1, 2]}
    seen: list[Any] = []

    async def node(ctx: Context, value: int) -> None:
        result = await ctx.effect("get", lambda: shared)
        seen.append(result)
        assert result is not shared
        if len(seen) == 1:
            raise ValueError

    async with running(one(node)) as engine:
        await engine.run(0, "s", check=False)
        shared["rows"].append(3)
        await engine.resume("s")
        assert seen == [{"rows": [1, 2]}, {"rows": [1, 2]}]
        assert [type(value) for value in seen] == [dict, dict]


async def test_a_result_that_cannot_be_stored_is_the_nodes_error() -> None:
    """The error names the effect; the action did run, and is not hidden as done."""

    async def node(ctx: Context, value: int) -> None:
        await ctx.effect("get", object)

    async with running(one(node)) as engine:
        with pytest.raises(RunFailedError, match="result of effect 'get'"):
            await engine.run(0, "s")


async def gather(tasks: Sequence["asyncio.Future[str]"]) -> None:
    await asyncio.gather(*tasks)


async def wait(tasks: Sequence["asyncio.Future[str]"]) -> None:
    waiting: set[asyncio.Future[str]] = set(tasks)
    while waiting:
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)


async def as_completed(tasks: Sequence["asyncio.Future[str]"]) -> None:
    for task in asyncio.as_completed(tasks):
        await task


DRIVES = {"gather": gather, "wait": wait, "as_completed": as_completed}


@pytest.mark.parametrize("drive", DRIVES)
async def test_effects_side_by_side_are_served_by_key(drive: str) -> None:
    """Five effects at once, killed after three: three are served from the record, two run."""
    ledger, gate = Ledger(), Gate()
    order = ["c", "a", "e", "b", "d"]

    async def act(key: str) -> str:
        ledger.note(key)
        if not gate.open.is_set() and key in "bd":
            await gate.stop()
        return key.upper()

    async def node(ctx: Context, value: int) -> list[str]:
        tasks = [asyncio.ensure_future(ctx.effect(key, act, key)) for key in order]
        await DRIVES[drive](tasks)
        return [task.result() for task in tasks]

    store = MemoryStore()
    async with running(one(node), store) as engine:
        run = asyncio.create_task(engine.run(0, "s"))
        await gate.reached.wait()
        for _ in range(100):
            if len(await journal_of(store, "s")) == 3:
                break
            await settle()
        await kill(run)
        gate.open.set()
        order.reverse()
        assert (await engine.run(0, "s")).outputs == [["D", "B", "E", "A", "C"]]
        assert ledger == {"a": 1, "b": 2, "c": 1, "d": 2, "e": 1}


async def test_an_effect_that_is_not_awaited_is_an_error() -> None:
    """A node that ends before its effect is refused, naming the effect; nothing is recorded later."""
    gate, done = Gate(), Ledger()
    left: list[Any] = []
    store = MemoryStore()

    async def act() -> int:
        await gate.stop()
        return done.note("act")

    async def node(ctx: Context, value: int) -> int:
        left.append(asyncio.ensure_future(ctx.effect("late", act)))
        await gate.reached.wait()
        return value

    async with running(one(node), store) as engine:
        with pytest.raises(RunFailedError, match="'late'") as failed:
            await engine.run(0, "s")
        assert isinstance(failed.value.__cause__, EffectNotAwaitedError)
        before = await engine.manager.head("s")
        gate.open.set()
        await asyncio.gather(*left, return_exceptions=True)
        assert await engine.manager.head("s") == before


async def test_a_dropped_effect_error_is_the_nodes_own_affair() -> None:
    """A node may catch what its effect raised; the effect is then not recorded."""
    store = MemoryStore()

    def bad() -> None:
        raise ConnectionError

    async def node(ctx: Context, value: int) -> str:
        try:
            await ctx.effect("bad", bad)
        except ConnectionError:
            return "went on"
        return "unreachable"

    async with running(one(node), store) as engine:
        assert (await engine.run(0, "s")).outputs == ["went on"]


async def test_a_context_is_of_no_use_after_its_node() -> None:
    """Whoever kept the context of a finished node can send, output, emit and act no more."""
    kept: list[Context] = []

    async def node(ctx: Context, value: int) -> int:
        kept.append(ctx)
        return value

    async with running(one(node)) as engine:
        await engine.run(0, "s")
        ctx = kept[0]
        for use in (ctx.send, ctx.output, ctx.emit):
            with pytest.raises(ConfigurationError, match="after it had ended"):
                use(1)
        with pytest.raises(ConfigurationError, match="after it had ended"):
            await ctx.effect("k", passes, 1)


# -- in doubt --------------------------------------------------------------------------------------


async def test_an_effect_in_doubt_is_reported_and_not_run() -> None:
    """Begun under `on_doubt="fail"`, then the owner is gone: the key for the outside is named."""
    ledger, gate = Ledger(), Gate()
    keys: list[str] = []

    async def act() -> str:
        ledger.note("act")
        await gate.stop()
        return "done"

    async def node(ctx: Context, value: int) -> None:
        keys.append(ctx.idempotency_key("pay"))
        await ctx.effect("pay", act, on_doubt="fail")

    async with running(one(node, retry=5), VanishingStore(ManualClock())) as engine:
        task = asyncio.create_task(engine.run(0, "s"))
        await gate.reached.wait()
        await kill(task)
        for _ in range(2):
            with pytest.raises(RunFailedError, match=keys[0]) as failed:
                await engine.run(0, "s")
            assert isinstance(failed.value.__cause__, EffectInDoubtError)
        assert ledger["act"] == 1
        assert len(set(keys)) == 1


async def test_an_effect_with_retry_on_doubt_runs_again() -> None:
    """By default an effect whose end is unknown runs again, under the same idempotency key."""
    ledger, gate = Ledger(), Gate()

    async def act(key: str) -> str:
        ledger.note(key)
        if not gate.open.is_set():
            await gate.stop()
        return "done"

    async def node(ctx: Context, value: int) -> str:
        result: str = await ctx.effect("pay", act, ctx.idempotency_key("pay"))
        return result

    async with running(one(node)) as engine:
        task = asyncio.create_task(engine.run(0, "s"))
        await gate.reached.wait()
        await kill(task)
        gate.open.set()
        assert (await engine.run(0, "s")).outputs == ["done"]
        assert list(ledger.values()) == [2]


async def test_an_effect_that_said_it_failed_is_not_in_doubt() -> None:
    """An action that raised is known not to be done: it may run again."""
    tries = Ledger()

    def act() -> str:
        if tries.note("act") == 1:
            raise ConnectionError
        return "done"

    async def node(ctx: Context, value: int) -> str:
        result: str = await ctx.effect("pay", act, on_doubt="fail")
        return result

    async with running(one(node, retry=RetryPolicy(attempts=2, backoff_s=0))) as engine:
        assert (await engine.run(0, "s")).outputs == ["done"]
    async with running(one(node)) as engine:
        tries.clear()
        await engine.run(0, "s", check=False)
        assert (await engine.resume("s")).outputs == ["done"]


async def test_an_attempt_cut_off_in_an_effect_leaves_it_in_doubt() -> None:
    """A timeout in the middle of an action leaves its end unknown, in this process as after a kill."""
    ledger, gate = Ledger(), Gate()

    async def act() -> str:
        ledger.note("act")
        await gate.stop()
        return "done"

    async def node(ctx: Context, value: int) -> None:
        await ctx.effect("pay", act, on_doubt="fail")

    retry = RetryPolicy(attempts=3, backoff_s=0)
    async with running(one(node, timeout_s=0.02, retry=retry)) as engine:
        with pytest.raises(RunFailedError, match="its result is unknown"):
            await engine.run(0, "s")
        assert ledger["act"] == 1


async def test_doubt_outlives_a_long_wait() -> None:
    """An effect in doubt stays so when another failure suspends its node meanwhile."""
    clock, ledger, gate = ManualClock(), Ledger(), Gate()
    broken = [True]

    async def act() -> str:
        ledger.note("act")
        await gate.stop()
        return "done"

    async def node(ctx: Context, value: int) -> None:
        if broken[0] and gate.reached.is_set():
            raise ConnectionError
        await ctx.effect("pay", act, on_doubt="fail")

    retry = RetryPolicy(attempts=5, backoff_s=100, max_backoff_s=1000, jitter="none")
    async with running(one(node, retry=retry), VanishingStore(clock)) as engine:
        task = asyncio.create_task(engine.run(0, "s"))
        await gate.reached.wait()
        await kill(task)
        assert (await engine.run(0, "s", wait=False)).status == "sleeping"
        broken[0] = False
        clock.advance(1000)
        gate.open.set()
        with pytest.raises(RunFailedError, match="its result is unknown"):
            await engine.run(0, "s", wait=False)
        assert ledger["act"] == 1


# -- identity --------------------------------------------------------------------------------------


async def test_idempotency_keys_agree_between_attempts_and_differ_otherwise() -> None:
    """One key for all attempts of an invocation; another for each pass, run, node, session, fork."""
    seen: list[tuple[str, str, int, str]] = []
    gate = Gate()

    async def node(ctx: Context, value: int) -> int:
        seen.append((ctx.session_id, ctx.run_id, ctx.message, ctx.idempotency_key("k")))
        assert ctx.idempotency_key("k") != ctx.idempotency_key("l")
        if ctx.attempt == 1 and not gate.open.is_set():
            gate.open.set()
            raise ConnectionError
        return value

    builder = line("w", {"node": node}, retry=RetryPolicy(attempts=2, backoff_s=0))
    workflow = builder.add_loop("node", "node", LoopOptions(3)).build()
    async with running(workflow) as engine:
        await engine.run(0, "a")
        await engine.run(0, "a", run_id="second")
        await engine.run(0, "b")
        await engine.fork("a", "c", 1)
        await engine.resume("c")
    assert seen[0] == seen[1]
    rest = seen[1:]
    assert len({key for *_, key in rest}) == len(rest) == 11


async def test_a_second_run_does_not_find_the_effects_of_the_first() -> None:
    """A run that uses the keys and messages of an earlier one does its own effects."""
    ledger = Ledger()

    async def node(ctx: Context, value: int) -> int:
        result: int = await ctx.effect("k", ledger.note, "k")
        return result

    async with running(one(node)) as engine:
        for number in (1, 2, 3):
            result = await engine.run(0, "s", run_id=f"run {number}")
            assert result.outputs == [number]


async def test_derived_values_are_equal_on_a_re_run() -> None:
    """Time, ids and chance of an invocation are the same when it runs again, and differ by key."""
    seen: list[tuple[Any, ...]] = []
    gate, clock = Gate(), ManualClock()

    async def node(ctx: Context, value: int) -> None:
        seen.append((ctx.now(), ctx.uuid("a"), ctx.random("a"), ctx.attempt))
        assert ctx.uuid("a") != ctx.uuid("b")
        assert ctx.random("a") != ctx.random("b")
        assert 0.0 <= ctx.random("a") < 1.0
        if not gate.open.is_set():
            await gate.stop()

    for durability in ("sync", "async", "exit"):
        seen.clear()
        gate.open.clear()
        gate.reached.clear()
        workflow = line("w", {"first": passes, "node": node}).build()
        async with running(workflow, MemoryStore(clock=clock), durability=durability) as engine:
            task = asyncio.create_task(engine.run(0, "s"))
            await gate.reached.wait()
            await kill(task)
            clock.advance(100)
            gate.open.set()
            await engine.run(0, "s")
        if durability != "exit":  # its first step was never durable, so it was another step
            assert seen[0] == seen[1]


async def test_time_is_equal_on_a_re_run_although_steps_were_gathered() -> None:
    """Under "exit" the steps since the last commit become one: a re-run sees the same time."""
    clock, gate = ManualClock(), Gate()
    seen: list[float] = []

    async def slow(value: int) -> int:
        clock.advance(50)
        return value

    async def node(ctx: Context, value: int) -> None:
        seen.append(ctx.now())
        clock.advance(7)
        await ctx.effect("send", passes, int(ctx.now()))
        if not gate.open.is_set():
            await gate.stop()

    workflow = line("w", {"a": slow, "b": slow, "node": node}).build()
    async with running(
        workflow, MemoryStore(clock=clock), durability="exit", lease_s=86_400
    ) as engine:
        task = asyncio.create_task(engine.run(0, "s"))
        await gate.reached.wait()
        await kill(task)
        clock.advance(100)
        gate.open.set()
        await engine.run(0, "s")
        assert len(seen) == 2
        assert seen[0] == seen[1]


# -- what is durable when an effect runs -----------------------------------------------------------


class UnhurriedStore(MemoryStore):
    """Other tasks run before a commit is done."""

    async def commit(self, lease: Lease, commit: Commit) -> None:
        await settle()
        await super().commit(lease, commit)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_earlier_commits_are_durable_before_an_effect_runs(durability: Any) -> None:
    """In every mode an action begins only when all steps before it are on disk."""
    store = UnhurriedStore()
    commits: list[int] = []

    async def node(ctx: Context, value: int) -> None:
        async def act() -> None:
            reading = await engine.manager.head("s")
            commits.append(reading.summary.step)

        await asyncio.gather(*(ctx.effect(key, act) for key in "abc"))

    workflow = line("w", {"one": passes, "two": passes, "node": node}).build()
    async with running(workflow, store, durability=durability) as engine:
        await engine.run(0, "s")
    assert commits == [1, 1, 1]


async def test_no_effect_overtakes_a_commit_in_flight() -> None:
    """Under "async" each of several effects waits for the commit that is still being written."""
    store, ledger = SlowStore("commit", 2), Ledger()

    def node(name: str) -> Any:
        async def run(ctx: Context, value: int) -> None:
            await ctx.effect("act", ledger.note, name)

        return run

    builder = WorkflowBuilder("w").add_node("start", passes).set_start("start")
    for name in "abc":
        builder.add_node(name, node(name)).add_edge("start", name)
    async with running(builder.build(), store, durability="async") as engine:
        task = asyncio.create_task(engine.run(0, "s"))
        await store.gate.reached.wait()
        await settle()
        assert not ledger
        store.gate.open.set()
        await task
        assert ledger == {"a": 1, "b": 1, "c": 1}
