"""Encoded lists and dicts cut and joined without decoding."""

from typing import Any

import pytest

from raf.errors import NotSerializableError, UndecodableError
from raf.values import (
    TypeTable,
    array_header,
    decode,
    encode,
    map_header,
    split_array,
    split_map,
)

BARE = TypeTable()
SIZES = [0, 1, 15, 16, 300, 65_535, 65_536]


@pytest.mark.parametrize("size", SIZES)
def test_a_list_is_its_header_and_its_items(size: int) -> None:
    """Joining encoded items behind a header is encoding the list, at every width of header."""
    items: list[Any] = [number % 200 for number in range(size)]
    whole = encode(items, BARE)
    body = b"".join(encode(item, BARE) for item in items)

    assert whole == array_header(size) + body
    assert split_array(whole) == (size, body)


@pytest.mark.parametrize("size", SIZES)
def test_a_dict_is_its_header_and_its_entries(size: int) -> None:
    """Joining encoded keys and values behind a header is encoding the dict."""
    items: dict[Any, Any] = {number: (number,) if number % 7 else "x" for number in range(size)}
    spans = [(encode(key, BARE), encode(item, BARE)) for key, item in items.items()]
    whole = encode(items, BARE)

    assert whole == map_header(size) + b"".join(key + item for key, item in spans)
    assert split_map(whole) == spans


def test_growing_a_list_without_decoding_it() -> None:
    """What `append` does to bytes equals what it does to the list."""
    old, new = [{"a": (1, {2})}], {"b": [b"x"]}
    count, body = split_array(encode(old, BARE))
    grown = array_header(count + 1) + body + encode(new, BARE)

    assert grown == encode([*old, new], BARE)
    assert decode(grown, BARE) == [*old, new]


@pytest.mark.parametrize(
    "value", [None, 1, "text", b"bytes", (1, 2), {1, 2}, frozenset(), {"a": 1}]
)
def test_only_lists_split_as_lists(value: Any) -> None:
    """A tuple or set, although written as a list, is none."""
    with pytest.raises(UndecodableError):
        split_array(encode(value, BARE))


@pytest.mark.parametrize("value", [None, 1, "text", b"bytes", [1], (1, 2), {1, 2}])
def test_only_dicts_split_as_dicts(value: Any) -> None:
    """Nothing but a dict is a dict."""
    with pytest.raises(UndecodableError):
        split_map(encode(value, BARE))


@pytest.mark.parametrize(
    "data",
    [b"", b"\x91", b"\x90\x00", b"\xdc\x00", b"\xdd\x00\x00", b"\xdd\xff\xff\xff\xff\x00", b"\xc1"],
)
def test_damaged_lists(data: bytes) -> None:
    """A header that its bytes cannot fill is refused."""
    with pytest.raises(UndecodableError):
        split_array(data)


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            b"\x81",
            b"\x81\x01",
            b"\x80\x00",
            b"\x81\x01\x01\x01",
            b"\xde\x00",
            b"\xdf\xff\xff\xff",
        ),
        *(
            b"\xdf\xff\xff\xff\xff\x01\x01",
            b"\x81\x01\xc1",
            b"\x81\xa5ab\x01",
            b"\x81\x01" + b"\x91" * 2000,
        ),
    ],
)
def test_damaged_dicts(data: bytes) -> None:
    """A dict that is cut short, goes on too long or holds damage is refused."""
    with pytest.raises(UndecodableError):
        split_map(data)


@pytest.mark.parametrize("header", [array_header, map_header])
def test_headers_have_a_range(header: Any) -> None:
    """A count that no header holds is refused."""
    assert len(header(2**32 - 1)) == 5
    for count in (-1, 2**32):
        with pytest.raises(NotSerializableError):
            header(count)
