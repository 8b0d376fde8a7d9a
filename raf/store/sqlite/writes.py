"""What the writer thread does for each operation of the port, inside an open transaction.

Rules of this file:
- A write checks first and writes then: when it raises an error of `raf`, it has written nothing, and
  the others of its group go on.  Only damage may be met on the way: `CorruptRecordError` rolls back.
- A write may be run again after a rollback, so it changes nothing but the database.
- It stands between two failpoints of its name, passed right before and right after the `COMMIT`
  that makes it durable.
"""

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from raf.clock import Clock
from raf.errors import LeaseLostError, SessionNotFoundError
from raf.failpoint import failpoint
from raf.store.model import Commit, Lease, Request
from raf.store.order import check_follows, last_event
from raf.store.sqlite.reads import (
    commit_at,
    find_claimable,
    find_session,
    lowest_kept,
    position_after_event,
)
from raf.store.sqlite.rows import (
    COMMIT,
    FENCE,
    JOURNAL,
    REQUEST,
    Fence,
    Row,
    SessionRow,
    commit_row,
    fence_of,
    key_of,
    name_bytes,
    plain_row,
    request_of,
    summary_text,
)

T = TypeVar("T")

INSERT = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_FENCE = f"SELECT {FENCE} FROM sessions WHERE id = ?"  # noqa: S608
_STEP = (
    "UPDATE sessions SET position = ?, commit_number = ?, commit_position = ?, journal_from = ?,"
    " events = ?, consumed = ?, updated_at = ?, summary = ?, commit_id = ?"
    " WHERE number = ? AND epoch = ? AND commit_number = ?"
)
_DROP_JOURNAL = f"DELETE FROM records WHERE key BETWEEN ? AND ? AND kind <> {COMMIT}"  # noqa: S608
_DROP_EVENTS = (
    "UPDATE records SET events = NULL"  # noqa: S608
    f" WHERE key BETWEEN ? AND ? AND kind = {COMMIT} AND events IS NOT NULL"
)
_DROP_EMPTIED = (
    "DELETE FROM records"  # noqa: S608
    f" WHERE key BETWEEN ? AND ? AND kind = {COMMIT} AND body IS NULL AND run_id IS NULL"
)
# Every column but the epoch and the position, so that what was damaged is gone too.
_BURY = (
    "UPDATE sessions SET nonce = '', commit_number = -1, commit_position = 0, journal_from = 0,"
    " events = 0, first_event = 1, kept_from = 0, consumed = 0, requests = 0, created_at = 0,"
    " updated_at = 0, commit_id = '', owner = NULL, expires_boot = NULL, duration_s = NULL,"
    " summary = '[]' WHERE number = ?"
)


class Write(ABC, Generic[T]):
    """One operation on its way through the writer thread, and what came of it."""

    session_id = ""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()
        self.result: T | None = None
        self.error: Exception | None = None

    @abstractmethod
    def run(self, connection: sqlite3.Connection) -> T:
        """Do it; the result counts once the group is committed."""

    @abstractmethod
    def points(self) -> Iterator[None]:
        """Pass the failpoint before, then, when asked again, the one after."""

    def settle(self) -> None:
        """Tell who waits; runs on the loop that asked."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]


def _owned(connection: sqlite3.Connection, lease: Lease) -> Fence:
    row = connection.execute(_FENCE, (lease.session_id,)).fetchone()
    if row is None or (row[1], row[2]) != (lease.nonce, lease.epoch):
        raise LeaseLostError(lease.session_id, lease.epoch)
    return fence_of(row, lease.session_id)


class CommitWrite(Write[None]):
    """A step: the head's row and one record."""

    def __init__(self, lease: Lease, commit: Commit) -> None:
        super().__init__()
        self.session_id = lease.session_id
        self.lease = lease
        self.commit = commit
        self.summary = summary_text(commit.summary)

    def run(self, connection: sqlite3.Connection) -> None:
        commit = self.commit
        old = _owned(connection, self.lease)
        if old.commit_id == commit.commit_id:
            return  # my own retry
        check_follows(
            self.session_id,
            commit,
            number=old.commit,
            events=old.events,
            consumed=old.consumed,
            requests=old.requests,
        )
        position = old.position + 1
        connection.execute(_STEP, self._head(old, position))
        if commit.ends_journal and old.position > old.journal_from:
            span = key_of(old.number, old.journal_from + 1), key_of(old.number, old.position)
            connection.execute(_DROP_JOURNAL, span)
        key = key_of(old.number, position)
        connection.execute(INSERT, commit_row(key, old.epoch, commit))
        if commit.run_id:
            connection.execute(
                "INSERT OR REPLACE INTO runs VALUES (?, ?, ?)",
                (old.number, name_bytes(commit.run_id), position),
            )

    def _head(self, old: Fence, position: int) -> Row:
        commit = self.commit
        return (
            position,
            commit.commit,
            position,
            position if commit.ends_journal else old.journal_from,
            old.events + commit.event_count,
            commit.consumed,
            commit.created_at,
            self.summary,
            commit.commit_id,
            old.number,
            old.epoch,
            old.commit,
        )

    def points(self) -> Iterator[None]:
        failpoint("store.sqlite.commit.before")
        yield
        failpoint("store.sqlite.commit.after")


class AppendWrite(Write[None]):
    """Journal records."""

    def __init__(self, lease: Lease, bodies: Sequence[bytes], clock: Clock) -> None:
        super().__init__()
        self.session_id = lease.session_id
        self.lease = lease
        self.bodies = tuple(bodies)
        self.clock = clock

    def run(self, connection: sqlite3.Connection) -> None:
        session = _owned(connection, self.lease)
        position, now = session.position, self.clock.now()
        for body in self.bodies:
            position += 1
            key = key_of(session.number, position)
            row = plain_row(key, JOURNAL, self.lease.epoch, now, body=body)
            connection.execute(INSERT, row)
        connection.execute(
            "UPDATE sessions SET position = ? WHERE number = ?", (position, session.number)
        )

    def points(self) -> Iterator[None]:
        failpoint("store.sqlite.append.before")
        yield
        failpoint("store.sqlite.append.after")


class RequestWrite(Write[Request]):
    """One more in the inbox, or the one that is there."""

    def __init__(
        self, session_id: str, request_id: str, kind: str, body: bytes, clock: Clock
    ) -> None:
        super().__init__()
        self.session_id = session_id
        self.request_id = request_id
        self.kind = kind
        self.body = body
        self.clock = clock

    def run(self, connection: sqlite3.Connection) -> Request:
        session = find_session(connection, self.session_id)
        if session is None or session.deleted:
            raise SessionNotFoundError(self.session_id)
        known = connection.execute(
            f"SELECT {REQUEST} FROM requests WHERE session = ? AND request_id = ?",  # noqa: S608
            (session.number, name_bytes(self.request_id)),
        ).fetchone()
        if known is not None:
            return request_of(known, self.session_id)
        row = (
            session.head.requests + 1,
            name_bytes(self.request_id),
            name_bytes(self.kind),
            self.clock.now(),
            self.body,
        )
        connection.execute("INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?)", (session.number, *row))
        connection.execute(
            "UPDATE sessions SET requests = ? WHERE number = ?", (row[0], session.number)
        )
        return request_of(row, self.session_id)

    def points(self) -> Iterator[None]:
        failpoint("store.sqlite.request.before")
        yield
        failpoint("store.sqlite.request.after")


class PruneWrite(Write[None]):
    """Empty bodies, and events below a number."""

    def __init__(self, lease: Lease, bodies: Sequence[int], events_before: int | None) -> None:
        super().__init__()
        self.session_id = lease.session_id
        self.lease = lease
        self.bodies = tuple(bodies)
        self.events_before = events_before

    def run(self, connection: sqlite3.Connection) -> None:
        _owned(connection, self.lease)
        session = find_session(connection, self.session_id)
        if session is None:
            return
        if self.bodies:
            self._drop_bodies(connection, session)
        if self.events_before is not None:
            self._drop_events(connection, session, self.events_before)

    def _drop_bodies(self, connection: sqlite3.Connection, session: SessionRow) -> None:
        for position in self.bodies:
            connection.execute(
                "UPDATE records SET body = NULL WHERE key = ? AND kind = ?",
                (key_of(session.number, position), COMMIT),
            )
        connection.execute(
            "UPDATE sessions SET kept_from = ? WHERE number = ?",
            (lowest_kept(connection, session), session.number),
        )

    def _drop_events(
        self, connection: sqlite3.Connection, session: SessionRow, before: int
    ) -> None:
        end = position_after_event(connection, session, before - 1) - 1
        last = commit_at(connection, session, end)
        if last is None or last_event(last) >= before:
            return
        span = key_of(session.number, 0), key_of(session.number, end)
        connection.execute(_DROP_EVENTS, span)
        connection.execute(_DROP_EMPTIED, span)
        first = max(session.head.first_event, last_event(last) + 1)
        connection.execute(
            "UPDATE sessions SET first_event = ? WHERE number = ?", (first, session.number)
        )

    def points(self) -> Iterator[None]:
        failpoint("store.sqlite.prune.before")
        yield
        failpoint("store.sqlite.prune.after")


class DeleteWrite(Write[None]):
    """Everything of a session but its epoch."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self.session_id = lease.session_id
        self.lease = lease

    def run(self, connection: sqlite3.Connection) -> None:
        session, lease = find_claimable(connection, self.session_id), self.lease
        if session and session.deleted and session.head.epoch == lease.epoch:
            return  # my own retry
        if session is None or (session.head.nonce, session.head.epoch) != (
            lease.nonce,
            lease.epoch,
        ):
            raise LeaseLostError(lease.session_id, lease.epoch)
        number = session.number
        span = key_of(number, 0), key_of(number, (1 << 32) - 1)
        connection.execute("DELETE FROM records WHERE key BETWEEN ? AND ?", span)
        connection.execute("DELETE FROM requests WHERE session = ?", (number,))
        connection.execute("DELETE FROM runs WHERE session = ?", (number,))
        connection.execute(_BURY, (number,))

    def points(self) -> Iterator[None]:
        failpoint("store.sqlite.delete.before")
        yield
        failpoint("store.sqlite.delete.after")


class FlushWrite(Write[None]):
    """Nothing; done once everything before it in the queue is."""

    def run(self, connection: sqlite3.Connection) -> None:
        pass

    def points(self) -> Iterator[None]:
        yield
