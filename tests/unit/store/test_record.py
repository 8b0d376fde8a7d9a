"""The frame of the store's files: what goes in comes out, and what was changed is found."""

import struct
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from raf.errors import CorruptRecordError, FormatVersionError
from raf.store import record
from raf.store.record import Content, Frame, pack, unpack

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=[])),
)
metas = st.dictionaries(st.text(), st.one_of(scalars, st.lists(scalars, max_size=3)), max_size=5)


def sealed(data: bytes) -> bytes:
    """Bytes with the checksum that fits them."""
    return data + struct.pack("<Q", xxhash.xxh3_64_intdigest(data))


@given(st.sampled_from(Content), metas, st.binary(), st.binary())
def test_what_is_packed_is_unpacked(
    content: Content, meta: dict[str, Any], body: bytes, events: bytes
) -> None:
    """Clear fields and both parts come back as they were."""
    data = pack(content, meta, body=body, events=events)
    assert unpack(data, content, "s", "r") == Frame(meta=meta, body=body, events=events)


def test_the_bytes_of_version_1() -> None:
    """The layout is fixed: magic, version, content, three lengths, three parts, checksum."""
    data = pack(Content.REQUEST, {"a": 1}, body=b"body", events=b"ev")
    assert data[record.MAGIC_AT : record.VERSION_AT] == b"RAFR"
    assert data[record.VERSION_AT] == 1
    assert data[record.CONTENT_AT] == 2
    assert data[record.META_LENGTH_AT : record.BODY_LENGTH_AT] == b"\4\0\0\0"
    assert data[record.BODY_LENGTH_AT : record.EVENTS_LENGTH_AT] == b"\4" + b"\0" * 7
    assert data[record.EVENTS_LENGTH_AT : record.META_AT] == b"\2" + b"\0" * 7
    assert data[record.META_AT : -8] == b"\x81\xa1a\x01bodyev"
    assert data == sealed(data[:-8])


@pytest.mark.parametrize("meta", [{}, {"k": "v", "n": [1, 2.5, None, True]}])
def test_every_cut_and_every_flip_is_found(meta: dict[str, Any]) -> None:
    """Cut off at any byte, with any bit turned, or with bytes behind it, a frame is refused."""
    data = pack(Content.RECORD, meta, body=b"body", events=b"events")
    damaged = [data[:length] for length in range(len(data))]
    damaged += [
        data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
        for at in range(len(data))
        for bit in range(8)
    ]
    damaged += [data + b"\0", data * 2]
    for bad in damaged:
        with pytest.raises((CorruptRecordError, FormatVersionError)):
            unpack(bad, Content.RECORD, "s", "r")


def test_a_newer_version_is_named() -> None:
    """A frame of a later format says which, whatever follows."""
    data = pack(Content.RECORD, {})
    newer = data[:4] + b"\x02" + data[5:-8] + b"?" * 30
    with pytest.raises(FormatVersionError) as caught:
        unpack(newer, Content.RECORD, "s", "r")
    assert (caught.value.found, caught.value.known) == (2, record.VERSION)


@pytest.mark.parametrize(
    "data",
    [
        pack(Content.LEASE, {}),
        sealed(record.HEADER.pack(b"RAFR", 0, 0, 1, 0, 0) + b"\x80"),
        sealed(record.HEADER.pack(b"RAFR", 1, 0, 1, 0, 0) + b"\xc1"),
        sealed(record.HEADER.pack(b"RAFR", 1, 0, 1, 0, 0) + b"\x93"),
        sealed(record.HEADER.pack(b"RAFR", 1, 0, 1, 0, 0) + b"\x01"),
        sealed(record.HEADER.pack(b"RAFR", 1, 0, 2, 0, 0) + b"\x80\x80"),
        sealed(record.HEADER.pack(b"RAFR", 1, 0, 3, 0, 0) + b"\x81\x80\x01"),
        sealed(record.HEADER.pack(b"RAFR", 1, 0, 4, 0, 0) + b"\xdd\xff\xff\xff"),
        sealed(record.HEADER.pack(b"RAFS", 1, 0, 1, 0, 0) + b"\x80"),
    ],
    ids=[
        "another content",
        "version 0",
        "no msgpack",
        "half a list",
        "a number",
        "two values",
        "a map as key",
        "half a length",
        "another magic",
    ],
)
def test_a_fitting_checksum_does_not_excuse_nonsense(data: bytes) -> None:
    """What is no frame of the kind asked for is refused, also when it was sealed."""
    with pytest.raises(CorruptRecordError) as caught:
        unpack(data, Content.RECORD, "session", "name")
    assert (caught.value.session_id, caught.value.record) == ("session", "name")


def test_equal_fields_make_equal_bytes() -> None:
    """Packing is a function of its arguments."""
    assert pack(Content.PACK, {"a": 1, "b": 2}) == pack(Content.PACK, {"a": 1, "b": 2})
