"""What one superstep costs with each store: a node that does nothing, in a loop."""

import asyncio
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.limits import bare_commits, bare_files, bare_loop
from benchmarks.rows import Row, Size
from raf import CheckpointConfig, LoopOptions, WorkflowBuilder, WorkflowEngine
from raf.topology.workflow import Workflow

LOOP = "bare asyncio.wait"
STORES = {
    "no persistence": ("", LOOP),
    "memory:": ("memory:", LOOP),
    "sqlite: synchronous=normal": ("sqlite:{}/n.db?synchronous=normal", "bare sqlite normal"),
    "sqlite: synchronous=full": ("sqlite:{}/f.db", "bare sqlite full"),
    "file:": ("file:{}/records", "bare file with fsync"),
}


async def turn(number: int) -> int:
    """The node: as little as a node can do."""
    return number + 1


def turning(steps: int) -> Workflow:
    """A workflow of so many supersteps."""
    return (
        WorkflowBuilder("turning")
        .add_node("turn", turn)
        .set_start("turn")
        .add_loop("turn", "turn", LoopOptions(steps))
        .build()
    )


async def one_run(url: str, steps: int) -> float:
    """Seconds of one run in a session of its own, with the store open already."""
    config = CheckpointConfig() if url else CheckpointConfig.disabled()
    async with WorkflowEngine(turning(steps), url or "memory:", checkpoints=config) as engine:
        began = perf_counter()
        result = await engine.run(0)
        taken = perf_counter() - began
    assert (result.status, result.steps) == ("completed", steps)
    return taken


def measure(size: Size) -> list[Row]:
    """Microseconds per superstep, each case beside its floor.

    All cases take their turn in each repeat, so that they share the machine's moods.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        calls: dict[str, Callable[[], float]] = {
            LOOP: lambda: asyncio.run(bare_loop(size.steps)),
            "bare sqlite normal": lambda: bare_commits(folder, size.steps, "normal"),
            "bare sqlite full": lambda: bare_commits(folder, size.steps, "full"),
            "bare file with fsync": lambda: bare_files(folder, size.steps),
        }
        for case, (url, _) in STORES.items():
            calls[case] = partial(one_case, url.format(name), size.steps)
            one_case(url.format(name), 1)  # what is loaded on first use is loaded now
        taken: dict[str, list[float]] = {case: [] for case in calls}
        for _ in range(size.repeats):
            for case, call in calls.items():
                taken[case].append(call())
    floors = {case: floor for case, (_, floor) in STORES.items()}
    return [
        Row(
            concern="steps",
            case=case,
            value=statistics.median(times) / size.steps * 1e6,
            unit="us/step",
            floor=floors.get(case, ""),
        )
        for case, times in taken.items()
    ]


def one_case(url: str, steps: int) -> float:
    """Seconds of one run in an event loop of its own."""
    return asyncio.run(one_run(url, steps))
