"""Deadlines of attempts, heartbeats, threads, and how many nodes run at once."""

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from raf import Context, RetryPolicy, WorkflowBuilder, WorkflowEngine
from raf.errors import ConfigurationError, NodeTimeoutError, RunFailedError
from tests.unit.engine.stage import Gate, Ledger, adds_one, collects, fan, line, passes, running


async def test_an_attempt_past_its_deadline_is_cancelled_and_fails() -> None:
    """The node is cancelled, its siblings go on, and the error names the limit."""
    ended = asyncio.Event()

    async def node(value: int) -> int:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return value

    async with running(line("w", {"node": node}, timeout_s=0.02).build()) as engine:
        with pytest.raises(RunFailedError, match=r"longer than 0\.02 s in one attempt") as failed:
            await engine.run(1, "s")
        assert isinstance(failed.value.__cause__, NodeTimeoutError)
        assert ended.is_set()


async def test_a_deadline_counts_for_each_attempt() -> None:
    """A timed-out attempt is a failure like another: the policy tries again, with a new deadline."""
    calls = Ledger()

    async def node(value: int) -> int:
        if calls.note("node") < 3:
            await asyncio.Event().wait()
        return value

    retry = RetryPolicy(attempts=3, backoff_s=0, on=(NodeTimeoutError,))
    async with running(line("w", {"node": node}, timeout_s=0.02, retry=retry).build()) as engine:
        assert (await engine.run(1, "s")).outputs == [1]
        assert calls["node"] == 3


async def test_a_silent_attempt_fails_and_one_that_beats_goes_on() -> None:
    """`idle_timeout_s` counts from the last heartbeat, not from the start."""

    async def alive(ctx: Context, value: int) -> int:
        for _ in range(12):
            ctx.heartbeat()
            await asyncio.sleep(0.05)
        return value

    async def silent(ctx: Context, value: int) -> int:
        ctx.heartbeat()
        await asyncio.Event().wait()
        return value

    async with running(line("w", {"alive": alive}, idle_timeout_s=0.4).build()) as engine:
        assert (await engine.run(1, "s")).outputs == [1]
    async with running(line("w", {"silent": silent}, idle_timeout_s=0.05).build()) as engine:
        with pytest.raises(RunFailedError, match="without a heartbeat"):
            await engine.run(1, "s")


async def test_a_timeout_of_the_nodes_own_is_its_own_error() -> None:
    """A `TimeoutError` that the node raised is not taken for its deadline."""

    async def node(value: int) -> int:
        raise TimeoutError("the service")

    async with running(line("w", {"node": node}, timeout_s=30, idle_timeout_s=30).build()) as e:
        with pytest.raises(RunFailedError, match="TimeoutError: the service"):
            await e.run(1, "s")


async def test_a_node_that_cancels_itself_has_failed() -> None:
    """A `CancelledError` that nobody asked for is a failure, not the end of the run."""

    async def node(value: int) -> int:
        raise asyncio.CancelledError

    async with running(line("w", {"node": node}).build()) as engine:
        result = await engine.run(1, "s", check=False)
        assert (result.status, "cancelled itself" in result.reason) == ("failed", True)


async def test_sync_nodes_run_side_by_side_in_threads() -> None:
    """Sync nodes of one step run at the same time and hold up neither the loop nor each other."""
    meeting = threading.Barrier(3, timeout=10)
    turned = asyncio.Event()

    def blocking(value: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        meeting.wait()
        return value

    async def waits(value: int) -> int:
        turned.set()
        await asyncio.to_thread(meeting.wait)
        return value

    workers = {"a": blocking, "b": blocking, "c": waits}
    async with running(fan("w", passes, workers, collects).build()) as engine:
        assert (await engine.run(1, "s")).outputs == [[1, 1, 1]]


async def test_a_sync_node_has_the_whole_context() -> None:
    """State, sends and outputs work from a thread, and context variables are those of the caller."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    def node(ctx: Context, value: int) -> int:
        ctx.state["seen"] = variable.get()
        ctx.output("from a thread")
        return value

    async with running(line("w", {"node": node, "next": adds_one}).build()) as engine:
        variable.set("mine")
        result = await engine.run(1, "s")
        assert result.outputs == ["from a thread", 2]
        assert (await engine.state("s")).state_data == {"node": {"seen": "mine"}}


class Crowd:
    """Counts how many of its nodes are inside at once."""

    def __init__(self, size: int) -> None:
        self.inside = self.most = 0
        self.size = size

    async def node(self, value: int) -> int:
        self.inside += 1
        self.most = max(self.most, self.inside)
        for _ in range(5):
            await asyncio.sleep(0)
        self.inside -= 1
        return value

    def workflow(self, **options: Any) -> Any:
        workers = {f"n{number}": self.node for number in range(self.size)}
        return fan("w", passes, workers, collects, **options).build()


@pytest.mark.parametrize(("limit", "most"), [(None, 8), (1, 1), (3, 3), (20, 8)])
async def test_so_many_nodes_run_at_once(limit: int | None, most: int) -> None:
    """`max_concurrency` of the engine bounds the nodes of a step; None runs them all."""
    crowd = Crowd(8)
    async with running(crowd.workflow(), max_concurrency=limit) as engine:
        assert (await engine.run(1, "s")).outputs == [[1] * 8]
        assert crowd.most == most


async def test_so_many_invocations_of_one_node_run_at_once() -> None:
    """A node's own `max_concurrency` bounds its invocations, and no other node's."""
    crowd, free = Crowd(0), Crowd(0)

    async def start(ctx: Context, value: int) -> None:
        for number in range(6):
            ctx.send(number)

    builder = WorkflowBuilder("w").add_node("start", start).set_start("start")
    builder.add_node("held", crowd.node, max_concurrency=2).add_edge("start", "held")
    builder.add_node("free", free.node).add_edge("start", "free")
    async with running(builder.build()) as engine:
        result = await engine.run(0, "s")
        assert len(result.outputs) == 12
        assert (crowd.most, free.most) == (2, 6)


async def test_a_node_that_waits_for_its_retry_keeps_its_place() -> None:
    """Limits hold while attempts are repeated: nobody else slips in, and all are done."""
    calls = Ledger()

    async def node(value: int) -> int:
        if calls.note("node") % 2:
            raise ConnectionError
        return value

    workers = dict.fromkeys(("a", "b", "c"), node)
    retry = RetryPolicy(attempts=2, backoff_s=0)
    async with running(
        fan("w", passes, workers, collects, retry=retry).build(), max_concurrency=1
    ) as engine:
        assert (await engine.run(1, "s")).outputs == [[1, 1, 1]]
        assert calls["node"] == 6


@pytest.mark.parametrize(
    "options",
    [
        {"max_concurrency": 0},
        {"max_concurrency": -1},
        {"max_concurrency": True},
        {"max_concurrency": 1.5},
        {"max_steps": 0},
        {"max_steps": "9"},
        {"lease_s": 0},
        {"lease_s": -3.0},
        {"lease_s": float("nan")},
        {"lease_s": float("inf")},
        {"threads": 0},
        {"durability": "never"},
    ],
)
def test_options_of_the_engine_are_checked(options: dict[str, Any]) -> None:
    """A limit that could never be met is refused when the engine is made."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        WorkflowEngine(line("w", {"node": passes}).build(), **options)


@pytest.mark.parametrize(
    "options",
    [{"max_steps": 0}, {"max_steps": -1}, {"max_steps": True}, {"durability": "never"}],
)
async def test_options_of_a_call_are_checked(options: dict[str, Any]) -> None:
    """The same holds for a call, and nothing of it is written."""
    async with running(line("w", {"node": passes}).build()) as engine:
        with pytest.raises(ConfigurationError, match=next(iter(options))):
            await engine.run(1, "s", **options)
        assert [head async for head in engine.manager.heads()] == []


def test_only_a_built_workflow_makes_an_engine() -> None:
    """A builder is not taken for a workflow."""
    with pytest.raises(ConfigurationError, match=r"build\(\)"):
        WorkflowEngine(line("w", {"node": passes}))  # type: ignore[arg-type]


async def test_a_thread_that_ends_after_the_run_changes_nothing() -> None:
    """A sync node that outlives its cancelled run can send and write no more."""
    gate, told = threading.Event(), Gate()
    loop = asyncio.get_running_loop()
    refused: list[Exception] = []

    def node(ctx: Context, value: int) -> int:
        loop.call_soon_threadsafe(told.reached.set)
        gate.wait(10)
        try:
            ctx.send(value)
        except ConfigurationError as error:
            refused.append(error)
        loop.call_soon_threadsafe(told.open.set)
        return value

    async with running(line("w", {"node": node, "next": adds_one}).build()) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await told.reached.wait()
        assert await engine.cancel("s") == "cancelled"
        assert (await task).status == "cancelled"
        before = await engine.manager.head("s")
        gate.set()
        await told.open.wait()
        assert await engine.manager.head("s") == before
        assert len(refused) == 1
