"""What one superstep stores, and whether the cost of a step follows the change, not the state."""

import asyncio
import hashlib
import statistics
from time import perf_counter

from benchmarks.rows import Row, Size
from raf import CheckpointConfig, Context, LoopOptions, WorkflowBuilder, WorkflowEngine
from raf.topology.workflow import Workflow

SMALL, LARGE = 10, 10_000
LINE = "a line of some eighty characters, as a note of an agent in a conversation might be"


def shelf(entries: int) -> dict[str, str]:
    """A state of about 75 bytes per entry that does not change."""
    return {f"{n}": hashlib.sha256(str(n).encode()).hexdigest() for n in range(entries)}


async def note(ctx: Context, number: int) -> int:
    """Add one line to a growing list."""
    ctx.scope("notes").append("lines", f"{number} {LINE}")
    return number + 1


def noting(steps: int, entries: int) -> Workflow:
    """A workflow of so many supersteps beside a state of so many entries."""
    return (
        WorkflowBuilder("noting")
        .add_node("note", note)
        .set_start("note")
        .add_loop("note", "note", LoopOptions(steps))
        .with_state("lines", list[str], scope="notes", initial=[])
        .with_state("shelf", dict[str, str], scope="notes", initial=shelf(entries))
        .build()
    )


async def one_run(steps: int, entries: int, config: CheckpointConfig) -> tuple[float, list[int]]:
    """Seconds of a run in memory, and the bytes of each of its checkpoints."""
    workflow = noting(steps, entries)
    async with WorkflowEngine(workflow, "memory:", checkpoints=config) as engine:
        began = perf_counter()
        await engine.run(0, "s")
        taken = perf_counter() - began
        return taken, [info.byte_size for info in await engine.history("s")]


def measure(size: Size) -> list[Row]:
    """Bytes of the deltas and microseconds per step, with a small and with a large state."""
    keep_all = CheckpointConfig(
        full_snapshot_interval=size.steps + 2, max_checkpoints=size.steps + 2
    )
    rows: list[Row] = []
    for entries in (SMALL, LARGE):
        runs = [asyncio.run(one_run(size.steps, entries, keep_all)) for _ in range(size.repeats)]
        sizes = runs[0][1]
        per_step = statistics.median(taken for taken, _ in runs) / size.steps * 1e6
        rows += [
            _row("time of a step", entries, per_step, "us/step"),
            _row("a delta", entries, statistics.median(sizes[1:]), "bytes"),
            _row("a full snapshot", entries, sizes[0], "bytes"),
        ]
    return sorted(rows, key=lambda row: row.case.partition(",")[0])


def _row(what: str, entries: int, value: float, unit: str) -> Row:
    floor = "" if entries == SMALL else f"{what}, {SMALL} entries"
    case = f"{what}, {entries} entries"
    return Row(concern="volume", case=case, value=float(value), unit=unit, floor=floor)
