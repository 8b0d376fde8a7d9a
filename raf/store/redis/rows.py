"""Between the server's strings and the values of the port; pure.

Rules of this file: whoever has the server's password may write anything, so each part is checked
before it becomes a part of a value, and one that is not what was written is `CorruptRecordError`.
Text of a user may be any text, lone surrogates too, so it is stored as bytes of its own.

Theory of operation.  The clear fields of a record are one line of words, so that a script can read
what it needs of them with a pattern:

    commit     position epoch created_at commit step full first_event event_count run_id
    journal    position epoch kind created_at took_over token body
    request    seq created_at length-of-id length-of-kind id kind body
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from raf.errors import CorruptRecordError
from raf.store.due import FINISHED, wants_to_run
from raf.store.model import (
    Commit,
    Head,
    Held,
    Kind,
    Owner,
    Reading,
    Record,
    RecordInfo,
    Request,
    Select,
    Summary,
)
from raf.store.order import check_agrees, last_event, readable_info

_OWNER = tuple(field.name for field in fields(Owner))
_SUMMARY = tuple(field.name for field in fields(Summary))
_JOURNALED = frozenset(kind.value.encode() for kind in (Kind.CLAIM, Kind.JOURNAL))
_PARSING = (TypeError, ValueError, KeyError, IndexError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """This machine's boot, and how far its clock is ahead of the server's (seconds)."""

    host: str
    boot_id: str
    ahead: float


def name_bytes(text: str) -> bytes:
    """A text of a user as stored."""
    return text.encode("utf-8", "surrogatepass")


def _name(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def owner_text(owner: Owner) -> str:
    """An owner as the head keeps it; equal owners have equal texts."""
    return _compact([getattr(owner, name) for name in _OWNER])


def owner_of(text: bytes) -> Owner:
    """The owner again; raises ValueError or TypeError for what is none."""
    values = json.loads(text)
    if not isinstance(values, list) or len(values) != len(_OWNER):
        raise ValueError(f"{text!r:.60} is no owner")
    given = dict(zip(_OWNER, values, strict=True))
    for name, value in given.items():
        if not isinstance(value, int if name == "pid" else str):
            raise TypeError(f"{value!r:.60} is no {name} of an owner")
    return Owner(**given)


def summary_text(summary: Summary) -> str:
    """A summary as the head keeps it; what it lacks at the end is at its default."""
    return _compact([getattr(summary, name) for name in _SUMMARY])


def _compact(values: list[Any]) -> str:
    # ASCII only, so that any text of a user fits, lone surrogates too.
    return json.dumps(values, separators=(",", ":"))


def _summary(text: bytes) -> Summary:
    values = json.loads(text)
    if not isinstance(values, list):
        raise TypeError(f"{text!r:.60} is no summary")
    given = dict(zip(_SUMMARY, values, strict=False))
    kinds = {"step": (int,), "wake_at": (int, float, type(None))}
    for name, value in given.items():
        if not isinstance(value, kinds.get(name, (str,))):
            raise TypeError(f"{value!r:.60} is no {name} of a summary")
    return Summary(**given)


def wish_of(summary: Summary) -> str:
    """When the session wants to run, as the lists of a worker keep it.

    `ready`: now; `timed`: at its time, or when something was asked; `asked`: then only; `never`.
    """
    if summary.status in FINISHED:
        return "never"
    if wants_to_run(summary, float("-inf")):
        return "ready"
    return "timed" if wants_to_run(summary, float("inf")) else "asked"


def due_fields(summary: Summary, updated_at: float) -> tuple[bytes, bytes, float, str]:
    """Queue, fingerprint, since when, and wish: what the lists of a worker go by."""
    since = updated_at if summary.wake_at is None else summary.wake_at
    return name_bytes(summary.queue), name_bytes(summary.fingerprint), since, wish_of(summary)


def head_of(session_id: str, flat: Sequence[bytes], here: Here) -> Head:
    """The head of its fields and values in turn.

    Raises:
        CorruptRecordError: A field is missing or cannot be read, or what the lists of a worker go by
            is not what the summary says.
    """
    head = parsed_head(session_id, flat, here)
    row = dict(zip(flat[::2], flat[1::2], strict=True))
    queue, fingerprint, _, wish = due_fields(head.summary, head.updated_at)
    told = {b"queue": queue, b"fingerprint": fingerprint, b"wants": wish.encode()}
    wrong = [name.decode() for name, value in told.items() if row.get(name) != value]
    if head.commit >= 0 and wrong:
        why = f"the summary says another {', '.join(wrong)}"
        raise CorruptRecordError(session_id, "of the session's head", why)
    return head


def parsed_head(session_id: str, flat: Sequence[bytes], here: Here) -> Head:
    """The same, each field taken at its word.

    Raises:
        CorruptRecordError: A field is missing or cannot be read.
    """
    row = dict(zip(flat[::2], flat[1::2], strict=True))
    try:
        return Head(
            session_id=session_id,
            nonce=row[b"nonce"].decode("ascii"),
            epoch=int(row[b"epoch"]),
            position=int(row[b"position"]),
            commit=int(row[b"commit"]),
            commit_position=int(row[b"commit_position"]),
            journal_from=int(row[b"journal_from"]),
            events=int(row[b"events"]),
            first_event=int(row[b"first_event"]),
            consumed=int(row[b"consumed"]),
            requests=int(row[b"requests"]),
            created_at=_time(row[b"created_at"]),
            updated_at=_time(row[b"updated_at"]),
            summary=_summary(row[b"summary"]) if b"summary" in row else Summary(),
            held=_held(row, here) if b"owner" in row else None,
        )
    except _PARSING as error:
        raise CorruptRecordError(session_id, "of the session's head", repr(error)) from error


def _time(data: bytes) -> float:
    value = float(data)
    if not isfinite(value):
        raise ValueError(f"{value} is no time")
    return value


def _held(row: dict[bytes, bytes], here: Here) -> Held:
    owner = owner_of(row[b"owner"])
    of_this_boot = (owner.host, owner.boot_id) == (here.host, here.boot_id)
    return Held(
        owner=owner,
        epoch=int(row[b"epoch"]),
        expires_boot=(
            float(row[b"expires_boot"]) if of_this_boot else float(row[b"until"]) + here.ahead
        ),
        duration_s=float(row[b"duration"]),
    )


def head_fields(head: Head) -> list[Any]:
    """Names and values of a head that nobody holds, without the epoch."""
    queue, fingerprint, since, wish = due_fields(head.summary, head.updated_at)
    plain = (
        *("nonce", "position", "commit", "commit_position", "journal_from", "events"),
        *("first_event", "consumed", "requests", "created_at", "updated_at"),
    )
    row: dict[str, Any] = {name: getattr(head, name) for name in plain}
    row |= {name: repr(row[name]) for name in ("created_at", "updated_at")}
    row["summary"] = summary_text(head.summary)
    row |= {"queue": queue, "fingerprint": fingerprint, "since": repr(since)}
    row["wants"] = wish if head.commit >= 0 else "never"
    return [part for item in row.items() for part in item]


def commit_line(commit: Commit, epoch: int) -> bytes:
    """The clear fields of a commit's record; the script sets the position before them."""
    return (
        f"{epoch} {commit.created_at!r} {commit.commit} {commit.step} {commit.full:d}"
        f" {commit.first_event} {commit.event_count} ".encode()
    ) + name_bytes(commit.run_id)


def adopted_commit(record: Record, first_event: int) -> list[Any]:
    """A commit's record as `adopt` takes it."""
    info = record.info
    line = (
        f"{info.position} {info.epoch} {info.created_at!r} {info.commit} {info.step} {info.full:d}"
        f" {info.first_event} {info.event_count} "
    ).encode() + name_bytes(info.run_id)
    last = last_event(info)
    has_events = info.event_count > 0 and last >= first_event
    has_body = info.body_size > 0
    return [
        *(info.commit, last, name_bytes(info.run_id), line),
        *(int(has_events), record.events, int(has_body), record.body),
    ]


def journal_item(record: Record) -> bytes:
    """A claim's or journal record as `adopt` takes it."""
    info = record.info
    return (
        f"{info.position} {info.epoch} {info.kind.value} {info.created_at!r} {info.took_over:d} - "
    ).encode() + record.body


def request_item(request_id: str, kind: str, created_at: float, body: bytes) -> bytes:
    """A request; the sequence number comes before it."""
    name, what = name_bytes(request_id), name_bytes(kind)
    return b"".join((f"{created_at!r} {len(name)} {len(what)} ".encode(), name, what, body))


def info_of(row: Sequence[Any], session_id: str) -> RecordInfo:
    """The clear fields of a commit, from its line and the sizes of events and body.

    Raises:
        CorruptRecordError: They cannot be read.
    """
    line, events_size, body_size = row
    try:
        position, epoch, created_at, commit, step, full, first, count, run = line.split(b" ", 8)
        return RecordInfo(
            position=int(position),
            epoch=int(epoch),
            kind=Kind.COMMIT,
            created_at=float(created_at),
            commit=int(commit),
            step=int(step),
            full=bool(int(full)),
            first_event=int(first),
            event_count=int(count),
            run_id=_name(run),
            body_size=body_size,
            events_size=events_size,
        )
    except _PARSING as error:
        why = f"its line {line!r:.60} cannot be read ({error})"
        raise CorruptRecordError(session_id, "of a commit", why) from error


def record_of(row: Sequence[Any], session_id: str) -> Record:
    """A commit's record, from its line, events and body; a pruned part is None."""
    line, events, body = row[0], row[1] or b"", row[2] or b""
    info = info_of((line, len(events), len(body)), session_id)
    return Record(info=info, body=body, events=events)


def journal_of(item: bytes, session_id: str) -> Record:
    """A claim's or journal record.

    Raises:
        CorruptRecordError: It cannot be read.
    """
    try:
        position, epoch, kind, created_at, took_over, _, body = item.split(b" ", 6)
        if kind not in _JOURNALED:
            raise ValueError(f"it is of kind {kind!r:.60}")
        info = RecordInfo(
            position=int(position),
            epoch=int(epoch),
            kind=Kind(kind.decode("ascii")),
            created_at=float(created_at),
            took_over=bool(int(took_over)),
            body_size=len(body),
        )
    except _PARSING as error:
        raise CorruptRecordError(session_id, "of the journal", repr(error)) from error
    return Record(info=info, body=body)


def request_of(item: bytes, session_id: str) -> Request:
    """A request of the inbox.

    Raises:
        CorruptRecordError: It cannot be read.
    """
    try:
        seq, created_at, name_size, kind_size, rest = item.split(b" ", 4)
        name_end = int(name_size)
        kind_end = name_end + int(kind_size)
        if not 0 <= name_end <= kind_end <= len(rest):
            raise ValueError("its lengths do not fit its bytes")
        return Request(
            seq=int(seq),
            request_id=_name(rest[:name_end]),
            kind=_name(rest[name_end:kind_end]),
            body=rest[kind_end:],
            created_at=float(created_at),
        )
    except _PARSING as error:
        raise CorruptRecordError(session_id, "of the inbox", repr(error)) from error


def reading_of(session_id: str, parts: Sequence[Any], select: Select, here: Here) -> Reading:
    """What was read, from the parts in the order of the script `read`."""
    flat, last, chain, journal, requests, events, infos, kept, run, log, inbox = parts

    def records(found: Sequence[Any]) -> list[Record]:
        return [record_of(row, session_id) for row in found]

    unfinished = tuple(journal_of(item, session_id) for item in journal)
    whole = [*records(log), *unfinished] if select.log else []
    head = head_of(session_id, flat, here)
    begins = min((record.info.position for record in unfinished), default=None)
    check_agrees(head, readable_info(last, info_of, session_id), begins)
    return Reading(
        head=head,
        chain=tuple(reversed(records(chain))),
        journal=unfinished if select.journal else (),
        requests=tuple(request_of(item, session_id) for item in requests),
        events=tuple(records(events)),
        infos=tuple(info_of(row, session_id) for row in infos),
        kept=tuple(info_of(row, session_id) for row in kept),
        run=next(iter(records(run)), None),
        log=tuple(sorted(whole, key=lambda record: record.info.position)),
        inbox=tuple(request_of(item, session_id) for item in inbox),
    )


def adoption(session: Reading) -> list[Any]:
    """Head, records and inbox of a session as the script `adopt` takes them."""
    fields = head_fields(session.head)
    commits = [record for record in session.log if record.info.kind is Kind.COMMIT]
    journal = [record for record in session.log if record.info.kind is not Kind.COMMIT]
    found: list[Any] = [len(fields) // 2, *fields, len(commits)]
    for record in commits:
        found += adopted_commit(record, session.head.first_event)
    found += [len(journal), *(journal_item(record) for record in journal), len(session.inbox)]
    for request in session.inbox:
        item = request_item(request.request_id, request.kind, request.created_at, request.body)
        found += [name_bytes(request.request_id), f"{request.seq} ".encode() + item]
    return found
