"""What a session is like that nobody kills: the measure of the campaigns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from raf import CheckpointConfig, CheckpointManager, WorkflowEngine
from raf.checkpoint.codec import ops_digest
from raf.checkpoint.restore import StoredEvent
from raf.events import LOGICAL
from raf.store.memory import MemoryStore
from tests.crash.look import Place, body
from tests.crash.script import SESSION, TURNS
from tests.crash.workflow import Ledger, Line, Nodes, read_ledger, story, task_of

Logical: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbroken:
    """One session of two turns.

    Args:
        places: Run and step of its commits, in order: between two of them there is nothing.
        digests: The body of each.
        logical: Its logical events, in order.
        outputs: Of each turn.
        starts: Each invocation: run, step, node, message.
        effects: Each effect: run, message, key.
    """

    places: tuple[Place, ...]
    digests: dict[Place, bytes]
    logical: tuple[Logical, ...]
    outputs: dict[str, Any]
    starts: frozenset[Logical]
    effects: frozenset[Logical]

    def index(self, place: Place) -> int:
        """Where a commit stands among all."""
        return self.places.index(place)


async def unbroken(seed: int, folder: Path) -> Unbroken:
    """Run both turns in one process, on a store in memory that keeps every checkpoint."""
    ledger = Ledger(folder / f"unbroken-{seed}")
    keep_all = CheckpointConfig(full_snapshot_interval=1000, max_checkpoints=1000)
    outputs: dict[str, Any] = {}
    try:
        store = MemoryStore()
        async with WorkflowEngine(story(Nodes(ledger)), store, checkpoints=keep_all) as engine:
            for number, turn in enumerate(TURNS):
                result = await engine.run(task_of(seed + number), SESSION, run_id=turn)
                outputs[turn] = result.outputs
            digests: dict[Place, bytes] = {}
            for info in await engine.history(SESSION):
                restored = await engine.manager.restore(SESSION, info.commit)
                assert restored is not None
                snapshot = restored.snapshot
                digests[snapshot.run.run_id, snapshot.step] = ops_digest(body(snapshot))
            logical = await logical_events(engine.manager)
    finally:
        ledger.close()
    lines = read_ledger(ledger.path)
    return Unbroken(
        places=tuple(digests),
        digests=digests,
        logical=logical,
        outputs=outputs,
        starts=started(lines),
        effects=acted(lines),
    )


def started(lines: list[Line]) -> frozenset[Logical]:
    """Each invocation that a ledger saw start."""
    return frozenset(
        (line["run"], line["step"], line["node"], line["message"])
        for line in lines
        if line["what"] == "start"
    )


def acted(lines: list[Line]) -> frozenset[Logical]:
    """Each effect that a ledger saw."""
    return frozenset(
        (line["run"], line["message"], line["key"]) for line in lines if line["what"] == "effect"
    )


async def stored_events(manager: CheckpointManager, session_id: str = SESSION) -> list[StoredEvent]:
    """All events of a session."""
    events: list[StoredEvent] = []
    while True:
        head, more = await manager.events(session_id, after=len(events))
        events += more
        if not more or len(events) >= head.events:
            return events


async def logical_events(
    manager: CheckpointManager, session_id: str = SESSION
) -> tuple[Logical, ...]:
    """The logical events of a session, without numbers, times and counts of attempts."""
    return tuple(
        (
            event.what.kind.text,
            event.run_id,
            event.step,
            event.what.node,
            event.what.message,
            sorted((k, repr(v)) for k, v in event.what.data.items() if k != "attempt"),
            event.what.payload,
        )
        for event in await stored_events(manager, session_id)
        if event.what.kind in LOGICAL
    )
