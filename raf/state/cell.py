"""A cell: the value of one key, kept as canonical bytes and decoded when somebody reads it.

Rules of this file:
- The bytes are the truth.  A list that grew is kept as its items, a map that changed as its pairs,
  so that growing costs the change; `encoded()` joins them into the canonical bytes.
- A decoded value is read-only and shared between readers, unless it holds class instances: those
  come fresh at each read.
- A value that was handed out never changes: growing makes a new one at the next read.
"""

from collections.abc import Iterable
from typing import Any

from raf.values.codec import decode_shared
from raf.values.readonly import ReadOnlyList
from raf.values.registry import TypeTable
from raf.values.spans import (
    array_header,
    is_dict,
    is_list,
    map_header,
    split_array,
    split_map,
)


class Cell:
    """The value of one key."""

    __slots__ = ("_chunks", "_count", "_kept", "_pairs", "_whole")

    def __init__(self, encoded: bytes) -> None:
        self._whole: bytes | None = encoded
        self._chunks: list[bytes] | None = None
        self._count = 0
        self._pairs: dict[bytes, bytes] | None = None
        self._kept: tuple[Any, int] | None = None  # decoded value, parts that it was made of

    def copy(self) -> "Cell":
        """An independent cell of the same value; costs the number of items, not their bytes."""
        twin = Cell(b"")
        twin._whole = self._whole
        twin._chunks = None if self._chunks is None else list(self._chunks)
        twin._count = self._count
        twin._pairs = None if self._pairs is None else dict(self._pairs)
        twin._kept = self._kept
        return twin

    @property
    def is_list(self) -> bool:
        """Whether the value is a plain list."""
        return self._chunks is not None or is_list(self._whole or b"")

    @property
    def is_map(self) -> bool:
        """Whether the value is a plain dict."""
        return self._pairs is not None or is_dict(self._whole or b"")

    def encoded(self) -> bytes:
        """The canonical bytes."""
        if self._chunks is not None:
            return array_header(self._count) + b"".join(self._chunks)
        if self._pairs is not None:
            flat = [part for pair in self._pairs.items() for part in pair]
            return map_header(len(self._pairs)) + b"".join(flat)
        return self._whole or b""

    def pairs(self) -> dict[bytes, bytes]:
        """The encoded keys and values of a map; not to be changed."""
        return dict(split_map(self._whole or b"")) if self._pairs is None else self._pairs

    def extend(self, items: Iterable[bytes]) -> None:
        """Grow a list by encoded items."""
        new = list(items)
        if self._chunks is None:
            self._count, body = split_array(self._whole or b"")
            self._chunks, self._whole = [body], None
        self._chunks.extend(new)
        self._count += len(new)

    def update(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Set encoded keys of a map to encoded values; known keys keep their place."""
        if self._pairs is None:
            self._pairs, self._whole = self.pairs(), None
        self._pairs.update(pairs)
        self._kept = None

    def read(self, types: TypeTable) -> tuple[Any, bool]:
        """The decoded value, and whether it holds class instances (then it is a fresh copy).

        Sync nodes of one step read in threads: what is kept is one pair, made of what was seen at
        the start and put in place at once, so that whoever comes second makes the same.
        """
        parts = 1 if self._chunks is None else len(self._chunks)
        kept = self._kept
        if kept is not None and kept[1] == parts:
            return kept[0], False
        if kept is None or self._chunks is None:
            value, fresh_copy = decode_shared(self.encoded(), types)
        else:
            items, fresh_copy = list(kept[0]), False
            for encoded in self._chunks[kept[1] : parts]:
                item, holds_instance = decode_shared(encoded, types)
                items.append(item)
                fresh_copy = fresh_copy or holds_instance
            value = ReadOnlyList(items)
            if fresh_copy:
                value, _ = decode_shared(self.encoded(), types)
        self._kept = None if fresh_copy else (value, parts)
        return value, fresh_copy
