"""Commands that look and change nothing: sessions, show, history, diff."""

import asyncio
from typing import Annotated, Any

import typer

from raf.checkpoint.manager import CheckpointManager, describe
from raf.checkpoint.restore import Restored
from raf.cli import options, screen
from raf.cli.describe import (
    checkpoint_data,
    info_data,
    journal_data,
    session_data,
    stored_event_data,
    wants_a_worker,
)
from raf.cli.jsonable import words
from raf.cli.places import commit_in, find, opened
from raf.clock import utc_text
from raf.errors import CheckpointNotFoundError, ConfigurationError, SessionNotFoundError
from raf.store.model import check_session_id
from raf.store.owner import LeaseWatch
from raf.values.plain import decode_plain

LONGEST = 400
STATUSES = frozenset(
    {
        "submitted",
        "running",
        "interrupted",
        "waiting",
        "sleeping",
        "limited",
        "completed",
        "cancelled",
        "failed",
        "damaged",
    }
)


def sessions(
    *,
    store: options.Store = options.DEFAULT_STORE,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only sessions that stand so (may be given several times): submitted, running, "
            "interrupted, sleeping, limited, completed, cancelled, failed.",
        ),
    ] = None,
    workflow: Annotated[
        str | None,
        typer.Option("--workflow", metavar="NAME", help="Only sessions of the workflow so named."),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option("--search", metavar="TEXT", help="Only sessions whose id holds this text."),
    ] = None,
    due: Annotated[
        bool,
        typer.Option(
            "--due", help="Only sessions that want to run now and that nobody runs: for workers."
        ),
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="At most so many, by id.")
    ] = 1000,
    json: options.Json = False,
) -> None:
    """List the sessions of a store and how they stand."""
    if unknown := sorted(set(status or ()) - STATUSES):
        known = ", ".join(sorted(STATUSES))
        raise ConfigurationError(f"--status {unknown[0]!r} is none of: {known}")

    async def main() -> None:
        found: list[dict[str, Any]] = []
        async with opened(store) as manager:
            judge, now = LeaseWatch(manager.store.clock), await manager.store.now()
            async for head in manager.heads():
                if due and not wants_a_worker(head, judge, now):
                    continue
                data = session_data(head, judge)
                if (
                    (not status or data["status"] in status)
                    and (workflow is None or data["workflow"] == workflow)
                    and (search is None or search.casefold() in head.session_id.casefold())
                ):
                    found.append(data)
                if len(found) >= limit:
                    break
        screen.answer({"sessions": found}, as_document=json, show=lambda: _list(found))

    asyncio.run(main())


def _list(found: list[dict[str, Any]]) -> None:
    columns = {
        "session": "session",
        "workflow": "workflow",
        "run": "run",
        "status": "status",
        "step": "step",
        "commit": "commit",
        "updated_at": "updated",
        "queue": "queue",
        "wake_at": "wakes",
        "code": "code",
        "owner": "owner",
    }
    rows = [["" if s[name] is None else s[name] for name in columns] for s in found]
    screen.table(tuple(columns.values()), rows, none="no sessions")


def show(
    session: Annotated[
        str,
        typer.Argument(
            metavar="SESSION[@COMMIT]",
            help="The id of the session, or of one of its checkpoints.",
            show_default=False,
        ),
    ],
    *,
    store: options.Store = options.DEFAULT_STORE,
    state: Annotated[bool, typer.Option("--state", help="The whole state.")] = False,
    events: Annotated[bool, typer.Option("--events", help="The durable events.")] = False,
    after: Annotated[
        int, typer.Option("--after", min=0, metavar="N", help="Only events above this number.")
    ] = 0,
    journal: Annotated[
        bool, typer.Option("--journal", help="What the journal of the step in flight holds.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show a session as it stands, or as it stood at a checkpoint."""
    parts = {"state": state, "events": events or after > 0, "journal": journal}

    async def main() -> None:
        async with opened(store) as manager:
            session_id, commit = await find(manager, session)
            data = await _session(manager, session_id, commit)
            if parts["events"]:
                last = data["checkpoint"]["commit"]
                data["events"] = await _events(manager, session_id, after, last)
        screen.answer(data, as_document=json, show=lambda: _show(data, parts))

    asyncio.run(main())


async def _session(
    manager: CheckpointManager, session_id: str, commit: int | None
) -> dict[str, Any]:
    """A session, the checkpoint that is looked at, and the journal behind it."""
    head = await manager.head(session_id)
    if commit is not None and commit > head.commit:
        raise CheckpointNotFoundError(session_id, f"{session_id}@{commit}")
    restored = await manager.restore(session_id, commit)
    if restored is None:
        raise SessionNotFoundError(session_id)
    at_head = restored.commit == restored.head.commit
    return {
        "session": session_data(restored.head, LeaseWatch(manager.store.clock)),
        "checkpoint": {
            "commit": restored.commit,
            **checkpoint_data(describe(session_id, restored)),
        },
        "pinned": sorted(restored.snapshot.pins),
        "outputs": await _outputs(manager, restored),
        "suspended": [
            {"node": s.message.target, "message": number, "wake_at": utc_text(s.wake_at)}
            for number, s in sorted(restored.snapshot.suspended.items())
        ],
        "journal": journal_data(restored) if at_head else [],
    }


async def _outputs(manager: CheckpointManager, restored: Restored) -> list[Any]:
    """The outputs of the run of a checkpoint: recorded ones when it is finished."""
    snapshot = restored.snapshot
    if snapshot.finished:
        record = await manager.run_record(restored.head.session_id, snapshot.run.run_id)
        if record is not None:
            return [decode_plain(payload) for _, _, payload in record.what.data["outputs"]]
    return [decode_plain(output.payload) for output in snapshot.outputs]


async def _events(
    manager: CheckpointManager, session_id: str, after: int, commit: int
) -> list[dict[str, Any]]:
    """The events above a number, up to those of a commit."""
    found: list[dict[str, Any]] = []
    while True:
        _, stored = await manager.events(session_id, after=after)
        found += [stored_event_data(event) for event in stored if event.commit <= commit]
        if not stored or stored[-1].commit > commit:
            return found
        after = stored[-1].number


def _show(data: dict[str, Any], parts: dict[str, bool]) -> None:
    session, checkpoint = data["session"], data["checkpoint"]
    if not any(parts.values()):
        _show_session(session, checkpoint, data)
    if parts["state"] or not any(parts.values()):
        rows = [
            (scope, key, words(value, longest=None if parts["state"] else LONGEST))
            for scope, keys in checkpoint["state"].items()
            for key, value in keys.items()
        ]
        _part("state", ("scope", "key", "value"), rows, alone=parts["state"])
    if parts["events"]:
        screen.table(
            ("number", "step", "kind", "node", "message", "details"),
            [_event_row(event) for event in data["events"]],
            none="no events",
        )
    if parts["journal"]:
        _show_journal(data["journal"])


def _show_session(
    session: dict[str, Any], checkpoint: dict[str, Any], data: dict[str, Any]
) -> None:
    told = {
        "session": session["session"],
        "workflow": session["workflow"],
        "graph": session["fingerprint"],
        "run": checkpoint["run"],
        "status": session["status"],
        "reason": session["reason"],
        "step": checkpoint["step"],
        "checkpoint": checkpoint["checkpoint"],
        "events": session["events"],
        "created": session["created_at"],
        "updated": session["updated_at"],
        "queue": session["queue"],
        "wakes": session["wake_at"],
        "owner": session["owner"],
        "owned until": session["owned_until"],
        "forked from": session["forked_from"],
        "pinned": ", ".join(map(str, data["pinned"])),
        "requests": session["requests_waiting"] or None,
    }
    if checkpoint["commit"] != session["commit"]:
        told |= {"status": checkpoint["status"], "reason": None, "head": session["checkpoint"]}
    screen.facts((name, value) for name, value in told.items() if value not in (None, ""))
    pending = [(p["node"], p["message"], p["payload"]) for p in _waiting(checkpoint, data)]
    _part("next", ("node", "message", "payload"), _cut(pending))
    held = [(b, s, v) for b, slots in checkpoint["barriers"].items() for s, v in slots.items()]
    _part("barriers hold", ("barrier", "from", "payload"), _cut(held))
    kept = [
        (e["node"], e["message"], e["result"] or "unfinished", e["failures"])
        for e in data["journal"]
    ]
    _part("journal of the step in flight", ("node", "message", "result", "failures"), kept)
    if data["outputs"]:
        screen.heading("outputs")
    for output in data["outputs"]:
        screen.say(output if isinstance(output, str) else words(output))


def _waiting(checkpoint: dict[str, Any], data: dict[str, Any]) -> list[dict[str, Any]]:
    pending = [
        {"node": p["target"], "message": p["number"], "payload": p["payload"]}
        for p in checkpoint["pending"]
    ]
    return pending + [
        {"node": s["node"], "message": s["message"], "payload": f"not before {s['wake_at']}"}
        for s in data["suspended"]
    ]


def _cut(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*row[:-1], words(row[-1], longest=LONGEST)) for row in rows]


def _part(
    title: str, headers: tuple[str, ...], rows: list[tuple[Any, ...]], *, alone: bool = False
) -> None:
    """A table below its title; left out when it is empty, unless it was asked for."""
    if alone:
        screen.table(headers, rows, none=f"no {title}")
    elif rows:
        screen.heading(title)
        screen.table(headers, rows, none="")


def _event_row(event: dict[str, Any]) -> tuple[Any, ...]:
    details = dict(event["data"])
    if event["value"] is not None:
        details["value"] = event["value"]
    said = ", ".join(f"{key}={words(value)}" for key, value in details.items())
    return event["number"], event["step"], event["kind"], event["node"], event["message"], said


def _show_journal(entries: list[dict[str, Any]]) -> None:
    rows = [
        (
            e["node"],
            e["message"],
            e["result"] or "unfinished",
            e["failures"],
            e["losses"],
            ", ".join(e["effects"]),
            words(e["sends"], longest=LONGEST) if e["sends"] else "",
        )
        for e in entries
    ]
    headers = ("node", "message", "result", "failures", "losses", "effects", "sends")
    screen.table(headers, rows, none="the journal is empty: no step is in flight")


def history(
    session: options.Session,
    store: options.Store = options.DEFAULT_STORE,
    json: options.Json = False,
) -> None:
    """List the checkpoints of a session, oldest first."""

    async def main() -> None:
        async with opened(store) as manager:
            infos = await manager.history(check_session_id(session))
            restored = await manager.restore(session)
        pins = set() if restored is None else restored.snapshot.pins
        found = [info_data(info, info.commit in pins) for info in infos]
        data = {"session": session, "checkpoints": found}
        screen.answer(data, as_document=json, show=lambda: _history(found))

    asyncio.run(main())


def _history(found: list[dict[str, Any]]) -> None:
    headers = ("checkpoint", "step", "kind", "size", "events", "created", "note")
    rows = []
    for info in found:
        finished = f"finished run {info['finished_run']}" if info["finished_run"] else ""
        notes = [finished, "pinned" if info["pinned"] else ""]
        size = info["size"] if info["kept"] else "pruned"
        note = ", ".join(filter(None, notes))
        created = info["created_at"]
        rows.append(
            (info["checkpoint"], info["step"], info["kind"], size, info["events"], created, note)
        )
    screen.table(headers, rows, none="no checkpoints")


def diff(
    session: options.Session,
    before: Annotated[str, typer.Argument(metavar="A", help="A commit number, or SESSION@COMMIT.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    store: options.Store = options.DEFAULT_STORE,
    json: options.Json = False,
) -> None:
    """Show what changed between two checkpoints of a session."""

    async def main() -> None:
        async with opened(store) as manager:
            one = await commit_in(manager, session, before)
            two = await commit_in(manager, session, after)
            changes = await manager.diff(session, one, two)
        found = [
            {"where": c.where, "key": c.key, "kind": c.kind, "before": c.before, "after": c.after}
            for c in changes
        ]
        rows = [(c.where, c.key, c.kind, _side(c.before), _side(c.after)) for c in changes]
        headers = ("where", "key", "kind", "before", "after")
        data = {"session": session, "before": one, "after": two, "changes": found}
        screen.answer(
            data,
            as_document=json,
            show=lambda: screen.table(headers, rows, none="no differences"),
        )

    asyncio.run(main())


def _side(value: Any) -> str:
    return "" if value is None else words(value, longest=LONGEST)
