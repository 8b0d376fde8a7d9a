"""Reading all of a session that can be read, row by row and column by column.

Rules of this file: those of `reads`.  A row that is damaged is left out and named; of the session's
own row each column is judged alone, and what cannot be read is as in a session that is new.
"""

import sqlite3

from raf.errors import CorruptRecordError
from raf.store.model import Reading, Salvage
from raf.store.salvage import agreeing, readable
from raf.store.sqlite.rows import (
    HEAD,
    RECORD,
    REQUEST,
    Row,
    SessionRow,
    key_of,
    record_of,
    request_of,
    session_row,
)

_FIND = f"SELECT {HEAD} FROM sessions WHERE id = ?"  # noqa: S608
_LOG = f"SELECT {RECORD} FROM records WHERE key BETWEEN ? AND ? ORDER BY key"  # noqa: S608
_INBOX = f"SELECT {REQUEST} FROM requests WHERE session = ? ORDER BY seq"  # noqa: S608
_LAST = (1 << 32) - 1
# Each column of HEAD behind number and id, where it cannot be read.
_NEW: Row = ("", 1, _LAST, -1, 0, 0, 0, 1, 0, 0, 0.0, 0.0, "[]", None, None, None, "", 0)


def salvage(connection: sqlite3.Connection, session_id: str) -> Salvage | None:
    """What can be read of a session; None when there is none."""
    row = connection.execute(_FIND, (session_id,)).fetchone()
    if row is None or not row[2]:
        return None
    damaged: list[CorruptRecordError] = []
    session = _session(row, damaged)
    head, span = session.head, (key_of(session.number, 0), key_of(session.number, _LAST))
    records = readable(connection.execute(_LOG, span), record_of, session_id, damaged)
    inbox = connection.execute(_INBOX, (session.number,))
    reading = Reading(
        head=agreeing(head, records, damaged),
        log=tuple(records),
        inbox=tuple(readable(inbox, request_of, session_id, damaged)),
    )
    return Salvage(session=reading, damaged=tuple(damaged))


def _session(row: Row, damaged: list[CorruptRecordError]) -> SessionRow:
    try:
        return session_row(row)
    except CorruptRecordError as error:
        damaged.append(error)
    known = row[:2] + _NEW
    for column, value in enumerate(row):
        alone = (*known[:column], value, *known[column + 1 :])
        try:
            session_row(alone)
        except CorruptRecordError:
            continue
        known = alone
    return session_row(known)
