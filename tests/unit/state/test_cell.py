"""Cells: bytes are the truth, growing costs the change, and what was handed out stays as it was."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raf.state.cell import Cell
from raf.values.codec import decode, encode
from raf.values.readonly import ReadOnlyDict, ReadOnlyList
from raf.values.registry import TypeTable

TYPES = TypeTable()
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=5,
)


def enc(value: Any) -> bytes:
    return encode(value, TYPES)


@given(st.lists(PLAIN), st.lists(st.lists(PLAIN, max_size=3)), st.booleans())
def test_a_grown_list_is_the_list_that_was_written_whole(
    start: list[Any], growths: list[list[Any]], reading: bool
) -> None:
    """Extending piece by piece gives the bytes of the whole, read in between or not."""
    cell, whole = Cell(enc(start)), list(start)
    for items in growths:
        cell.extend(map(enc, items))
        whole += items
        if reading:
            assert cell.read(TYPES)[0] == whole
    assert cell.encoded() == enc(whole)
    assert cell.is_list
    assert cell.read(TYPES) == (whole, False)


@given(
    st.dictionaries(st.text(max_size=2), PLAIN),
    st.lists(st.dictionaries(st.text(max_size=2), PLAIN, max_size=3)),
)
def test_a_changed_map_is_the_map_that_was_written_whole(
    start: dict[str, Any], changes: list[dict[str, Any]]
) -> None:
    """Known keys keep their place, new ones come behind, as in a dict."""
    cell, whole = Cell(enc(start)), dict(start)
    for pairs in changes:
        cell.update((enc(k), enc(v)) for k, v in pairs.items())
        whole.update(pairs)
    assert cell.encoded() == enc(whole)
    assert list(cell.read(TYPES)[0].items()) == list(whole.items())
    assert cell.is_map


def test_a_value_that_was_handed_out_does_not_change() -> None:
    """Growing makes a new value at the next read; the earlier reader keeps what it has."""
    cell = Cell(enc([1]))
    before = cell.read(TYPES)[0]
    cell.extend([enc(2)])
    assert (before, cell.read(TYPES)[0]) == ([1], [1, 2])
    table = Cell(enc({"a": 1}))
    early = table.read(TYPES)[0]
    table.update([(enc("b"), enc(2))])
    assert (early, table.read(TYPES)[0]) == ({"a": 1}, {"a": 1, "b": 2})


def test_readers_share_one_value() -> None:
    """Reading twice decodes once; the value is read-only to its depth."""
    cell = Cell(enc([{"a": [1]}]))
    one, two = cell.read(TYPES)[0], cell.read(TYPES)[0]
    assert one is two
    assert isinstance(one, ReadOnlyList)
    assert isinstance(one[0], ReadOnlyDict)
    assert isinstance(one[0]["a"], ReadOnlyList)


def test_a_copy_is_independent() -> None:
    """What one of two copies grows by, the other does not see."""
    cell = Cell(enc([1]))
    cell.extend([enc(2)])
    twin = cell.copy()
    twin.extend([enc(3)])
    cell.extend([enc(4)])
    assert (decode(cell.encoded(), TYPES), decode(twin.encoded(), TYPES)) == ([1, 2, 4], [1, 2, 3])


@pytest.mark.parametrize("value", [None, 1, "text", b"bytes", (1, 2), {1}, frozenset({1}), 1.5])
def test_what_is_neither_list_nor_map_says_so(value: Any) -> None:
    """A tuple and a set are no lists: they do not grow."""
    cell = Cell(enc(value))
    assert (cell.is_list, cell.is_map) == (False, False)
    assert cell.read(TYPES)[0] == value
