"""Encoded lists and dicts, cut and joined without decoding what they hold.

Rules of this file
    1. `encode(items) == array_header(len(items)) + b"".join(map(encode, items))`, and the same for
       a dict with its keys and values in turn.
    2. Nothing is trusted: a header that does not fit its bytes is `UndecodableError`.

Theory of operation
    msgpack has no closing brackets: a container is a header with a count, followed by its items.
    So a grown list is the old body, the new items and a new header, at the cost of a copy.
"""

from itertools import pairwise

import msgpack

from raf.errors import NotSerializableError, UndecodableError
from raf.values.scalars import FORM

MAX_ITEMS = (1 << 32) - 1

_FIX = 16  # counts below it are part of the first byte
_ARRAY_FIX, _ARRAY_16, _ARRAY_32 = 0x90, 0xDC, 0xDD
_MAP_FIX, _MAP_16, _MAP_32 = 0x80, 0xDE, 0xDF
FORM_HEAD = bytes([0xD4, FORM])  # how the mark of a tuple, set or class instance begins


def array_header(count: int) -> bytes:
    """The bytes before the items of an encoded list.

    Args:
        count: number of items, 0 to 2**32 - 1.

    Returns:
        1, 3 or 5 bytes.

    Raises:
        NotSerializableError: the count is out of range.
    """
    return _header(count, "list", (_ARRAY_FIX, _ARRAY_16, _ARRAY_32))


def map_header(count: int) -> bytes:
    """The bytes before the keys and values of an encoded dict.

    Args:
        count: number of entries, 0 to 2**32 - 1.

    Returns:
        1, 3 or 5 bytes.

    Raises:
        NotSerializableError: the count is out of range.
    """
    return _header(count, "dict", (_MAP_FIX, _MAP_16, _MAP_32))


def _header(count: int, kind: str, codes: tuple[int, int, int]) -> bytes:
    """The shortest header that holds the count."""
    fix, two, four = codes
    if 0 <= count < _FIX:
        return bytes([fix | count])
    if not 0 <= count <= MAX_ITEMS:
        raise NotSerializableError("$", kind, f"it cannot hold {count} items")
    if count <= 0xFFFF:  # noqa: PLR2004 - what two bytes hold
        return bytes([two]) + count.to_bytes(2)
    return bytes([four]) + count.to_bytes(4)


def is_list(data: bytes) -> bool:
    """Whether the bytes are those of a list: a tuple, a set or an instance begins with a mark."""
    first = data[0] if data else -1
    fix = _ARRAY_FIX <= first < _ARRAY_FIX + _FIX
    head = 1 if fix else {_ARRAY_16: 3, _ARRAY_32: 5}.get(first, 0)
    return head > 0 and data[head : head + 2] != FORM_HEAD


def is_dict(data: bytes) -> bool:
    """Whether the bytes are those of a dict."""
    first = data[0] if data else -1
    return _MAP_FIX <= first < _MAP_FIX + _FIX or first in (_MAP_16, _MAP_32)


def split_array(data: bytes) -> tuple[int, bytes]:
    """The number of items of an encoded list, and the bytes of the items.

    Args:
        data: what `encode` gave for a list.

    Returns:
        (count, body); `array_header(count) + body == data`.

    Raises:
        UndecodableError: the bytes do not begin as a list does.
    """
    first = data[0] if data else -1
    if _ARRAY_FIX <= first < _ARRAY_FIX + _FIX:
        count, body = first - _ARRAY_FIX, data[1:]
    elif first == _ARRAY_16 and len(data) >= 3:  # noqa: PLR2004 - the header's length
        count, body = int.from_bytes(data[1:3]), data[3:]
    elif first == _ARRAY_32 and len(data) >= 5:  # noqa: PLR2004 - the header's length
        count, body = int.from_bytes(data[1:5]), data[5:]
    else:
        raise UndecodableError("these bytes are no list")
    if count > len(body) or body.startswith(FORM_HEAD) or (not count and body):
        raise UndecodableError("these bytes are no list")
    return count, body


def split_map(data: bytes) -> list[tuple[bytes, bytes]]:
    """The encoded keys and values of an encoded dict, in their order.

    Args:
        data: what `encode` gave for a dict.

    Returns:
        One (key, value) for each entry, as the raw bytes that `encode` gave for each.

    Raises:
        UndecodableError: the bytes are no dict, are cut short, or go on behind it.
    """
    if not is_dict(data):
        raise UndecodableError("these bytes are no dict")
    unpacker = msgpack.Unpacker(None, max_buffer_size=len(data))
    try:
        unpacker.feed(data)
        count = unpacker.read_map_header()
        marks = [unpacker.tell()]
        for _ in range(2 * count):
            unpacker.skip()
            marks.append(unpacker.tell())
    except (msgpack.UnpackException, ValueError, RecursionError, MemoryError) as error:
        raise UndecodableError(f"damaged dict: {error or type(error).__name__}") from error
    if marks[-1] != len(data):
        raise UndecodableError("bytes follow the end of the dict")
    spans = [data[start:end] for start, end in pairwise(marks)]
    return list(zip(spans[::2], spans[1::2], strict=True))
