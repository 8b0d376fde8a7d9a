"""Who may run a session: claim, renew, release, on the database's clock; statements and answers.

Rules of this file:
- A claim is decided by the row as it is under its lock, and the claim's own id stands in it: sent
  again, it finds that it was made.
- Whether an owner is provably dead only this machine can tell.  It is told to the statement by the
  owner's text, which names an incarnation that never comes back.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from raf.clock import utc_text
from raf.errors import InvalidSessionIdError, SessionBusyError
from raf.store.model import Claimed, Due, Lease, Owner, check_session_id
from raf.store.postgres.rows import CLAIM, Row, holder_of, name_bytes, owner_text

# What a session is before its first record, with an owner.
_COLUMNS = (
    "id, nonce, epoch, position, commit_number, commit_position, journal_from, events, first_event,"
    " kept_from, consumed, requests, created_at, updated_at, commit_id, append_id, claim_id, owner,"
    " lease_until, duration_s, status, wake_at, fingerprint, queue, summary"
)
_FRESH = (
    "%(id)s, %(nonce)s, 1, 1, -1, 0, 0, 0, 1, 0, 0, 0, %(now)s, %(now)s, '', '', %(claim_id)s,"
    " %(owner)s, c.time + %(lease_s)s, %(lease_s)s, 'new', NULL, '', 'default', '[]'"
)
_FREE = "(l.owner IS NULL OR l.lease_until <= c.time OR l.owner = ANY(%(dead)s::text[]))"
_NOTE = (
    "INSERT INTO $S.journal (session, position, kind, epoch, created_at, took_over, body)"
    f" SELECT t.number, t.position, {CLAIM}, t.epoch, %(now)s, t.took_over, ''"
)
CLAIM_ONE = f"""WITH clock AS MATERIALIZED (SELECT $NOW AS time), locked AS (
    SELECT s.* FROM $S.sessions s WHERE s.id = %(id)s FOR UPDATE
), mine AS (
    SELECT l.*, j.took_over FROM locked l JOIN $S.journal j
    ON j.session = l.number AND j.position = l.position WHERE l.claim_id = %(claim_id)s
), taken AS (
    UPDATE $S.sessions s SET
        epoch = l.epoch + 1, position = l.position + 1, claim_id = %(claim_id)s, append_id = '',
        nonce = CASE WHEN l.nonce = '' THEN %(nonce)s ELSE l.nonce END,
        created_at = CASE WHEN l.nonce = '' THEN %(now)s ELSE l.created_at END,
        updated_at = CASE WHEN l.nonce = '' THEN %(now)s ELSE l.updated_at END,
        owner = %(owner)s, lease_until = c.time + %(lease_s)s, duration_s = %(lease_s)s
    FROM locked l, clock c
    WHERE s.number = l.number AND l.claim_id <> %(claim_id)s
      AND ((l.nonce = '' AND %(create)s) OR (l.nonce <> '' AND {_FREE}))
    RETURNING s.number, s.nonce, s.epoch, s.position, l.owner IS NOT NULL AS took_over
), made AS (
    INSERT INTO $S.sessions ({_COLUMNS}) SELECT {_FRESH} FROM clock c
    WHERE %(create)s AND NOT EXISTS (SELECT FROM locked)
    ON CONFLICT (id) DO NOTHING
    RETURNING number, nonce, epoch, position, false AS took_over
), got AS (SELECT * FROM taken UNION ALL SELECT * FROM made), noted AS ({_NOTE} FROM got t)
SELECT 'got', g.nonce, g.epoch, g.position, g.took_over, NULL::text, NULL::float8, false FROM got g
UNION ALL
SELECT 'got', m.nonce, m.epoch, m.position, m.took_over, NULL, NULL, false FROM mine m
UNION ALL
SELECT 'found', l.nonce, l.epoch, l.position, false, l.owner, l.lease_until - c.time,
    l.claim_id = %(claim_id)s
FROM locked l, clock c"""  # noqa: S608 - literal parts only

RENEW = """WITH given AS (
    SELECT * FROM unnest(%(id)s::text[], %(nonce)s::text[], %(epoch)s::bigint[], %(lease_s)s::float8[])
    AS g(id, nonce, epoch, lease_s)
), locked AS (
    SELECT s.number, g.lease_s FROM $S.sessions s JOIN given g
    ON s.id = g.id AND s.nonce = g.nonce AND s.epoch = g.epoch
    WHERE s.owner IS NOT NULL ORDER BY s.id FOR UPDATE OF s
)
UPDATE $S.sessions s SET lease_until = $NOW + l.lease_s, duration_s = l.lease_s
FROM locked l WHERE s.number = l.number RETURNING s.id, s.epoch"""

RELEASE = """UPDATE $S.sessions SET owner = NULL, lease_until = NULL, duration_s = NULL
WHERE id = %(id)s AND nonce = %(nonce)s AND epoch = %(epoch)s AND owner IS NOT NULL"""

HOLDERS = "SELECT DISTINCT owner FROM $S.sessions WHERE owner IS NOT NULL"

LOCK = "SELECT pg_advisory_xact_lock(%(key)s)"

# The statuses stand in `raf.store.due`, which the suite holds this against.
_ASKED = "s.requests > s.consumed"
_TIMED = "s.status IN ('submitted', 'sleeping', 'waiting') AND s.wake_at <= c.time"
_WANTS = (
    "s.nonce <> '' AND s.commit_number >= 0 AND s.status NOT IN ('completed', 'cancelled')"
    " AND s.fingerprint = ANY(%(fingerprints)s::bytea[]) AND s.id <> ALL(%(skip)s::text[])"
)
_READY = (
    "s.owner IS NULL AND (s.status = 'running' OR (s.status = 'submitted' AND s.wake_at IS NULL)"
    f" OR ({_ASKED} AND s.status NOT IN ('completed', 'cancelled')))"
)
_LATE = f"s.owner IS NULL AND s.wake_at IS NOT NULL AND {_TIMED}"
_ORPHANED = (
    "s.owner IS NOT NULL AND (s.lease_until <= c.time OR s.owner = ANY(%(dead)s::text[]))"
    f" AND (s.status = 'running' OR (s.status = 'submitted' AND s.wake_at IS NULL) OR ({_TIMED})"
    f" OR {_ASKED})"
)
_IN_QUEUE = "sha256(s.queue) = sha256(a.queue) AND s.queue = a.queue"
CLAIM_DUE = f"""WITH clock AS MATERIALIZED (SELECT $NOW AS time), asked AS (
    SELECT * FROM unnest(%(queues)s::bytea[], %(limits)s::bigint[]) AS q(queue, most)
), rooms AS MATERIALIZED (
    SELECT a.queue, CASE WHEN a.most IS NULL THEN %(limit)s ELSE greatest(0, a.most - (
        SELECT count(*) FROM $S.sessions s WHERE s.owner IS NOT NULL AND {_IN_QUEUE}
        AND s.lease_until > c.time AND s.owner <> ALL(%(dead)s::text[])
    )) END AS room FROM asked a, clock c
), found AS (
    SELECT f.* FROM rooms a CROSS JOIN clock c CROSS JOIN LATERAL (
        SELECT s.number, s.id, s.epoch, s.position, s.owner, coalesce(s.wake_at, s.updated_at) AS since
        FROM $S.sessions s
        WHERE {_IN_QUEUE} AND {_WANTS} AND (({_READY}) OR ({_LATE}) OR ({_ORPHANED}))
        ORDER BY since, s.id LIMIT least(a.room, %(limit)s) FOR UPDATE OF s SKIP LOCKED
    ) f
), chosen AS (
    SELECT * FROM found WHERE NOT EXISTS (
        SELECT FROM $S.sessions s WHERE s.owner IS NOT NULL AND s.claim_id = %(claim_id)s
    ) ORDER BY since, id LIMIT %(limit)s
), taken AS (
    UPDATE $S.sessions s SET
        epoch = l.epoch + 1, position = l.position + 1, claim_id = %(claim_id)s, append_id = '',
        owner = %(owner)s, lease_until = c.time + %(lease_s)s, duration_s = %(lease_s)s
    FROM chosen l, clock c WHERE s.number = l.number
    RETURNING s.number, s.id, s.nonce, s.epoch, s.position, l.owner IS NOT NULL AS took_over, l.since
), noted AS ({_NOTE} FROM taken t)
SELECT t.id, t.nonce, t.epoch, t.position, t.took_over FROM taken t ORDER BY t.since, t.id"""  # noqa: S608
# What an earlier try of the same call took.
CLAIMED_BEFORE = """SELECT s.id, s.nonce, s.epoch, s.position, j.took_over
FROM $S.sessions s JOIN $S.journal j ON j.session = s.number AND j.position = s.position
WHERE s.owner IS NOT NULL AND s.claim_id = %(claim_id)s
ORDER BY coalesce(s.wake_at, s.updated_at), s.id"""


class Wish(NamedTuple):
    """Who claims, for how long, and by which id the claim is known again."""

    owner: Owner
    lease_s: float
    claim_id: str
    now: float


def claim_values(
    session_id: str, wish: Wish, nonce: str, *, create: bool, dead: Sequence[str] = ()
) -> dict[str, Any]:
    """The parameters of `CLAIM_ONE`; `nonce` is for a session that is made."""
    return {
        "id": session_id,
        "nonce": nonce,
        "create": create,
        "dead": list(dead),
        **_wish_values(wish),
    }


def _wish_values(wish: Wish) -> dict[str, Any]:
    return {
        "owner": owner_text(wish.owner),
        "lease_s": float(wish.lease_s),
        "claim_id": wish.claim_id,
        "now": float(wish.now),
    }


def due_values(wish: Wish, due: Due, *, limit: int, dead: Sequence[str]) -> dict[str, Any]:
    """The parameters of `CLAIM_DUE`."""
    return {
        "queues": [name_bytes(queue) for queue in due.queues],
        "limits": list(due.queues.values()),
        "fingerprints": [name_bytes(fingerprint) for fingerprint in sorted(due.fingerprints)],
        "skip": sorted(name for name in due.skip if _is_id(name)),
        "limit": max(0, limit),
        "dead": list(dead),
        **_wish_values(wish),
    }


def _is_id(name: str) -> bool:
    try:
        check_session_id(name)
    except InvalidSessionIdError:
        return False  # no session has it, and no statement takes it
    return True


def renew_values(leases: Sequence[Lease]) -> dict[str, Any]:
    """The parameters of `RENEW`."""
    return {
        "id": [lease.session_id for lease in leases],
        "nonce": [lease.nonce for lease in leases],
        "epoch": [lease.epoch for lease in leases],
        "lease_s": [float(lease.duration_s) for lease in leases],
    }


def lease_values(lease: Lease) -> dict[str, Any]:
    """The parameters that fence a statement of one lease."""
    return {"id": lease.session_id, "nonce": lease.nonce, "epoch": lease.epoch}


def lease_of(session_id: str, row: Row, wish: Wish, boot: float) -> Lease:
    """The lease that a row (nonce, epoch, position) gives.

    Its end is counted from when the claim was sent, so it is never later than the server's.
    """
    nonce, epoch, position = row
    return Lease(
        session_id=session_id,
        nonce=nonce,
        epoch=epoch,
        owner=wish.owner,
        duration_s=wish.lease_s,
        expires_boot=boot + wish.lease_s,
        position=position,
    )


def claimed_of(row: Row, wish: Wish, boot: float) -> Claimed:
    """A row of `CLAIM_DUE`."""
    lease = lease_of(row[0], row[1:4], wish, boot)
    return Claimed(lease=lease, took_over=row[4], created=False)


def got(rows: Sequence[Row]) -> Row | None:
    """The row of `CLAIM_ONE` that says the claim was made."""
    return next((row for row in rows if row[0] == "got"), None)


def found(rows: Sequence[Row]) -> Row | None:
    """The row of `CLAIM_ONE` that says how the session stood; None when there is none."""
    return next((row for row in rows if row[0] == "found" and row[1]), None)


def busy(session_id: str, owner: str, left_s: float, now: float) -> SessionBusyError:
    """The error for who comes to a held session."""
    return SessionBusyError(session_id, str(holder_of(owner)), utc_text(now + max(0.0, left_s)))


def limited(queues: Mapping[str, int | None]) -> list[str]:
    """The queues whose places are counted, in the order in which they are locked."""
    return sorted(queue for queue, most in queues.items() if most is not None)
