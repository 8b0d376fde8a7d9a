"""Between rows of the tables and the values of the port; pure.

Rules of this file: the columns of a select stand here beside the code that reads them.
"""

import json
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from raf.errors import CorruptRecordError
from raf.store.port import (
    Commit,
    Head,
    Held,
    Kind,
    Owner,
    Record,
    RecordInfo,
    Request,
    Summary,
)

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


def session_row(row: Row) -> SessionRow:
    """The row of `HEAD` columns.

    Raises:
        CorruptRecordError: Its summary or owner cannot be read.
    """
    (number, session_id, nonce, epoch, position, commit, commit_position, journal_from) = row[:8]
    (events, first_event, consumed, requests, created_at, updated_at) = row[8:14]
    (summary, owner, expires_boot, duration_s, commit_id, kept_from) = row[14:]
    try:
        head = Head(
            session_id=session_id,
            nonce=nonce,
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
            summary=Summary(**dict(zip(_SUMMARY, json.loads(summary), strict=False))),
            held=owner and _held(owner, epoch, expires_boot, duration_s),
        )
    except (TypeError, ValueError) as error:
        raise CorruptRecordError(str(session_id), "of the session's row", str(error)) from error
    return SessionRow(number=number, head=head, commit_id=commit_id, kept_from=kept_from)


def _held(owner: str, epoch: int, expires_boot: float, duration_s: float) -> Held:
    return Held(
        owner=Owner(**dict(zip(_OWNER, json.loads(owner), strict=True))),
        epoch=epoch,
        expires_boot=expires_boot,
        duration_s=duration_s,
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


def plain_row(
    key: int, kind: int, epoch: int, created_at: float, *, mark: bool = False, body: bytes = b""
) -> Row:
    """The columns of a claim (`mark`: it took over) or of a journal record."""
    return (key, kind, epoch, created_at, int(mark), None, None, None, None, None, b"", body)


def info_of(row: Row) -> RecordInfo:
    """The row of `INFO` columns."""
    return _info(row, row[10], row[11])


def record_of(row: Row) -> Record:
    """The row of `RECORD` columns; a pruned part is empty."""
    events, body = row[10] or b"", row[11] or b""
    return Record(info=_info(row, len(events), len(body)), body=body, events=events)


def _info(row: Row, events_size: int, body_size: int) -> RecordInfo:
    kind, mark = _KINDS[row[1]], bool(row[4])
    if kind is not Kind.COMMIT:
        return RecordInfo(
            position=position_of(row[0]),
            epoch=row[2],
            kind=kind,
            created_at=row[3],
            took_over=mark,
            body_size=body_size,
        )
    return RecordInfo(
        position=position_of(row[0]),
        epoch=row[2],
        kind=kind,
        created_at=row[3],
        commit=row[5],
        step=row[6],
        full=mark,
        first_event=row[7],
        event_count=row[8],
        run_id=name_text(row[9]) if row[9] else "",
        body_size=body_size,
        events_size=events_size,
    )


def request_of(row: Row) -> Request:
    """The row of `REQUEST` columns."""
    return Request(
        seq=row[0],
        request_id=name_text(row[1]),
        kind=name_text(row[2]),
        body=row[4],
        created_at=row[3],
    )
