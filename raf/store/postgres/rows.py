"""Between rows of the tables and the values of the port; pure.

Rules of this file: the columns of a select stand here beside the code that reads them.  The server
keeps the types of its columns; what stands in a text or in a name is checked here, and what is not
as it was written is `CorruptRecordError`.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from raf.errors import CorruptRecordError
from raf.store.model import Head, Held, Kind, Owner, Record, RecordInfo, Request, Summary
from raf.store.owner import unknown_holder

Row = tuple[Any, ...]

CLAIM, COMMIT, JOURNAL = 0, 1, 2
_KINDS = (Kind.CLAIM, Kind.COMMIT, Kind.JOURNAL)

# A head as three columns, so that it fits beside records in one answer.
HEAD = (
    "ARRAY[s.number, s.epoch, s.position, s.commit_number, s.commit_position, s.journal_from,"
    " s.events, s.first_event, s.consumed, s.requests],"
    " ARRAY[s.created_at, s.updated_at, s.lease_until, s.duration_s, $NOW, s.wake_at],"
    " ARRAY[s.id, s.nonce, s.summary, s.owner, s.status,"
    " encode(s.fingerprint, 'hex'), encode(s.queue, 'hex')]"
)
_SIZES = "coalesce(length(c.events), 0), coalesce(length(c.body), 0)"
_CLEAR = (
    f"c.position, {COMMIT}::smallint, c.epoch, c.created_at, c.is_full, c.commit_number, c.step,"
    f" c.first_event, c.event_count, c.run_id, {_SIZES}"
)
# A record, and one without its bytes; `c` is a row of `commits`, `j` of `journal`, `r` of `requests`.
RECORD = f"{_CLEAR}, c.events, c.body"
INFO = f"{_CLEAR}, NULL::bytea, NULL::bytea"
_NOT_A_COMMIT = "NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint"
ENTRY = (
    f"j.position, j.kind, j.epoch, j.created_at, j.took_over, {_NOT_A_COMMIT}, NULL::bytea,"
    " 0, length(j.body), NULL::bytea, j.body"
)
REQUEST = (
    f"r.seq, 0::smallint, 0::bigint, r.created_at, false, {_NOT_A_COMMIT}, r.request_id,"
    " 0, 0, r.kind, r.body"
)

SEARCHED = ("wake_at", "status", "fingerprint", "queue")

_OWNER = tuple(field.name for field in fields(Owner))
_SUMMARY = tuple(field.name for field in fields(Summary))
_SUMMARY_TYPES: dict[str, type | tuple[type, ...]] = {
    "step": int,
    "wake_at": (int, float, type(None)),
}


@dataclass(frozen=True, slots=True)
class HeadRow:
    """The three columns of `HEAD`."""

    numbers: Sequence[int]
    times: Sequence[float | None]
    texts: Sequence[str | None]


def name_bytes(text: str) -> bytes:
    """A name that a user chose, as stored: any text, lone surrogates and NUL too."""
    return text.encode("utf-8", "surrogatepass")


def name_text(data: bytes) -> str:
    """The name again."""
    return data.decode("utf-8", "surrogatepass")


def column_text(status: str) -> str:
    """A status as the column that is searched holds it; only the known ones are searched for."""
    return status if status.isascii() and status.isprintable() else "?"


def owner_text(owner: Owner) -> str:
    """An owner as the session's row keeps it; equal owners have equal texts."""
    return _compact([getattr(owner, name) for name in _OWNER])


def summary_text(summary: Summary) -> str:
    """A summary as the session's row keeps it; what it lacks at the end is at its default."""
    return _compact([getattr(summary, name) for name in _SUMMARY])


def _compact(values: list[Any]) -> str:
    # ASCII only, so that any text of a user fits, NUL and lone surrogates too.
    return json.dumps(values, separators=(",", ":"))


def owner_of(text: str) -> Owner:
    """The owner that the text names.

    Raises:
        ValueError: It is not as it was written.
    """
    given = dict(zip(_OWNER, _list(text), strict=True))
    if all(isinstance(value, int if name == "pid" else str) for name, value in given.items()):
        return Owner(**given)
    raise ValueError(f"{text!r:.60} is no owner")


def summary_of(text: str) -> Summary:
    """The summary that the text holds.

    Raises:
        ValueError: It is not as it was written.
    """
    given = dict(zip(_SUMMARY, _list(text), strict=False))
    if all(isinstance(value, _SUMMARY_TYPES.get(name, str)) for name, value in given.items()):
        return Summary(**given)
    raise ValueError(f"{text!r:.60} is no summary")


def _list(text: str) -> list[Any]:
    try:
        values = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if isinstance(values, list):
        return values
    raise ValueError(f"{text!r:.60} is no list")


def head_of(row: HeadRow, boot: float) -> Head:
    """The head, with the lease's end as a time of this machine's boot clock.

    Args:
        row: What the server answered.
        boot: The boot clock when it was asked.

    Raises:
        CorruptRecordError: A text cannot be read, a time is none, or what workers search by is not
            what the summary says.
    """
    _, epoch, *numbers = row.numbers
    created_at, updated_at, lease_until, duration_s, now, wake_at = row.times
    session_id, nonce, summary, owner, *searched = row.texts
    left = (lease_until or 0.0) - (now or 0.0)
    try:
        held = None
        if owner is not None:
            held = Held(
                owner=owner_of(owner),
                epoch=epoch,
                expires_boot=boot + left,
                duration_s=duration_s or 0.0,
            )
        return Head(
            session_id=session_id or "",
            nonce=nonce or "",
            epoch=epoch,
            position=numbers[0],
            commit=numbers[1],
            commit_position=numbers[2],
            journal_from=numbers[3],
            events=numbers[4],
            first_event=numbers[5],
            consumed=numbers[6],
            requests=numbers[7],
            created_at=_time(created_at),
            updated_at=_time(updated_at),
            summary=_agreed(summary_of(summary or ""), wake_at, searched),
            held=held,
        )
    except (ValueError, OverflowError) as error:
        raise CorruptRecordError(session_id or "", "of the session's row", str(error)) from error


def _time(value: float | None) -> float:
    if value is None or not math.isfinite(value):
        raise ValueError(f"{value} is no time")
    return value


def _agreed(summary: Summary, wake_at: float | None, searched: Sequence[str | None]) -> Summary:
    """The summary, if the columns beside it say the same: workers search by them."""
    said, texts = searched_by(summary)
    pairs = zip(SEARCHED, (repr(said), *texts), (repr(wake_at), *searched), strict=True)
    if wrong := [name for name, told, column in pairs if told != column]:
        raise ValueError(f"the summary says another {', '.join(wrong)} than its column")
    return summary


def searched_by(summary: Summary) -> tuple[float | None, list[str]]:
    """What the columns that workers search by hold of a summary, as `HEAD` shows them."""
    wake_at = None if summary.wake_at is None else float(summary.wake_at)
    names = (name_bytes(name).hex() for name in (summary.fingerprint, summary.queue))
    return wake_at, [column_text(summary.status), *names]


def holder_of(owner: str) -> Owner:
    """Who holds a session, for an error; somebody unknown when the text cannot be read."""
    try:
        return owner_of(owner)
    except ValueError:
        return unknown_holder(0).owner


def record_of(row: Row, session_id: str) -> Record:
    """The row of `RECORD`, `INFO` or `ENTRY` columns; a pruned part is empty.

    Raises:
        CorruptRecordError: A column cannot be read.
    """
    return Record(info=info_of(row, session_id), events=row[12] or b"", body=row[13] or b"")


def info_of(row: Row, session_id: str) -> RecordInfo:
    """The clear fields of a row.

    Raises:
        CorruptRecordError: A column cannot be read.
    """
    position, kind, epoch, created_at, mark = row[:5]
    if kind != COMMIT:
        if kind not in (CLAIM, JOURNAL):
            raise CorruptRecordError(
                session_id, f"at position {position}", f"there is no kind {kind}"
            )
        return RecordInfo(
            position=position,
            epoch=epoch,
            kind=_KINDS[kind],
            created_at=created_at,
            took_over=mark,
            body_size=row[11],
        )
    if None in row[5:9]:
        why = "it is told to be a commit, and is none"
        raise CorruptRecordError(session_id, f"at position {position}", why)
    return RecordInfo(
        position=position,
        epoch=epoch,
        kind=Kind.COMMIT,
        created_at=created_at,
        full=mark,
        commit=row[5],
        step=row[6],
        first_event=row[7],
        event_count=row[8],
        run_id="" if row[9] is None else _name(row[9], session_id, f"at position {position}"),
        events_size=row[10],
        body_size=row[11],
    )


def request_of(row: Row, session_id: str) -> Request:
    """The row of `REQUEST` columns.

    Raises:
        CorruptRecordError: A name cannot be read.
    """
    where = f"of request {row[0]}"
    return Request(
        seq=row[0],
        request_id=_name(row[9], session_id, where),
        kind=_name(row[12], session_id, where),
        body=row[13],
        created_at=row[3],
    )


def _name(data: bytes, session_id: str, where: str) -> str:
    try:
        return name_text(data)
    except UnicodeDecodeError as error:
        raise CorruptRecordError(session_id, where, str(error)) from error
