"""SIGINT and SIGTERM while a run goes on.

Rules of this file:
- The first signal drains: the run stops at the next end of a step, and its session can be resumed.
- The second stops at once, as a kill would: steps that are committed and results that are
  journaled stay.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from raf.cli.exits import ExitCode
from raf.cli.screen import hint

T = TypeVar("T")

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
AGAIN_S: Final = 0.05
LAST_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """What came of a call, and the exit code of the signal that came meanwhile (None: none)."""

    result: T
    by_signal: int | None


class Drains(Protocol):
    """What can be drained: an engine, a worker."""

    async def drain(self, grace_s: float | None = None) -> None:
        """Stop every run at the next end of a step."""


async def with_drain(
    engine: Drains,
    call: Coroutine[Any, Any, T],
    resume: str,
    *,
    grace_s: float | None = None,
) -> Ended[T]:
    """Await a call of the engine and drain it at the first signal.

    Args:
        engine: What runs.
        call: A call that returns when its runs are drained.
        resume: How to go on, for the person who stopped it.
        grace_s: Seconds after which a drain interrupts steps in flight; None waits for them.

    Raises:
        Exception: What the call raises.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(call)
    heard: list[signal.Signals] = []
    drains: list[asyncio.Task[None]] = []

    def hear(number: signal.Signals) -> None:
        heard.append(number)
        if len(heard) == 1:
            hint(f"{number.name}: stopping at the end of this step; once more stops at once")
            drains.append(loop.create_task(_drain(engine, task, grace_s)))
        elif len(heard) == 2:  # noqa: PLR2004 - the second of two
            task.cancel()
            drains.append(loop.create_task(_leave(task, number, resume)))

    for number in SIGNALS:
        loop.add_signal_handler(number, hear, number)
    try:
        await asyncio.wait([task])
        if len(heard) > 1 and task.cancelled():
            await asyncio.gather(*drains)
        return Ended(task.result(), _code(heard[0]) if heard else None)
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        for drain in drains:
            drain.cancel()


def _code(number: signal.Signals) -> int:
    return ExitCode.BY_SIGNAL + number


async def _drain(engine: Drains, task: asyncio.Task[Any], grace_s: float | None) -> None:
    """Drain until the call is over: it may own its session only after the first signal."""
    while not task.done():
        await engine.drain(grace_s)
        await asyncio.sleep(AGAIN_S)


async def _leave(task: asyncio.Task[Any], number: signal.Signals, resume: str) -> None:
    """End the process: threads of sync nodes cannot be stopped, and would hold it up."""
    await asyncio.wait([task], timeout=LAST_S)
    hint(f"{number.name}: stopped in mid-step; go on with: {resume}")
    sys.stdout.flush()
    os._exit(_code(number))
