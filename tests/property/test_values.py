"""Values and their bytes, whatever the values and whatever the bytes."""

import contextlib
import copy
import enum
import random
from dataclasses import dataclass, field
from datetime import UTC, timedelta, timezone
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from raf.errors import UndecodableError
from raf.values import (
    Shape,
    TypeTable,
    array_header,
    decode,
    decode_shared,
    encode,
    map_header,
    split_array,
    split_map,
)
from raf.values.plain import decode_plain
from tests.unit.values.sameness import traits


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True, slots=True)
class Key:
    name: Any
    more: Any = None


@dataclass
class Bag:
    items: Any
    total: int = field(init=False, default=0)


class Pair(NamedTuple):
    left: Any
    right: Any = 0


class Note(BaseModel):
    model_config = ConfigDict(extra="allow")
    body: Any = None
    tags: list[Any] = []


TABLE = TypeTable.of(Color, Access, Key, Bag, Pair, Note)

texts = st.text(st.characters(exclude_categories=()), max_size=20)
zones = st.one_of(
    st.none(),
    st.just(UTC),
    st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("America/St_Johns"), ZoneInfo("UTC")]),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23))),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)), texts),
)
folds = st.integers(0, 1)
atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**64) - 1, 2**64 + 1),
    st.floats(allow_nan=True),
    texts,
    st.binary(max_size=20),
    st.builds(lambda at, fold: at.replace(fold=fold), st.datetimes(timezones=zones), folds),
    st.dates(),
    st.builds(lambda at, fold: at.replace(fold=fold), st.times(timezones=zones), folds),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.sampled_from([*Color, *Access, Access(3), Access(0)]),
    st.builds(PurePosixPath, texts),
    st.builds(PureWindowsPath, texts),
)
keys = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.frozensets(inner, max_size=4),
        st.tuples(inner, inner).map(lambda two: Key(*two)),
        inner.map(Pair),
    ),
    max_leaves=6,
)
values = st.recursive(
    keys,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(keys, max_size=5),
        st.dictionaries(keys, inner, max_size=5),
        inner.map(Bag),
        st.tuples(inner, inner).map(lambda two: Pair(*two)),
        st.lists(inner, min_size=1, max_size=4).map(lambda some: Note(body=some[0], tags=some[1:])),
        st.tuples(inner, inner).map(lambda two: Note.model_validate({"body": two[0], "x": two[1]})),
    ),
    max_leaves=20,
)


@given(values)
def test_round_trip(value: Any) -> None:
    """What comes back has the same types, bits and order; encoding it again gives the same bytes."""
    data = encode(value, TABLE)
    back = decode(data, TABLE)

    assert traits(back) == traits(value)
    assert encode(back, TABLE) == data


@given(values)
def test_shared_decoding_means_the_same(value: Any) -> None:
    """The read-only reading encodes to the same bytes, and is plain when it is copied."""
    data = encode(value, TABLE)
    shared, holds_models = decode_shared(data, TABLE)

    assert encode(shared, TABLE) == data
    assert holds_models or traits(copy.deepcopy(shared)) == traits(value)


@given(st.lists(keys, max_size=12), st.randoms(use_true_random=False))
def test_sets_are_canonical(items: list[Any], chance: random.Random) -> None:
    """The order in which a set is filled leaves no trace in its bytes."""
    shuffled = list(dict.fromkeys(items))
    one = set(shuffled)
    chance.shuffle(shuffled)
    other = set()
    for item in [*shuffled, *range(100)]:
        other.add(item)
    other -= {*range(100)} - one

    assert encode(other, TABLE) == encode(one, TABLE)
    assert encode(frozenset(shuffled), TABLE) == encode(frozenset(reversed(shuffled)), TABLE)


@given(st.lists(values, max_size=6))
def test_lists_join(items: list[Any]) -> None:
    """A list is its header and its items; cutting it gives them back."""
    body = b"".join(encode(item, TABLE) for item in items)
    whole = encode(items, TABLE)

    assert whole == array_header(len(items)) + body
    assert split_array(whole) == (len(items), body)


@given(st.dictionaries(keys, values, max_size=6))
def test_dicts_join(items: dict[Any, Any]) -> None:
    """A dict is its header, keys and values; cutting it gives them back."""
    spans = [(encode(key, TABLE), encode(item, TABLE)) for key, item in items.items()]
    whole = encode(items, TABLE)

    assert whole == map_header(len(items)) + b"".join(key + item for key, item in spans)
    assert split_map(whole) == spans


def survive(data: bytes) -> None:
    """Every reader either reads the bytes or raises its one error, and all of them agree."""
    try:
        value = decode(data, TABLE)
    except UndecodableError:
        value = UndecodableError
    try:
        shared = decode_shared(data, TABLE)[0]
    except UndecodableError:
        shared = UndecodableError
    for read in (decode_plain, split_array, split_map):
        with contextlib.suppress(UndecodableError):
            read(data)

    assert (value is UndecodableError) == (shared is UndecodableError)
    if value is not UndecodableError:
        assert encode(value, TABLE) == encode(shared, TABLE)


@given(st.binary(max_size=60))
def test_random_bytes(data: bytes) -> None:
    """Noise never raises anything but `UndecodableError`."""
    survive(data)


heads = st.sampled_from(
    [
        *(b"\xd4\x01\x01", b"\xd4\x01\x02", b"\xd4\x01\x03", b"\xd4\x01\x04", b"\xd4\x01\x06"),
        *(
            b"\x91",
            b"\x92",
            b"\x93",
            b"\x96",
            b"\x81",
            b"\x80",
            b"\xdd\x7f\xff\xff\xff",
            b"\xd6\xff",
        ),
        *(b"\xc7\x05\x02", b"\xc7\x03\x03", b"\xc7\x0c\x04", b"\xd6\x05", b"\xd8\x08", b"\xd4\x0a"),
        *(encode(f"{__name__}:{name}", TABLE) for name in ("Key", "Note", "Pair", "Color")),
        *(b"\xa4body", b"\xa4name", b"\x01", b"\xc0", b"\xff"),
    ]
)


@given(st.lists(st.one_of(heads, st.binary(max_size=4)), max_size=14).map(b"".join))
def test_bytes_that_look_like_ours(data: bytes) -> None:
    """Marks, tags and headers in any order never raise anything but `UndecodableError`."""
    survive(data)


@given(values, st.data())
def test_mutated_bytes(value: Any, data: st.DataObject) -> None:
    """A flipped, lost, added or repeated byte never raises anything but `UndecodableError`."""
    whole = bytearray(encode(value, TABLE))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole)))
        match data.draw(st.integers(0, 3)):
            case 0 if at < len(whole):
                whole[at] = data.draw(st.integers(0, 255))
            case 1:
                del whole[at : at + data.draw(st.integers(1, 4))]
            case 2:
                whole[at:at] = data.draw(st.binary(min_size=1, max_size=4))
            case _:
                whole[at:at] = whole[max(0, at - 8) : at]
    survive(bytes(whole))


DECLARED: list[Any] = [
    *(
        int,
        str,
        float,
        bool,
        bytes,
        Color,
        int | str,
        str | int,
        float | int,
        bool | int,
        int | bool,
    ),
    *(
        list[int | str],
        list[float],
        dict[str, list[int] | str],
        dict[int, bool | str] | list[bytes],
    ),
    *(
        tuple[int, str] | tuple[str, ...],
        set[int | str] | frozenset[bool],
        list[list[int] | int | None],
    ),
]


@given(st.data())
def test_what_fits_is_never_rebuilt(data: st.DataObject) -> None:
    """A value of the declared type is passed on as the very object, also by unions."""
    annotation = data.draw(st.sampled_from(DECLARED))
    value = data.draw(st.from_type(annotation))

    assert Shape.of(annotation).fit(value, "value") is value
