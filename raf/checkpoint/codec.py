"""Checkpoints, events and journals to bytes and back; pure.

Theory of operation.  A *part* is a frame around a msgpack body: magic, format version, part kind,
flags, lengths, checksum, body (compressed when it pays).  The byte table stands in
`docs/reference/checkpoint-format.md`.  Three parts exist: a checkpoint (header and operations), the
events of a commit, and one journal record.

Rules of this file:
- Bytes are data: nothing is imported, called or allocated beyond the lengths that were checked.
- Every damage is a `CorruptRecordError`, a newer format a `FormatVersionError`.
- The operations' bytes are canonical: equal operations give equal bytes.
"""

import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import msgpack
import xxhash
import zstandard

from raf.checkpoint import delta as d
from raf.checkpoint.opcodes import ops_from_wire, ops_to_wire
from raf.checkpoint.shapes import (
    EVENT,
    MAX_ITEMS,
    count,
    data,
    fit,
    items,
    plain,
    plain_map,
    seconds,
    text,
    whole,
)
from raf.errors import (
    CorruptRecordError,
    FormatVersionError,
    MissingKeyError,
    NotSerializableError,
)
from raf.events import Happening, Kind
from raf.store.sealed.envelope import is_envelope, key_id_of

MAGIC: Final = b"RAF"
FORMAT: Final = 1
CHECKPOINT, EVENTS, JOURNAL = 1, 2, 3
FLAG_ZSTD: Final = 1
FLAG_FULL: Final = 2
# magic, format, part kind, flags, stored length, body length, checksum of all but itself
HEADER: Final = struct.Struct(">3sBBBIIQ")
MAX_BODY: Final = 1 << 30
# A part may be so long without a look at how small it is stored; beyond, so many times its stored size.
FREE_LENGTH: Final = 1 << 22
MAX_RATIO: Final = 512
COMPRESS_FROM: Final = 256
ZSTD_LEVEL: Final = 1

_T = TypeVar("_T")
_DAMAGE: Final = (ValueError, TypeError, LookupError, AttributeError, msgpack.UnpackException)
_PREFIX: Final = struct.Struct(">3sBBBII")


class _Compressors(threading.local):
    """A compressor for each thread: to make one takes longer than to compress most parts."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress


_ZSTD: Final = _Compressors()


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What surrounds the operations of a checkpoint: who, when, after what.

    `parent` is the hash of the part of the commit before.  The last four are set in fulls only:
    they make a full self-contained.
    """

    commit: int
    step: int
    at: float
    epoch: int
    parent: bytes = b""
    session_id: str = ""
    nonce: str = ""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    sent_at: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPart:
    """A decoded checkpoint.

    Args:
        ops: What to merge; of a full, into an empty snapshot.
        digest: The digest of those operations: of a full, it tells the state.
        delta: Of a full that has a parent: the operations of its own commit, so that `verify` can
            replay the chain before it and compare.
    """

    full: bool
    envelope: Envelope
    ops: tuple[d.Op, ...]
    digest: bytes
    delta: tuple[d.Op, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsPart:
    """The decoded events of one commit; the first has the number that the record tells."""

    commit: int
    run_id: str
    step: int
    at: float
    events: tuple[Happening, ...]


def part_hash(part: bytes) -> bytes:
    """The hash by which a delta names its parent; 16 bytes."""
    return xxhash.xxh3_128_digest(part)


def ops_digest(ops: Iterable[d.Op]) -> bytes:
    """The digest of operations: of a full, it tells the state; 16 bytes."""
    return xxhash.xxh3_128_digest(_pack(ops_to_wire(ops)))


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True, unicode_errors="surrogatepass")
    return packed


def _limits(body: bytes) -> dict[str, Any]:
    """How msgpack reads a body: no length beyond the body's own, no extension values."""
    held = min(len(body), MAX_ITEMS)
    return {
        "raw": False,
        "strict_map_key": False,
        "unicode_errors": "surrogatepass",
        "ext_hook": _no_extension,
        "max_str_len": len(body),
        "max_bin_len": len(body),
        "max_array_len": held,
        "max_map_len": held,
        "max_ext_len": 0,
    }


def _no_extension(code: int, _data: bytes) -> Any:
    raise ValueError(f"an extension value ({code}) stands in it")


def _unpack(body: bytes) -> Any:
    return msgpack.unpackb(body, **_limits(body))


def seal(kind: int, body: bytes, flags: int = 0) -> bytes:
    """Frame a body.

    Raises:
        NotSerializableError: It is longer than a part may be.
    """
    if len(body) > MAX_BODY:
        why = (
            f"its {len(body)} bytes are more than the {MAX_BODY} of a part: keep less in the state"
        )
        raise NotSerializableError("a part of a commit", "bytes", why)
    stored = body
    if len(body) >= COMPRESS_FROM:
        packed = _ZSTD.compress(body)
        if len(packed) < len(body) <= _longest(len(packed)):
            stored, flags = packed, flags | FLAG_ZSTD
    prefix = _PREFIX.pack(MAGIC, FORMAT, kind, flags, len(stored), len(body))
    checksum = xxhash.xxh3_64_intdigest(prefix + stored)
    return HEADER.pack(MAGIC, FORMAT, kind, flags, len(stored), len(body), checksum) + stored


def _longest(stored: int) -> int:
    """How long a body may be that is compressed to so many bytes."""
    return min(MAX_BODY, max(FREE_LENGTH, MAX_RATIO * stored))


def unseal(part: bytes, kind: int, session_id: str, record: str) -> tuple[bytes, int]:
    """The body and flags of a frame.

    Raises:
        CorruptRecordError: The frame is damaged or of another kind.
        FormatVersionError: It is newer than this code.
        MissingKeyError: It is sealed, and nobody opened it.
    """
    if is_envelope(part):
        raise MissingKeyError(session_id, record, key_id_of(part))
    why = _fault(part, kind)
    if why:
        raise CorruptRecordError(session_id, record, why)
    flags, length = part[5], HEADER.unpack_from(part)[5]
    data = part[HEADER.size :]
    if flags & FLAG_ZSTD:
        if length > _longest(len(data)):
            why = f"it would grow from {len(data)} to {length} bytes"
            raise CorruptRecordError(session_id, record, why)
        try:
            # The decompressor would make as much room as the data's own header asks for.
            if zstandard.frame_content_size(data) != length:
                raise CorruptRecordError(session_id, record, "its length does not fit its header")
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=length)
        except zstandard.ZstdError as error:
            why = f"it cannot be decompressed ({error})"
            raise CorruptRecordError(session_id, record, why) from error
    if len(data) != length:
        raise CorruptRecordError(session_id, record, "its length does not fit its header")
    return data, flags


def _fault(part: bytes, kind: int) -> str:
    """What is wrong with a frame; empty when nothing is.

    Raises:
        FormatVersionError: It is whole, but newer than this code.
    """
    if len(part) < HEADER.size:
        return f"it has {len(part)} bytes, too few for a frame"
    magic, version, found, _, stored, length, checksum = HEADER.unpack_from(part)
    data = part[HEADER.size :]
    if magic != MAGIC:
        return "it does not begin as a record does"
    if xxhash.xxh3_64_intdigest(part[: _PREFIX.size] + data) != checksum:
        return "its checksum does not fit its bytes"
    if version > FORMAT:
        raise FormatVersionError(version, FORMAT)
    if found != kind or len(data) != stored or length > MAX_BODY:
        return "its header does not fit its place"
    return ""


def _decoded(
    part: bytes, kind: int, session_id: str, record: str, build: Callable[[Any, int], _T]
) -> _T:
    body, flags = unseal(part, kind, session_id, record)
    try:
        return build(_unpack(body), flags)
    except _DAMAGE as error:
        why = f"its body is no {('', 'checkpoint', 'event list', 'journal')[kind]} ({error})"
        raise CorruptRecordError(session_id, record, why) from error


def encode_checkpoint(
    envelope: Envelope, ops: Iterable[d.Op], *, whole: Iterable[d.Op] | None = None
) -> bytes:
    """A checkpoint part: a delta of `ops`, or a full of `whole` that holds `ops` beside it."""
    full = whole is not None
    head: list[Any] = [envelope.commit, envelope.step, envelope.at, envelope.epoch, envelope.parent]
    if full:
        head += [
            envelope.session_id,
            bytes.fromhex(envelope.nonce),
            dict(envelope.manifest),
            [part for item in sorted(envelope.sent_at.items()) for part in item],
        ]
    body = _pack(head)
    if whole is not None:
        body += _pack(ops_to_wire(whole))
    body += _pack(ops_to_wire(ops))
    return seal(CHECKPOINT, body, FLAG_FULL if full else 0)


def decode_checkpoint(part: bytes, session_id: str, record: str) -> CheckpointPart:
    """The checkpoint of a part."""
    body, flags = unseal(part, CHECKPOINT, session_id, record)
    try:
        return _checkpoint(body, full=bool(flags & FLAG_FULL))
    except _DAMAGE as error:
        why = f"its body is no checkpoint ({error})"
        raise CorruptRecordError(session_id, record, why) from error


def _checkpoint(body: bytes, *, full: bool) -> CheckpointPart:
    unpacker = msgpack.Unpacker(max_buffer_size=len(body) + 1, **_limits(body))
    unpacker.feed(body)
    envelope = _envelope(unpacker.unpack(), full=full)
    start = unpacker.tell()
    ops = ops_from_wire(unpacker.unpack())
    end = unpacker.tell()
    delta = ops_from_wire(unpacker.unpack()) if full else None
    if unpacker.tell() != len(body):
        raise ValueError("bytes are left over")
    digest = xxhash.xxh3_128_digest(body[start:end])
    return CheckpointPart(full=full, envelope=envelope, ops=ops, digest=digest, delta=delta)


_ENVELOPE: Final = (whole, whole, seconds, whole, data)


def _envelope(head: list[Any], *, full: bool) -> Envelope:
    fit(head, (*_ENVELOPE, text, data, plain_map, _times) if full else _ENVELOPE)
    commit, step, at, epoch, parent, *rest = head
    envelope = Envelope(commit=commit, step=step, at=at, epoch=epoch, parent=parent)
    if not rest:
        return envelope
    session_id, nonce, manifest, times = rest
    return replace(
        envelope,
        session_id=session_id,
        nonce=nonce.hex(),
        manifest=manifest,
        sent_at=dict(zip(times[::2], times[1::2], strict=True)),
    )


def _times(flat: Any) -> None:
    """A flat list of message numbers, each with its time."""
    items(seconds)(flat)
    items(whole)(flat[::2])


def encode_events(part: EventsPart) -> bytes:
    """An events part; empty bytes when there are none."""
    if not part.events:
        return b""
    events = [_event_to_wire(event) for event in part.events]
    count(events)
    return seal(EVENTS, _pack([part.commit, part.run_id, part.step, part.at, events]))


def _event_to_wire(event: Happening) -> list[Any]:
    wire: list[Any] = [int(event.kind), event.node, event.message, dict(event.data), event.payload]
    while len(wire) > 1 and not wire[-1]:
        wire.pop()
    return wire


def _event_from_wire(wire: list[Any]) -> Happening:
    fit(wire, EVENT[: len(wire)] or EVENT)
    return Happening(Kind(wire[0]), *wire[1:])


def _nothing(_value: Any) -> None:
    """What is looked at elsewhere."""


def decode_events(part: bytes, session_id: str, record: str) -> EventsPart:
    """The events of a part."""

    def build(body: Any, _flags: int) -> EventsPart:
        fit(body, (whole, text, whole, seconds, items(_nothing)))
        commit, run_id, step, at, events = body
        return EventsPart(
            commit=commit,
            run_id=run_id,
            step=step,
            at=at,
            events=tuple(_event_from_wire(event) for event in events),
        )

    return _decoded(part, EVENTS, session_id, record, build)


def encode_journal(entry: Sequence[Any]) -> bytes:
    """A journal part: one plain list."""
    return seal(JOURNAL, _pack(list(entry)))


def decode_journal(part: bytes, session_id: str, record: str) -> list[Any]:
    """The entry of a journal part."""

    def build(body: Any, _flags: int) -> list[Any]:
        fit(body, (text,), _nothing)
        plain(body)
        entry: list[Any] = body
        return entry

    return _decoded(part, JOURNAL, session_id, record, build)
