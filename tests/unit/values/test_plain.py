"""Reading values without their classes, for tools that have no workflow at hand."""

import enum
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from raf.errors import UndecodableError
from raf.values import TypeTable, encode
from raf.values.plain import decode_plain


class Color(enum.Enum):
    RED = 1


class Access(enum.Flag):
    READ = 1


@dataclass(frozen=True)
class Point:
    x: int


class Note(BaseModel):
    text: str
    at: Point | None = None


class Pair(NamedTuple):
    left: Any


TABLE = TypeTable.of(Color, Access, Point, Note, Pair)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Color.RED, "RED"),
        ({"a": Color.RED}, {"a": "RED"}),
        ((Color.RED,), ("RED",)),
        (Point(1), {"x": 1}),
        ([Note(text="a", at=Point(2))], [{"text": "a", "at": {"x": 2}}]),
        (Pair({1}), {"left": {1}}),
        ([(1, 2), date(2024, 1, 1), {3}], [(1, 2), date(2024, 1, 1), {3}]),
    ],
    ids=repr,
)
def test_instances_are_shown_by_their_fields(value: Any, expected: Any) -> None:
    """No class is needed to look at what was stored."""
    assert decode_plain(encode(value, TABLE)) == expected


def test_instances_as_keys_stay_apart() -> None:
    """A dict keyed by instances is still a dict of as many entries."""
    shown = decode_plain(encode({Point(1): "a", Point(2): "b", Access.READ: "c"}, TABLE))

    assert len(shown) == 3
    assert list(shown.values()) == ["a", "b", "c"]


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x92\xd4\x01\x04\xd4\x01\x01", b"\xd4\x0a\xc1"])
def test_damage_is_one_error(data: bytes) -> None:
    """As with `decode`: `UndecodableError` and nothing else."""
    with pytest.raises(UndecodableError):
        decode_plain(data)
