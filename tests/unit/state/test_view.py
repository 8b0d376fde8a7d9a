"""What one invocation sees: the step's start and its own writes, read-only, typed."""

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from raf.errors import (
    NotSerializableError,
    PayloadTypeError,
    ReadOnlyError,
    StateValueError,
    UnsavedChangeError,
)
from raf.state.ops import Set, State
from raf.state.reducers import Reducer
from raf.state.view import Rules, StateAccess, StateView
from raf.values.annotation import Shape
from raf.values.codec import encode
from raf.values.registry import TypeTable


class Point(BaseModel):
    x: int
    tags: list[str] = []


@dataclass(frozen=True, kw_only=True)
class Declared:
    shape: Shape
    reducer: Reducer | None = None


SHAPES = {
    ("s", "point"): Declared(shape=Shape.of(Point)),
    ("s", "age"): Declared(shape=Shape.of(int)),
    ("s", "sum"): Declared(shape=Shape.of(int), reducer=Reducer("sum")),
    ("s", "list"): Declared(shape=Shape.of(list[int]), reducer=Reducer("append")),
    ("s", "map"): Declared(shape=Shape.of(dict[str, int]), reducer=Reducer("merge")),
    (None, "own"): Declared(shape=Shape.of(str)),
}
TYPES = TypeTable.of(Point)


def access(**shared: Any) -> StateAccess:
    """A node's view of shared scope `s` that holds these values."""
    state = State()
    for key, value in shared.items():
        state.apply(Set("::s", key, encode(value, TYPES)))
    return StateAccess(state, Rules(SHAPES, TYPES), "node")


def test_a_node_reads_its_own_writes_over_the_start_of_the_step() -> None:
    """Set, grow, change, delete: reads, `in`, `len` and iteration all agree with what was written."""
    scope = access(a=1, gone=2, items=[1], table={"x": 1}).mutable_scope("s")
    scope["a"] = 10
    del scope["gone"]
    scope.append("items", 2)
    scope.extend("items", [3, 4])
    scope.update("table", {"y": 2})
    scope["new"] = None
    assert scope.as_dict() == {
        "a": 10,
        "items": [1, 2, 3, 4],
        "table": {"x": 1, "y": 2},
        "new": None,
    }
    assert (list(scope), len(scope)) == (["a", "items", "new", "table"], 4)
    assert "gone" not in scope
    assert scope.get("gone", "default") == "default"
    with pytest.raises(KeyError):
        scope["gone"]
    with pytest.raises(KeyError):
        del scope["gone"]


def test_scopes_are_apart_and_a_shared_one_is_one() -> None:
    """A private key, a shared key of the same name, and another shared scope do not meet."""
    view = access(k="shared")
    view.mutable_own["k"] = "own"
    assert view.mutable_scope("s")["k"] == "shared"
    view.mutable_scope("s")["k"] = "new"
    assert (view.mutable_own["k"], view.scope("s")["k"]) == ("own", "new")
    assert "k" not in view.mutable_scope("other")


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["items"].append(1),
        lambda s: s["items"].sort(),
        lambda s: s["items"].__setitem__(0, 1),
        lambda s: s["items"].__iadd__([1]),
        lambda s: s["table"].update(a=1),
        lambda s: s["table"].pop("x"),
        lambda s: s["table"].setdefault("z", 1),
        lambda s: s["table"]["deep"].append(1),
        lambda s: s["set"].add(1),
    ],
)
def test_what_state_hands_out_is_read_only(change: Any) -> None:
    """A change in place is refused with the remedy, to any depth, and nothing is written."""
    view = access(items=[2, 1], table={"x": 1, "deep": []}, set={1, 2})
    scope = view.mutable_scope("s")
    with pytest.raises(ReadOnlyError, match="append, extend"):
        change(scope)
    assert scope.as_dict() == {"items": [2, 1], "table": {"x": 1, "deep": []}, "set": {1, 2}}
    assert view.writes == []
    view.check_unsaved()


def test_a_copy_of_a_read_only_value_can_be_changed_and_assigned() -> None:
    """The copy is plain; assigning it is a write."""
    view = access(items=[2, 1])
    scope = view.mutable_scope("s")
    mine = list(scope["items"])
    mine.sort()
    scope["items"] = mine
    assert scope["items"] == [1, 2]
    with pytest.raises(ReadOnlyError):
        scope["items"].append(3)


def test_a_read_only_value_may_be_written_as_it_is() -> None:
    """What came from state goes back into state, and into another key."""
    scope = access(items=[[1], {"a": 2}]).mutable_scope("s")
    scope["copy"] = scope["items"]
    scope["part"] = scope["items"][0]
    assert (scope["copy"], scope["part"]) == ([[1], {"a": 2}], [1])


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("age", "abc", PayloadTypeError),
        ("age", 1.5, PayloadTypeError),
        ("point", {"x": "no"}, PayloadTypeError),
        ("free", object(), NotSerializableError),
        ("free", [print], NotSerializableError),
        ("", 1, StateValueError),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_set(
    key: str, value: Any, error: type[Exception]
) -> None:
    """The node learns it at once, with the key; the write is not taken."""
    view = access()
    with pytest.raises(error):
        view.mutable_scope("s")[key] = value
    assert view.writes == []


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.extend("k", "text"),
        lambda s: s.extend("k", 5),
        lambda s: s.extend("k", {"a": 1}),
        lambda s: s.update("k", [1]),
        lambda s: s.append("a", 1),
        lambda s: s.update("a", {"x": 1}),
        lambda s: s.append("", 1),
    ],
)
def test_growing_what_cannot_grow_is_refused(call: Any) -> None:
    """The wrong kind of growth is the node's error; the key keeps what it held."""
    view = access(a=1)
    with pytest.raises(StateValueError):
        call(view.mutable_scope("s"))
    assert view.writes == []
    assert view.mutable_scope("s").as_dict() == {"a": 1}


def test_an_assignment_to_a_key_with_a_reducer_contributes() -> None:
    """Sum adds, append adds an item, merge changes keys; the node sees the fold so far."""
    scope = access(sum=5, list=[1], map={"a": 1}).mutable_scope("s")
    scope["sum"] = 2
    scope["sum"] = 3
    scope["list"] = 2
    scope["map"] = {"b": 2}
    assert scope.as_dict() == {"sum": 10, "list": [1, 2], "map": {"a": 1, "b": 2}}


def test_a_view_for_conditions_only_reads() -> None:
    """It shows the state behind pending operations, and has nothing to write with."""
    state = State()
    state.apply(Set("::s", "k", encode(1, TYPES)))
    view = StateView(state, Rules({}, TYPES), "node", [Set("node", "own", encode("mine", TYPES))])
    assert (view["own"], view.scope("s")["k"], view.get("x", 0)) == ("mine", 1, 0)
    assert "own" in view
    assert "own" not in view.at("other")
    with pytest.raises(TypeError):
        view.scope("s")["k"] = 2  # type: ignore[index]
    with pytest.raises(KeyError):
        view["nothing"]


def test_ten_thousand_writes_of_one_node_cost_their_size() -> None:
    """Item by item into one list: reading and writing in turn stays a matter of the items."""
    scope = access().mutable_scope("s")
    for number in range(10_000):
        scope.append("items", number)
    assert len(scope["items"]) == 10_000
    assert scope["items"][-1] == 9_999


def test_a_model_comes_as_a_fresh_copy_and_must_be_assigned() -> None:
    """Changed in place and not assigned it is an error that names the key; assigned it is a write."""
    view = access(point=Point(x=1, tags=["a"]))
    scope = view.mutable_scope("s")
    first, second = scope["point"], scope["point"]
    assert first == second
    assert first is not second
    view.check_unsaved()
    first.tags.append("b")
    with pytest.raises(UnsavedChangeError, match=r"scope\('s'\)\['point'\]"):
        view.check_unsaved()
    scope["point"] = first
    view.check_unsaved()
    assert scope["point"] == Point(x=1, tags=["a", "b"])


@pytest.mark.parametrize("deep", [False, True])
def test_a_model_inside_a_container_is_watched_too(deep: bool) -> None:
    """A model that was read as part of a list is found when it was changed."""
    view = access(points=[[Point(x=1)]] if deep else [Point(x=1)])
    found = view.mutable_scope("s")["points"][0]
    (found[0] if deep else found).x = 2
    with pytest.raises(UnsavedChangeError, match="points"):
        view.check_unsaved()


def test_a_change_that_was_taken_back_is_none() -> None:
    """What counts is whether the bytes differ at the end."""
    view = access(point=Point(x=1))
    point = view.mutable_scope("s")["point"]
    point.x = 2
    point.x = 1
    view.check_unsaved()
