"""Processes forked from a server process that has loaded the package already.

A fork costs a tenth of a fresh interpreter; each is a process of its own all the same, with its own
pid and start time.

Rules of this file: a forked process is started and asked in one thread.  Starting one asks all others
whether they have ended, and of two threads that ask at once one gets a wrong exit code (255).
"""

import asyncio
import multiprocessing
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

POLL_S: Final = 0.002
LOADED: Final = [
    "networkx",
    "raf.engine.engine",
    "raf.graph.builder",
    "raf.store.file",
    "raf.store.postgres",
    "raf.store.redis",
    "raf.store.sqlite",
    "raf.testing",
    "tests.crash.script",
    "tests.crash.small_run",
]

FORKING: Final = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(LOADED)


async def over(process: ForkServerProcess, patience_s: float | None = None) -> int | None:
    """Wait for a forked process to end, so many seconds at most; its exit code if it has."""
    await asyncio.to_thread(connection.wait, [process.sentinel], patience_s)
    return process.exitcode


async def stopped(pid: int) -> None:
    """Wait until a process was stopped by a signal.

    Raises:
        FileNotFoundError: It has ended instead.
    """
    while _state(pid) != "T":  # noqa: ASYNC110 - another process tells
        await asyncio.sleep(POLL_S)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
