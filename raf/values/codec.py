"""Typed Python values to canonical bytes and back.

Rules of this file
    1. Exact: what comes back has the same types all the way down, keys and their order included.
    2. Canonical: equal values of equal types give equal bytes, whatever the hash seed; the items of
       a set are sorted by their encoding.
    3. What cannot come back is refused at encode, with the path to the offending part.
    4. Bytes are data: decoding imports nothing, runs no constructor of a declared class, and any
       damage is `UndecodableError`.

Theory of operation
    The encoding is msgpack.  None, bool, int up to 64 bits, float, str, bytes, list and dict are
    msgpack's own and are packed by one call into C.  Other single values are extension values
    (`scalars`).  A tuple, a set and an instance of a declared class is a list whose
    first item is a mark (`forms`), so nothing nests inside an extension value, and
    bytes without a mark are decoded by one call into C as well.

    A msgpack packer keeps a buffer and may not be entered twice, so packers live in writers, and
    each call takes a writer out of its table's pool.
"""

from typing import Any

import msgpack

from raf.errors import UndecodableError
from raf.values.prepared import Prepared, prepare
from raf.values.reader import Reader
from raf.values.registry import REGISTRY, TypeTable
from raf.values.spans import FORM_HEAD, array_header, map_header, split_array, split_map
from raf.values.walk import MAX_NESTING, MAX_READING, blame, holds_foreign
from raf.values.writer import MAX_BYTES, SAID, Writer

__all__ = [
    "MAX_BYTES",
    "MAX_NESTING",
    "MAX_READING",
    "array_header",
    "decode",
    "decode_shared",
    "encode",
    "map_header",
    "split_array",
    "split_map",
]

_KEPT_BUFFER = 1 << 20  # a writer whose buffer grew beyond this many bytes is not kept
_KEPT_WRITERS = 8  # of one table; more are needed only by threads at the same time
_TIMESTAMPS = (b"\xd6\xff", b"\xd7\xff", b"\xc7\x0c\xff")

_unpack = msgpack.unpackb


def encode(value: Any, types: TypeTable, *, where: str = "value") -> bytes:
    r"""The canonical bytes of a value.

    Args:
        value: None, bool, int, float, str, bytes, list, tuple, set, frozenset, dict, datetime,
            date, time, timedelta, Decimal, UUID, pathlib paths, and instances of enums,
            dataclasses, named tuples and pydantic models that `types` or the registry knows;
            nested up to `MAX_NESTING` levels.
        types: the classes that may occur.
        where: the caller's name of the value, the head of the path in errors.

    Returns:
        At most `MAX_BYTES` bytes; equal for equal values of equal types.

    Raises:
        NotSerializableError: with the path and type of the first part that cannot be stored.

    Example:
        >>> encode([1, None], TypeTable())
        b'\x92\x01\xc0'
    """
    prepared = types.prepared
    if prepared is None or prepared.changes != REGISTRY.changes:
        prepared = prepare(types)
    try:
        writer = prepared.writers.pop()
    except IndexError:
        writer = Writer(prepared)
    try:
        data: bytes = writer.pack(value)
    except SAID as error:
        return _encode_slowly(value, prepared, error, where)
    if len(data) <= _KEPT_BUFFER and len(prepared.writers) < _KEPT_WRITERS:
        prepared.writers.append(writer)
    return data


def _encode_slowly(value: Any, prepared: Prepared, error: Exception, where: str) -> bytes:
    """Encodes a value with lone surrogates, or says which part cannot be stored."""
    writer = Writer(prepared, "surrogatepass")
    if isinstance(error, UnicodeEncodeError):
        try:
            return writer.pack(value)
        except SAID as second:
            error = second

    def attempt(part: Any) -> Exception | None:
        try:
            writer.pack(part)
        except SAID as said:
            return said
        return None

    raise blame(value, error, path=where, attempt=attempt, plan_of=prepared.plans.get) from error


def decode(
    data: bytes, types: TypeTable, *, readonly: bool = False, max_bytes: int = MAX_BYTES
) -> Any:
    """The value that `encode` made the bytes of.

    Args:
        data: the bytes of one value, nothing before or behind.
        types: the classes that may occur.
        readonly: hand out lists, dicts and sets as their read-only subclasses, except inside
            instances of dataclasses and models.
        max_bytes: refuse more bytes than this.

    Returns:
        A new value, which shares nothing with any other decoding; for `readonly` see
        `decode_shared`.

    Raises:
        UndecodableError: the bytes are damaged or too many, name an unknown class, or hold fields
            that their class no longer has.  Nothing else is raised, whatever the bytes.
    """
    if readonly:
        return decode_shared(data, types, max_bytes=max_bytes)[0]
    prepared = types.prepared
    if prepared is None or prepared.changes != REGISTRY.changes:
        prepared = prepare(types)
    if FORM_HEAD in data:
        return _read(data, Reader(prepared, readonly=False), max_bytes)
    if len(data) > max_bytes:
        raise _too_long(data, max_bytes)
    try:
        value = _unpack(
            data,
            ext_hook=prepared.single,
            strict_map_key=False,
            unicode_errors="surrogatepass",
        )
    except UndecodableError:
        raise
    except Exception as error:
        raise _undecodable(error) from error
    if b"\xff" in data:
        _refuse_timestamps(data, value, prepared)
    return value


def decode_shared(data: bytes, types: TypeTable, *, max_bytes: int = MAX_BYTES) -> tuple[Any, bool]:
    """The value of the bytes with read-only containers, and whether it must not be shared.

    Args:
        data: the bytes of one value.
        types: the classes that may occur.
        max_bytes: refuse more bytes than this.

    Returns:
        (value, holds_models).  When the second is False, nothing in the value can be changed in
        place, and it may be handed to any number of readers.  When it is True, the value holds
        instances that can be changed; each reader needs a decoding of its own.

    Raises:
        UndecodableError: as `decode`.
    """
    reader = Reader(prepare(types), readonly=True)
    value = _read(data, reader, max_bytes)
    return value, reader.models


def _read(data: bytes, reader: Reader, max_bytes: int) -> Any:
    """Decodes with hooks; every failure is `UndecodableError`."""
    if len(data) > max_bytes:
        raise _too_long(data, max_bytes)
    try:
        value = reader.read(data)
    except UndecodableError:
        raise
    except Exception as error:
        raise _undecodable(error) from error
    if b"\xff" in data:
        _refuse_timestamps(data, value, reader.prepared)
    return value


def _refuse_timestamps(data: bytes, value: Any, prepared: Prepared) -> None:
    """Refuses the one extension value that msgpack decodes by itself; it holds a byte 0xff."""
    if any(stamp in data for stamp in _TIMESTAMPS) and holds_foreign(value, prepared.plans.get):
        raise UndecodableError("a msgpack timestamp is no value of ours")


def _too_long(data: bytes, max_bytes: int) -> UndecodableError:
    """The error for bytes beyond the caller's limit."""
    return UndecodableError(f"{len(data)} bytes are more than the {max_bytes} allowed")


def _undecodable(error: Exception) -> UndecodableError:
    """What a decoder said, as the one error that decoding raises."""
    return UndecodableError(
        f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    )
