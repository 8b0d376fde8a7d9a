"""Writing a session that another store gave, whole, in one transaction.

Rules of this file: those of `writes`.
"""

import sqlite3
from collections.abc import Iterator

from raf.errors import SessionExistsError
from raf.failpoint import failpoint
from raf.store.adopted import adopted_head, check_adoptable
from raf.store.model import Kind, Reading, Record, RecordInfo
from raf.store.sqlite.reads import find_claimable
from raf.store.sqlite.rows import (
    CLAIM,
    JOURNAL,
    Row,
    key_of,
    name_bytes,
    plain_row,
    record_row,
    summary_text,
)
from raf.store.sqlite.writes import INSERT, Write

# Over a deleted session's row it keeps the number; a missing number is the next one.
_ADOPT = (
    "INSERT OR REPLACE INTO sessions"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', NULL, NULL, NULL, ?)"
)


class AdoptWrite(Write[None]):
    """All rows of a session."""

    def __init__(self, session: Reading) -> None:
        super().__init__()
        self.session_id = session.head.session_id
        self.session = session

    def run(self, connection: sqlite3.Connection) -> None:
        there = find_claimable(connection, self.session_id)
        if there is not None and not there.deleted:
            raise SessionExistsError(self.session_id)
        check_adoptable(self.session)
        number = there.number if there else None
        made = connection.execute(_ADOPT, (number, *self._head(there.head.epoch if there else 0)))
        number = made.lastrowid or 0
        for record in self.session.log:
            connection.execute(INSERT, _row(key_of(number, record.info.position), record))
        connection.executemany(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?)",
            [(number, name_bytes(i.run_id), i.position) for i in self._infos() if i.run_id],
        )
        connection.executemany(
            "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?)",
            [
                (number, r.seq, name_bytes(r.request_id), name_bytes(r.kind), r.created_at, r.body)
                for r in self.session.inbox
            ],
        )

    def _infos(self) -> list[RecordInfo]:
        return [record.info for record in self.session.log]

    def _head(self, buried: int) -> Row:
        """The columns of the session's row between its number and its summary."""
        head = adopted_head(self.session.head, buried)
        kept = [
            info.position for info in self._infos() if info.kind is Kind.COMMIT and info.body_size
        ]
        return (
            head.session_id,
            head.nonce,
            head.epoch,
            head.position,
            head.commit,
            head.commit_position,
            head.journal_from,
            head.events,
            head.first_event,
            min(kept, default=head.position + 1),
            head.consumed,
            head.requests,
            head.created_at,
            head.updated_at,
            summary_text(head.summary),
        )

    def points(self) -> Iterator[None]:
        failpoint("store.sqlite.adopt.before")
        yield
        failpoint("store.sqlite.adopt.after")


def _row(key: int, record: Record) -> Row:
    info = record.info
    if info.kind is Kind.COMMIT:
        return record_row(key, record)
    kind = CLAIM if info.kind is Kind.CLAIM else JOURNAL
    return plain_row(key, kind, info.epoch, info.created_at, mark=info.took_over, body=record.body)
