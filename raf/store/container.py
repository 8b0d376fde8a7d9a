"""The export file: sessions as frames, one behind the other; pure.

Theory of operation.  The frames are those of `raf.store.record`, and the file is

    EXPORT  ( SESSION  LOGGED ...  REQUESTED ...  SESSION_END ) ...  EXPORT_END

Each frame has its checksum.  `SESSION_END` tells how many records and requests there were, and the
digest of all frames of the session; `EXPORT_END` tells how many sessions, and the digest of their
digests.  So a byte, a frame, a session or the end that is missing, changed or at another place is
found.  What the frames hold are the values of `Store.read` with `log` and `inbox`, bytes untouched.

Rules of this file: nothing is believed of a frame before its checksum fits; every field is checked
for its type; what does not fit is a `MisfitError` that says why.
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar, get_type_hints

import xxhash

from raf.errors import CorruptRecordError, FormatVersionError, InvalidSessionIdError
from raf.store.audit import audit
from raf.store.model import (
    Head,
    Kind,
    Reading,
    Record,
    RecordInfo,
    Request,
    Summary,
    check_session_id,
)
from raf.store.record import (
    HEADER,
    MAGIC,
    SMALLEST,
    Content,
    Frame,
    pack,
    unpack,
)

FORMAT = 1

Made = TypeVar("Made")


class MisfitError(Exception):
    """Bytes are not an export as it is written here; `where` is in the words of a person."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


# -- writing ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Packer:
    """Makes the frames of one file, in order: `begin`, `session` for each, `end`."""

    _sessions: int = 0
    _digest: Any = field(default_factory=xxhash.xxh3_128)

    def begin(self, created_at: float) -> bytes:
        """The frame that the file begins with."""
        return pack(Content.EXPORT, {"format": FORMAT, "created_at": created_at})

    def session(self, session: Reading) -> Iterator[bytes]:
        """The frames of a session."""
        digest = xxhash.xxh3_128()
        for data in _session_frames(session):
            digest.update(data)
            yield data
        counts = {"records": len(session.log), "requests": len(session.inbox)}
        self._sessions += 1
        self._digest.update(digest.digest())
        yield pack(Content.SESSION_END, {**counts, "digest": digest.digest()})

    def end(self) -> bytes:
        """The frame that the file ends with."""
        told = {"sessions": self._sessions, "digest": self._digest.digest()}
        return pack(Content.EXPORT_END, told)


def _session_frames(session: Reading) -> Iterator[bytes]:
    yield pack(Content.SESSION, _told(session.head))
    for record in session.log:
        meta = _told(record.info)
        yield pack(Content.LOGGED, meta, body=record.body, events=record.events)
    for request in session.inbox:
        meta = _told(request)
        yield pack(Content.REQUESTED, meta, body=request.body)


def _told(value: Any) -> dict[str, object]:
    """The clear fields of a head, a record or a request."""
    told: dict[str, object] = {}
    for each in _clear_fields(type(value)):
        found = getattr(value, each.name)
        if isinstance(found, Kind):
            found = found.value
        told[each.name] = _told(found) if isinstance(found, Summary) else found
    return told


def _clear_fields(cls: Any) -> list[Field[Any]]:
    """Who holds a session stays behind, and bytes stand beside the clear fields."""
    return [each for each in fields(cls) if each.name not in ("held", "body")]


# -- reading ---------------------------------------------------------------------------------------


def frame_size(header: bytes) -> int:
    """How many bytes a frame has that begins so.

    Raises:
        MisfitError: No frame begins so.
    """
    if len(header) < HEADER.size:
        raise MisfitError("its end", f"it is cut off after {len(header)} bytes of a frame")
    magic, _, _, *lengths = HEADER.unpack(header)
    if magic != MAGIC:
        raise MisfitError("a frame of it", "it does not begin with the mark of one")
    return SMALLEST + sum(map(int, lengths))


@dataclass(slots=True)
class Unpacker:
    """Takes the frames of one file in order, and gives each session when it is whole."""

    _begun: bool = False
    _finished: bool = False
    _names: set[str] = field(default_factory=set)
    _file: Any = field(default_factory=xxhash.xxh3_128)
    _digest: Any = field(default_factory=xxhash.xxh3_128)
    _head: Head | None = None
    _log: list[Record] = field(default_factory=list)
    _inbox: list[Request] = field(default_factory=list)

    def take(self, data: bytes) -> Reading | None:
        """Take the next frame; the session that it makes whole, if it does.

        Raises:
            MisfitError: It is damaged, or not what may stand here.
            FormatVersionError: A newer version wrote it.
        """
        content = data[5] if len(data) > HEADER.size else -1
        where = self._where()
        try:
            frame = unpack(data, Content(content), "", where)
            return self._fit(Content(content), frame, data)
        except CorruptRecordError as error:
            raise MisfitError(where, error.why) from error
        except (KeyError, TypeError, ValueError, InvalidSessionIdError) as error:
            raise MisfitError(where, f"its clear fields do not fit: {error}") from error

    def check_finished(self) -> None:
        """Raise `MisfitError` if the frame that ends the file was not taken."""
        if not self._finished:
            raise MisfitError("its end", "it is missing")

    def _where(self) -> str:
        if not self._begun:
            return "its beginning"
        if self._head is None:
            return f"what stands behind session {len(self._names)}"
        count = len(self._log) + len(self._inbox)
        return f"session {self._head.session_id!r}, frame {count + 1}"

    def _fit(self, content: Content, frame: Frame, data: bytes) -> Reading | None:
        if not self._begun:
            self._begin(content, frame)
        elif self._finished:
            raise ValueError("it stands behind the end")
        elif self._head is None:
            self._between(content, frame, data)
        elif content is Content.LOGGED and not self._inbox:
            info = _built(RecordInfo, frame.meta, {})
            self._log.append(Record(info=info, body=frame.body, events=frame.events))
            self._digest.update(data)
        elif content is Content.REQUESTED:
            self._inbox.append(_built(Request, frame.meta, {"body": frame.body}))
            self._digest.update(data)
        elif content is Content.SESSION_END:
            return self._whole(self._head, frame)
        else:
            raise ValueError(f"{content.name} stands in the midst of a session")
        return None

    def _begin(self, content: Content, frame: Frame) -> None:
        if content is not Content.EXPORT:
            raise ValueError("it is no export file")
        if _of(int, frame.meta["format"]) > FORMAT:
            raise FormatVersionError(frame.meta["format"], FORMAT, "export")
        self._begun = True

    def _between(self, content: Content, frame: Frame, data: bytes) -> None:
        """A session begins, or the file ends."""
        if content is Content.EXPORT_END:
            told = (frame.meta["sessions"], frame.meta["digest"])
            if told != (len(self._names), self._file.digest()):
                raise ValueError("the sessions before it are not those that it tells of")
            self._finished = True
            return
        if content is not Content.SESSION:
            raise ValueError(f"{content.name} stands outside a session")
        head = _head(frame.meta)
        if check_session_id(head.session_id) in self._names:
            raise ValueError(f"session {head.session_id!r} stands in it twice")
        self._names.add(head.session_id)
        self._head = head
        self._digest.update(data)

    def _whole(self, head: Head, frame: Frame) -> Reading:
        told = (frame.meta["records"], frame.meta["requests"], frame.meta["digest"])
        digest = self._digest.digest()
        if told != (len(self._log), len(self._inbox), digest):
            raise ValueError("the frames before it are not those that it tells of")
        session = Reading(head=head, log=tuple(self._log), inbox=tuple(self._inbox))
        if faults := audit(session):
            raise ValueError(f"{faults[0].record} does not fit: {faults[0].why}")
        self._file.update(digest)
        self._digest.reset()
        self._log.clear()
        self._inbox.clear()
        self._head = None
        return session


def _head(meta: Mapping[str, Any]) -> Head:
    summary = _built(Summary, meta["summary"], {})
    return _built(Head, meta, {"held": None, "summary": summary})


def _built(cls: type[Made], meta: Mapping[str, Any], known: Mapping[str, Any]) -> Made:
    """A value of these clear fields; a field that it does not have is refused, too."""
    hints = get_type_hints(cls)
    names = [each.name for each in _clear_fields(cls) if each.name not in known]
    if unknown := set(meta) - set(names) - set(known):
        raise ValueError(f"nothing is known of {sorted(unknown)}")
    return cls(**{name: _of(hints[name], meta[name]) for name in names}, **known)


def _of(kind: Any, value: Any) -> Any:
    """The value, if it is of the type that a field has."""
    if kind is Kind:
        return Kind(value)
    if kind == float | None and value is None:
        return value
    wanted = {float: (float, int), float | None: (float, int)}.get(kind, (kind,))
    if type(value) not in wanted:
        raise TypeError(f"{value!r:.60} is no {kind}")
    return value
