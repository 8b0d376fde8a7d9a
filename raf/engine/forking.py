"""What a fork takes along: the open step's records, and the records of finished runs."""

from typing import Any

from raf.checkpoint.manager import CheckpointManager
from raf.checkpoint.restore import Restored
from raf.engine.journal import read_journal
from raf.engine.result import EFFECT, result_to_wire
from raf.errors import EffectInDoubtError
from raf.events import Kind
from raf.store.port import Select


def copied_journal(restored: Restored, *, allow_in_doubt: bool) -> list[list[Any]]:
    """The entries of an open step that a fork of the head writes into its own journal.

    Finished results and effects go along; counts of failures and losses stay behind.

    Raises:
        EffectInDoubtError: An effect was begun and its result is unknown.
    """
    step = read_journal(restored.journal)
    entries: list[list[Any]] = []
    for number, effects in sorted(step.effects.items()):
        for key, record in effects.items():
            if record.result is not None:
                entries.append([EFFECT, number, key, record.digest, record.result])
            elif not allow_in_doubt:
                message = restored.snapshot.pending.get(number)
                raise _in_doubt("" if message is None else message.target, key)
    snapshot = restored.snapshot
    for held in () if allow_in_doubt else (*snapshot.suspended.values(), *snapshot.woken.values()):
        for key, _, recorded in held.effects:
            if not recorded:
                raise _in_doubt(held.message.target, key)
    entries += [result_to_wire(result) for _, result in sorted(step.results.items())]
    return entries


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
