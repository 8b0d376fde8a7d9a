"""Workflows whose nodes leave a witness in the working folder, for tests with real workers.

A line of `ledger` is written for each thing that really happened.  Nodes that wait do so until the
file `open` is there.
"""

import asyncio
import os
from pathlib import Path

from raf import Context, RetryPolicy, Workflow, WorkflowBuilder
from raf.testing import arm_from_environment

STEPS = 5


def note(what: str) -> int:
    """Write down that something happened; returns how often it did."""
    ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(ledger, f"{what}\n".encode())
    os.close(ledger)
    return Path("ledger").read_text(encoding="utf-8").splitlines().count(what)


async def opened() -> None:
    """Return when the test lets the nodes go on."""
    while not Path("open").exists():  # noqa: ASYNC110, ASYNC240 - the test makes the file
        await asyncio.sleep(0.005)


async def act(key: str) -> str:
    """An effect: what it did is known by its key."""
    note(f"effect {key}")
    return key


async def acts(ctx: Context, number: int) -> int:
    """A node with an effect, which is slow enough to be killed in the middle."""
    note(f"{ctx.session_id} {ctx.node}")
    await ctx.effect("act", act, ctx.idempotency_key("act"))
    await asyncio.sleep(0.01)
    return number + 1


async def waits(ctx: Context, number: int) -> int:
    """A node that waits until it may go on."""
    note(f"{ctx.session_id} waits")
    await opened()
    return number + 1


def exits(number: int) -> int:
    """A node that takes its process along."""
    note("exits")
    os._exit(9)


async def late(ctx: Context, number: int) -> int:
    """A node that fails once, and whose next attempt is far enough away for a kill."""
    if note("late") == 1:
        raise ValueError("not yet")
    return number + 1


def line(name: str, *handlers: object, retry: RetryPolicy | None = None) -> Workflow:
    """Nodes `n0`, `n1` … one after the other."""
    builder = WorkflowBuilder(name).set_start("n0")
    for place, handler in enumerate(handlers):
        builder.add_node(f"n{place}", handler, retry=retry)  # type: ignore[arg-type]
        if place:
            builder.add_edge(f"n{place - 1}", f"n{place}")
    return builder.build()


crowd = line("crowd", *[acts] * STEPS)
slow = line("slow", waits, acts)
poison = line("poison", exits)
backoff = line("backoff", late, retry=RetryPolicy(attempts=2, backoff_s=30, jitter="none"))

arm_from_environment()
