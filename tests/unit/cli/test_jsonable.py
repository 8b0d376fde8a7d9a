"""Values as JSON and as words: nothing is refused, and nothing moves the cursor."""

import enum
import json
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from raf.cli.jsonable import as_json, harmless, jsonable, shortened, words

Point = namedtuple("Point", "x y")


@dataclass
class Invoice:
    number: int
    paid: bool = False


class Person(BaseModel):
    role: str
    seen: set[int] = set()


class Colour(enum.Enum):
    RED = 1


class Deep(dict[str, Any]):
    """A mapping that is no plain dict."""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**80, 2**80),
        (1.5, 1.5),
        (float("nan"), {"$float": "nan"}),
        (float("-inf"), {"$float": "-inf"}),
        ("é", "é"),
        (b"\x00\xff", {"$bytes": "AP8="}),
        ([1, (2, 3)], [1, [2, 3]]),
        ({3, 1, 2}, {"$set": [1, 2, 3]}),
        (frozenset({"a", 1}), {"$set": [1, "a"]}),
        ({"a": {"b": 1}}, {"a": {"b": 1}}),
        ({1: "a", "b": 2}, {"$map": [[1, "a"], ["b", 2]]}),
        ({"$float": "mine"}, {"$map": [["$float", "mine"]]}),
        ({"$a": 1, "b": 2}, {"$a": 1, "b": 2}),
        (datetime(2026, 12, 1, 9, 30, tzinfo=UTC), "2026-12-01T09:30:00+00:00"),
        (date(2026, 12, 1), "2026-12-01"),
        (timedelta(seconds=1.5), {"$seconds": 1.5}),
        (Decimal("1.10"), "1.10"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (PurePosixPath("a/b"), "a/b"),
        (Colour.RED, "RED"),
        (Invoice(7), {"number": 7, "paid": False}),
        (Person(role="editor", seen={2, 1}), {"role": "editor", "seen": {"$set": [1, 2]}}),
        (Point(1, 2), {"x": 1, "y": 2}),
        (Deep(a=1), {"a": 1}),
    ],
)
def test_the_form_of_a_value(value: Any, expected: Any) -> None:
    """Each kind of value has one form in JSON."""
    assert jsonable(value) == expected


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
)


@given(values)
def test_any_value_is_json_of_ascii(value: Any) -> None:
    """What is printed can be read back by any JSON reader, through any terminal or pipe."""
    text = as_json(value)
    assert text.isascii()
    json.loads(text)


@given(st.text(st.characters()) | values)
def test_words_are_one_harmless_line(value: Any) -> None:
    """Words hold no line break, no control character and no half of a pair."""
    said = words(value)
    assert said.splitlines() in ([], [said])
    assert "\x1b" not in said
    said.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb", "a\\u202eb"),
        ("\ud800", "\\ud800"),
        ("分析 ✓ é\u00a0", "分析 ✓ é\u00a0"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, expected: str) -> None:
    """Colours, direction marks and halves of pairs are shown, not sent; words of any script stay."""
    assert harmless(text) == expected


@pytest.mark.parametrize(("longest", "expected"), [(None, "abcdef"), (6, "abcdef"), (4, "abc…")])
def test_long_words_are_cut(longest: int | None, expected: str) -> None:
    """A cut is seen: it ends in an ellipsis."""
    assert shortened("abcdef", longest) == expected
