"""What the files of a session say, as values and as clear fields; pure.

Rules of this file:
- Every record repeats all that the head needs, so the newest record alone tells how a session stands.
- Every file names its session and nonce; one that was copied elsewhere is refused.
- Decoding checks the shape: fields that are missing or of another type are damage.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import UnionType
from typing import Any, TypeVar

from raf.errors import CorruptRecordError
from raf.store.model import Head, Held, Kind, Owner, RecordInfo, Request, Summary
from raf.store.order import new_head
from raf.store.record import Content, Frame, pack, unpack

Made = TypeVar("Made")

_HEAD = (
    "commit",
    "commit_position",
    "journal_from",
    "events",
    "first_event",
    "consumed",
    "created_at",
    "updated_at",
)
_INFO = (
    "created_at",
    "commit",
    "step",
    "full",
    "first_event",
    "event_count",
    "run_id",
    "took_over",
)
_SUMMARY = tuple(field.name for field in fields(Summary))
_OWNER = tuple(field.name for field in fields(Owner))
# The type of each field; what is not named here is a whole number.
_TYPES: Mapping[str, type | UnionType] = {
    **dict.fromkeys(("created_at", "updated_at"), int | float),
    **dict.fromkeys(("full", "took_over"), bool),
    **dict.fromkeys(("run_id", *_SUMMARY, *_OWNER), str),
    "wake_at": int | float | None,
    "step": int,
    "pid": int,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The clear side of a record.

    Args:
        info: Its own fields.
        head: How the session stands after it, without lease and inbox; of a higher epoch than the
            record where a session was adopted over a deleted one.
        record_id: Tells this write from any other (a commit's id for a commit).
        commit_id: The id of the last commit up to here.
        previous: Position of the commit before this one, 0 for none.
        runs: Position of the last earlier commit that finished a run, 0 for none.
        held: The lease that a claim began with.
        deleted: It ends the session.
        base: The position below the session's first record.
    """

    info: RecordInfo
    head: Head
    record_id: str
    commit_id: str = ""
    previous: int = 0
    runs: int = 0
    held: Held | None = None
    deleted: bool = False
    base: int = 0

    @property
    def newest_run(self) -> int:
        """Position of the newest commit that finished a run, this one included."""
        return self.info.position if self.info.run_id else self.runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A record as read."""

    entry: Entry
    body: bytes
    events: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What pruning left of a commit: its clear fields and events."""

    info: RecordInfo
    previous: int
    runs: int
    events: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What pruning took for good: events below `first_event`, and whole commits.

    `dropped` holds first and last numbers of rows of commits that left nothing, in order.
    """

    first_event: int = 1
    dropped: tuple[tuple[int, int], ...] = ()

    def has_dropped(self, commit: int) -> bool:
        """Whether nothing is left of a commit."""
        return any(first <= commit <= last for first, last in self.dropped)

    def dropping(self, commits: set[int]) -> "Marker":
        """The marker with more commits among the dropped."""
        numbers = [(n, n) for n in commits if not self.has_dropped(n)]
        rows: list[tuple[int, int]] = []
        for first, last in sorted([*self.dropped, *numbers]):
            if rows and first <= rows[-1][1] + 1:
                rows[-1] = (rows[-1][0], max(last, rows[-1][1]))
            else:
                rows.append((first, last))
        return replace(self, dropped=tuple(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseNote:
    """The content of a lease file."""

    held: Held
    nonce: str
    released: bool


# -- records ---------------------------------------------------------------------------------------


def pack_record(entry: Entry, body: bytes = b"", events: bytes = b"") -> bytes:
    """The bytes of a record's file."""
    raised = {} if entry.head.epoch == entry.info.epoch else {"epoch": entry.head.epoch}
    meta = {
        **_whose(entry.head.session_id, entry.head.nonce),
        "position": entry.info.position,
        "epoch": entry.info.epoch,
        "kind": entry.info.kind.value,
        "info": {name: getattr(entry.info, name) for name in _INFO},
        "head": {**{name: getattr(entry.head, name) for name in _HEAD}, **raised},
        "summary": {name: getattr(entry.head.summary, name) for name in _SUMMARY},
        "record_id": entry.record_id,
        "commit_id": entry.commit_id,
        "previous": entry.previous,
        "runs": entry.runs,
        "held": None if entry.held is None else _held_fields(entry.held),
        "deleted": entry.deleted,
        "base": entry.base,
    }
    return pack(Content.RECORD, meta, body=body, events=events)


def unpack_record(data: bytes, session_id: str, name: str, position: int) -> Stored:
    """The record of a file."""

    def build(meta: dict[str, Any], frame: Frame) -> Stored:
        if meta["position"] != position:
            raise ValueError(f"it is of position {meta['position']}")
        epoch, held = _whole(meta["epoch"]), meta["held"]
        now = _whole(meta["head"].get("epoch", epoch))
        head = replace(
            new_head(session_id, _text(meta["nonce"]), 0.0, epoch=now),
            position=position,
            summary=Summary(**_fields(meta["summary"])),
            **_fields(meta["head"], _HEAD),
        )
        info = RecordInfo(
            position=position,
            epoch=epoch,
            kind=Kind(meta["kind"]),
            body_size=len(frame.body),
            events_size=len(frame.events),
            **_fields(meta["info"], _INFO),
        )
        entry = Entry(
            info=info,
            head=head,
            record_id=_text(meta["record_id"]),
            commit_id=_text(meta["commit_id"]),
            previous=_whole(meta["previous"]),
            runs=_whole(meta["runs"]),
            held=None if held is None else _held_of(held),
            deleted=bool(meta["deleted"]),
            base=_whole(meta["base"]),
        )
        return Stored(entry=entry, body=frame.body, events=frame.events)

    return _built(data, Content.RECORD, session_id, name, build)


# -- what pruning leaves -----------------------------------------------------------------------------


def pack_packed(session_id: str, nonce: str, items: list[Packed]) -> bytes:
    """The bytes of a pack's file."""
    rows = [
        {
            "position": item.info.position,
            "epoch": item.info.epoch,
            "info": {name: getattr(item.info, name) for name in _INFO},
            "previous": item.previous,
            "runs": item.runs,
            "size": len(item.events),
        }
        for item in items
    ]
    meta = {**_whose(session_id, nonce), "rows": rows}
    return pack(Content.PACK, meta, events=b"".join(item.events for item in items))


def unpack_packed(data: bytes, session_id: str, name: str, nonce: str) -> list[Packed]:
    """The commits of a pack's file, by position."""

    def build(meta: dict[str, Any], frame: Frame) -> list[Packed]:
        _same_nonce(meta, nonce)
        items: list[Packed] = []
        at = 0
        for row in meta["rows"]:
            events = frame.events[at : at + _whole(row["size"])]
            at += len(events)
            info = RecordInfo(
                position=_whole(row["position"]),
                epoch=_whole(row["epoch"]),
                kind=Kind.COMMIT,
                events_size=len(events),
                **_fields(row["info"], _INFO),
            )
            previous, runs = _whole(row["previous"]), _whole(row["runs"])
            items.append(Packed(info=info, previous=previous, runs=runs, events=events))
        if at != len(frame.events):
            raise ValueError("its events do not fit its rows")
        return items

    return _built(data, Content.PACK, session_id, name, build)


def pack_marker(session_id: str, nonce: str, marker: Marker) -> bytes:
    """The bytes of a marker's file."""
    meta = {
        **_whose(session_id, nonce),
        "first_event": marker.first_event,
        "dropped": [list(row) for row in marker.dropped],
    }
    return pack(Content.MARKER, meta)


def unpack_marker(data: bytes, session_id: str, name: str, nonce: str) -> Marker:
    """The marker of a file."""

    def build(meta: dict[str, Any], _: Frame) -> Marker:
        _same_nonce(meta, nonce)
        dropped = tuple((_whole(first), _whole(last)) for first, last in meta["dropped"])
        return Marker(first_event=_whole(meta["first_event"]), dropped=dropped)

    return _built(data, Content.MARKER, session_id, name, build)


# -- leases and requests -----------------------------------------------------------------------------


def pack_lease(session_id: str, note: LeaseNote) -> bytes:
    """The bytes of a lease file."""
    meta = {
        **_whose(session_id, note.nonce),
        "held": _held_fields(note.held),
        "released": note.released,
    }
    return pack(Content.LEASE, meta)


def unpack_lease(data: bytes, session_id: str, name: str) -> LeaseNote:
    """The lease of a file."""

    def build(meta: dict[str, Any], _: Frame) -> LeaseNote:
        held = _held_of(meta["held"])
        return LeaseNote(held=held, nonce=_text(meta["nonce"]), released=bool(meta["released"]))

    return _built(data, Content.LEASE, session_id, name, build)


def pack_request(session_id: str, nonce: str, request: Request) -> bytes:
    """The bytes of a request's file."""
    meta = {
        **_whose(session_id, nonce),
        "seq": request.seq,
        "request_id": request.request_id,
        "kind": request.kind,
        "created_at": request.created_at,
    }
    return pack(Content.REQUEST, meta, body=request.body)


def unpack_request(data: bytes, session_id: str, name: str, nonce: str, seq: int) -> Request:
    """The request of a file."""

    def build(meta: dict[str, Any], frame: Frame) -> Request:
        _same_nonce(meta, nonce)
        if meta["seq"] != seq:
            raise ValueError(f"it is request {meta['seq']}")
        return Request(
            seq=seq,
            request_id=_text(meta["request_id"]),
            kind=_text(meta["kind"]),
            body=frame.body,
            created_at=float(meta["created_at"]),
        )

    return _built(data, Content.REQUEST, session_id, name, build)


# -- shapes ------------------------------------------------------------------------------------------


def _whose(session_id: str, nonce: str) -> dict[str, object]:
    return {"session": session_id, "nonce": nonce}


def _built(
    data: bytes,
    content: Content,
    session_id: str,
    name: str,
    build: Callable[[dict[str, Any], Frame], Made],
) -> Made:
    """Unpack a frame and build a value of it; every misfit is a CorruptRecordError."""
    frame = unpack(data, content, session_id, name)
    owner = frame.meta.get("session")
    if owner != session_id:
        raise CorruptRecordError(session_id, name, f"it is of session {owner!r}")
    try:
        return build(frame.meta, frame)
    except (KeyError, TypeError, ValueError) as error:
        why = f"its clear fields do not fit: {error}"
        raise CorruptRecordError(session_id, name, why) from error


def _same_nonce(meta: Mapping[str, object], nonce: str) -> None:
    if meta["nonce"] != nonce:
        raise ValueError("it is of another session of this name")


def _fields(given: object, names: Sequence[str] | None = None) -> dict[str, Any]:
    """The named fields of a map (all when None), each of its type."""
    if not isinstance(given, dict):
        raise TypeError("clear fields are no map")
    found = {name: given[name] for name in (given if names is None else names)}
    for name, value in found.items():
        if not isinstance(value, _TYPES.get(name, int)):
            raise TypeError(f"{name} is {value!r:.60}")
    return found


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _held_fields(held: Held) -> dict[str, object]:
    return {
        "owner": {name: getattr(held.owner, name) for name in _OWNER},
        "epoch": held.epoch,
        "expires_boot": held.expires_boot,
        "duration_s": held.duration_s,
    }


def _held_of(value: Mapping[str, Any]) -> Held:
    return Held(
        owner=Owner(**_fields(value["owner"])),
        epoch=_whole(value["epoch"]),
        expires_boot=float(value["expires_boot"]),
        duration_s=float(value["duration_s"]),
    )
