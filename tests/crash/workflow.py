"""The workflow that the campaigns kill, and the ledgers that its nodes keep outside the store.

    open -> plan -> left, middle, right -> (all) -> draft <-> polish -> check -> back to plan, or
    check -> quick, steady, slow -> slower -> (2 of quick, steady, slower) -> vote
    vote -> flaky, brittle (fallback: spare) -> (quiescent) -> report

A loop in a loop, a barrier inside a loop, a quorum with a late source, steps that last long enough
to be journaled, a node that fails and is tried again, one that gives up, effects in async and sync
nodes, shared state with reducers, private state that is set and deleted, durable events.  What a
node returns depends on its payload and the state alone.
"""

import asyncio
import json
import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict

from raf import Context, LoopOptions, RetryPolicy, Workflow, WorkflowBuilder
from raf.failpoint import failpoint
from tests.crash.witness import tell

NODE, EFFECT = "script.node", "script.effect"
MODULUS = 1_000_003


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What goes round: `rounds` of the outer loop, `turns` of the inner one in each."""

    seed: int
    rounds: int
    turns: int
    value: int = 0
    trail: tuple[str, ...] = ()


def task_of(seed: int) -> Task:
    """The input of a seed."""
    return Task(seed=seed, rounds=1 + seed % 2, turns=1 + (seed // 2) % 3, value=seed)


class Line(TypedDict):
    """What a ledger says of one moment: a node that started or ended, or an effect that ran."""

    what: str
    pid: int
    run: str
    step: int
    node: str
    message: int
    attempt: int
    key: str
    token: str


class Ledger:
    """A file that nodes append to; a kill takes nothing of it, for the kernel has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def write(self, what: str, ctx: Context, key: str = "") -> None:
        """Append one line in one write; an effect is synced too."""
        line = Line(
            what=what,
            pid=os.getpid(),
            run=ctx.run_id,
            step=ctx.step,
            node=ctx.node,
            message=ctx.message,
            attempt=ctx.attempt,
            key=key,
            token=ctx.idempotency_key(key) if key else "",
        )
        os.write(self._file, json.dumps(line).encode() + b"\n")
        if key:
            os.fsync(self._file)

    def close(self) -> None:
        """Let the file go."""
        os.close(self._file)


def read_ledger(path: Path) -> list[Line]:
    """All lines of a ledger; none is torn, for each is one write."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def smooth(task: Task) -> bool:
    """Whether the inner loop is done."""
    return task.trail.count("polish") % task.turns == 0


def enough(task: Task, state: Any) -> bool:
    """Whether the outer loop is done; looks at shared state too."""
    return task.trail.count("check") >= task.rounds and state.scope("book").get("total", 0) > 0


def act(key: str, value: int) -> int:
    """What an effect does outside, beside its line in the ledger."""
    return (value * 7 + len(key)) % MODULUS


class Nodes:
    """The handlers; each tells the ledger that it started before it does anything.

    Args:
        ledger: Where starts, ends and effects are told.
        linger_s: Seconds that `open` takes, long enough for a lease to be renewed.
        gate: `right` does not end before this file is there.
        on_doubt: What effects do that were begun before a crash.
        witness: The socket of a witness that each effect is told to; empty for none.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        linger_s: float = 0.0,
        gate: Path | None = None,
        on_doubt: Literal["retry", "fail"] = "retry",
        witness: str = "",
    ) -> None:
        self._ledger = ledger
        self._linger_s = linger_s
        self._gate = gate
        self._on_doubt = on_doubt
        self._witness = witness

    @contextmanager
    def _told(self, ctx: Context) -> Iterator[None]:
        self._ledger.write("start", ctx)
        failpoint("script.node.before")
        yield
        failpoint("script.node.after")
        self._ledger.write("end", ctx)

    def _next(self, ctx: Context, task: Task, *more: int) -> Task:
        value = (task.value * 31 + zlib.crc32(ctx.node.encode()) + sum(more)) % MODULUS
        return replace(task, value=value, trail=(*task.trail, ctx.node))

    def _outside(self, ctx: Context, key: str, value: int) -> int:
        failpoint("script.effect.before")
        self._ledger.write("effect", ctx, key)
        if self._witness:
            tell(self._witness, ctx.idempotency_key(key))
        result = act(key, value)
        failpoint("script.effect.after")
        return result

    async def _effect(self, ctx: Context, key: str, value: int) -> int:
        outside = partial(self._outside, ctx, key)
        done: int = await ctx.effect(key, outside, value, on_doubt=self._on_doubt)
        return done

    async def open(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            await asyncio.sleep(self._linger_s)
            ctx.scope("book").update("seen", {ctx.run_id: task.seed})
            return self._next(ctx, task)

    async def plan(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            if "scratch" in ctx.state:
                del ctx.state["scratch"]
            else:
                ctx.state["scratch"] = list(task.trail)
            ctx.emit({"round": task.trail.count("check") + 1})
            return self._next(ctx, task)

    async def left(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            ctx.scope("book").append("log", f"left {task.value}")
            return self._next(ctx, task)

    async def middle(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            sent = await self._effect(ctx, "middle", task.value)
            await asyncio.sleep(0.014)
            ctx.scope("book").append("log", f"middle {sent}")
            return self._next(ctx, task, sent)

    def right(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            threading.Event().wait(0.022)
            while self._gate is not None and not self._gate.exists():
                threading.Event().wait(0.002)
            ctx.scope("book")["total"] = 1 + task.seed
            return self._next(ctx, task)

    async def draft(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            return self._next(ctx, task)

    async def gather(self, ctx: Context, tasks: dict[str, Task]) -> Task:
        with self._told(ctx):
            task = tasks["left"]
            return self._next(ctx, task, *(tasks[name].value for name in sorted(tasks)))

    async def polish(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            ctx.state["turns"] = ctx.state.get("turns", 0) + 1
            ctx.output(f"polished {task.value}")
            first = await self._effect(ctx, "first", task.value)
            second = await self._effect(ctx, "second", first)
            return self._next(ctx, task, second)

    async def check(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            return self._next(ctx, task)

    async def quick(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            return self._next(ctx, task)

    def steady(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            return self._next(ctx, task)

    async def slow(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            await asyncio.sleep(0.012)
            return self._next(ctx, task)

    async def slower(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            return self._next(ctx, task)

    async def vote(self, ctx: Context, tasks: list[Task]) -> Task:
        with self._told(ctx):
            ctx.emit({"votes": [task.value for task in tasks]})
            return self._next(ctx, tasks[0], *(task.value for task in tasks[1:]))

    async def flaky(self, ctx: Context, task: Task) -> Task:
        """Fails on every odd attempt, behind an effect that must not be repeated."""
        with self._told(ctx):
            sent = await self._effect(ctx, "flaky", task.value)
            if ctx.attempt % 2 == 1:
                raise ConnectionError("no line")
            return self._next(ctx, task, sent)

    async def brittle(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            raise ConnectionError(f"never {task.seed}")

    async def spare(self, ctx: Context, task: Task) -> Task:
        with self._told(ctx):
            return self._next(ctx, task)

    async def report(self, ctx: Context, tasks: dict[str, Task]) -> dict[str, Any]:
        with self._told(ctx):
            book = ctx.scope("book")
            return {
                "values": {name: task.value for name, task in sorted(tasks.items())},
                "log": len(book["log"]),
                "total": book["total"],
            }


def story(nodes: Nodes) -> Workflow:
    """The workflow of the campaigns."""
    again = RetryPolicy(attempts=5, backoff_s=0.002, max_backoff_s=0.004)
    builder = WorkflowBuilder("story")
    for name in (
        *("open", "plan", "left", "middle", "right", "gather", "draft", "polish", "check"),
        *("quick", "steady", "slow", "slower", "vote", "spare", "report"),
    ):
        builder.add_node(name, getattr(nodes, name))
    return (
        builder.add_node("flaky", nodes.flaky, retry=again)
        .add_node("brittle", nodes.brittle, retry=replace(again, attempts=2), fallback="spare")
        .set_start("open")
        .add_edge("open", "plan")
        .add_fan_out("plan", ["left", "middle", "right"])
        .add_fan_in(["left", "middle", "right"], "gather")
        .add_edge("gather", "draft")
        .add_edge("draft", "polish")
        .add_loop("polish", "draft", LoopOptions(5, until=smooth))
        .add_edge("polish", "check")
        .add_loop("check", "plan", LoopOptions(3, until=enough, loop_variable="round"))
        .add_fan_out("check", ["quick", "steady", "slow"])
        .add_edge("slow", "slower")
        .add_fan_in(["quick", "steady", "slower"], "vote", wait=2)
        .add_fan_out("vote", ["flaky", "brittle"])
        .add_fan_in(["flaky", "spare"], "report", wait="quiescent")
        .with_state("log", list, scope="book", reducer="append", initial=[])
        .with_state("total", int, scope="book", reducer="sum", initial=0)
        .with_state("seen", dict, scope="book", initial={})
        .with_output_from("report")
        .build()
    )


async def count_down(number: int) -> int:
    """One pass of the small workflow."""
    return number - 1


def at_zero(number: int) -> bool:
    """Whether the small workflow is done."""
    return number <= 0


def small() -> Workflow:
    """A short loop, for a session that is pruned, emptied and deleted."""
    return (
        WorkflowBuilder("small")
        .add_node("count", count_down)
        .set_start("count")
        .add_loop("count", "count", LoopOptions(20, until=at_zero))
        .build()
    )
