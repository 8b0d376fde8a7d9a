"""One small session in a process of its own, whose system calls can be counted.

    add -> add -> add -> finish, each `add` with an effect

Rules of this file, so that the n-th call of a kind is the same one each time:
- On the file store all work is done in one thread: calls are counted by thread.
- What is told to the outside (starts, effects, the result) goes by `writev`, which no store uses.
"""

import asyncio
import json
import os
import sys
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from raf import (
    CheckpointConfig,
    Context,
    LoopOptions,
    RafError,
    RetryPolicy,
    Workflow,
    WorkflowBuilder,
)
from raf import WorkflowEngine as Engine
from raf.engine.commits import Durability

SESSION: Final = "small"
ROUNDS: Final = 5
CHECKPOINTS: Final = CheckpointConfig(full_snapshot_interval=2, max_checkpoints=3)
# A node that takes longer has its result journaled.
LONG_S: Final = 0.012
FAILED: Final = 3
MOST_LOSSES: Final = 50  # a kill is no fault of the node, and there may be many


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallJob:
    """What the process does.

    Args:
        folder: Where it tells what happened.
        url: The store.
        run: False: only open the store and close it.
        rounds: How many passes the loop has.
        slow: Whether nodes last long enough to be journaled.
        effects: Whether each `add` has an effect.
    """

    folder: str
    url: str
    run: bool = True
    rounds: int = ROUNDS
    durability: Durability = "sync"
    slow: bool = False
    effects: bool = True

    @property
    def told(self) -> Path:
        """What the nodes told, a JSON line each."""
        return Path(self.folder, "told")


def output(job: SmallJob) -> list[int]:
    """What the session returns."""
    return [10 * 2**job.rounds]


class Teller:
    """A file of JSON lines; a kill takes nothing of it, for the kernel has it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def tell(self, what: str, **more: object) -> None:
        """Append one line."""
        os.writev(self._file, [json.dumps({"what": what, **more}).encode() + b"\n"])


def lines_of(job: SmallJob) -> list[dict[str, Any]]:
    """All that was told; none is torn, for each is one write."""
    return [json.loads(line) for line in job.told.read_bytes().splitlines()]


def small(teller: Teller, job: SmallJob) -> Workflow:
    """The workflow; what its nodes return depends on their payload alone."""

    def outside(ctx: Context, key: str, value: int) -> int:
        token = ctx.idempotency_key(key)
        teller.tell(
            "effect", session=ctx.session_id, step=ctx.step, message=ctx.message, token=token
        )
        return 2 * value

    async def add(ctx: Context, value: int) -> int:
        teller.tell("start", step=ctx.step, message=ctx.message, node="add")
        if job.slow:
            await asyncio.sleep(LONG_S)
        if not job.effects:
            return 2 * value
        done: int = await ctx.effect("double", partial(outside, ctx, "double"), value)
        return done

    async def finish(ctx: Context, value: int) -> int:
        teller.tell("start", step=ctx.step, message=ctx.message, node="finish")
        return value

    def high(value: int) -> bool:
        return value >= output(job)[0]

    return (
        WorkflowBuilder("small")
        .add_node("add", add, retry=RetryPolicy(attempts=MOST_LOSSES))
        .add_node("finish", finish)
        .set_start("add")
        .add_loop("add", "add", LoopOptions(job.rounds + 1, until=high))
        .add_edge("add", "finish")
        .build()
    )


async def run(
    job: SmallJob, teller: Teller, checkpoints: CheckpointConfig = CHECKPOINTS
) -> list[Any]:
    """Run the session, or go on with it, or return what it returned."""
    workflow = small(teller, job)
    async with Engine(
        workflow, job.url, checkpoints=checkpoints, durability=job.durability
    ) as engine:
        if not job.run:
            return []
        outputs = (await engine.run(10, SESSION)).outputs
        teller.tell("returned")
    return list(outputs)


class OneThread(asyncio.SelectorEventLoop):
    """An event loop that does at once what others would give to a thread."""

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> "Future[Any]":
        del executor
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            future.set_exception(error)
        return future


def loop_of(job: SmallJob) -> Callable[[], AbstractEventLoop]:
    """The event loop for a store; SQLite has its own writer, which is one thread anyway."""
    return OneThread if job.url.startswith("file:") else asyncio.SelectorEventLoop


def main(job: SmallJob) -> None:
    """Run the script in this process and tell how it ended."""
    teller = Teller(job.told)
    with asyncio.Runner(loop_factory=loop_of(job)) as runner:
        try:
            outputs = runner.run(run(job, teller))
        except RafError as error:
            teller.tell("end", error=type(error).__name__, text=str(error))
            sys.exit(FAILED)
    teller.tell("end", outputs=outputs)
