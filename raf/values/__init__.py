"""Typed values and their canonical bytes: the one place that knows msgpack and pydantic."""

from raf.values.annotation import Shape, could_accept
from raf.values.codec import (
    array_header,
    decode,
    decode_shared,
    encode,
    map_header,
    split_array,
    split_map,
)
from raf.values.readonly import ReadOnlyDict, ReadOnlyList, ReadOnlySet
from raf.values.registry import TypeTable, register_type

__all__ = [
    "ReadOnlyDict",
    "ReadOnlyList",
    "ReadOnlySet",
    "Shape",
    "TypeTable",
    "array_header",
    "could_accept",
    "decode",
    "decode_shared",
    "encode",
    "map_header",
    "register_type",
    "split_array",
    "split_map",
]
