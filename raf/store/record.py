"""The frame of a file that a store keeps: clear fields, two parts of bytes, one checksum.

Rules of this file: pure; no byte of a frame is outside the checksum but the checksum itself; what
cannot be read in full is an error, never a guess.

Theory of operation.  A frame is

    magic   version  content  meta length  body length  events length  meta  body  events  checksum
    4 bytes 1        1        4            8            8              ...   ...   ...     8

with all numbers little-endian.  `meta` is a msgpack map of the clear fields, `body` and `events` are
opaque.  The checksum is XXH3 with 64 bits over everything before it: it finds torn and flipped
bytes, it is no protection against somebody who rewrites a file on purpose.  A frame fills its file:
bytes behind it are damage.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgpack
import xxhash

from raf.errors import CorruptRecordError, FormatVersionError

MAGIC = b"RAFR"
VERSION = 1
HEADER = struct.Struct("<4sBBIQQ")
CHECKSUM = struct.Struct("<Q")

# Clear fields of a file are few; those of a pack grow with what was pruned.
MAX_META = 1 << 28

MAGIC_AT = 0
VERSION_AT = 4
CONTENT_AT = 5
META_LENGTH_AT = 6
BODY_LENGTH_AT = 10
EVENTS_LENGTH_AT = 18
META_AT = HEADER.size
SMALLEST = HEADER.size + CHECKSUM.size


class Content(IntEnum):
    """What a frame holds; it is compared on reading, so no file stands in for another kind."""

    RECORD = 0
    PACK = 1
    REQUEST = 2
    LEASE = 3
    MARKER = 4
    # Frames of an export file, one behind the other (`raf.store.container`).
    EXPORT = 5
    SESSION = 6
    LOGGED = 7
    REQUESTED = 8
    SESSION_END = 9
    EXPORT_END = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A frame taken apart; `meta` has text keys."""

    meta: dict[str, Any]
    body: bytes
    events: bytes


def pack(
    content: Content, meta: Mapping[str, object], *, body: bytes = b"", events: bytes = b""
) -> bytes:
    """Put a frame together.

    Args:
        content: What it holds.
        meta: Clear fields: text keys; values of text, numbers, booleans, None, lists and maps.
            Lone surrogates in text are kept.
        body: Opaque bytes, at most 2**64 - 1.
        events: Opaque bytes, at most 2**64 - 1.

    Returns:
        The bytes of the whole file.

    Example:
        >>> unpack(pack(Content.REQUEST, {"seq": 1}, body=b"x"), Content.REQUEST, "s", "r").body
        b'x'
    """
    clear = msgpack.packb(dict(meta), unicode_errors="surrogatepass")
    header = HEADER.pack(MAGIC, VERSION, content, len(clear), len(body), len(events))
    data = b"".join((header, clear, body, events))
    return data + CHECKSUM.pack(xxhash.xxh3_64_intdigest(data))


def unpack(data: bytes, content: Content, session_id: str, record: str) -> Frame:
    """Take a frame apart.

    Args:
        data: The bytes of the whole file.
        content: What it must hold.
        session_id: Whose it is, for the error.
        record: What it is called, for the error.

    Raises:
        CorruptRecordError: A byte is missing, too many, or not what was written.
        FormatVersionError: A newer version wrote it.
    """
    why = _fault(data)
    if why:
        raise CorruptRecordError(session_id, record, why)
    _, version, found, *lengths = HEADER.unpack_from(data)
    body_at = META_AT + lengths[0]
    events_at = body_at + lengths[1]
    try:
        meta = msgpack.unpackb(data[META_AT:body_at], unicode_errors="surrogatepass", max_ext_len=0)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        why = f"its clear fields cannot be read: {error}"
        raise CorruptRecordError(session_id, record, why) from error
    if version != VERSION or found != content or not isinstance(meta, dict):
        why = f"it is of version {version} and content {found}, not {content.name}"
        raise CorruptRecordError(session_id, record, why)
    return Frame(meta=meta, body=data[body_at:events_at], events=data[events_at : -CHECKSUM.size])


def _fault(data: bytes) -> str:
    """What is wrong with the frame, or the empty string."""
    if len(data) < SMALLEST:
        return f"it is cut off after {len(data)} bytes"
    magic, version, _, *lengths = HEADER.unpack_from(data)
    if magic != MAGIC:
        return "it does not begin with the mark of a record"
    if version > VERSION:
        if _fits(data[:VERSION_AT] + bytes([VERSION]) + data[VERSION_AT + 1 :]):
            return "its version is not the one that was written"
        raise FormatVersionError(version, VERSION)
    if lengths[0] > MAX_META:
        return f"its clear fields have {lengths[0]} bytes, more than {MAX_META}"
    if len(data) != SMALLEST + sum(lengths):
        return f"it has {len(data)} bytes and should have {SMALLEST + sum(lengths)}"
    return "" if _fits(data) else "its checksum does not fit its bytes"


def _fits(data: bytes) -> bool:
    """Whether the checksum is that of the bytes before it."""
    (checksum,) = CHECKSUM.unpack_from(data, len(data) - CHECKSUM.size)
    return bool(xxhash.xxh3_64_intdigest(memoryview(data)[: -CHECKSUM.size]) == checksum)
