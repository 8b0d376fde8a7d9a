"""What a process of its own does for the tests of real processes.

Usage: `python -m tests.unit.engine.actor ROLE STORE SESSION FOLDER`; the role is a name of `ROLES`.
Each process says on its standard output what came of it, as one line of JSON, and its nodes note
every call in `FOLDER/ledger`, one line each, also when the process dies right behind.
"""

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from raf import Context, LoopOptions, Workflow, WorkflowBuilder, WorkflowEngine
from raf.errors import RafError, RunFailedError

folder = Path()


def note(what: str) -> int:
    """Write to the ledger; returns how often this was noted so far."""
    path = folder / "ledger"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{what}\n".encode())
    os.close(descriptor)
    return path.read_text().splitlines().count(what)


def is_open() -> bool:
    """Whether the test lets the nodes go on."""
    return (folder / "open").exists()


async def opened() -> None:
    """Return when the nodes may go on."""
    while not is_open():  # noqa: ASYNC110 - another process opens
        await asyncio.sleep(0.01)


def step(name: str) -> Callable[..., Any]:
    """A node of a line; the sixth stands still until it is let go on."""

    async def node(value: int) -> int:
        note(name)
        if name == "n05":
            await opened()
        return value + 1

    return node


def chain() -> Workflow:
    """Twenty nodes in a row."""
    names = [f"n{number:02}" for number in range(20)]
    builder = WorkflowBuilder("chain").set_start(names[0])
    for name in names:
        builder.add_node(name, step(name))
    for before, after in pairwise(names):
        builder.add_edge(before, after)
    return builder.build()


async def exits(value: int) -> int:
    """A node that takes its process with it."""
    note("exits")
    if not is_open():
        os._exit(1)
    return value


async def silent(value: int) -> int:
    """A node that waits for a socket that says nothing."""
    server = socket.create_server(("127.0.0.1", 0))
    server.setblocking(False)
    note("reached")
    await asyncio.get_running_loop().sock_accept(server)
    return value


def thread(value: int) -> int:
    """A sync node that cannot be interrupted."""
    note("reached")
    while not is_open():
        time.sleep(0.01)
    note("thread went on")
    return value


async def deaf(ctx: Context, value: int) -> int:
    """A node that catches whatever it is told, and then tries to leave something."""
    note("reached")
    while not is_open():
        try:
            await asyncio.sleep(0.01)
        except (asyncio.CancelledError, Exception):  # noqa: BLE001 - it will not listen
            continue
    await ctx.effect("late", note, "late effect")
    return value


async def frozen(value: int) -> int:
    """A node that lasts until it is let go on."""
    note("reached")
    await opened()
    return value + 1


async def adds(ctx: Context, value: int) -> int:
    """A node of a loop that is counted outside."""
    note(ctx.session_id)
    return value + 1


def alone(name: str, handler: Callable[..., Any]) -> Workflow:
    """A workflow of one node and a last one."""
    builder = WorkflowBuilder(name).add_node("node", handler).add_node("last", adds)
    return builder.add_edge("node", "last").set_start("node").build()


def turns() -> Workflow:
    """A loop of many short steps."""
    builder = WorkflowBuilder("turns").add_node("adds", adds).set_start("adds")
    return builder.add_loop("adds", "adds", LoopOptions(40)).build()


async def tells(ctx: Context, value: int) -> int:
    """A node of a long loop that keeps where it is."""
    ctx.scope("s")["last"] = value
    ctx.scope("s").append("list", value % 10)
    return value + 1


def told_after(step: int) -> dict[str, Any]:
    """The state that `tells` leaves behind this step."""
    return {} if step < 0 else {"last": step, "list": [n % 10 for n in range(step + 1)]}


def long() -> Workflow:
    """A loop of five hundred steps."""
    builder = WorkflowBuilder("long").add_node("tells", tells).set_start("tells")
    return builder.add_loop("tells", "tells", LoopOptions(500)).build()


WORKFLOWS: Final[dict[str, Callable[[], Workflow]]] = {
    "chain": chain,
    "exits": lambda: alone("exits", exits),
    "silent": lambda: alone("silent", silent),
    "thread": lambda: alone("thread", thread),
    "deaf": lambda: alone("deaf", deaf),
    "frozen": lambda: alone("frozen", frozen),
    "turns": turns,
    "long": long,
}


async def run(engine: WorkflowEngine, session: str) -> Any:
    """Run or go on, waiting for other owners for as long as it takes."""
    result = await engine.run(0, session, wait_s=60)
    return [result.status, result.outputs]


async def race(engine: WorkflowEngine, session: str) -> Any:
    """Run a session of its own and, in turns, many that all processes want at once."""
    sessions = [f"{session} {os.getpid()}", *(f"shared {number}" for number in range(3))]
    return [(await engine.run(0, name, wait_s=60)).outputs for name in sessions]


async def main(role: str, store: str, session: str, place: str) -> None:
    """Play a role, and tell how it ended."""
    global folder  # noqa: PLW0603 - one process plays one role
    folder = Path(place)
    workflow, _, what = role.partition("/")
    roles: dict[str, Callable[[WorkflowEngine, str], Awaitable[Any]]] = {"": run, "race": race}
    lease_s = 1.0 if workflow == "frozen" else 30.0
    told: Any
    try:
        async with WorkflowEngine(WORKFLOWS[workflow](), store=store, lease_s=lease_s) as engine:
            told = await roles[what](engine, session)
    except RunFailedError as error:
        told = ["failed", str(error)]
    except RafError as error:
        told = [type(error).__name__, str(error)]
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    if role == "thread":
        os._exit(0)  # its thread may still be at work


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
