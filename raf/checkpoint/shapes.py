"""What decoded bytes must look like before they are believed: types, ranges, depth; pure.

Rules of this file:
- A check returns nothing, or raises `TypeError` or `ValueError`: the decoders say whose bytes it was.
- Limits stand here, once.  What a writer makes of a real session is far below them.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import Any, Final, TypeAlias

from raf.errors import NotSerializableError

# Numbers of commits, steps, messages, events: exact in a float too.
MAX_NUMBER: Final = (1 << 53) - 1
# What one list or map may hold.
MAX_ITEMS: Final = 1 << 24
# Lists and maps within each other, where a part holds plain data of any shape.
MAX_DEPTH: Final = 64

Check: TypeAlias = Callable[[Any], None]


def whole(value: Any) -> None:
    """A number that counts something; -1 stands before the first."""
    if type(value) is not int:
        raise TypeError(f"{_told(value)} is no whole number")
    if not -1 <= value <= MAX_NUMBER:
        raise ValueError(f"{value} is out of range")


def limit(value: Any) -> None:
    """A whole number that a caller chose, of any size that can be stored."""
    if type(value) is not int or value < 0:
        raise TypeError(f"{_told(value)} is no limit")


def seconds(value: Any) -> None:
    """A time or a duration."""
    if type(value) is not float and type(value) is not int:
        raise TypeError(f"{_told(value)} is no time")
    if isnan(value):
        raise ValueError("nan is no time")


def text(value: Any) -> None:
    """Text."""
    if type(value) is not str:
        raise TypeError(f"{_told(value)} is no text")


def data(value: Any) -> None:
    """Bytes."""
    if type(value) is not bytes:
        raise TypeError(f"{_told(value)} is no bytes")


def items(check: Check) -> Check:
    """A list of which each item passes a check."""

    def each(value: Any) -> None:
        if type(value) is not list:
            raise TypeError(f"{_told(value)} is no list")
        for item in value:
            check(item)

    return each


def plain_map(value: Any) -> None:
    """A map from text to plain data."""
    if type(value) is not dict:
        raise TypeError(f"{_told(value)} is no map")
    for key in value:
        text(key)
    plain(value)


def plain(value: Any) -> None:
    """Plain data: no extension value, not nested too deep."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            if type(item) is list:
                below += item
            elif type(item) is dict:
                below += item.keys()
                below += item.values()
            elif item is not None and type(item) not in _ATOMS:
                raise TypeError(f"{_told(item)} is no plain data")
        if not below:
            return
        level = below
    raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


_ATOMS: Final = frozenset({bool, int, float, str, bytes})


def fit(fields: Sequence[Any], shape: Sequence[Check], rest: Check | None = None) -> None:
    """Check the fields of a list, each by its place.

    Args:
        fields: The list.
        shape: A check for each field.
        rest: The check of what comes behind; nothing may come when None.
    """
    if type(fields) is not list:
        raise TypeError(f"{_told(fields)} is no list")
    if len(fields) < len(shape) or (rest is None and len(fields) > len(shape)):
        raise ValueError(f"{len(fields)} fields stand where {len(shape)} belong")
    for check, field in zip(shape, fields, strict=False):
        check(field)
    if rest is not None:
        for field in fields[len(shape) :]:
            rest(field)


# An event: kind, node, message, details, payload.
EVENT: Final = (whole, text, whole, plain_map, data)


def count(held: Sequence[Any] | Mapping[Any, Any]) -> None:
    """What is about to be written must be readable: not too many items in one list or map.

    Raises:
        NotSerializableError: It holds more than `MAX_ITEMS`.
    """
    if len(held) > MAX_ITEMS:
        why = f"its {len(held)} items are more than a record holds in one list ({MAX_ITEMS})"
        raise NotSerializableError("a part of a commit", type(held).__name__, why)


def _told(value: Any) -> str:
    return f"a {type(value).__name__}"
