"""The records of finished runs: what `run` returns when there is nothing left to run."""

from typing import Any

from raf.checkpoint.manager import CheckpointManager
from raf.checkpoint.restore import StoredEvent
from raf.engine.outcome import RunResult
from raf.engine.session import Machine
from raf.errors import RunInputMismatchError, WorkflowMismatchError
from raf.events import Kind
from raf.store.model import Select
from raf.values.codec import decode


async def recorded_result(
    machine: Machine, session_id: str, run_id: str, digest: bytes
) -> RunResult | None:
    """The recorded result of a finished run; None when no finished run has that id.

    Raises:
        RunInputMismatchError: It had another input.
    """
    if not machine.manager.config.enabled:
        return None
    record = await machine.manager.run_record(session_id, run_id)
    data = await _copied_record(machine, session_id, run_id) if record is None else record.what.data
    if data is None:
        return None
    reading = await machine.manager.store.read(session_id, Select())
    if reading is not None and reading.head.summary.workflow not in ("", machine.workflow.name):
        saved = reading.head.summary.workflow
        raise WorkflowMismatchError(session_id, saved, machine.workflow.name)
    if data.get("input") != digest:
        raise RunInputMismatchError(session_id, run_id)
    types = machine.workflow.types
    return RunResult(
        status=data["status"],
        outputs=[decode(payload, types) for _, _, payload in data["outputs"]],
        session_id=session_id,
        run_id=run_id,
        steps=data["steps"],
        reason=data.get("reason", ""),
    )


async def _copied_record(machine: Machine, session_id: str, run_id: str) -> Any:
    """The record of a run that a fork brought along with its entry."""
    reading = await machine.manager.store.read(session_id, Select())
    if reading is None or not reading.head.summary.forked_from:
        return None
    forked = await fork_event(machine.manager, session_id)
    runs = {} if forked is None else dict(forked.what.data.get("runs", {}))
    return runs.get(run_id)


async def fork_event(manager: CheckpointManager, session_id: str) -> StoredEvent | None:
    """The event by which a forked session began."""
    _, events = await manager.events(session_id, after=0, limit=1)
    return next((event for event in events if event.what.kind is Kind.FORKED), None)
