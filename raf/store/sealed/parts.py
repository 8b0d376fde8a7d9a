"""Between the values of the port and their sealed form: commits, records, requests, summaries.

Rules of this file:
- An empty part stays empty: what was pruned and what never was look alike, as on every store.  Only
  journal records and requests are always sealed.
- A record that does not open is an error.  A request that nobody with a key wrote, or that was meant
  for a former session of the name, is handed on as one of a kind that no engine knows, with an empty
  body: it is dropped and logged there, and nobody can block a session by sending one.
- A summary's reason is only shown, so one that does not open says why instead.
"""

import base64
import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from raf.errors import CheckpointError, CorruptRecordError, SealedRecordError
from raf.store.model import (
    Commit,
    Head,
    Kind,
    Lease,
    Reading,
    Record,
    RecordInfo,
    Request,
    Salvage,
    Summary,
)
from raf.store.order import commit_info
from raf.store.sealed import envelope
from raf.store.sealed.cipher import Cipher
from raf.store.sealed.envelope import Part, size_inside

SEALED: Final = "sealed"  # the kind of every request, in clear
NOT_SEALED: Final = "not sealed, where encryption is on"
FORMER: Final = "sealed for a former session of this name"
REASON: Final = "sealed:"
_KIND_LENGTH: Final = struct.Struct(">I")
_NONCE_LENGTH: Final = struct.Struct(">H")


# -- commits and journal ---------------------------------------------------------------------------


def seal_commit(cipher: Cipher, lease: Lease, commit: Commit, number: int) -> Commit:
    """The commit as the store beneath gets it."""
    info = commit_info(commit, 0, lease.epoch)
    place = envelope.commit_place(lease.session_id, lease.nonce, info)
    summary = commit.summary
    reason = seal_reason(cipher, lease.session_id, lease.nonce, commit.commit, summary.reason)
    return replace(
        commit,
        body=_seal(cipher, Part.CHECKPOINT, place, commit.body, number),
        events=_seal(cipher, Part.EVENTS, place, commit.events, number),
        summary=replace(summary, reason=reason),
    )


def seal_record(cipher: Cipher, head: Head, record: Record, number: int) -> Record:
    """A record of another store, sealed for this one."""
    info = record.info
    if info.kind is Kind.CLAIM:
        return record
    place = _place(head, info)
    if info.kind is Kind.JOURNAL:
        body = cipher.seal(Part.JOURNAL, place, record.body, number)
    else:
        body = _seal(cipher, Part.CHECKPOINT, place, record.body, number)
    events = _seal(cipher, Part.EVENTS, place, record.events, number)
    info = replace(info, body_size=len(body), events_size=len(events))
    return Record(info=info, body=body, events=events)


def open_info(info: RecordInfo) -> RecordInfo:
    """The clear fields with the sizes of what is inside."""
    if not info.body_size and not info.events_size:
        return info
    return replace(
        info, body_size=size_inside(info.body_size), events_size=size_inside(info.events_size)
    )


class Opener:
    """Opens the records of one reading; what an owner wrote must be in the order it was written."""

    def __init__(self, cipher: Cipher, head: Head) -> None:
        self._cipher = cipher
        self._head = head
        self._numbers: dict[int, tuple[int, int]] = {}  # epoch and number by position

    def open(self, records: Iterable[Record]) -> tuple[Record, ...]:
        """The records with their bytes as they were before they were sealed."""
        return tuple(self._open(record) for record in records)

    def _open(self, record: Record) -> Record:
        info, place = record.info, _place(self._head, record.info)
        if info.kind is Kind.CLAIM:
            return record
        if info.kind is Kind.JOURNAL:
            body = self._part(Part.JOURNAL, place, record.body, info)
        else:
            body = record.body and self._part(Part.CHECKPOINT, place, record.body, info)
        events = record.events and self._part(Part.EVENTS, place, record.events, info)
        return Record(info=open_info(info), body=body, events=events)

    def _part(self, part: Part, place: bytes, data: bytes, info: RecordInfo) -> bytes:
        name = _name(part, info)
        body, number = self._cipher.open(data, part, place, self._head.session_id, name)
        known = self._numbers.setdefault(info.position, (info.epoch, number))
        if known != (info.epoch, number):
            why = "its parts are of two writes"
            raise SealedRecordError(self._head.session_id, name, why)
        return body

    def check_order(self) -> None:
        """Refuse records that stand in another order than they were written in.

        Raises:
            SealedRecordError: One was moved, or stands twice.
        """
        last = (0, 0)
        for position, written in sorted(self._numbers.items()):
            if written <= last:
                why = "it stands behind a record that was written after it"
                raise SealedRecordError(self._head.session_id, f"at position {position}", why)
            last = written


def open_salvage(cipher: Cipher, salvage: Salvage) -> Salvage:
    """What could be read of a session and can be opened, each record and request alone.

    Raises:
        MissingKeyError, FormatVersionError: That is no damage.
        SealedRecordError: Records stand in another order than they were written in.
    """
    session, damaged = salvage.session, [*salvage.damaged]
    head, opener = session.head, Opener(cipher, session.head)
    log: list[Record] = []
    inbox: list[Request] = []
    for record in session.log:
        try:
            log += opener.open([record])
        except CorruptRecordError as error:
            damaged.append(error)
    for request in session.inbox:
        try:
            inbox.append(open_request(cipher, head.session_id, head.nonce, request))
        except CorruptRecordError as error:
            damaged.append(error)
    opener.check_order()
    opened = Reading(head=open_head(cipher, head), log=tuple(log), inbox=tuple(inbox))
    return Salvage(session=opened, damaged=tuple(damaged))


def newest_number(records: Iterable[Record], epoch: int) -> int:
    """The highest number that sealed records of an epoch have; 0 when there is none."""
    parts = (
        envelope.parse(part)
        for record in records
        if record.info.epoch == epoch
        for part in (record.body, record.events)
    )
    return max((found.number for found in parts if found is not None), default=0)


def _place(head: Head, info: RecordInfo) -> bytes:
    if info.kind is Kind.COMMIT:
        return envelope.commit_place(head.session_id, head.nonce, info)
    return envelope.journal_place(head.session_id, head.nonce, info.epoch)


def _name(part: Part, info: RecordInfo) -> str:
    if part is Part.JOURNAL:
        return f"journal {info.position}"
    return f"commit {info.commit}" if part is Part.CHECKPOINT else f"events of commit {info.commit}"


def _seal(cipher: Cipher, part: Part, place: bytes, data: bytes, number: int) -> bytes:
    return cipher.seal(part, place, data, number) if data else b""


# -- requests --------------------------------------------------------------------------------------


def seal_request(
    cipher: Cipher, session_id: str, nonce: str, request_id: str, *, kind: str, body: bytes
) -> bytes:
    """The body under which a request is stored: the session's nonce, its kind, its body."""
    parts = [text.encode("utf-8", "surrogatepass") for text in (nonce, kind)]
    inside = b"".join(
        (
            _NONCE_LENGTH.pack(len(parts[0])),
            parts[0],
            _KIND_LENGTH.pack(len(parts[1])),
            parts[1],
            body,
        )
    )
    return cipher.seal(Part.REQUEST, envelope.request_place(session_id, request_id), inside)


def sealed(cipher: Cipher, head: Head, request: Request) -> Request:
    """A request of another store, sealed for this one."""
    body = seal_request(
        cipher,
        head.session_id,
        head.nonce,
        request.request_id,
        kind=request.kind,
        body=request.body,
    )
    return replace(request, kind=SEALED, body=body)


def open_request(cipher: Cipher, session_id: str, nonce: str, request: Request) -> Request:
    """The request as it was sent; see the rules of this file for one that cannot be taken."""
    if request.kind != SEALED or not envelope.is_envelope(request.body):
        return replace(request, kind=NOT_SEALED, body=b"")
    place = envelope.request_place(session_id, request.request_id)
    name = f"request {request.request_id!r}"
    inside, _ = cipher.open(request.body, Part.REQUEST, place, session_id, name)
    try:
        sealed_for, rest = _text_and_rest(_NONCE_LENGTH, inside)
        kind, body = _text_and_rest(_KIND_LENGTH, rest)
    except (struct.error, UnicodeDecodeError) as error:
        raise SealedRecordError(session_id, name, "what is inside is no request") from error
    if sealed_for != nonce:
        return replace(request, kind=FORMER, body=b"")
    return replace(request, kind=kind, body=body)


def _text_and_rest(length: struct.Struct, data: bytes) -> tuple[str, bytes]:
    end = length.size + int(length.unpack_from(data)[0])
    if end > len(data):
        raise struct.error("it is cut off")
    return data[length.size : end].decode("utf-8", "surrogatepass"), data[end:]


# -- summaries -------------------------------------------------------------------------------------


def seal_reason(cipher: Cipher, session_id: str, nonce: str, commit: int, reason: str) -> str:
    """The text under which a summary's reason is stored; also an empty one is sealed."""
    place = envelope.reason_place(session_id, nonce, commit)
    data = cipher.seal(Part.REASON, place, reason.encode("utf-8", "surrogatepass"))
    return REASON + base64.b64encode(data).decode("ascii")


def seal_head(cipher: Cipher, head: Head) -> Head:
    """The head of a session of another store, its reason sealed for this one."""
    if head.commit < 0 and not head.summary.reason:
        return head
    reason = seal_reason(cipher, head.session_id, head.nonce, head.commit, head.summary.reason)
    return replace(head, summary=replace(head.summary, reason=reason))


def open_head(cipher: Cipher, head: Head) -> Head:
    """The head with its summary's reason in clear."""
    summary = head.summary
    if not head.nonce or (head.commit < 0 and not summary.reason):
        return head  # the store's own word on a damaged session, or no commit yet
    return replace(head, summary=replace(summary, reason=_reason(cipher, head, summary)))


def _reason(cipher: Cipher, head: Head, summary: Summary) -> str:
    data = _stored_reason(summary)
    if not data:
        return "(it is not sealed)"
    try:
        place = envelope.reason_place(head.session_id, head.nonce, head.commit)
        text, _ = cipher.open(data, Part.REASON, place, head.session_id, "of the head")
        return text.decode("utf-8", "surrogatepass")
    except (CheckpointError, ValueError) as error:
        return f"(it cannot be opened: {error})"


# -- keys ------------------------------------------------------------------------------------------


def parts_of(head: Head, records: Iterable[Record], inbox: Iterable[Request]) -> Iterable[bytes]:
    """Every stored part of a session that is sealed or should be."""
    for record in records:
        yield from (part for part in (record.body, record.events) if part)
    yield from (request.body for request in inbox)
    if head.summary.reason:
        yield _stored_reason(head.summary) or b"not sealed"


def _stored_reason(summary: Summary) -> bytes:
    """The envelope of a summary's reason; empty when it is none."""
    if not summary.reason.startswith(REASON):
        return b""
    try:
        return base64.b64decode(summary.reason[len(REASON) :], validate=True)
    except ValueError:
        return b""
