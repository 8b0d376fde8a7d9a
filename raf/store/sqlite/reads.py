"""Reading a session inside one read transaction.

Rules of this file: functions take a connection on which a transaction is open and change nothing.
Along a session's positions commit and event numbers never fall, so both are found by halving.
"""

import sqlite3
from contextlib import closing

from raf.errors import CorruptRecordError
from raf.store.model import Head, Reading, Record, RecordInfo, Request, Select
from raf.store.order import check_agrees, damaged_head, last_event, readable_info
from raf.store.sqlite.rows import (
    CLAIM,
    COMMIT,
    HEAD,
    INFO,
    JOURNAL,
    RECORD,
    REQUEST,
    Row,
    SessionRow,
    claimable_row,
    info_of,
    key_of,
    name_bytes,
    position_of,
    record_of,
    request_of,
    run_position,
    session_row,
)

# Literal columns, named beside the code that reads them; values are always bound.
_FIND = f"SELECT {HEAD} FROM sessions WHERE id = ?"  # noqa: S608
_SCAN = f"SELECT {HEAD} FROM sessions WHERE id > ? AND nonce <> '' ORDER BY id LIMIT ?"  # noqa: S608
_RANGE = f"FROM records WHERE key BETWEEN ? AND ? AND kind = {COMMIT}"
_CHAIN = f"SELECT {RECORD} {_RANGE} ORDER BY key DESC"
_INFOS = f"SELECT {INFO} {_RANGE} ORDER BY key"
_KEPT = f"SELECT {INFO} {_RANGE} AND body IS NOT NULL ORDER BY key"
_EVENTS = (
    f"SELECT {RECORD} {_RANGE} AND event_count > 0 AND events IS NOT NULL ORDER BY key LIMIT ?"
)
_ONE = f"SELECT {RECORD} FROM records WHERE key = ?"  # noqa: S608
_JOURNAL = (
    f"SELECT {RECORD} FROM records"  # noqa: S608
    f" WHERE key BETWEEN ? AND ? AND kind <> {COMMIT} ORDER BY key"
)
_AT_OR_BEFORE = f"SELECT {INFO} {_RANGE} ORDER BY key DESC LIMIT 1"
_KINDS = "SELECT key, kind FROM records WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 2"
_LAST = (1 << 32) - 1
_LOG = (
    f"SELECT {RECORD} FROM records"  # noqa: S608
    f" WHERE key BETWEEN ? AND ? AND (kind = {COMMIT} OR key > ?) ORDER BY key"
)
_INBOX = f"SELECT {REQUEST} FROM requests WHERE session = ? AND seq > ? ORDER BY seq"  # noqa: S608
_RUN = "SELECT position FROM runs WHERE session = ? AND run_id = ?"


def find_session(connection: sqlite3.Connection, session_id: str) -> SessionRow | None:
    """The session's row, also when it was deleted."""
    row = connection.execute(_FIND, (session_id,)).fetchone()
    return None if row is None else session_row(row)


def find_claimable(connection: sqlite3.Connection, session_id: str) -> SessionRow | None:
    """What a claim or a deletion needs of the session's row, also when it was deleted."""
    row = connection.execute(_FIND, (session_id,)).fetchone()
    return None if row is None else claimable_row(row)


def scan(connection: sqlite3.Connection, after: str, limit: int) -> list[Head]:
    """Heads in the order of their ids, without deleted ones; a damaged one is listed as such."""
    heads: list[Head] = []
    for row in connection.execute(_SCAN, (after, max(0, limit))):
        try:
            heads.append(session_row(row).head)
        except CorruptRecordError as error:
            heads.append(damaged_head(error.session_id, str(error)))
    return heads


def read(connection: sqlite3.Connection, session_id: str, select: Select) -> Reading | None:
    """What is selected of a session."""
    session = find_session(connection, session_id)
    if session is None or session.deleted:
        return None
    after = select.events_after
    _check(connection, session)
    return Reading(
        head=session.head,
        chain=_chain(connection, session, select.at) if select.chain else (),
        journal=_journal(connection, session) if select.journal else (),
        requests=_inbox(connection, session, session.head.consumed) if select.requests else (),
        events=() if after is None else _events(connection, session, after, select.events_limit),
        infos=_infos(connection, session) if select.infos else (),
        kept=_kept(connection, session) if select.kept else (),
        run=_run(connection, session, select.run) if select.run else None,
        log=_log(connection, session) if select.log else (),
        inbox=_inbox(connection, session, 0) if select.inbox else (),
    )


def _check(connection: sqlite3.Connection, session: SessionRow) -> None:
    """Return if the session's row agrees with its records.

    A journal that ended left nothing but commits up to its end.
    """
    head = session.head
    newest = connection.execute(_AT_OR_BEFORE, _span(session, last=_LAST))
    before = connection.execute(_KINDS, _span(session, last=head.journal_from)).fetchall()
    begins = next((position_of(key) for key, kind in before if kind in (CLAIM, JOURNAL)), None)
    check_agrees(head, readable_info(newest, info_of, head.session_id), begins)


def _span(session: SessionRow, first: int = 0, last: int | None = None) -> tuple[int, int]:
    """The keys of the records from one position to another."""
    last = session.head.position if last is None else last
    return key_of(session.number, first), key_of(session.number, last)


def _chain(
    connection: sqlite3.Connection, session: SessionRow, at: int | None
) -> tuple[Record, ...]:
    number = session.head.commit if at is None else at
    end = _position_of_commit(connection, session, number)
    links: list[Record] = []
    with closing(connection.execute(_CHAIN, _span(session, last=end))) as rows:
        for row in rows:
            record, pruned = record_of(row, session.head.session_id), row[-1] is None
            if pruned or record.info.commit != number:
                return ()
            links.append(record)
            if record.info.full:
                return tuple(reversed(links))
            number -= 1
    return ()


def _position_of_commit(connection: sqlite3.Connection, session: SessionRow, number: int) -> int:
    """Where a commit stands; a wrong place when there is none of this number."""
    if number == session.head.commit:
        return session.head.commit_position
    low, high = 0, session.head.position
    while low < high:
        middle = (low + high) // 2
        row = _at_or_before(connection, session, middle)
        if row is None or info_of(row, session.head.session_id).commit < number:
            low = middle + 1
        else:
            high = middle
    return low


def _at_or_before(connection: sqlite3.Connection, session: SessionRow, position: int) -> Row | None:
    row: Row | None = connection.execute(_AT_OR_BEFORE, _span(session, last=position)).fetchone()
    return row


def position_after_event(connection: sqlite3.Connection, session: SessionRow, number: int) -> int:
    """The position of the first commit whose last event is above a number; else one too far."""
    low, high = 0, session.head.position + 1
    while low < high:
        middle = (low + high) // 2
        row = _at_or_before(connection, session, middle)
        if row is None or last_event(info_of(row, session.head.session_id)) <= number:
            low = middle + 1
        else:
            high = middle
    return low


def commit_at(
    connection: sqlite3.Connection, session: SessionRow, position: int
) -> RecordInfo | None:
    """The clear fields of the commit at or before a position."""
    row = _at_or_before(connection, session, position)
    return None if row is None else info_of(row, session.head.session_id)


def _events(
    connection: sqlite3.Connection, session: SessionRow, after: int, limit: int
) -> tuple[Record, ...]:
    if after >= session.head.events:
        return ()
    first = position_after_event(connection, session, after)
    rows = connection.execute(_EVENTS, (*_span(session, first), max(0, limit)))
    return tuple(record_of(row, session.head.session_id) for row in rows)


def _journal(connection: sqlite3.Connection, session: SessionRow) -> tuple[Record, ...]:
    span = _span(session, session.head.journal_from + 1)
    return tuple(
        record_of(row, session.head.session_id) for row in connection.execute(_JOURNAL, span)
    )


def _log(connection: sqlite3.Connection, session: SessionRow) -> tuple[Record, ...]:
    ended = key_of(session.number, session.head.journal_from)
    rows = connection.execute(_LOG, (*_span(session), ended))
    return tuple(record_of(row, session.head.session_id) for row in rows)


def _inbox(connection: sqlite3.Connection, session: SessionRow, after: int) -> tuple[Request, ...]:
    rows = connection.execute(_INBOX, (session.number, after))
    return tuple(request_of(row, session.head.session_id) for row in rows)


def _infos(connection: sqlite3.Connection, session: SessionRow) -> tuple[RecordInfo, ...]:
    return tuple(
        info_of(row, session.head.session_id) for row in connection.execute(_INFOS, _span(session))
    )


def _kept(connection: sqlite3.Connection, session: SessionRow) -> tuple[RecordInfo, ...]:
    span = _span(session, session.kept_from)
    return tuple(info_of(row, session.head.session_id) for row in connection.execute(_KEPT, span))


def lowest_kept(connection: sqlite3.Connection, session: SessionRow) -> int:
    """The first position whose commit has a body; the next position to come when there is none."""
    span = _span(session, session.kept_from)
    row = connection.execute(f"{_KEPT} LIMIT 1", span).fetchone()
    return session.head.position + 1 if row is None else position_of(row[0])


def _run(connection: sqlite3.Connection, session: SessionRow, run_id: str) -> Record | None:
    found = connection.execute(_RUN, (session.number, name_bytes(run_id))).fetchone()
    if found is None:
        return None
    position = run_position(found, session.head.session_id)
    row = connection.execute(_ONE, (key_of(session.number, position),)).fetchone()
    return None if row is None else record_of(row, session.head.session_id)
