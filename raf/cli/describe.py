"""Sessions, events and results as the plain data that `--json` gives and tables are made of.

Rules of this file: the keys are a promise (`docs/reference/cli.md`).  Values are read without their
classes, so that a store alone is enough.
"""

from typing import Any

from raf.checkpoint.model import Checkpoint, CheckpointInfo, checkpoint_id
from raf.checkpoint.restore import Restored, StoredEvent
from raf.clock import utc_text
from raf.engine.journal import read_journal
from raf.engine.outcome import HOW_TO_GO_ON, RunResult
from raf.events import Event, Happening, Kind
from raf.store.due import FINISHED, is_due
from raf.store.model import Due, Head
from raf.store.owner import LeaseWatch
from raf.values.plain import decode_plain


def standing(head: Head, judge: LeaseWatch) -> str:
    """The status of a session; `interrupted` is a running one that nobody runs."""
    status = head.summary.status
    alive = judge.binds(head.session_id, head.held)
    return "interrupted" if status == "running" and not alive else status


def session_data(head: Head, judge: LeaseWatch) -> dict[str, Any]:
    """How a session stands."""
    summary, held = head.summary, head.held
    alive = judge.binds(head.session_id, held)
    return {
        "session": head.session_id,
        "workflow": summary.workflow,
        "run": summary.run_id,
        "status": standing(head, judge),
        "reason": summary.reason,
        "step": summary.step,
        "commit": head.commit,
        "checkpoint": checkpoint_id(head.session_id, head.commit),
        "events": head.events,
        "first_event": head.first_event,
        "created_at": utc_text(head.created_at),
        "updated_at": utc_text(head.updated_at),
        "wake_at": None if summary.wake_at is None else utc_text(summary.wake_at),
        "queue": summary.queue,
        "code": None if summary.status in FINISHED else short_graph(summary.fingerprint),
        "owner": str(held.owner) if held is not None and alive else None,
        "owned_until": judge.until(held) if held is not None and alive else None,
        "requests_waiting": head.requests - head.consumed,
        "forked_from": summary.forked_from or None,
        "fingerprint": summary.fingerprint,
    }


def short_graph(fingerprint: str) -> str:
    """A fingerprint as people compare it: its first 12 digits."""
    return fingerprint.rpartition(":")[2][:12]


def wants_a_worker(head: Head, judge: LeaseWatch, now: float) -> bool:
    """Whether a worker with the right code would take the session now."""
    summary = head.summary
    asked = Due(fingerprints=frozenset({summary.fingerprint}), queues={summary.queue: None})
    return is_due(head, asked, now) and not judge.binds(head.session_id, head.held)


def checkpoint_data(found: Checkpoint) -> dict[str, Any]:
    """A checkpoint: its state, what barriers hold, and what the next step delivers."""
    return {
        "checkpoint": found.checkpoint_id,
        "step": found.step_number,
        "run": found.run_id,
        "status": found.status,
        "full": found.is_full_snapshot,
        "created_at": utc_text(found.created_at),
        "state": found.state_data,
        "barriers": found.edge_state_data["barriers"],
        "loops_granted": found.edge_state_data["granted"],
        "pending": found.pending_messages,
    }


def info_data(info: CheckpointInfo, pinned: bool) -> dict[str, Any]:
    """One line of a history."""
    return {
        "checkpoint": info.checkpoint_id,
        "commit": info.commit,
        "step": info.step_number,
        "kind": "full" if info.is_full_snapshot else "delta",
        "kept": info.byte_size > 0,
        "size": info.byte_size,
        "events": info.events,
        "created_at": utc_text(info.created_at),
        "finished_run": info.finished_run or None,
        "pinned": pinned,
    }


def journal_data(restored: Restored) -> list[dict[str, Any]]:
    """What the journal of the step in flight holds: one entry for each invocation it names."""
    step = read_journal(restored.journal)
    pending = restored.snapshot.pending
    numbers = sorted({*step.results, *step.effects, *step.failures})
    entries: list[dict[str, Any]] = []
    for number in numbers:
        result, message = step.results.get(number), pending.get(number)
        effects = step.effects.get(number, {})
        entries.append(
            {
                "message": number,
                "node": "" if message is None else message.target,
                "result": None if result is None else result.status,
                "attempt": None if result is None else result.attempt,
                "sends": []
                if result is None
                else [decode_plain(sent.payload) for sent in result.sends],
                "failures": step.failures.get(number, 0),
                "losses": step.losses(number),
                "effects": {
                    key: {"in_doubt": record.result is None}
                    | ({} if record.result is None else {"result": decode_plain(record.result)})
                    for key, record in sorted(effects.items())
                },
            }
        )
    return entries


def stored_event_data(event: StoredEvent) -> dict[str, Any]:
    """A durable event, from the store."""
    return {
        "number": event.number,
        "commit": event.commit,
        "kind": event.what.kind.text,
        "run": event.run_id,
        "step": event.step,
        "node": event.what.node,
        "message": event.what.message,
        "data": _plain_details(event.what),
        "value": decode_plain(event.what.payload) if event.what.payload else None,
        "at": utc_text(event.at),
    }


def _plain_details(what: Happening) -> dict[str, Any]:
    """The details of an event; of outputs their values, and no digests."""
    data = {key: value for key, value in what.data.items() if key != "input"}
    if what.kind is Kind.OUTCOME and "outputs" in data:
        data["outputs"] = [decode_plain(payload) for _, _, payload in data["outputs"]]
    if what.kind is Kind.FORKED:
        data["runs"] = sorted(data.get("runs", {}))
    return data


def event_data(event: Event) -> dict[str, Any]:
    """An event as it happens; `number` is null for a live one."""
    return {
        "number": event.number,
        "kind": event.kind,
        "run": event.run_id,
        "step": event.step,
        "node": event.node,
        "message": event.message,
        "data": dict(event.data),
        "value": event.value,
        "at": utc_text(event.at),
    }


def result_data(result: RunResult) -> dict[str, Any]:
    """The outcome of a run."""
    return {
        "session": result.session_id,
        "run": result.run_id,
        "status": result.status,
        "outputs": result.outputs,
        "steps": result.steps,
        "pending": [{"node": node, "message": number} for node, number in result.pending],
        "resumed_from": result.resumed_from,
        "reason": result.reason,
        "wake_at": None if result.wake_at is None else utc_text(result.wake_at),
        "next": HOW_TO_GO_ON[result.status],
    }
