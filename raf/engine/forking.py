"""What a fork takes along: the open step's records, and the records of finished runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from raf.checkpoint.manager import CheckpointManager
from raf.checkpoint.restore import KEPT, Restored
from raf.checkpoint.snapshot import Snapshot
from raf.engine.journal import OpenStep, read_journal
from raf.engine.migration import migrated, plan_migration, preview, saved_graph
from raf.errors import EffectInDoubtError, MigrationRefusedError
from raf.events import Happening, Kind
from raf.store.model import Select
from raf.topology.fingerprint import differences
from raf.topology.workflow import Workflow


def copied_step(restored: Restored, *, allow_in_doubt: bool) -> OpenStep:
    """What a fork takes of the open step: of the head all of it, of an older checkpoint what it keeps.

    Finished results and effects go along; counts of failures and losses stay behind.

    Raises:
        EffectInDoubtError: An effect was begun and its result is unknown.
    """
    at_head = restored.commit == restored.head.commit
    step = read_journal(e for e in restored.journal if at_head or e.position == KEPT)
    snapshot = restored.snapshot
    for number, effects in step.effects.items():
        for key in [key for key, record in effects.items() if record.result is None]:
            if not allow_in_doubt:
                message = snapshot.pending.get(number)
                raise _in_doubt("" if message is None else message.target, key)
            del effects[key]
    held = (*snapshot.suspended.values(), *snapshot.woken.values()) if at_head else ()
    for suspension in () if allow_in_doubt else held:
        for key, _, recorded in suspension.effects:
            if not recorded:
                raise _in_doubt(suspension.message.target, key)
    return OpenStep(results=step.results, effects=step.effects)


@dataclass(frozen=True, slots=True)
class Fork:
    """What a fork begins with: its snapshot, its journal, and what its entry tells."""

    snapshot: Snapshot
    entries: tuple[tuple[object, ...], ...]
    happenings: tuple[Happening, ...]


def plan_fork(
    origin: str,
    restored: Restored,
    step: OpenStep,
    workflow: Workflow,
    mapping: Mapping[str, str],
    drop: Collection[str],
) -> Fork:
    """The origin under the graph of a workflow: pins stay behind, a cancelled run goes on.

    What the run may use starts anew.

    Raises:
        MigrationRefusedError: Something that it holds has no place there.
    """
    snapshot, run, graph = restored.snapshot, restored.snapshot.run, restored.snapshot.fingerprint
    snapshot.pins.clear()
    snapshot.steps_used = 0
    over = not (snapshot.pending or snapshot.suspended or snapshot.parked or snapshot.barriers)
    if run.status in ("cancelled", "failed") and not over:
        snapshot.run = replace(run, status="running", reason="")
    names = {} if graph == workflow.fingerprint else mapping  # it is there already
    saved = saved_graph(restored, workflow)
    migration = plan_migration(saved, workflow, snapshot, step, names, drop)
    if migration.refusals:
        raise MigrationRefusedError(origin, graph, workflow.fingerprint, migration.refusals)
    moved = preview(snapshot, migration)
    moved.kept.clear()  # the fork has a journal of its own, and all of it stands there
    if graph == workflow.fingerprint:
        return Fork(moved, migration.entries, ())
    changes = differences(restored.manifest, dict(workflow.manifest))
    told = migrated(graph, workflow, changes, reason="a fork", mapping=dict(mapping))
    return Fork(moved, migration.entries, (told, *migration.happenings))


def _in_doubt(node: str, key: str) -> EffectInDoubtError:
    return EffectInDoubtError(node, key, "of the session that is forked")


async def finished_runs(
    manager: CheckpointManager, session_id: str, commit: int
) -> dict[str, dict[str, Any]]:
    """The records of all runs that were finished up to a commit, by run id."""
    reading = await manager.store.read(session_id, Select(infos=True))
    runs: dict[str, dict[str, Any]] = {}
    for info in () if reading is None else reading.infos:
        if info.run_id and info.commit <= commit:
            record = await manager.run_record(session_id, info.run_id)
            if record is not None:
                runs[info.run_id] = dict(record.what.data)
    _, first = await manager.events(session_id, after=0, limit=1) if reading else (None, [])
    for event in first:
        if event.what.kind is Kind.FORKED:
            runs = {**dict(event.what.data.get("runs", {})), **runs}
    return runs
