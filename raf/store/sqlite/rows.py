"""Between rows of the tables and the values of the port; pure.

Rules of this file: the columns of a select stand here beside the code that reads them.  A column may
hold anything, for SQLite lets it: each is checked before it becomes a part of a value, and one that
is not what was written is `CorruptRecordError`.
"""

import json
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from raf.errors import CorruptRecordError
from raf.store.model import Commit, Head, Held, Kind, Owner, Record, RecordInfo, Request, Summary
from raf.store.order import new_head
from raf.store.owner import unknown_holder

Row = tuple[Any, ...]

CLAIM, COMMIT, JOURNAL = 0, 1, 2
_KINDS = (Kind.CLAIM, Kind.COMMIT, Kind.JOURNAL)
_SPAN = 32

HEAD = (
    "number, id, nonce, epoch, position, commit_number, commit_position, journal_from, events,"
    " first_event, consumed, requests, created_at, updated_at, summary, owner, expires_boot,"
    " duration_s, commit_id, kept_from"
)
_CLEAR = "key, kind, epoch, created_at, mark, commit_number, step, first_event, event_count, run_id"
INFO = f"{_CLEAR}, ifnull(length(events), 0), ifnull(length(body), 0)"
RECORD = f"{_CLEAR}, events, body"
REQUEST = "seq, request_id, kind, created_at, body"

_OWNER = tuple(field.name for field in fields(Owner))
_SUMMARY = tuple(field.name for field in fields(Summary))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A session's row: the head, its number in this file, and the id of its last commit.

    Below the position `kept_from` no commit has a body.
    """

    number: int
    head: Head
    commit_id: str
    kept_from: int = 0

    @property
    def deleted(self) -> bool:
        """Whether only the epoch is left."""
        return not self.head.nonce


class Fence(NamedTuple):
    """The numbers of a session's row that a write of its owner is checked against."""

    number: int
    nonce: str
    epoch: int
    position: int
    commit: int
    journal_from: int
    events: int
    consumed: int
    requests: int
    commit_id: str


FENCE = (
    "number, nonce, epoch, position, commit_number, journal_from, events, consumed, requests,"
    " commit_id"
)


def key_of(session: int, position: int) -> int:
    """The key of a record."""
    return session << _SPAN | position


def position_of(key: int) -> int:
    """The position that a key holds."""
    return key & (1 << _SPAN) - 1


def name_bytes(text: str) -> bytes:
    """A name that a user chose, as stored: any text, lone surrogates and NUL too."""
    return text.encode("utf-8", "surrogatepass")


def name_text(data: bytes) -> str:
    """The name again."""
    return data.decode("utf-8", "surrogatepass")


def owner_text(owner: Owner) -> str:
    """An owner as the session's row keeps it."""
    return _compact([getattr(owner, name) for name in _OWNER])


def summary_text(summary: Summary) -> str:
    """A summary as the session's row keeps it; what it lacks at the end is at its default."""
    return _compact([getattr(summary, name) for name in _SUMMARY])


def _compact(values: list[Any]) -> str:
    # ASCII only, so that any text of a user fits, lone surrogates too.
    return json.dumps(values, separators=(",", ":"))


def _integer(value: Any) -> int:
    if isinstance(value, int):
        return value
    raise TypeError(f"{value!r:.60} is no integer")


def _seconds(value: Any) -> float:
    if isinstance(value, (float, int)):
        return value
    raise TypeError(f"{value!r:.60} is no time")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"{value!r:.60} is no text")


def _blob(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    raise TypeError(f"{value!r:.60} is no blob")


def session_row(row: Row) -> SessionRow:
    """The row of `HEAD` columns.

    Raises:
        CorruptRecordError: A column cannot be read.
    """
    (number, session_id, nonce, epoch, position, commit, commit_position, journal_from) = row[:8]
    (events, first_event, consumed, requests, created_at, updated_at) = row[8:14]
    (summary, owner, expires_boot, duration_s, commit_id, kept_from) = row[14:]
    try:
        for integer in (*row[3:12], kept_from):
            _integer(integer)
        _seconds(created_at)
        _seconds(updated_at)
        head = Head(
            session_id=_text(session_id),
            nonce=_text(nonce),
            epoch=epoch,
            position=position,
            commit=commit,
            commit_position=commit_position,
            journal_from=journal_from,
            events=events,
            first_event=first_event,
            consumed=consumed,
            requests=requests,
            created_at=created_at,
            updated_at=updated_at,
            summary=_summary(summary),
            held=None if owner is None else _held(owner, epoch, expires_boot, duration_s),
        )
        return SessionRow(number=number, head=head, commit_id=_text(commit_id), kept_from=kept_from)
    except (TypeError, ValueError, RecursionError) as error:
        raise _damaged_session(session_id, error) from error


def claimable_row(row: Row) -> SessionRow:
    """The row of `HEAD` columns with only what a claim or a deletion needs; the rest is at zero.

    So a session whose row is damaged elsewhere can be taken and deleted.  A holder that cannot be
    read binds for a while, as an unknown one.

    Raises:
        CorruptRecordError: Its nonce, epoch or position cannot be read.
    """
    try:
        nonce, epoch, position = _text(row[2]), _integer(row[3]), _integer(row[4])
    except TypeError as error:
        raise _damaged_session(row[1], error) from error
    held: Held | None = None
    if row[15] is not None:
        try:
            held = _held(row[15], epoch, row[16], row[17])
        except (TypeError, ValueError, RecursionError):
            held = unknown_holder(epoch)
    head = replace(new_head(row[1], nonce, 0.0, epoch=epoch), position=position, held=held)
    return SessionRow(number=row[0], head=head, commit_id="")


def fence_of(row: Row, session_id: str) -> Fence:
    """The row of `FENCE` columns.

    Raises:
        CorruptRecordError: A number cannot be read.
    """
    try:
        for integer in row[2:9]:
            _integer(integer)
    except TypeError as error:
        raise _damaged_session(session_id, error) from error
    return Fence._make(row)


def _damaged_session(session_id: Any, error: Exception) -> CorruptRecordError:
    return CorruptRecordError(str(session_id), "of the session's row", str(error))


def _list(text: Any) -> list[Any]:
    values = json.loads(_text(text))
    if isinstance(values, list) and text.isascii():
        return values
    raise TypeError(f"{text!r:.60} is no list as it is written here")


def _summary(text: Any) -> Summary:
    given = dict(zip(_SUMMARY, _list(text), strict=False))
    for name, value in given.items():
        if name == "step":
            _integer(value)
        elif name != "wake_at":
            _text(value)
        elif value is not None:
            _seconds(value)
    return Summary(**given)


def _held(owner: Any, epoch: int, expires_boot: Any, duration_s: Any) -> Held:
    given = dict(zip(_OWNER, _list(owner), strict=True))
    for name, value in given.items():
        (_integer if name == "pid" else _text)(value)
    return Held(
        owner=Owner(**given),
        epoch=epoch,
        expires_boot=_seconds(expires_boot),
        duration_s=_seconds(duration_s),
    )


def commit_row(key: int, epoch: int, commit: Commit) -> Row:
    """The columns of a commit's record, in the order of `RECORD`."""
    return (
        key,
        COMMIT,
        epoch,
        commit.created_at,
        int(commit.full),
        commit.commit,
        commit.step,
        commit.first_event,
        commit.event_count,
        name_bytes(commit.run_id) if commit.run_id else None,
        commit.events,
        commit.body,
    )


def record_row(key: int, record: Record) -> Row:
    """The columns of a commit's record as pruning left it: what is gone is NULL."""
    info = record.info
    return (
        key,
        COMMIT,
        info.epoch,
        info.created_at,
        int(info.full),
        info.commit,
        info.step,
        info.first_event,
        info.event_count,
        name_bytes(info.run_id) if info.run_id else None,
        record.events or None,
        record.body or None,
    )


def plain_row(
    key: int, kind: int, epoch: int, created_at: float, *, mark: bool = False, body: bytes = b""
) -> Row:
    """The columns of a claim (`mark`: it took over) or of a journal record."""
    return (key, kind, epoch, created_at, int(mark), None, None, None, None, None, b"", body)


def info_of(row: Row, session_id: str) -> RecordInfo:
    """The row of `INFO` columns.

    Raises:
        CorruptRecordError: A column cannot be read.
    """
    try:
        return _info(row, row[10], row[11])
    except (TypeError, ValueError) as error:
        raise _damaged_record(session_id, row[0], error) from error


def record_of(row: Row, session_id: str) -> Record:
    """The row of `RECORD` columns; a pruned part is empty.

    Raises:
        CorruptRecordError: A column cannot be read.
    """
    try:
        events, body = (b"" if part is None else _blob(part) for part in row[10:])
        return Record(info=_info(row, len(events), len(body)), body=body, events=events)
    except (TypeError, ValueError) as error:
        raise _damaged_record(session_id, row[0], error) from error


def _damaged_record(session_id: str, key: int, error: Exception) -> CorruptRecordError:
    return CorruptRecordError(session_id, f"at position {position_of(key)}", str(error))


def _info(row: Row, events_size: int, body_size: int) -> RecordInfo:
    number = _integer(row[1])
    if not 0 <= number < len(_KINDS):
        raise ValueError(f"there is no kind {number}")
    kind, mark = _KINDS[number], bool(_integer(row[4]))
    if kind is not Kind.COMMIT:
        return RecordInfo(
            position=position_of(row[0]),
            epoch=_integer(row[2]),
            kind=kind,
            created_at=_seconds(row[3]),
            took_over=mark,
            body_size=body_size,
        )
    return RecordInfo(
        position=position_of(row[0]),
        epoch=_integer(row[2]),
        kind=kind,
        created_at=_seconds(row[3]),
        commit=_integer(row[5]),
        step=_integer(row[6]),
        full=mark,
        first_event=_integer(row[7]),
        event_count=_integer(row[8]),
        run_id="" if row[9] is None else name_text(_blob(row[9])),
        body_size=body_size,
        events_size=events_size,
    )


def run_position(row: Row, session_id: str) -> int:
    """Where the commit stands that finished a run.

    Raises:
        CorruptRecordError: It cannot be read.
    """
    try:
        return _integer(row[0])
    except TypeError as error:
        raise CorruptRecordError(session_id, "of a finished run", str(error)) from error


def request_of(row: Row, session_id: str) -> Request:
    """The row of `REQUEST` columns.

    Raises:
        CorruptRecordError: A column cannot be read.
    """
    try:
        return Request(
            seq=_integer(row[0]),
            request_id=name_text(_blob(row[1])),
            kind=name_text(_blob(row[2])),
            body=_blob(row[4]),
            created_at=_seconds(row[3]),
        )
    except (TypeError, ValueError) as error:
        raise CorruptRecordError(session_id, f"of request {row[0]!r:.60}", str(error)) from error
