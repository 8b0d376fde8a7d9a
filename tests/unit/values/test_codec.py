"""Values to bytes and back: exact, canonical, and loud about everything that cannot come back."""

import asyncio
import collections
import math
import struct
import threading
import types
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, localcontext
from io import StringIO
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

import msgpack
import pytest
from pydantic import HttpUrl, SecretStr, TypeAdapter

from raf.errors import NotSerializableError, UndecodableError
from raf.values import TypeTable, decode, decode_shared, encode
from raf.values.codec import MAX_NESTING
from raf.values.readonly import ReadOnlyDict, ReadOnlyList, ReadOnlySet
from tests.unit.values.sameness import traits

BARE = TypeTable()
NAN_WITH_PAYLOAD = struct.unpack(">d", bytes.fromhex("7ff8000000001234"))[0]
NEGATIVE_NAN = struct.unpack(">d", bytes.fromhex("fff8000000000000"))[0]


def naive(*fields: int) -> datetime:
    """A datetime without a zone."""
    return datetime(*fields)  # type: ignore[arg-type]  # noqa: DTZ001 - values may be naive


ROUND_TRIPS: list[Any] = [
    *(None, True, False, 0, 1, -1, 127, 128, 255, 256, -32, -33, -128, -129),
    *(
        2**31,
        2**32,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64,
        -(2**63),
        -(2**63) - 1,
        10**1000,
        -(10**99),
    ),
    *(0.0, -0.0, 1.0, 1.5, math.inf, -math.inf, math.nan, NAN_WITH_PAYLOAD, NEGATIVE_NAN, 5e-324),
    *("", "a", "\x00", "日本語", "🙂", "\ud800", "a\udfffb", "\ud83d\ude42", "x" * 70_000),
    *(b"", b"\x00\xff", b"\xc4" * 300, bytes(range(256))),
    *(
        [],
        [1, [2, [3]]],
        (),
        (1,),
        (1, (2, [3])),
        [()],
        set(),
        {1, 2},
        frozenset(),
        frozenset({"a"}),
    ),
    {frozenset({frozenset({1}), frozenset()}), (1, frozenset({2}))},
    *({}, {"b": 1, "a": 2}, {"a": {"b": {"c": [{}]}}}),
    {(1, 2): 0, frozenset({1}): 1, None: 2, b"k": 3, 1.5: 4, (("a",),): 5, True: 6, -1: 7},
    *(naive(2024, 2, 29, 23, 59, 59, 999_999), datetime(2024, 1, 1, tzinfo=UTC)),
    *(naive(1, 1, 1), naive(9999, 12, 31, 23, 59, 59, 999_999)),
    datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2024, 10, 27, 2, 30, fold=0, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30), "IST")),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(0), "UTC")),
    datetime(2024, 1, 1, tzinfo=timezone(-timedelta(seconds=1, microseconds=1))),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1), "\ud800 odd")),
    TypeAdapter(datetime).validate_python("2024-01-01T00:00:00+05:30"),
    TypeAdapter(datetime).validate_python("2024-01-01T00:00:00Z"),
    *(date(1, 1, 1), date.max, time(), time.max, time(1, 2, 3, 4, fold=1, tzinfo=UTC)),
    time(1, tzinfo=ZoneInfo("Asia/Kathmandu")),
    *(timedelta(), timedelta.min, timedelta.max, timedelta(days=-1, microseconds=1)),
    *map(
        Decimal, ("0", "-0", "0E+10", "1.10", "1E+3", "-1E-999999", "NaN", "-sNaN42", "-Infinity")
    ),
    Decimal("1" * 5_000),
    *(UUID(int=0), UUID(int=2**128 - 1)),
    UUID(int=5, is_safe=SafeUUID.safe),
    UUID(int=5, is_safe=SafeUUID.unsafe),
    *(Path(), Path("/a/b.txt"), Path("odd\udce9"), PurePosixPath("//a"), PureWindowsPath(r"c:\a")),
]


@pytest.mark.parametrize("value", ROUND_TRIPS, ids=lambda value: repr(value)[:40])
def test_round_trip_keeps_types_order_and_bits(value: Any) -> None:
    """Every value of every plain kind comes back exactly, alone, nested, and as a dict key."""
    assert traits(decode(encode(value, BARE), BARE)) == traits(value)

    nested = {"a": [value, (value,)], "b": {"c": value}}
    assert traits(decode(encode(nested, BARE), BARE)) == traits(nested)

    try:
        keyed = {value: 1, "other": 2}
    except TypeError:
        return
    assert traits(decode(encode(keyed, BARE), BARE)) == traits(keyed)


def test_utc_stays_the_one_utc() -> None:
    """`timezone.utc` comes back as the object that code compares with `is`."""
    value = decode(encode(datetime(2024, 1, 1, tzinfo=UTC), BARE), BARE)

    assert value.tzinfo is UTC


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0, False),
        (0.0, -0.0),
        ({1}, frozenset({1})),
        ({1: 0}, {1.0: 0}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Decimal("1.0"), Decimal("1.00")),
        (timezone(timedelta(0)), timezone(timedelta(0), "UTC")),
    ],
    ids=repr,
)
def test_equal_but_different_values_have_different_bytes(one: Any, other: Any) -> None:
    """What `==` calls equal is told apart where its type, sign or order differs."""
    if isinstance(one, tzinfo):
        one, other = datetime(2024, 1, 1, tzinfo=one), datetime(2024, 1, 1, tzinfo=other)

    assert one == other
    assert encode(one, BARE) != encode(other, BARE)


def test_text_is_not_bytes_and_lists_are_not_tuples() -> None:
    """Kinds that other formats fold together stay apart."""
    for values in (("a", b"a"), ([1, 2], (1, 2), {1, 2}, frozenset({1, 2})), ("1", 1, Decimal(1))):
        assert len({encode(value, BARE) for value in values}) == len(values)


def test_sets_are_sorted_by_encoding() -> None:
    """The order in which a set was filled leaves no trace, also for sets in sets."""
    names = [f"item-{number}" for number in range(50)]
    one: set[str] = set()
    other: set[str] = set()
    one.update(names)
    other.update(reversed(names))
    inner = [frozenset(names[:number]) for number in range(20)]

    assert encode(one, BARE) == encode(other, BARE)
    assert encode(frozenset(inner), BARE) == encode(frozenset(dict.fromkeys(inner[::-1])), BARE)


def test_deeply_nested_sets_take_no_exponential_time() -> None:
    """A set's order is worked out once, not once for each set around it."""
    value: Any = frozenset()
    for number in range(60):
        value = frozenset({(number, value), number})

    assert decode(encode([value], BARE), BARE) == [value]


def test_decimal_ignores_the_context() -> None:
    """The thread's decimal context has no say in the bytes."""
    value = Decimal("1E+5")
    plain = encode(value, BARE)
    with localcontext() as context:
        context.capitals = 0
        context.prec = 1
        assert encode(value, BARE) == plain
        assert str(decode(plain, BARE)) == "1e+5"


def test_read_only_containers_encode_as_plain_ones() -> None:
    """What state handed out can be sent on, and means the plain container."""
    sealed = ReadOnlyDict({"a": ReadOnlyList([1, ReadOnlySet({2})])})

    assert encode(sealed, BARE) == encode({"a": [1, {2}]}, BARE)


class Text(str):
    __slots__ = ()


class Names(list[str]):
    pass


class Offset(tzinfo):
    def utcoffset(self, at: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, at: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, at: datetime | None) -> str:
        return "Offset"


def generator() -> Iterator[int]:
    yield 1


async def coroutine() -> None:
    return None


REFUSED: list[Any] = [
    *(
        bytearray(b"a"),
        bytearray(),
        memoryview(b"a"),
        msgpack.ExtType(3, b"a"),
        msgpack.Timestamp(1),
    ),
    *(Text("a"), Names(), collections.OrderedDict(), collections.defaultdict(list)),
    *(collections.Counter(), collections.deque(), 1j, range(3), slice(1), ..., NotImplemented),
    *(int, Text, len, generator, lambda: 0, math, StringIO(), threading.Lock(), object()),
    *(
        generator(),
        iter([]),
        {}.keys(),
        ValueError("x"),
        types.MappingProxyType({}),
        re_match := None,
    ),
    *(datetime(2024, 1, 1, tzinfo=Offset()), HttpUrl("https://example.com"), SecretStr("x")),
]
REFUSED = [value for value in REFUSED if value is not re_match]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_everything_else_is_refused_with_its_path(value: Any) -> None:
    """What could not come back is refused where it hides, naming path and type."""
    with pytest.raises(NotSerializableError) as alone:
        encode(value, BARE, where="$")
    assert alone.value.path.removesuffix(".tzinfo") == "$"

    hidden = {"items": [0, 1, 2, {"owner": value}], "blob": b"\xc4" * 9, "when": (date.min,)}
    with pytest.raises(NotSerializableError) as caught:
        encode(hidden, BARE, where="$")
    assert caught.value.path.removesuffix(".tzinfo") == "$.items[3].owner"
    assert caught.value.type_name == (
        "Offset" if isinstance(value, datetime) else type(value).__qualname__
    )


async def test_coroutines_are_refused() -> None:
    """A forgotten await is an error at the place where it was forgotten."""
    waiting = coroutine()
    task = asyncio.create_task(waiting)
    for value in (waiting, task):
        with pytest.raises(NotSerializableError, match=r"value\.a of type"):
            encode({"a": value}, BARE)
    await task


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a b": [object()]}, "$['a b'][0]"),
        ({1: {None: (0, object())}}, "$[1][None][1]"),
        ({(1, memoryview(b"k")): 1}, "$.keys()[0][1]"),
        ({memoryview(b"k"): 1}, "$.keys()[0]"),
        ({frozenset({("a", 1j)})}, "$[*][*][1]"),
        ({"k" * 80: 1j}, f"$.{'k' * 80}"),
        ({"k" * 80 + "!": 1j}, f"$[{('k' * 80).__repr__()[:40]}…]"),
        ({"\ud800": "\udfff", "b": object()}, "$.b"),
    ],
    ids=[f"path-{n}" for n in range(8)],
)
def test_paths(value: Any, path: str) -> None:
    """A path reads as Python would reach the part."""
    with pytest.raises(NotSerializableError) as caught:
        encode(value, BARE, where="$")

    assert caught.value.path == path.replace("[*]", "{*}")


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def test_nesting_has_a_limit() -> None:
    """The limit is exact, the same for every value, and far below what decoding has room for."""
    deepest = nested(MAX_NESTING)
    assert decode(encode(deepest, BARE), BARE) == deepest

    for levels in (MAX_NESTING + 1, 600, 5_000):
        with pytest.raises(NotSerializableError, match="nested"):
            encode(nested(levels), BARE)
    wide = [[0] for _ in range(1_000)]
    assert decode(encode(wide, BARE), BARE) == wide
    assert decode(b"\x91" * 700 + b"\x00", BARE) == nested(700)


def test_containers_that_hold_themselves() -> None:
    """A cycle is named, not followed for ever."""
    ring: list[Any] = [1]
    ring.append({"back": (ring,)})

    with pytest.raises(NotSerializableError, match="contains itself") as caught:
        encode({"ring": ring}, BARE)
    assert caught.value.path == "value.ring[1].back[0]"


def test_threads_share_a_table() -> None:
    """Writers are never entered twice: threads that encode at once do not mix their bytes."""
    values = [
        {"n": [number] * 50, "t": (number, {number}), "s": str(number)} for number in range(8)
    ]
    expected = [encode(value, BARE) for value in values]
    wrong: list[bytes] = []

    def work(number: int) -> None:
        made = {encode(values[number], BARE) for _ in range(300)}
        wrong.extend(made - {expected[number]})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_a_refused_value_leaves_no_trace_in_the_next() -> None:
    """After an error the same table encodes as before."""
    before = encode({"a": (1, {2})}, BARE)
    for _ in range(3):
        with pytest.raises(NotSerializableError):
            encode({"a": (1, {2, (object(),)})}, BARE)

    assert encode({"a": (1, {2})}, BARE) == before


def test_large_values() -> None:
    """A value of some megabytes passes, and its writer's buffer is not kept."""
    value = {"text": "x" * 3_000_000, "rows": [{"id": number} for number in range(5_000)]}

    assert decode(encode(value, BARE), BARE) == value


READ_ONLY: list[tuple[Any, Any]] = [
    ([1, [2]], ReadOnlyList([1, ReadOnlyList([2])])),
    ({"a": {"b": []}}, ReadOnlyDict({"a": ReadOnlyDict({"b": ReadOnlyList()})})),
    (([1],), (ReadOnlyList([1]),)),
    ({1}, ReadOnlySet({1})),
    (frozenset({1}), frozenset({1})),
    ({(1, frozenset({2})): [3]}, ReadOnlyDict({(1, frozenset({2})): ReadOnlyList([3])})),
    (5, 5),
]


@pytest.mark.parametrize(("value", "expected"), READ_ONLY, ids=repr)
def test_shared_decoding_is_read_only_all_the_way_down(value: Any, expected: Any) -> None:
    """Every list, dict and set is of the read-only class; what is immutable stays as it is."""
    data = encode(value, BARE)
    shared, holds_models = decode_shared(data, BARE)

    assert not holds_models
    assert [type(part) for part in parts(shared)] == [type(part) for part in parts(expected)]
    assert shared == value == decode(data, BARE, readonly=True)
    assert encode(shared, BARE) == data


def parts(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from parts(key)
            yield from parts(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from parts(item)


DAMAGED = {
    "nothing": b"",
    "cut short": b"\x92\x01",
    "trailing": b"\x01\x01",
    "never used": b"\xc1",
    "long list claimed": b"\xdd\xff\xff\xff\xff",
    "long dict claimed": b"\xdf\xff\xff\xff\xff",
    "long text claimed": b"\xdb\xff\xff\xff\xffab",
    "nested claims": b"\xdd\x00\x00\xff\xff" * 800,
    "list as key": b"\x81\x90\x01",
    "dict as key": b"\x81\x80\x01",
    "text no utf-8": b"\xa1\xff",
    "too deep": b"\x91" * 2_000 + b"\x01",
    "unknown code": b"\xd4\x63\x00",
    "timestamp": b"\xd6\xff\x00\x00\x00\x01",
    "timestamp inside": b"\x81\xa1a\x92\x01\xd7\xff" + b"\x00" * 8,
    "mark alone": b"\xd4\x01\x01",
    "mark in a dict": b"\x81\xa1a\xd4\x01\x01",
    "mark in second place": b"\x92\x01\xd4\x01\x01",
    "mark as key": b"\x81\xd4\x01\x01\x01",
    "unknown form": b"\x91\xd4\x01\x63",
    "mark in long form": b"\x91\xc7\x01\x01\x01",
    "instance without tag": b"\x91\xd4\x01\x04",
    "instance with odd tag": b"\x93\xd4\x01\x04\x01\x80",
    "unknown class": b"\x93\xd4\x01\x04\xa3a:B\x80",
    "twice in a set": b"\x93\xd4\x01\x02\x01\x01",
    "list in a set": b"\x92\xd4\x01\x02\x90",
    "small int in long form": b"\xd4\x02\x05",
    "decimal": b"\xd6\x031__0",
    "decimal spelled oddly": b"\xc7\x03\x031e5",
    "month 13": b"\xd6\x05\x07\xe4\x0d\x01",
    "datetime cut": b"\xd6\x04\x07\xe4\x0d\x01",
    "zone unknown": b"\xc7\x0d\x04" + bytes.fromhex("07e80101000000000000" + "0000") + b"Z",
    "uuid cut": b"\xd6\x08abcd",
    "path kind": b"\xd5\x09Xa",
    "enum damaged": b"\xd4\x0a\xc1",
    "enum no pair": b"\xd4\x0a\x01",
    "enum unknown": b"\xc7\x06\x0a\x92\xa1a\xa1b",
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_one_error(data: bytes) -> None:
    """Whatever is wrong with bytes, the caller hears `UndecodableError` and nothing else."""
    with pytest.raises(UndecodableError):
        decode(data, BARE)
    with pytest.raises(UndecodableError):
        decode_shared(data, BARE)


@pytest.mark.parametrize(
    "key", ["../../etc/passwd", "/etc/passwd", "Nowhere/Here", "", "\x00", "a" * 999]
)
def test_zone_keys_from_data(key: str) -> None:
    """A zone key in data opens zone files only."""
    stamp = bytes.fromhex("07e8010100000000000000 00".replace(" ", ""))
    payload = stamp + b"Z" + key.encode()
    with pytest.raises(UndecodableError):
        decode(msgpack.packb(msgpack.ExtType(4, payload)), BARE)


def test_bytes_have_a_limit() -> None:
    """More bytes than the caller allows are not looked at."""
    data = encode("x" * 100, BARE)

    assert decode(data, BARE, max_bytes=len(data)) == "x" * 100
    for read in (decode, decode_shared):
        with pytest.raises(UndecodableError, match="more than"):
            read(data, BARE, max_bytes=len(data) - 1)


def test_bytes_that_stand_in_stored_records() -> None:
    """These encodings are for ever: records of every version hold them."""
    golden = {
        "93d40101 01 02": (1, 2),
        "93d40102 01 02": {1, 2},
        "92d40103 01": frozenset({1}),
        "c70902 010000000000000000": 2**64,
        "c70303 312e30": Decimal("1.0"),
        "c70c04 07e8020304050600000007 00": naive(2024, 2, 3, 4, 5, 6, 7),
        "d605 07e80203": date(2024, 2, 3),
        "d706 0102030000000400": time(1, 2, 3, 4),
        "c71106 0102030000000400 4f 0000000000000000": time(1, 2, 3, 4, tzinfo=UTC),
        "c70c07 000000010000000200000003": timedelta(1, 2, 3),
        "d808 00000000000000000000000000000005": UUID(int=5),
        "d609 43612f62": Path("a/b"),
        "82a16101a162c0": {"a": 1, "b": None},
    }
    for written, value in golden.items():
        assert encode(value, BARE).hex() == written.replace(" ", "")
