"""The sessions on record: a workflow, its inputs, and how what is read is told in JSON.

It belongs to the records: a change here that changes what the sessions hold needs new records.
"""

import asyncio
import dataclasses
import datetime as dt
import enum
import math
import uuid
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, Final

from pydantic import BaseModel

from raf import CheckpointConfig, Context, LoopOptions, RetryPolicy, WorkflowBuilder, register_type
from raf.checkpoint.manager import describe
from raf.checkpoint.restore import Restored, StoredEvent
from raf.topology.workflow import Workflow
from raf.values.codec import decode

CHECKPOINTS: Final = CheckpointConfig(full_snapshot_interval=3, max_checkpoints=6)
FINISHED, SLEEPING, LIMITED, OPEN, GONE = "finished", "sleeping", "limited", "open", "gone"
ODD: Final = "../Ünï/cödé?"
RUNS: Final = ("one", "two")
ZONE: Final = dt.timezone(dt.timedelta(hours=5, minutes=30))


@register_type(tag="golden:colour")
class Colour(enum.Enum):
    """An enum."""

    RED = "red"


@register_type(tag="golden:note")
class Note(BaseModel):
    """A pydantic model."""

    text: str
    at: dt.datetime


@register_type(tag="golden:task")
@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A dataclass: the payload that goes round."""

    mode: str
    value: int
    note: Note | None = None


VALUES: Final[Mapping[str, Any]] = {
    "none": None,
    "bools": [True, False],
    "ints": [0, -1, 1 << 63, -(1 << 200)],
    "floats": [0.0, -0.0, 0.1, math.inf, -math.inf, math.nan],
    "text": "naïve 书评 \ud83d",
    "bytes": b"\x00\xff",
    "tuple": (1, ("two",)),
    "set": {1, 2, 3},
    "frozenset": frozenset(["a", "b"]),
    "dict": {2: "two", "one": 1, (3, None): Decimal("3.50")},
    "date": dt.date(2024, 2, 29),
    "time": dt.time(23, 59, 59, 999999),
    "datetime": dt.datetime(2024, 3, 31, 1, 59, tzinfo=ZONE),
    "timedelta": dt.timedelta(days=-1, microseconds=1),
    "uuid": uuid.UUID(int=7),
    "path": PurePosixPath("a/b"),
    "enum": Colour.RED,
    "model": Note(text="n", at=dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    "dataclass": Task(mode="m", value=1),
}


def done(task: Task) -> bool:
    """Whether the loop is done."""
    return task.value >= (14 if task.mode == LIMITED else 9)


class Nodes:
    """The handlers; with a gate `late` waits for it behind its effect, as one that is cut off."""

    def __init__(self, gate: asyncio.Event | None = None) -> None:
        self.acted = 0
        self.held = asyncio.Event()
        self._gate = gate

    async def begin(self, ctx: Context, task: Task) -> Task:
        ctx.scope("board")["values"] = dict(VALUES)
        ctx.scope("board").append("log", f"begin {task.mode}")
        ctx.state["scratch"] = [1, 2, 3]
        ctx.emit({"begun": ctx.run_id})
        return replace(task, note=Note(text="from begin", at=dt.datetime(2024, 1, 1, tzinfo=ZONE)))

    async def fast(self, ctx: Context, task: Task) -> Task:
        ctx.scope("board").append("log", "fast")
        return task

    async def slow(self, ctx: Context, task: Task) -> Task:
        ctx.scope("board").append("log", "slow")
        return replace(task, value=task.value + 5)

    async def unsure(self, ctx: Context, task: Task) -> Task:
        if task.mode == SLEEPING and ctx.attempt == 1:
            raise ConnectionError("no line")
        return replace(task, value=task.value + 2)

    async def late(self, ctx: Context, task: Task) -> Task:
        if task.mode == OPEN and ctx.attempt == 1:
            raise ConnectionError("once")
        sent = await ctx.effect("send", self._act, task.value)
        if self._gate is not None:
            self.held.set()
            await self._gate.wait()
        return replace(task, value=sent)

    async def _act(self, value: int) -> int:
        self.acted += 1
        return value * 10

    async def join(self, ctx: Context, tasks: dict[str, Task]) -> Task:
        return replace(tasks["fast"], value=sum(task.value for task in tasks.values()))

    async def turn(self, ctx: Context, task: Task) -> Task:
        ctx.state["turns"] = ctx.state.get("turns", 0) + 1
        return replace(task, value=task.value + 1)

    async def both(self, ctx: Context, tasks: list[Task]) -> str:
        return " ".join(str(task.value) for task in tasks)

    async def end(self, ctx: Context, task: Task) -> Task:
        ctx.scope("board").append("log", "end")
        return task


def workflow(nodes: Nodes) -> Workflow:
    """The workflow of the records."""
    builder = WorkflowBuilder("golden")
    for name in ("begin", "fast", "slow", "join", "turn", "both", "end"):
        builder.add_node(name, getattr(nodes, name))
    later = RetryPolicy(attempts=2, backoff_s=100.0, max_backoff_s=100.0, jitter="none")
    soon = RetryPolicy(attempts=3, backoff_s=0.001, jitter="none")
    return (
        builder.add_node("unsure", nodes.unsure, retry=later)
        .add_node("late", nodes.late, retry=soon)
        .set_start("begin")
        .add_fan_out("begin", ["fast", "slow", "unsure"])
        .add_fan_in(["fast", "slow", "unsure"], "join")
        .add_edge("slow", "late")
        .add_fan_in(["fast", "late"], "both")
        .add_edge("join", "turn")
        .add_loop("turn", "turn", LoopOptions(3, until=done, on_limit="stop"))
        .add_edge("turn", "end")
        .with_state("log", list[str], scope="board", reducer="append", initial=[])
        .with_state("values", dict, scope="board")
        .with_output_from("both", "end")
        .build()
    )


def told(value: Any) -> Any:
    """A value in JSON, with its type wherever JSON has none for it."""
    if isinstance(value, list):
        return [told(item) for item in value]
    if isinstance(value, Mapping):
        return {"dict": [[told(key), told(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [told(item) for item in value]}
    if isinstance(value, Set):
        return {type(value).__name__: sorted((told(item) for item in value), key=repr)}
    if fields := _fields(value):
        return {type(value).__name__: {name: told(getattr(value, name)) for name in fields}}
    return _told_alone(value)


def _fields(value: Any) -> list[str]:
    if isinstance(value, BaseModel):
        return list(type(value).model_fields)
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return []


def _told_alone(value: Any) -> Any:
    small = type(value) is int and abs(value) < 1 << 53
    if value is None or small or type(value) is bool or (type(value) is str and value.isascii()):
        return value
    text = value.hex() if isinstance(value, bytes) else ascii(value)
    return {type(value).__name__: text}


def told_checkpoint(session_id: str, restored: Restored, types: Workflow) -> dict[str, Any]:
    """A checkpoint with all that it holds."""
    snapshot = restored.snapshot
    public = describe(session_id, restored, lambda data: decode(data, types.types))
    return {
        "id": public.checkpoint_id,
        "step": public.step_number,
        "parent": public.parent_checkpoint_id,
        "full": public.is_full_snapshot,
        "fingerprint": public.graph_fingerprint,
        "state": told(public.state_data),
        "edges": told(public.edge_state_data),
        "pending": told(public.pending_messages),
        "run": [public.run_id, public.status, snapshot.run.reason],
        "counters": [snapshot.next_number, snapshot.steps_used, snapshot.steps_limit],
        "suspended": [
            [number, held.reason, held.failures, held.message.target]
            for number, held in sorted(snapshot.suspended.items())
        ],
        "parked": [
            [number, parked.loop, told(parked.path)]
            for number, parked in sorted(snapshot.parked.items())
        ],
        "outputs": [
            [o.step, o.node, told(decode(o.payload, types.types))] for o in snapshot.outputs
        ],
        "pins": sorted(snapshot.pins),
    }


def told_event(event: StoredEvent, types: Workflow) -> list[Any]:
    """An event without its time."""
    what = event.what
    value = decode(what.payload, types.types) if what.payload else None
    return [
        *(event.number, event.run_id, event.step),
        *(what.kind.text, what.node, what.message, told(what.data), told(value)),
    ]
