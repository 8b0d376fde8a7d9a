"""Pruning, deleting, requests and adopting: short transactions, each in one round trip.

Rules of this file: the first statement locks the session's row; those behind it see what its last
holder wrote, and do nothing when the row is not what they expect.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from raf.store.model import Kind, Reading, Record, Request
from raf.store.postgres.rows import CLAIM, JOURNAL, REQUEST, column_text, name_bytes, summary_text

Step = tuple[str, dict[str, Any]]

_OWNED = "s.id = %(id)s AND s.nonce = %(nonce)s AND s.epoch = %(epoch)s"
_MINE = f"(SELECT s.number FROM $S.sessions s WHERE {_OWNED})"  # noqa: S608 - literal parts only

LOCK_OWNED = f"SELECT s.number FROM $S.sessions s WHERE {_OWNED} FOR UPDATE"  # noqa: S608

_CUT = (
    "cut AS (SELECT max(c.commit_number) AS last, max(c.first_event + c.event_count - 1) AS event"  # noqa: S608
    f" FROM $S.commits c WHERE c.session = {_MINE}"
    " AND c.first_event + c.event_count - 1 < %(events_before)s)"
)
_PRUNED = "(c.body IS NULL OR c.position = ANY(%(bodies)s::bigint[]))"
# Each row is either emptied or goes; a commit of which nothing is left and that ended no run goes.
DROP_EMPTIED = f"""WITH {_CUT} DELETE FROM $S.commits c USING cut
WHERE c.session = {_MINE} AND c.commit_number <= cut.last AND {_PRUNED} AND c.run_id IS NULL"""  # noqa: S608
DROP_PARTS = f"""WITH {_CUT} UPDATE $S.commits c SET
    body = CASE WHEN c.position = ANY(%(bodies)s::bigint[]) THEN NULL ELSE c.body END,
    events = CASE WHEN c.commit_number <= cut.last THEN NULL ELSE c.events END
FROM cut WHERE c.session = {_MINE}
  AND ((c.body IS NOT NULL AND c.position = ANY(%(bodies)s::bigint[]))
       OR (c.events IS NOT NULL AND c.commit_number <= cut.last))"""  # noqa: S608
NOTE_PRUNED = f"""UPDATE $S.sessions s SET
    kept_from = coalesce((SELECT c.commit_number FROM $S.commits c WHERE c.session = s.number
        AND c.commit_number >= s.kept_from AND c.body IS NOT NULL ORDER BY c.commit_number LIMIT 1
    ), s.commit_number + 1) WHERE {_OWNED}"""  # noqa: S608
NOTE_EVENTS = f"""WITH {_CUT} UPDATE $S.sessions s
SET first_event = greatest(s.first_event, cut.event + 1) FROM cut
WHERE {_OWNED} AND cut.event IS NOT NULL"""  # noqa: S608

_BURY = f"""UPDATE $S.sessions s SET nonce = '', commit_number = -1, commit_position = 0,
    journal_from = 0, events = 0, first_event = 1, kept_from = 0, consumed = 0, requests = 0,
    created_at = 0, updated_at = 0, commit_id = '', append_id = '', claim_id = '', owner = NULL,
    lease_until = NULL, duration_s = NULL, status = 'new', wake_at = NULL, fingerprint = '',
    queue = 'default', summary = '[]' WHERE {_OWNED} RETURNING s.number"""  # noqa: S608
DELETED_BEFORE = """SELECT s.number FROM $S.sessions s
WHERE s.id = %(id)s AND s.nonce = '' AND s.epoch = %(epoch)s"""

_LOCK_ANY = "SELECT s.number FROM $S.sessions s WHERE s.id = %(id)s AND s.nonce <> '' FOR UPDATE"
_ADD_REQUEST = """WITH added AS (
    INSERT INTO $S.requests (session, seq, request_id, kind, created_at, body)
    SELECT s.number, s.requests + 1, %(request_id)s, %(kind)s, %(now)s, %(body)s
    FROM $S.sessions s WHERE s.id = %(id)s AND s.nonce <> '' AND NOT EXISTS (
        SELECT FROM $S.requests r WHERE r.session = s.number
        AND sha256(r.request_id) = sha256(%(request_id)s) AND r.request_id = %(request_id)s)
    RETURNING session
)
UPDATE $S.sessions s SET requests = s.requests + 1 FROM added WHERE s.number = added.session"""
_THE_REQUEST = f"""SELECT {REQUEST} FROM $S.sessions s JOIN $S.requests r ON r.session = s.number
WHERE s.id = %(id)s AND s.nonce <> '' AND sha256(r.request_id) = sha256(%(request_id)s)
AND r.request_id = %(request_id)s"""  # noqa: S608

_ADOPTED = "s.id = %(id)s AND s.claim_id = %(claim_id)s"
# Over a deleted session's row it keeps the number and goes on from its epoch.
_ADOPT = """INSERT INTO $S.sessions AS s (
    id, nonce, epoch, position, commit_number, commit_position, journal_from, events, first_event,
    kept_from, consumed, requests, created_at, updated_at, commit_id, append_id, claim_id, status,
    wake_at, fingerprint, queue, summary
) VALUES (
    %(id)s, %(nonce)s, %(epoch)s, %(position)s, %(commit)s, %(commit_position)s, %(journal_from)s,
    %(events)s, %(first_event)s, 0, %(consumed)s, %(requests)s, %(created_at)s, %(updated_at)s, '',
    '', %(claim_id)s, %(status)s, %(wake_at)s, %(fingerprint)s, %(queue)s, %(summary)s
) ON CONFLICT (id) DO UPDATE SET
    nonce = excluded.nonce, epoch = greatest(excluded.epoch, s.epoch + 1),
    position = excluded.position, commit_number = excluded.commit_number,
    commit_position = excluded.commit_position, journal_from = excluded.journal_from,
    events = excluded.events, first_event = excluded.first_event, consumed = excluded.consumed,
    requests = excluded.requests, created_at = excluded.created_at,
    updated_at = excluded.updated_at, claim_id = excluded.claim_id, status = excluded.status,
    wake_at = excluded.wake_at, fingerprint = excluded.fingerprint, queue = excluded.queue,
    summary = excluded.summary
WHERE s.nonce = ''"""
_ADOPT_COMMITS = f"""INSERT INTO $S.commits (session, commit_number, position, epoch, created_at,
    is_full, step, first_event, event_count, run_id, events, body)
SELECT s.number, g.* FROM $S.sessions s, unnest(
    %(commit)s::bigint[], %(position)s::bigint[], %(epoch)s::bigint[], %(created_at)s::float8[],
    %(is_full)s::boolean[], %(step)s::bigint[], %(first_event)s::bigint[],
    %(event_count)s::bigint[], %(run_id)s::bytea[], %(events)s::bytea[], %(body)s::bytea[]
) g WHERE {_ADOPTED} ON CONFLICT DO NOTHING"""  # noqa: S608
_ADOPT_JOURNAL = f"""INSERT INTO $S.journal (session, position, kind, epoch, created_at, took_over, body)
SELECT s.number, g.* FROM $S.sessions s, unnest(
    %(position)s::bigint[], %(kind)s::smallint[], %(epoch)s::bigint[], %(created_at)s::float8[],
    %(took_over)s::boolean[], %(body)s::bytea[]
) g WHERE {_ADOPTED} ON CONFLICT DO NOTHING"""  # noqa: S608
_ADOPT_REQUESTS = f"""INSERT INTO $S.requests (session, seq, request_id, kind, created_at, body)
SELECT s.number, g.* FROM $S.sessions s, unnest(
    %(seq)s::bigint[], %(request_id)s::bytea[], %(kind)s::bytea[], %(created_at)s::float8[],
    %(body)s::bytea[]
) g WHERE {_ADOPTED} ON CONFLICT DO NOTHING"""  # noqa: S608
_NOTE_KEPT = f"""UPDATE $S.sessions s SET kept_from = coalesce((
    SELECT min(c.commit_number) FROM $S.commits c WHERE c.session = s.number AND c.body IS NOT NULL
), s.commit_number + 1) WHERE {_ADOPTED}"""  # noqa: S608
_IS_ADOPTED = f"SELECT s.number FROM $S.sessions s WHERE {_ADOPTED}"  # noqa: S608

# A part of a session that is sent in one statement.
PART_BYTES = 32 * 1024 * 1024


def prune_steps(
    fence: dict[str, Any], bodies: Sequence[int], events_before: int | None
) -> list[Step]:
    """The transaction that drops bodies and events; its first answer is empty for a lost lease."""
    values = {**fence, "bodies": list(bodies), "events_before": events_before}
    return [
        (LOCK_OWNED, fence),
        (NOTE_EVENTS, values),  # before what it looks at goes
        (DROP_EMPTIED, values),
        (DROP_PARTS, values),
        (NOTE_PRUNED, fence),
    ]


def delete_steps(fence: dict[str, Any]) -> list[Step]:
    """The transaction that deletes; its last answer is empty for a lost lease."""
    gone = [
        (f"DELETE FROM $S.{table} WHERE session = {_MINE}", fence)  # noqa: S608 - literal names
        for table in ("commits", "journal", "requests")
    ]
    return [(LOCK_OWNED, fence), *gone, (_BURY, fence), (DELETED_BEFORE, fence)]


def request_steps(
    session_id: str, request_id: str, kind: str, body: bytes, now: float
) -> list[Step]:
    """The transaction that adds a request if it is new; its last answer is the request."""
    values = {
        "id": session_id,
        "request_id": name_bytes(request_id),
        "kind": name_bytes(kind),
        "body": bytes(body),
        "now": float(now),
    }
    return [(_LOCK_ANY, values), (_ADD_REQUEST, values), (_THE_REQUEST, values)]


def adopt_steps(session: Reading, claim_id: str) -> list[Step]:
    """The transaction that writes a whole session; its last answer is empty when one was there."""
    head, summary = session.head, session.head.summary
    which = {"id": head.session_id, "claim_id": claim_id}
    values = {
        **which,
        "nonce": head.nonce,
        "epoch": head.epoch,
        "position": head.position,
        "commit": head.commit,
        "commit_position": head.commit_position,
        "journal_from": head.journal_from,
        "events": head.events,
        "first_event": head.first_event,
        "consumed": head.consumed,
        "requests": head.requests,
        "created_at": float(head.created_at),
        "updated_at": float(head.updated_at),
        "status": column_text(summary.status),
        "wake_at": None if summary.wake_at is None else float(summary.wake_at),
        "fingerprint": name_bytes(summary.fingerprint),
        "queue": name_bytes(summary.queue),
        "summary": summary_text(summary),
    }
    commits = [record for record in session.log if record.info.kind is Kind.COMMIT]
    others = [record for record in session.log if record.info.kind is not Kind.COMMIT]
    return [
        (_ADOPT, values),
        *((_ADOPT_COMMITS, {**which, **_commits(part)}) for part in _parts(commits)),
        *((_ADOPT_JOURNAL, {**which, **_entries(part)}) for part in _parts(others)),
        (_ADOPT_REQUESTS, {**which, **_requests(session.inbox)}),
        (_NOTE_KEPT, which),
        (_IS_ADOPTED, which),
    ]


def _parts(records: Sequence[Record]) -> Iterator[list[Record]]:
    part: list[Record] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(record.body) + len(record.events)
        if size >= PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _commits(records: Sequence[Record]) -> dict[str, list[Any]]:
    infos = [record.info for record in records]
    return {
        "commit": [info.commit for info in infos],
        "position": [info.position for info in infos],
        "epoch": [info.epoch for info in infos],
        "created_at": [float(info.created_at) for info in infos],
        "is_full": [info.full for info in infos],
        "step": [info.step for info in infos],
        "first_event": [info.first_event for info in infos],
        "event_count": [info.event_count for info in infos],
        "run_id": [name_bytes(info.run_id) if info.run_id else None for info in infos],
        # What is empty where it could not be was pruned.
        "events": [
            None if record.info.event_count and not record.events else record.events
            for record in records
        ],
        "body": [record.body or None for record in records],
    }


def _entries(records: Sequence[Record]) -> dict[str, list[Any]]:
    infos = [record.info for record in records]
    return {
        "position": [info.position for info in infos],
        "kind": [CLAIM if info.kind is Kind.CLAIM else JOURNAL for info in infos],
        "epoch": [info.epoch for info in infos],
        "created_at": [float(info.created_at) for info in infos],
        "took_over": [info.took_over for info in infos],
        "body": [record.body for record in records],
    }


def _requests(requests: Sequence[Request]) -> dict[str, list[Any]]:
    return {
        "seq": [request.seq for request in requests],
        "request_id": [name_bytes(request.request_id) for request in requests],
        "kind": [name_bytes(request.kind) for request in requests],
        "created_at": [float(request.created_at) for request in requests],
        "body": [request.body for request in requests],
    }
