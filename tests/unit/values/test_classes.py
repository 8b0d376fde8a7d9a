"""Instances of declared classes: put back whole, or refused; and classes that have changed since."""

import collections
import dataclasses
import enum
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, computed_field

from raf.errors import NotSerializableError, UndecodableError
from raf.values import TypeTable, decode, decode_shared, encode
from raf.values.forms import kind_of
from raf.values.registry import REGISTRY, Registry
from tests.unit.values.sameness import traits

T = TypeVar("T")


@dataclass
class Point:
    x: int
    y: float = 0.5


@dataclass(frozen=True, slots=True, order=True)
class Key:
    name: str
    tags: frozenset[str] = frozenset()


@dataclass
class Account:
    """Refuses to be made by decoding: every way in raises."""

    owner: str
    items: list[Point] = field(default_factory=list)
    total: int = field(init=False)
    note: str = field(init=False, default="class default")
    start: dataclasses.InitVar[int] = 7

    def __post_init__(self, start: int) -> None:
        self.total = start

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise TypeError("never assigned twice")
        object.__setattr__(self, name, value)


@dataclass
class Lazy:
    text: str

    @functools.cached_property
    def length(self) -> int:
        return len(self.text)


@dataclass
class Box(Generic[T]):
    content: T


@dataclass(slots=True)
class Base:
    a: int


@dataclass
class Mixed(Base):
    b: int


@dataclass
class Empty:
    pass


class Pair(NamedTuple):
    left: int
    right: Any = None


Old = collections.namedtuple("Old", "p q")


class Color(enum.Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796 - an alias is what is tested
    ODD = ("a", 2)


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Bits(enum.IntFlag, boundary=enum.KEEP):
    LOW = 1
    HIGH = 1 << 70


class Order(BaseModel):
    number: int
    lines: list[Point] = []
    comment: str | None = Field(default=None, alias="remark")


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)
    a: int = 1


class Counted(BaseModel):
    name: str
    _uses: int = PrivateAttr(default=0)
    _unset: int = PrivateAttr()

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know the pair
    @functools.cached_property
    def size(self) -> int:
        return len(self.name)


class Numbers(RootModel[list[int]]):
    pass


class Page(BaseModel, Generic[T]):
    items: list[T]


@pydantic.dataclasses.dataclass
class Checked:
    n: int


ALL = TypeTable.of(
    *(
        Point,
        Key,
        Account,
        Lazy,
        Box,
        Base,
        Mixed,
        Empty,
        Pair,
        Old,
        Color,
        Level,
        Word,
        Access,
        Bits,
    ),
    *(Order, Loose, Counted, Numbers, Page[int], Page[Point], Checked),
)


def loose(**values: Any) -> Loose:
    return Loose.model_validate(values)


def used(counted: Counted) -> Counted:
    counted._uses = 5
    assert counted.size == 1
    return counted


def renamed(order: Order) -> Order:
    order.comment = "set later"
    return order


INSTANCES: list[Any] = [
    *(
        Point(1),
        Point(2**80, float("nan")),
        Key("a", frozenset({"x", "y"})),
        Account("o", [Point(1)]),
    ),
    *(Box([1, (2,)]), Box[int](3), Mixed(1, 2), Empty(), Pair(1), Pair(1, [2]), Old(1, {2: 3})),
    *(
        Color.RED,
        Color.CRIMSON,
        Color.ODD,
        Level.LOW,
        Word.YES,
        Access.READ | Access.WRITE,
        Access(0),
    ),
    *(Bits.HIGH | Bits.LOW, Bits(1 << 90), ~Access.READ),
    *(Order(number=1), Order(number=1, remark="r", lines=[Point(1)]), renamed(Order(number=2))),
    *(
        Order.model_construct(number="unchecked", lines=None, comment=3),
        loose(a=2, b=[1], c={"d": 2}),
    ),
    *(used(Counted(name="a")), Counted(name="b"), Numbers([1, 2]), Page[int](items=[1])),
    *(Page[Point](items=[Point(1)]), Checked(n=1)),
]


@pytest.mark.parametrize("value", INSTANCES, ids=lambda value: type(value).__name__)
def test_instances_come_back_whole(value: Any) -> None:
    """Fields, extra, given fields and private attributes are as they were; no constructor runs."""
    back = decode(encode(value, ALL), ALL)

    assert type(back) is type(value)
    assert traits(back) == traits(value)
    if "nan" not in repr(value):
        assert back == value
    nested = {"a": [value, (value, {"b": value})]}
    assert traits(decode(encode(nested, ALL), ALL)) == traits(nested)


def test_instances_are_keys_and_items_of_sets() -> None:
    """What can be hashed may be a key, an item of a set, a part of either."""
    value = {Key("a"): {Key("b"), Color.RED}, (Pair(1, 2), Level.LOW): 1}

    assert traits(decode(encode(value, ALL), ALL)) == traits(value)


def test_enum_members_come_back_as_themselves() -> None:
    """A member is the one object of its class."""
    for member in (Color.RED, Level.LOW, Word.YES):
        assert decode(encode(member, ALL), ALL) is member


def test_field_order_of_an_instance_does_not_matter() -> None:
    """Fields set in another order give the same bytes."""
    one, other = Point(1, 2.0), object.__new__(Point)
    other.y = 2.0
    other.x = 1
    late = Order.model_construct(comment=None, lines=[], number=1, _fields_set={"number"})

    assert encode(one, ALL) == encode(other, ALL)
    assert encode(late, ALL) == encode(Order(number=1), ALL)


def test_shared_decoding_keeps_instances_plain_inside() -> None:
    """An instance in a read-only tree is a fresh copy whose containers can be changed."""
    data = encode([{"box": Box([1, {"a": {2}}])}, [1], Pair(1, [2])], ALL)
    value, holds_models = decode_shared(data, ALL)
    box = value[0]["box"]
    box.content.append(3)
    box.content[1]["a"].add(4)

    assert holds_models
    assert box.content == [1, {"a": {2, 4}}, 3]
    assert [type(part).__name__ for part in (value, value[0], value[1])] == (
        ["ReadOnlyList", "ReadOnlyDict", "ReadOnlyList"]
    )


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        *((Point(1), True), (Order(number=1), True), ([{"a": (Key("a"),)}], True)),
        *((Color.RED, False), (Pair(1, [2]), False), ([Access.READ, {"a": 1}], False)),
    ],
    ids=repr,
)
def test_which_values_must_not_be_shared(value: Any, holds: bool) -> None:
    """Instances of dataclasses and models can be changed in place; enums and named tuples cannot."""
    shared, holds_models = decode_shared(encode(value, ALL), ALL)

    assert holds_models is holds
    assert shared == value


def with_extra_attribute() -> Point:
    point = Point(1)
    point.color = "red"  # type: ignore[attr-defined]
    return point


def without_field() -> Point:
    point = Point(1)
    del point.x
    return point


@dataclass
class Failure(Exception):  # noqa: N818 - it is a value here
    code: int


@dataclass
class Words(list[str]):
    code: int


class Wider(Pair):
    pass


def wider() -> Wider:
    pair = Wider(1, 2)
    pair.more = 3  # type: ignore[attr-defined]
    return pair


@dataclass
class Guarded:
    __slots__ = ("_cache", "a")
    a: int


def guarded() -> Guarded:
    value = Guarded(1)
    value._cache = 2  # type: ignore[attr-defined]
    return value


def bare_model() -> Order:
    return Order.__new__(Order)


def model_with_attribute() -> Loose:
    model = Loose()
    model.__dict__["sneaked"] = 1
    return model


REFUSED = [
    (with_extra_attribute, "$.color", "str"),
    (without_field, "$.x", "Point"),
    (lambda: object.__new__(Base), "$.a", "Base"),
    (lambda: Failure(1), "$", "Failure"),
    (lambda: Words(1), "$", "Words"),
    (wider, "$.more", "int"),
    (guarded, "$._cache", "int"),
    (bare_model, "$.number", "Order"),
    (model_with_attribute, "$.sneaked", "int"),
    (lambda: Box(object()), "$.content", "object"),
    (lambda: Box([Pair(1, {"k": 1j})]), "$.content[0].right.k", "complex"),
    (lambda: Order.model_construct(number=1, lines=[1j]), "$.lines[0]", "complex"),
    (lambda: loose(b={"c": 1j}), "$.b.c", "complex"),
    (lambda: Box(bytearray(b"a")), "$.content", "bytearray"),
    (lambda: loose(b=[bytearray(b"a")]), "$.b[0]", "bytearray"),
    (lambda: Pair(1, memoryview(b"a")), "$.right", "memoryview"),
]


@pytest.mark.parametrize(("make", "path", "type_name"), REFUSED)
def test_what_would_be_cut_is_refused(make: Any, path: str, type_name: str) -> None:
    """An instance that holds more than its fields, or less, is refused with the path."""
    table = ALL | TypeTable.of(Failure, Words, Wider, Guarded)
    with pytest.raises(NotSerializableError) as caught:
        encode(make(), table, where="$")

    assert (caught.value.path, caught.value.type_name) == (path, type_name)


def test_cached_properties_are_worked_out_anew() -> None:
    """A cached property is no part of the value: it neither blocks nor travels."""
    lazy = Lazy("abc")
    plain = encode(lazy, ALL)
    assert lazy.length == 3

    assert encode(lazy, ALL) == plain
    assert decode(plain, ALL).length == 3


@dataclass
class Unknown:
    a: int


@dataclass
class Sub(Point):
    z: int = 3


@pytest.mark.parametrize("value", [Unknown(1), Sub(1), Order], ids=repr)
def test_classes_that_nothing_declares_are_refused(value: Any) -> None:
    """Also the subclass of a declared class: its declared type would cut it."""
    with pytest.raises(NotSerializableError, match=r"value\[0\] of type"):
        encode([value], ALL)


def test_an_undeclared_class_is_refused_with_the_remedy() -> None:
    """The error names the class and the two ways to declare it."""
    with pytest.raises(NotSerializableError, match=r"Unknown.*annotation or register_type"):
        encode(Unknown(1), ALL)


# -- classes that have changed since --------------------------------------------------------------


def table_of(name: str, body: dict[str, Any], kind: str) -> TypeTable:
    """A table with one class `Thing` of one kind, as another version of the code would have it."""
    hints = body.pop("__annotations__")
    space = {**body, "__annotations__": hints, "__module__": "shop", "__qualname__": name}
    made: Any
    if kind == "dataclass":
        made = dataclass(type(name, (), space))
    elif kind == "model":
        made = type(name, (BaseModel,), space)
    else:
        made = collections.namedtuple(name, hints, module="shop")  # type: ignore[misc, no-redef]
        made._field_defaults = body
    return TypeTable([made])


def table_with(cls: Any) -> TypeTable:
    return TypeTable([cls])


def thing(table: TypeTable) -> Any:
    return table.classes[0]


KINDS = ["dataclass", "model", "named tuple"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_field_takes_its_default(kind: str) -> None:
    """What was stored before the field existed reads as if it had had the default."""
    old = table_of("Thing", {"__annotations__": {"a": int}}, kind)
    new = table_of("Thing", {"__annotations__": {"a": int, "b": int}, "b": 5}, kind)
    back = decode(encode(thing(old)(a=1), old), new)

    assert (type(back), back.a, back.b) == (thing(new), 1, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_field_without_default_is_named(kind: str) -> None:
    """There is nothing to fill it with: the error names class and field."""
    old = table_of("Thing", {"__annotations__": {"a": int}}, kind)
    new = table_of("Thing", {"__annotations__": {"a": int, "b": int}}, kind)
    with pytest.raises(UndecodableError, match=r"shop:Thing .*'b'.*default"):
        decode(encode(thing(old)(a=1), old), new)


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_is_gone_is_named(kind: str) -> None:
    """Dropping what was stored would be silent loss: the error names class and field."""
    old = table_of("Thing", {"__annotations__": {"a": int, "b": int}}, kind)
    new = table_of("Thing", {"__annotations__": {"a": int}}, kind)
    with pytest.raises(UndecodableError, match="shop:Thing has no field 'b'"):
        decode(encode(thing(old)(a=1, b=2), old), new)


@pytest.mark.parametrize("kind", KINDS)
def test_fields_in_another_order(kind: str) -> None:
    """Fields are known by name, so their order in the class may change."""
    old = table_of("Thing", {"__annotations__": {"a": int, "b": str}}, kind)
    new = table_of("Thing", {"__annotations__": {"b": str, "a": int}}, kind)
    back = decode(encode(thing(old)(a=1, b="x"), old), new)

    assert (back.a, back.b) == (1, "x")


def test_a_class_that_became_another_kind() -> None:
    """A dataclass that is a model now is not guessed at."""
    old = table_of("Thing", {"__annotations__": {"a": int}}, "dataclass")
    new = table_of("Thing", {"__annotations__": {"a": int}}, "model")
    with pytest.raises(UndecodableError, match="stored as a dataclass"):
        decode(encode(thing(old)(a=1), old), new)


def test_default_factories_of_new_fields() -> None:
    """A factory runs once for each instance; one that raises is an undecodable value."""
    old = table_of("Thing", {"__annotations__": {"a": int}}, "model")
    factory = Field(default_factory=lambda data: [data["a"]])
    new = table_of("Thing", {"__annotations__": {"a": int, "b": list[int]}, "b": factory}, "model")
    wrong = table_of(
        "Thing",
        {"__annotations__": {"a": int, "b": int}, "b": field(default_factory=lambda: 1 // 0)},
        "dataclass",
    )
    flat = table_of("Thing", {"__annotations__": {"a": int}}, "dataclass")
    one, two = (decode(encode(thing(old)(a=1), old), new) for _ in range(2))

    assert one.b == [1]
    assert one.b is not two.b
    with pytest.raises(UndecodableError, match="ZeroDivisionError"):
        decode(encode(thing(flat)(a=1), flat), wrong)


def test_enum_members_that_are_gone() -> None:
    """A member is stored by name: a changed value is followed, a lost name is an error."""
    old = table_with(enum.Enum("Hue", {"RED": 1, "BLUE": 2}, module="shop"))
    new = table_with(enum.Enum("Hue", {"RED": "r"}, module="shop"))
    red, blue = thing(old)

    assert decode(encode(red, old), new) is thing(new).RED
    with pytest.raises(UndecodableError, match="shop:Hue has no member 'BLUE'"):
        decode(encode(blue, old), new)


def test_flags_that_are_gone() -> None:
    """A combination that the class no longer knows is an error."""
    old = table_with(enum.Flag("Can", {"READ": 1, "WRITE": 2}, module="shop"))
    new = table_with(enum.Flag("Can", {"READ": 1}, module="shop"))
    ejecting = table_with(enum.Flag("Can", {"READ": 1}, module="shop", boundary=enum.EJECT))
    data = encode(thing(old)(3), old)

    for table in (new, ejecting):
        with pytest.raises(UndecodableError):
            decode(data, table)


def test_private_attributes_that_have_changed() -> None:
    """A new private attribute takes its default, a lost one is named."""
    bare = table_of("Thing", {"__annotations__": {"a": int}}, "model")
    private = {"__annotations__": {"a": int, "_p": int}, "_p": PrivateAttr(default=4)}
    new = table_of("Thing", private, "model")

    assert decode(encode(thing(bare)(a=1), bare), new)._p == 4
    with pytest.raises(UndecodableError, match="private attribute '_p'"):
        decode(encode(thing(new)(a=1), new), bare)


def test_extra_fields_that_are_no_longer_allowed() -> None:
    """Extra values of a model that refuses them now are named, not dropped."""
    allow = {"__annotations__": {"a": int}, "model_config": ConfigDict(extra="allow")}
    old = table_of("Thing", allow, "model")
    new = table_of("Thing", {"__annotations__": {"a": int}}, "model")
    with pytest.raises(UndecodableError, match="no field 'b'"):
        decode(encode(thing(old)(a=1, b=2), old), new)

    back = decode(encode(thing(new)(a=1), new), old)
    assert back.model_extra == {}


DAMAGED = {
    "fields no dict": [1],
    "too few parts": [],
    "too many parts": [{"number": 1}, None, [], None, 5],
    "extra no dict": [{"number": 1, "lines": [], "comment": None}, 5, [], None],
    "given no list": [{"number": 1, "lines": [], "comment": None}, None, 5, None],
    "given odd": [{"number": 1, "lines": [], "comment": None}, None, [5], None],
    "private no dict": [{"number": 1, "lines": [], "comment": None}, None, [], 5],
}


@pytest.mark.parametrize("parts", DAMAGED.values(), ids=DAMAGED)
def test_damaged_models(parts: list[Any]) -> None:
    """A model whose parts are not what was stored is refused."""
    body = b"".join(encode(part, ALL) for part in [f"{__name__}:Order", *parts])
    head = bytes([0x90 | (len(parts) + 2)]) + b"\xd4\x01\x06"
    with pytest.raises(UndecodableError):
        decode(head + body, ALL)


def test_kinds() -> None:
    """What is storable and what is not, told by the class."""
    assert [kind_of(cls) for cls in (Point, Order, Pair, Color, Access)] == [
        *("dataclass", "model", "named tuple", "enum", "enum")
    ]
    assert not any(
        map(kind_of, (BaseModel, RootModel, enum.Enum, tuple, dict, int, list[int], None))
    )


@pytest.fixture(autouse=True)
def _clean_registry() -> Iterator[None]:
    """What a test registers is gone after it."""
    kept = {name: dict(part) for name, part in vars(REGISTRY).items() if isinstance(part, dict)}
    yield
    vars(REGISTRY).update(kept)
    REGISTRY.changes += 1
    assert isinstance(REGISTRY, Registry)
