"""Read-only containers: everything that reads takes them, nothing that writes does."""

import copy
import dataclasses
import json
import operator
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from pydantic import BaseModel, TypeAdapter

from raf.errors import ReadOnlyError
from raf.values.readonly import MUTATORS, ReadOnlyDict, ReadOnlyList, ReadOnlySet
from raf.values.readonly import seal_dict as sealed_dict

CHANGES: list[tuple[Any, Callable[[Any], Any]]] = [
    (ReadOnlyList([2, 1]), lambda it: it.append(3)),
    (ReadOnlyList([2, 1]), lambda it: it.extend([3])),
    (ReadOnlyList([2, 1]), lambda it: it.insert(0, 3)),
    (ReadOnlyList([2, 1]), lambda it: it.remove(1)),
    (ReadOnlyList([2, 1]), lambda it: it.pop()),
    (ReadOnlyList([2, 1]), lambda it: it.clear()),
    (ReadOnlyList([2, 1]), lambda it: it.sort(key=lambda n: n, reverse=False)),
    (ReadOnlyList([2, 1]), lambda it: it.reverse()),
    (ReadOnlyList([2, 1]), lambda it: operator.setitem(it, 0, 9)),
    (ReadOnlyList([2, 1]), lambda it: operator.setitem(it, slice(0, 1), [])),
    (ReadOnlyList([2, 1]), lambda it: operator.delitem(it, 0)),
    (ReadOnlyList([2, 1]), lambda it: it.__iadd__([3])),
    (ReadOnlyList([2, 1]), lambda it: it.__imul__(2)),
    (ReadOnlyList([2, 1]), lambda it: it.__init__([3])),
    (ReadOnlyDict(a=1), lambda it: operator.setitem(it, "b", 2)),
    (ReadOnlyDict(a=1), lambda it: operator.delitem(it, "a")),
    (ReadOnlyDict(a=1), lambda it: it.__ior__({"b": 2})),
    (ReadOnlyDict(a=1), lambda it: it.update(b=2)),
    (ReadOnlyDict(a=1), lambda it: it.setdefault("b", 2)),
    (ReadOnlyDict(a=1), lambda it: it.pop("a")),
    (ReadOnlyDict(a=1), lambda it: it.popitem()),
    (ReadOnlyDict(a=1), lambda it: it.clear()),
    (ReadOnlyDict(a=1), lambda it: it.__init__(b=2)),
    (ReadOnlySet({1}), lambda it: it.add(2)),
    (ReadOnlySet({1}), lambda it: it.discard(1)),
    (ReadOnlySet({1}), lambda it: it.remove(1)),
    (ReadOnlySet({1}), lambda it: it.pop()),
    (ReadOnlySet({1}), lambda it: it.clear()),
    (ReadOnlySet({1}), lambda it: it.update({2})),
    (ReadOnlySet({1}), lambda it: it.intersection_update({2})),
    (ReadOnlySet({1}), lambda it: it.difference_update({1})),
    (ReadOnlySet({1}), lambda it: it.symmetric_difference_update({2})),
    (ReadOnlySet({1}), lambda it: it.__ior__({2})),
    (ReadOnlySet({1}), lambda it: it.__iand__({2})),
    (ReadOnlySet({1}), lambda it: it.__isub__({1})),
    (ReadOnlySet({1}), lambda it: it.__ixor__({2})),
    (ReadOnlySet({1}), lambda it: it.__init__({3})),
]


@pytest.mark.parametrize(("container", "change"), CHANGES)
def test_every_change_is_refused_with_the_remedy(
    container: Any, change: Callable[[Any], Any]
) -> None:
    """A change raises a TypeError that says what to do, and the container stays as it was."""
    before = copy.deepcopy(container)
    with pytest.raises(ReadOnlyError, match="write through the scope") as caught:
        change(container)

    assert isinstance(caught.value, TypeError)
    assert container == before


def test_no_mutator_of_the_base_is_forgotten() -> None:
    """Whatever method of list, dict and set is not known to be harmless is refused."""
    harmless = {
        *("index", "count", "copy", "keys", "values", "items", "get", "fromkeys", "difference"),
        *("intersection", "union", "isdisjoint", "issubset", "issuperset", "symmetric_difference"),
    }
    for cls, refused in MUTATORS.items():
        public = {name for name in dir(cls.__mro__[1]) if not name.startswith("_")}
        in_place = {name for name in dir(cls.__mro__[1]) if name.startswith("__i")}
        in_place -= {"__init_subclass__", "__iter__"}
        assert public - harmless <= set(refused)
        assert in_place <= set(refused)


def test_copies_are_plain_and_mutable() -> None:
    """A copy is the remedy that the error names, so it can be changed, all the way down."""
    inner: Any = ReadOnlyList([ReadOnlyDict(a=ReadOnlySet({1}))])
    deep = copy.deepcopy(inner)
    deep[0]["a"].add(2)
    deep.append({})

    assert deep == [{"a": {1, 2}}, {}]
    assert [type(part) for part in (deep, deep[0], deep[0]["a"])] == [list, dict, set]
    for value, plain in ((inner, list), (inner[0], dict), (inner[0]["a"], set)):
        assert type(copy.copy(value)) is plain
        assert type(value.copy()) is plain


@pytest.mark.parametrize(
    ("made", "plain"),
    [
        (operator.add(ReadOnlyList([1]), [2]), [1, 2]),
        (operator.add([0], ReadOnlyList([1])), [0, 1]),
        (ReadOnlyList([1]) * 2, [1, 1]),
        (ReadOnlyList([1, 2])[1:], [2]),
        (ReadOnlyDict(a=1) | {"b": 2}, {"a": 1, "b": 2}),
        ({"b": 2} | ReadOnlyDict(a=1), {"b": 2, "a": 1}),
        (ReadOnlyDict.fromkeys(["a"]), {"a": None}),
        (ReadOnlySet({1}) | {2}, {1, 2}),
        (ReadOnlySet({1}) & {1}, {1}),
        ({1} ^ ReadOnlySet({2}), {1, 2}),
        (ReadOnlySet({1}).union({3}), {1, 3}),
    ],
)
def test_operators_give_plain_containers(made: Any, plain: Any) -> None:
    """What an operator makes is new, plain and equal to what it makes of plain operands."""
    assert type(made) is type(plain)
    assert made == plain


class Basket(BaseModel):
    numbers: list[int]
    prices: dict[str, int]
    tags: set[str]


@dataclasses.dataclass
class Crate:
    numbers: list[int]
    prices: dict[str, int]


def test_libraries_take_them() -> None:
    """json, msgpack, pydantic (strict too) and dataclasses.asdict read them as plain containers."""
    numbers, prices, tags = ReadOnlyList([1]), ReadOnlyDict(a=1), ReadOnlySet({"x"})
    basket = Basket(numbers=numbers, prices=prices, tags=tags)

    assert json.dumps([numbers, prices]) == '[[1], {"a": 1}]'
    assert msgpack.packb([numbers, prices]) == msgpack.packb([[1], {"a": 1}])
    assert [type(part) for part in vars(basket).values()] == [list, dict, set]
    assert TypeAdapter(list[int]).validate_python(numbers, strict=True) == [1]
    assert TypeAdapter(dict[str, int]).validate_python(prices, strict=True) == {"a": 1}
    assert dataclasses.asdict(Crate(numbers, prices)) == {"numbers": [1], "prices": {"a": 1}}
    assert (numbers, prices, tags) == ([1], {"a": 1}, {"x"})
    match prices:
        case {"a": found}:
            assert found == 1


def test_another_process_gets_plain_containers() -> None:
    """What a process pool would send is how to make the plain container."""
    for value in (ReadOnlyList([1]), ReadOnlyDict(a=1), ReadOnlySet({1})):
        make, arguments = value.__reduce_ex__(4)[:2]
        assert make(*arguments) == value
        assert type(make(*arguments)) is make


def test_order_of_a_sealed_dict() -> None:
    """Sealing keeps the order of the entries."""
    assert list(sealed_dict({"b": 1, "a": 2}).items()) == [("b", 1), ("a", 2)]
