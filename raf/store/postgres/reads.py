"""Reading a session: one statement, so one round trip and one moment.

Rules of this file: functions build a statement or take its answer apart; nothing here talks to the
server.  Along a session's commits event numbers never fall, so a place among them is found by
halving.

Theory of operation.  The answer is one table: a row for the head, and one for each record or request
that was selected, led by the number of its part.
"""

import re
from collections.abc import Sequence

from raf.errors import CorruptRecordError
from raf.store.model import Head, Reading, Record, RecordInfo, Request, Select
from raf.store.order import check_agrees, damaged_head, readable_info
from raf.store.postgres.rows import (
    ENTRY,
    HEAD,
    INFO,
    RECORD,
    REQUEST,
    HeadRow,
    Row,
    head_of,
    info_of,
    name_bytes,
    record_of,
    request_of,
)

HEAD_PART, NEWEST, CHAIN, JOURNAL, REQUESTS, EVENTS, INFOS, KEPT, RUN, LOG, INBOX = range(11)
_AT = 1  # where a record's columns begin, behind the number of its part

SCAN = (
    f"SELECT {HEAD} FROM $S.sessions s WHERE s.id >= %(least)s AND s.nonce <> ''"  # noqa: S608
    " ORDER BY s.id LIMIT %(limit)s"
)

_NO_HEAD = "NULL::bigint[], NULL::float8[], NULL::text[]"
_NO_RECORD = (
    "NULL::bigint, NULL::smallint, NULL::bigint, NULL::float8, NULL::boolean, NULL::bigint,"
    " NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::integer, NULL::integer,"
    " NULL::bytea, NULL::bytea"
)
_HEAD = "head AS MATERIALIZED (SELECT * FROM $S.sessions s WHERE s.id = %(id)s AND s.nonce <> '')"
_HEAD_PART = f"SELECT {HEAD_PART}, {_NO_RECORD}, {HEAD} FROM head s"  # noqa: S608

_COMMITS = "FROM head h JOIN $S.commits c ON c.session = h.number"
_END = "coalesce(%(at)s::bigint, h.commit_number)"
_BASE = (
    "base AS (SELECT b.commit_number AS first FROM head h CROSS JOIN LATERAL ("  # noqa: S608
    "SELECT c.commit_number FROM $S.commits c WHERE c.session = h.number"
    f" AND c.commit_number <= {_END} AND c.is_full ORDER BY c.commit_number DESC LIMIT 1) b)"
)
# The first commit whose last event is above a number; one too far when there is none.
_FIRST = """halving AS (
    SELECT 0::bigint AS low, h.commit_number + 1 AS high FROM head h
    UNION ALL
    SELECT CASE WHEN coalesce(c.last, 0) <= %(after)s THEN m.middle + 1 ELSE v.low END,
           CASE WHEN coalesce(c.last, 0) <= %(after)s THEN v.high ELSE m.middle END
    FROM halving v CROSS JOIN LATERAL (SELECT (v.low + v.high) / 2 AS middle) m
    LEFT JOIN LATERAL (
        SELECT c.first_event + c.event_count - 1 AS last FROM $S.commits c
        WHERE c.session = (SELECT number FROM head) AND c.commit_number <= m.middle
        ORDER BY c.commit_number DESC LIMIT 1) c ON true
    WHERE v.low < v.high
)"""

_PARTS = {
    NEWEST: f"(SELECT {INFO} {_COMMITS} ORDER BY c.commit_number DESC LIMIT 1)",
    CHAIN: f"SELECT {RECORD} {_COMMITS} CROSS JOIN base b"
    f" WHERE c.commit_number BETWEEN b.first AND {_END}",
    JOURNAL: f"SELECT {ENTRY} FROM head h JOIN $S.journal j ON j.session = h.number",  # noqa: S608
    REQUESTS: f"SELECT {REQUEST} FROM head h JOIN $S.requests r ON r.session = h.number"  # noqa: S608
    " WHERE r.seq > h.consumed",
    EVENTS: f"(SELECT {RECORD} FROM $S.commits c WHERE c.session = (SELECT number FROM head)"  # noqa: S608
    " AND c.event_count > 0 AND c.events IS NOT NULL"
    " AND c.commit_number >= (SELECT low FROM halving WHERE low >= high)"
    " ORDER BY c.commit_number LIMIT %(limit)s)",
    INFOS: f"SELECT {INFO} {_COMMITS}",
    KEPT: f"SELECT {INFO} {_COMMITS} WHERE c.commit_number >= h.kept_from AND c.body IS NOT NULL",
    RUN: f"(SELECT {RECORD} {_COMMITS} WHERE sha256(c.run_id) = sha256(%(run)s)"
    " AND c.run_id = %(run)s ORDER BY c.commit_number DESC LIMIT 1)",
    LOG: f"SELECT {RECORD} {_COMMITS} UNION ALL SELECT {ENTRY} FROM head h"  # noqa: S608
    " JOIN $S.journal j ON j.session = h.number",
    INBOX: f"SELECT {REQUEST} FROM head h JOIN $S.requests r ON r.session = h.number",  # noqa: S608
}


def statement(session_id: str, select: Select) -> tuple[str, dict[str, object]]:
    """The statement that reads what is selected, and its parameters."""
    parts = _selected(select)
    commons = [_HEAD]
    if CHAIN in parts:
        commons.append(_BASE)
    if EVENTS in parts:
        commons.append(_FIRST)
    tables = [_HEAD_PART] + [
        f"SELECT {part}, p.*, {_NO_HEAD} FROM ({_PARTS[part]}) p"  # noqa: S608
        for part in parts
    ]
    text = f"WITH RECURSIVE {', '.join(commons)} {' UNION ALL '.join(tables)} ORDER BY 1, 2"
    return text, {
        "id": session_id,
        "at": select.at,
        "after": select.events_after,
        "limit": max(0, select.events_limit),
        "run": name_bytes(select.run or ""),
    }


def _selected(select: Select) -> list[int]:
    wanted = {
        NEWEST: True,
        CHAIN: select.chain,
        JOURNAL: select.journal,
        REQUESTS: select.requests,
        EVENTS: select.events_after is not None,
        INFOS: select.infos,
        KEPT: select.kept,
        RUN: bool(select.run),
        LOG: select.log,
        INBOX: select.inbox,
    }
    return [part for part, wants in wanted.items() if wants]


def reading_of(rows: Sequence[Row], select: Select, boot: float) -> Reading | None:
    """What the server answered, as the port gives it.

    Args:
        rows: The answer to `statement`.
        select: What was asked.
        boot: The boot clock when it was asked.

    Raises:
        CorruptRecordError: A row cannot be read.
    """
    if not rows:
        return None
    row, parts = parts_of(rows)
    head = head_of(row, boot)
    newest = readable_info(parts.get(NEWEST, ()), info_of, head.session_id)
    journal = parts.get(JOURNAL, ())
    check_agrees(head, newest, min((each[0] for each in journal), default=None))

    def records(part: int) -> tuple[Record, ...]:
        return tuple(record_of(row, head.session_id) for row in parts.get(part, ()))

    def infos(part: int) -> tuple[RecordInfo, ...]:
        return tuple(info_of(row, head.session_id) for row in parts.get(part, ()))

    def requests(part: int) -> tuple[Request, ...]:
        return tuple(request_of(row, head.session_id) for row in parts.get(part, ()))

    return Reading(
        head=head,
        chain=_whole(parts.get(CHAIN, ()), records(CHAIN), head, select.at),
        journal=records(JOURNAL),
        requests=requests(REQUESTS),
        events=records(EVENTS),
        infos=infos(INFOS),
        kept=infos(KEPT),
        run=next(iter(records(RUN)), None),
        log=records(LOG),
        inbox=requests(INBOX),
    )


def parts_of(rows: Sequence[Row]) -> tuple[HeadRow, dict[int, list[Row]]]:
    """The head's columns, and the columns of each part that was selected."""
    parts: dict[int, list[Row]] = {}
    for row in rows[1:]:
        parts.setdefault(row[0], []).append(row[_AT:-3])
    return HeadRow(*rows[0][-3:]), parts


def _whole(
    rows: Sequence[Row], records: tuple[Record, ...], head: Head, at: int | None
) -> tuple[Record, ...]:
    """The chain if no link and no body is missing; else nothing."""
    if not records or any(row[-1] is None for row in rows):
        return ()
    first, last = records[0].info.commit, head.commit if at is None else at
    numbers = [record.info.commit for record in records]
    return records if numbers == list(range(first, last + 1)) else ()


def least_after(text: str) -> str:
    """The least id above a text, which may hold what no id can: a NUL or a lone surrogate."""
    odd = re.search("[\x00\ud800-\udfff]", text)
    if odd is None or odd[0] == "\0":
        return (text if odd is None else text[: odd.start()]) + "\x01"
    return text[: odd.start()] + "\ue000"


def heads_of(rows: Sequence[Row], boot: float) -> list[Head]:
    """The answer to `SCAN`; a damaged head is listed as such."""
    heads: list[Head] = []
    for row in rows:
        try:
            heads.append(head_of(HeadRow(*row), boot))
        except CorruptRecordError as error:
            heads.append(damaged_head(error.session_id, str(error)))
    return heads
