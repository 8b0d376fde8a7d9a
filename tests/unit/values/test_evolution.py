"""Classes that changed since their values were stored: versions, upgrades, moves, and refusals by name."""

import collections
import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, PrivateAttr

from raf.errors import ConfigurationError, UndecodableError
from raf.values import TypeTable, decode, encode, register_type
from raf.values.registry import REGISTRY
from raf.values.retyped import field_types, misfits
from raf.values.versions import split_tag

NOTHING = TypeTable()
KINDS = ("dataclass", "model", "named tuple")


@pytest.fixture(autouse=True)
def _clean_registry() -> Iterator[None]:
    """What a test registers is gone after it."""
    kept = {name: dict(part) for name, part in vars(REGISTRY).items() if isinstance(part, dict)}
    yield
    vars(REGISTRY).update(kept)
    REGISTRY.changes += 1


def forget() -> None:
    """Begin another process: nothing is registered."""
    for part in vars(REGISTRY).values():
        if isinstance(part, dict):
            part.clear()
    REGISTRY.changes += 1


def a_class(kind: str, **fields: Any) -> Any:
    """A class of one kind with these fields, as one version of the code has it."""
    hints = dict.fromkeys(fields, Any)
    if kind == "dataclass":
        return make_dataclass("Thing", [(n, Any, field(default=v)) for n, v in fields.items()])
    if kind == "model":
        return type("Thing", (BaseModel,), {"__annotations__": hints, **fields})
    made: Any = collections.namedtuple
    return made("Thing", list(fields), defaults=list(fields.values()))


def members(kind: Any, **values: int) -> Any:
    """An enum or flag with these members."""
    return kind("Thing", values)


def stored(cls: Any, value: Any, **declared: Any) -> bytes:
    """The bytes of a value under a class that was registered so, in a process that is over."""
    register_type(cls, tag="thing", **declared)
    data = encode(value, NOTHING)
    forget()
    return data


def read(cls: Any, data: bytes, **declared: Any) -> Any:
    """The value as another process reads it, whose class is registered so."""
    forget()
    register_type(cls, tag="thing", **declared)
    return decode(data, NOTHING)


# -- versions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_lost_renamed_gained_and_retyped_fields(kind: str) -> None:
    """One upgrade says what becomes of each; the value is then written as the new version."""
    old = a_class(kind, name="x", price="9.50", junk=0)
    new = a_class(kind, title=None, cents=0, tags=())
    data = stored(old, old(name="tea", price="9.50", junk=1))

    def to_2(fields: dict[str, Any]) -> dict[str, Any]:
        cents = int(float(fields["price"]) * 100)
        return {"title": fields["name"], "cents": cents, "tags": ("old",)}

    back = read(new, data, version=2, upgrade={1: to_2})
    assert (type(back), back.title, back.cents, back.tags) == (new, "tea", 950, ("old",))
    again = encode(back, NOTHING)
    assert b"thing@2" in again
    forget()
    assert read(new, again, version=2, upgrade={1: to_2}) == back


@pytest.mark.parametrize("kind", KINDS)
def test_upgrades_follow_each_other(kind: str) -> None:
    """What is two versions old goes through both, what is one version old through the second."""
    first, second, third = (a_class(kind, **{name: 0}) for name in ("a", "b", "c"))
    steps = {
        1: lambda fields: {"b": fields["a"] + 1},
        2: lambda fields: {"c": fields["b"] * 10},
    }
    oldest = stored(first, first(a=1))
    older = stored(second, second(b=5), version=2, upgrade={1: steps[1]})
    assert read(third, oldest, version=3, upgrade=steps).c == 20
    assert read(third, older, version=3, upgrade=steps).c == 50


@pytest.mark.parametrize("kind", KINDS)
def test_what_nothing_leads_to_is_named(kind: str) -> None:
    """No upgrade, one that raises, one that gives nonsense, newer code: each names tag and version."""
    old, new = a_class(kind, a=0), a_class(kind, b=0)
    data = stored(old, old(a=1))

    def breaks(_fields: Any) -> Any:
        raise KeyError("x")

    for upgrade, told in (
        ({}, r"thing was stored as version 1, and nothing leads from version 1"),
        ({1: breaks}, r"thing: its upgrade from version 1 raised KeyError"),
        ({1: lambda _: None}, r"thing: its upgrade from version 1 gave NoneType, not dict"),
        ({1: lambda fields: fields}, r"thing has no field 'a'"),
    ):
        with pytest.raises(UndecodableError, match=told):
            read(new, data, version=2, upgrade=upgrade)
    newer = stored(new, new(b=1), version=7)
    with pytest.raises(UndecodableError, match="thing was stored as version 7, this code knows 2"):
        read(new, newer, version=2)
    with pytest.raises(UndecodableError, match="thing was stored as version 7, this code knows 1"):
        read(new, newer)


def test_a_version_reaches_values_inside_others() -> None:
    """Upgraded wherever it stands; what an upgrade finds inside a value is of today already."""
    inner_old, inner_new = a_class("dataclass", a=0), a_class("dataclass", b=0)

    @dataclass
    class Box:
        thing: Any

    seen = []

    def box_to_2(fields: dict[str, Any]) -> dict[str, Any]:
        seen.append(fields["content"])
        return {"thing": fields["content"]}

    old_box = make_dataclass("OldBox", [("content", Any)])
    register_type(old_box, tag="box")
    data = stored(inner_old, [old_box({"k": inner_old(a=1)}), (inner_old(a=2),)])
    register_type(Box, tag="box", version=2, upgrade={1: box_to_2})
    register_type(inner_new, tag="thing", version=2, upgrade={1: lambda f: {"b": f["a"]}})
    assert decode(data, NOTHING) == [Box({"k": inner_new(b=1)}), (inner_new(b=2),)]
    assert seen == [{"k": inner_new(b=1)}]


def test_a_dataclass_becomes_a_model_by_an_upgrade_and_back() -> None:
    """Another kind of class is refused, unless a version says that it is meant."""
    plain, model = a_class("dataclass", a=0), a_class("model", a=0)
    data = stored(plain, plain(a=1))
    with pytest.raises(UndecodableError, match="stored as a dataclass"):
        read(model, data)
    back = read(model, data, version=2, upgrade={1: dict})
    assert (back, back.model_fields_set) == (model(a=1), {"a"})
    data = stored(model, model(a=3))
    assert read(plain, data, version=2, upgrade={1: dict}) == plain(a=3)


@pytest.mark.parametrize("kind", KINDS)
def test_an_upgrade_gives_what_the_class_declares(kind: str) -> None:
    """Else the node would meet a value that no code of today could have made."""
    old, new = a_class(kind, title="", cents=0), a_class(kind, title="", cents=0)
    new.__annotations__ = {"title": str, "cents": list[int]}
    if kind == "model":
        new = type("Thing", (BaseModel,), {"__annotations__": new.__annotations__})
    data = stored(old, old(title="tea", cents=5))
    good = read(new, data, version=2, upgrade={1: lambda f: {**f, "cents": [f["cents"]]}})
    assert (good.title, good.cents) == ("tea", [5])
    for fields, told in (
        ({"title": 5, "cents": [5]}, r"thing: .* version 1 gave int for Thing\.title, .* str"),
        ({"title": "", "cents": ["x"]}, r"gave list for Thing\.cents, .* list\[int\]"),
        ({"title": object(), "cents": []}, r"gave object for Thing\.title"),
    ):
        with pytest.raises(UndecodableError, match=told):
            read(new, data, version=2, upgrade={1: lambda _, fields=fields: fields})


def test_all_that_a_model_holds_reaches_its_upgrade() -> None:
    """Extra and private values are among the data, and go where the new class has them."""

    class Old(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int
        b: int = 5
        _p: int = PrivateAttr(default=7)

    class New(BaseModel):
        a: int = 0
        x: int = 0
        b: int = 5
        _q: int = PrivateAttr(default=0)

    def to_2(held: dict[str, Any]) -> dict[str, Any]:
        assert held == {"a": 1, "b": 5, "x": 2, "_p": 7}
        held["_q"] = held.pop("_p")
        return held

    data = stored(Old, Old.model_validate({"a": 1, "x": 2}))
    back = read(New, data, version=2, upgrade={1: to_2})
    assert (back.a, back.x, back.b, back._q) == (1, 2, 5, 7)
    assert back.model_fields_set == {"a", "x"}
    with pytest.raises(UndecodableError, match="thing has no field '_p'"):
        read(New, data, version=2, upgrade={1: dict})


def test_members_of_enums_and_flags() -> None:
    """A renamed member is led to its new name; an alias in the class does the same without a version."""
    old = members(enum.Enum, RED=1, BLUE=2)
    new = members(enum.Enum, CRIMSON=1, BLUE=2)
    aliased = members(enum.Enum, CRIMSON=1, RED=1, BLUE=2)
    red, blue = (stored(old, member) for member in old)
    with pytest.raises(UndecodableError, match="thing has no member 'RED'"):
        read(new, red)
    assert read(aliased, red) is aliased.CRIMSON
    upgrade = {1: lambda name: "CRIMSON" if name == "RED" else name}
    assert read(new, red, version=2, upgrade=upgrade) is new.CRIMSON
    assert read(new, blue, version=2, upgrade=upgrade) is new.BLUE
    with pytest.raises(UndecodableError, match="has no member 'GREEN'"):
        read(new, blue, version=2, upgrade={1: lambda _: "GREEN"})
    can = members(enum.Flag, READ=1, WRITE=2)
    may = members(enum.Flag, WRITE=1, READ=2)
    data = stored(can, can.READ)
    swap = {1: lambda bits: {1: 2, 2: 1}[bits]}
    assert read(may, data, version=2, upgrade=swap) is may.READ


# -- declarations ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"version": 0}, "version is a whole number from 1"),
        ({"version": True}, "version is a whole number from 1"),
        ({"version": 2, "upgrade": {2: dict}}, "from a version below 2"),
        ({"version": 2, "upgrade": {"1": dict}}, "from a version below 2"),
        ({"upgrade": {1: dict}}, "from a version below 1"),
        ({"version": 2, "upgrade": {1: 3}}, "is no function"),
        ({"version": 2, "upgrade": [dict]}, "upgrade is a mapping .* not list"),
        ({"version": 2, "upgrade": []}, "upgrade is a mapping .* not list"),
        ({"tag": "thing@2"}, "ends in a version"),
        ({"aliases": ("thing@2",)}, "ends in a version"),
    ],
)
def test_a_declaration_that_cannot_be_meant(declared: dict[str, Any], told: str) -> None:
    """It is refused at once, and nothing is registered."""
    cls = a_class("dataclass", a=0)
    with pytest.raises(ConfigurationError, match=told):
        register_type(cls, **declared)
    assert REGISTRY.tag_of(cls) is None


def test_a_moved_class_of_a_later_version() -> None:
    """Aliases are names without a version: each version under them is read."""
    old, new = a_class("dataclass", a=0), a_class("dataclass", b=0)
    register_type(old, tag="shop:Thing", version=2)
    data = encode(old(a=1), NOTHING)
    forget()
    upgrade = {2: lambda fields: {"b": fields["a"]}}
    register_type(new, tag="thing", aliases=("shop:Thing",), version=3, upgrade=upgrade)
    assert decode(data, NOTHING) == new(b=1)


@given(st.text(min_size=1), st.integers(1, 10**6))
def test_tags_and_versions(name: str, version: int) -> None:
    """A version is told from any name that has none."""
    bare, _ = split_tag(name)
    tagged = bare if version == 1 else f"{bare}@{version}"
    if split_tag(bare) == (bare, 1):
        assert split_tag(tagged) == (bare, version)


# -- types that changed without a version ------------------------------------------------------------


@dataclass
class Line:
    sku: str
    amount: int | None = None


class Order(BaseModel):
    lines: list[Line]


class Pair(collections.namedtuple("Pair", "one two")):
    pass


def test_the_fields_of_a_class() -> None:
    """Annotations by name; of what has none, nothing."""
    assert field_types(Line) == {"sku": str, "amount": int | None}
    assert field_types(Order) == {"lines": list[Line]}
    assert field_types(Pair) == {}
    assert field_types(members(enum.Enum, RED=1)) == {}
    assert field_types(dict) == {}


def test_fields_that_hold_what_is_not_declared_any_more() -> None:
    """Only fields that changed are looked at, in each instance, and named with their path."""
    types = TypeTable.of(Order)
    value = {"order": Order(lines=[Line("a", 1), Line("b")])}
    value["order"].lines[1].sku = 7  # type: ignore[assignment]
    decoded = decode(encode(value, types), types)
    line = f"{__name__}:Line"
    assert list(misfits(decoded, {line: frozenset({"amount"})}, types, "payload")) == []
    [told] = misfits(decoded, {line: frozenset({"sku"})}, types, "payload")
    assert told == f"payload.order.lines[1].sku ({line}) holds int and is declared str now"
