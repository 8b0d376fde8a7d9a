"""What owners write in groups: commits and journal records of many sessions, each in one statement.

Rules of this file:
- A statement locks the sessions' rows in the order of their ids, so that two groups never wait for
  each other in a circle, and decides by the rows as they are under the lock.
- A write that does not fit its row writes nothing and disturbs no other; the answer holds each row as
  it was found, and `judge` says from that how the write went.
- A write can be sent again: a commit is known by its id, an append by its id and by the position that
  it expects, so a copy of it that arrives late does nothing.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from raf.errors import LeaseLostError
from raf.store.model import Commit, Lease
from raf.store.order import check_follows
from raf.store.postgres.rows import JOURNAL, Row, column_text, name_bytes, summary_text

# Arrays, one item for each commit of the group.
_GIVEN_COMMITS = """given AS (
    SELECT * FROM unnest(
        %(id)s::text[], %(nonce)s::text[], %(epoch)s::bigint[], %(commit_id)s::text[],
        %(commit)s::bigint[], %(step)s::bigint[], %(is_full)s::boolean[], %(first_event)s::bigint[],
        %(event_count)s::bigint[], %(consumed)s::bigint[], %(ends_journal)s::boolean[],
        %(created_at)s::float8[], %(run_id)s::bytea[], %(events)s::bytea[], %(body)s::bytea[],
        %(status)s::text[], %(wake_at)s::float8[], %(fingerprint)s::bytea[], %(queue)s::bytea[],
        %(summary)s::text[]
    ) AS g(id, nonce, epoch, commit_id, commit, step, is_full, first_event, event_count, consumed,
           ends_journal, created_at, run_id, events, body, status, wake_at, fingerprint, queue,
           summary)
)"""
COMMITS = f"""WITH {_GIVEN_COMMITS}, locked AS (
    SELECT s.* FROM $S.sessions s JOIN given g ON s.id = g.id ORDER BY s.id FOR UPDATE OF s
), moved AS (
    UPDATE $S.sessions s SET
        position = l.position + 1, commit_number = g.commit, commit_position = l.position + 1,
        journal_from = CASE WHEN g.ends_journal THEN l.position + 1 ELSE l.journal_from END,
        events = l.events + g.event_count, consumed = g.consumed, updated_at = g.created_at,
        commit_id = g.commit_id, status = g.status, wake_at = g.wake_at,
        fingerprint = g.fingerprint, queue = g.queue, summary = g.summary
    FROM locked l JOIN given g ON l.id = g.id
    WHERE s.number = l.number AND l.nonce = g.nonce AND l.epoch = g.epoch
      AND l.commit_id <> g.commit_id AND l.commit_number = g.commit - 1
      AND l.events = g.first_event - 1 AND g.consumed BETWEEN l.consumed AND l.requests
    RETURNING s.number, s.id, s.position, s.epoch
), written AS (
    INSERT INTO $S.commits (session, commit_number, position, epoch, created_at, is_full, step,
                            first_event, event_count, run_id, events, body)
    SELECT m.number, g.commit, m.position, m.epoch, g.created_at, g.is_full, g.step,
           g.first_event, g.event_count, g.run_id, g.events, g.body
    FROM moved m JOIN given g ON m.id = g.id
), dropped AS (
    DELETE FROM $S.journal j USING moved m, given g
    WHERE m.id = g.id AND g.ends_journal AND j.session = m.number AND j.position < m.position
)
SELECT l.id, m.id IS NOT NULL, l.nonce, l.epoch, l.position, l.commit_id, l.commit_number, l.events,
       l.consumed, l.requests
FROM locked l LEFT JOIN moved m ON m.id = l.id"""  # noqa: S608 - literal parts only

APPENDS = f"""WITH given AS (
    SELECT * FROM unnest(
        %(id)s::text[], %(nonce)s::text[], %(epoch)s::bigint[], %(position)s::bigint[],
        %(size)s::bigint[], %(append_id)s::text[], %(created_at)s::float8[]
    ) AS g(id, nonce, epoch, position, size, append_id, created_at)
), locked AS (
    SELECT s.* FROM $S.sessions s JOIN given g ON s.id = g.id ORDER BY s.id FOR UPDATE OF s
), moved AS (
    UPDATE $S.sessions s SET position = l.position + g.size, append_id = g.append_id
    FROM locked l JOIN given g ON l.id = g.id
    WHERE s.number = l.number AND l.nonce = g.nonce AND l.epoch = g.epoch
      AND l.position = g.position AND l.append_id <> g.append_id
    RETURNING s.number, s.id, s.epoch
), written AS (
    INSERT INTO $S.journal (session, position, kind, epoch, created_at, took_over, body)
    SELECT m.number, g.position + b.offset, {JOURNAL}, m.epoch, g.created_at, false, b.body
    FROM moved m JOIN given g ON m.id = g.id JOIN unnest(
        %(of)s::text[], %(offset)s::bigint[], %(body)s::bytea[]
    ) AS b("of", "offset", body) ON b.of = m.id
)
SELECT l.id, m.id IS NOT NULL, l.nonce, l.epoch, l.position, l.append_id
FROM locked l LEFT JOIN moved m ON m.id = l.id"""  # noqa: S608 - literal parts only


class Found(NamedTuple):
    """A session's row as a statement found it; the last four for commits only."""

    session_id: str
    moved: bool
    nonce: str
    epoch: int
    position: int
    last_id: str
    commit: int = -1
    events: int = 0
    consumed: int = 0
    requests: int = 0


class Write:
    """An owner's write on its way through a group; `done` tells how it went."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.session_id = lease.session_id
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def size(self) -> int:
        """About how many bytes it sends."""
        return 0

    def settle(self, error: Exception | None = None) -> None:
        """Tell who waits."""
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)

    def check_owner(self, found: Found | None) -> Found:
        """The row, if it is still this owner's.

        Raises:
            LeaseLostError: It is another's, or it is gone.
        """
        if found is None or (found.nonce, found.epoch) != (self.lease.nonce, self.lease.epoch):
            raise LeaseLostError(self.session_id, self.lease.epoch)
        return found


class CommitWrite(Write):
    """A step: the head's row and one record."""

    def __init__(self, lease: Lease, commit: Commit) -> None:
        super().__init__(lease)
        self.commit = commit
        self.summary = summary_text(commit.summary)

    @property
    def size(self) -> int:
        return len(self.commit.body) + len(self.commit.events) + len(self.summary)

    def judge(self, found: Found | None) -> None:
        """Return if the commit stands.

        Raises:
            LeaseLostError: The session is another owner's.
            CommitOrderError: A number does not follow.
        """
        row = self.check_owner(found)
        if row.moved:
            self.lease.position = row.position + 1
            return
        if row.last_id == self.commit.commit_id:
            return  # my own retry
        check_follows(
            self.session_id,
            self.commit,
            number=row.commit,
            events=row.events,
            consumed=row.consumed,
            requests=row.requests,
        )


class AppendWrite(Write):
    """Journal records."""

    def __init__(self, lease: Lease, bodies: Sequence[bytes], append_id: str, now: float) -> None:
        super().__init__(lease)
        self.bodies = tuple(bodies)
        self.append_id = append_id
        self.created_at = now

    @property
    def size(self) -> int:
        return sum(len(body) for body in self.bodies)

    def judge(self, found: Found | None) -> bool:
        """Whether the records stand; False when they are to be sent again from another position.

        Raises:
            LeaseLostError: The session is another owner's.
        """
        row = self.check_owner(found)
        self.lease.position = row.position + (len(self.bodies) if row.moved else 0)
        return row.moved or row.last_id == self.append_id


def commit_values(group: Sequence[CommitWrite]) -> dict[str, list[Any]]:
    """The parameters of `COMMITS`."""
    commits = [write.commit for write in group]
    summaries = [commit.summary for commit in commits]
    return {
        "id": [write.session_id for write in group],
        "nonce": [write.lease.nonce for write in group],
        "epoch": [write.lease.epoch for write in group],
        "commit_id": [c.commit_id for c in commits],
        "commit": [c.commit for c in commits],
        "step": [c.step for c in commits],
        "is_full": [c.full for c in commits],
        "first_event": [c.first_event for c in commits],
        "event_count": [c.event_count for c in commits],
        "consumed": [c.consumed for c in commits],
        "ends_journal": [c.ends_journal for c in commits],
        "created_at": [float(c.created_at) for c in commits],
        "run_id": [name_bytes(c.run_id) if c.run_id else None for c in commits],
        "events": [bytes(c.events) for c in commits],
        "body": [bytes(c.body) for c in commits],
        "status": [column_text(s.status) for s in summaries],
        "wake_at": [None if s.wake_at is None else float(s.wake_at) for s in summaries],
        "fingerprint": [name_bytes(s.fingerprint) for s in summaries],
        "queue": [name_bytes(s.queue) for s in summaries],
        "summary": [write.summary for write in group],
    }


def append_values(group: Sequence[AppendWrite]) -> dict[str, list[Any]]:
    """The parameters of `APPENDS`."""
    rows = [
        (write.session_id, offset, bytes(body))
        for write in group
        for offset, body in enumerate(write.bodies, start=1)
    ]
    return {
        "id": [write.session_id for write in group],
        "nonce": [write.lease.nonce for write in group],
        "epoch": [write.lease.epoch for write in group],
        "position": [write.lease.position for write in group],
        "size": [len(write.bodies) for write in group],
        "append_id": [write.append_id for write in group],
        "created_at": [float(write.created_at) for write in group],
        "of": [row[0] for row in rows],
        "offset": [row[1] for row in rows],
        "body": [row[2] for row in rows],
    }


def found_in(rows: Sequence[Row]) -> dict[str, Found]:
    """The answer of either statement, by session."""
    return {row[0]: Found(*row) for row in rows}
