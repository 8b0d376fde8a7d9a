"""From the writes of a step to operations: order, conflicts, reducers, and the fewest bytes."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raf.errors import ReducerError, StateConflictError, StateValueError
from raf.state.fold import fold_writes
from raf.state.ops import Delete, Extend, Set, State, StateOp, Update, Write
from raf.state.reducers import Reducer
from raf.values.codec import decode, encode
from raf.values.registry import TypeTable

TYPES = TypeTable()


def enc(value: Any) -> bytes:
    return encode(value, TYPES)


def put(value: Any, key: str = "k") -> Write:
    return Write("::s", key, "set", value=enc(value))


def drop(key: str = "k") -> Write:
    return Write("::s", key, "delete")


def more(*items: Any, key: str = "k") -> Write:
    return Write("::s", key, "extend", items=tuple(map(enc, items)))


def change(key: str = "k", **pairs: Any) -> Write:
    return Write("::s", key, "update", pairs=tuple((enc(n), enc(v)) for n, v in pairs.items()))


def add(value: Any, key: str = "k") -> Write:
    return Write("::s", key, "add", value=enc(value))


def state_of(**values: Any) -> State:
    state = State()
    for key, value in values.items():
        state.apply(Set("::s", key, enc(value)))
    return state


def fold(
    state: State, *invocations: Sequence[Write], reducer: Reducer | None = None
) -> list[StateOp]:
    named = [(f"node {number}", writes) for number, writes in enumerate(invocations)]
    return fold_writes(state, named, lambda scope, key: reducer, TYPES)


def after(state: State, ops: Sequence[StateOp]) -> Any:
    for op in ops:
        state.apply(op)
    cell = state.cell("::s", "k")
    return None if cell is None else decode(cell.encoded(), TYPES)


@pytest.mark.parametrize(
    ("before", "writes", "expected"),
    [
        ({}, [put(1)], [Set("::s", "k", enc(1))]),
        ({"k": 1}, [put(1)], []),
        ({"k": 1}, [put(2), put(1)], []),
        ({"k": {"a": 1}}, [change(a=1)], []),
        ({"k": {"a": 1}}, [change(a=2), change(a=1)], []),
        ({"k": {"a": 1}}, [change(a=1, b=2)], [Update("::s", "k", ((enc("b"), enc(2)),))]),
        ({"k": {"a": 1}}, [change(a=True)], [Update("::s", "k", ((enc("a"), enc(True)),))]),
        ({"k": 1}, [put(True)], [Set("::s", "k", enc(True))]),
        ({"k": 1}, [put(1.0)], [Set("::s", "k", enc(1.0))]),
        ({"k": 0.0}, [put(-0.0)], [Set("::s", "k", enc(-0.0))]),
        ({"k": float("nan")}, [put(float("nan"))], []),
        ({"k": 1}, [drop()], [Delete("::s", "k")]),
        ({}, [put(1), drop()], []),
        ({"k": 1}, [drop(), put(1)], []),
        ({"k": [1]}, [more(2), more(3)], [Extend("::s", "k", (enc(2), enc(3)))]),
        ({"k": [1]}, [more()], []),
        ({}, [more(1)], [Set("::s", "k", enc([1]))]),
        ({}, [more()], [Set("::s", "k", enc([]))]),
        ({"k": [1]}, [put([5]), more(6)], [Set("::s", "k", enc([5, 6]))]),
        ({"k": [1]}, [drop(), more(6)], [Set("::s", "k", enc([6]))]),
        ({"k": {"a": 1}}, [change(b=2)], [Update("::s", "k", ((enc("b"), enc(2)),))]),
        (
            {"k": {"a": 1}},
            [change(b=2), change(b=3)],
            [Update("::s", "k", ((enc("b"), enc(3)),))],
        ),
        ({}, [change(b=2)], [Set("::s", "k", enc({"b": 2}))]),
    ],
)
def test_one_invocation(
    before: dict[str, Any], writes: list[Write], expected: list[StateOp]
) -> None:
    """Writes of one node fold in order; what changes no byte makes no operation."""
    assert fold(state_of(**before), writes) == expected


@pytest.mark.parametrize(
    ("one", "two", "reducer"),
    [
        ([put(1)], [put(2)], None),
        ([put(1)], [put(1)], None),
        ([more(1)], [more(2)], None),
        ([drop()], [drop()], None),
        ([drop()], [put(1)], None),
        ([drop()], [add(1)], Reducer("sum")),
        ([more(1)], [drop()], Reducer("append")),
    ],
)
def test_two_invocations_that_write_one_key_conflict(
    one: list[Write], two: list[Write], reducer: Reducer | None
) -> None:
    """Without a reducer, and whenever one deletes: the error names both and the key."""
    with pytest.raises(StateConflictError) as conflict:
        fold(state_of(k=[0]), one, two, reducer=reducer)
    assert (conflict.value.first, conflict.value.second) == ("node 0", "node 1")
    assert "['k']" in str(conflict.value)
    assert "reducer" in str(conflict.value)


def test_other_keys_do_not_conflict() -> None:
    """The unit of conflict is the key, and one invocation may write it as often as it likes."""
    ops = fold(State(), [put(1, "a"), put(2, "a")], [put(3, "b")])
    assert ops == [Set("::s", "a", enc(2)), Set("::s", "b", enc(3))]


@pytest.mark.parametrize(
    ("reducer", "before", "contributions", "expected"),
    [
        (Reducer("last"), 0, [[add(1)], [add(2)]], 2),
        (Reducer("sum"), 10, [[add(1), add(1)], [add(5)]], 17),
        (Reducer("append"), [0], [[more(1)], [more(2)]], [0, 1, 2]),
        (Reducer("extend"), [0], [[more(1, 2)], [more(3)]], [0, 1, 2, 3]),
        (Reducer("merge"), {"a": 1}, [[change(b=2)], [change(a=3)]], {"a": 3, "b": 2}),
        (Reducer("most", max), 3, [[add(9)], [add(5)]], 9),
    ],
)
def test_a_reducer_folds_contributions_in_the_order_of_the_step(
    reducer: Reducer, before: Any, contributions: list[list[Write]], expected: Any
) -> None:
    """The order is that of the plan; the first contribution starts an absent key."""
    state = state_of(k=before)
    assert after(state, fold(state, *contributions, reducer=reducer)) == expected


def test_a_list_under_a_reducer_costs_its_new_items() -> None:
    """Appending by several nodes is one growth, however long the list is."""
    state = state_of(k=list(range(1000)))
    ops = fold(state, [more(1)], [more(2)], reducer=Reducer("append"))
    assert ops == [Extend("::s", "k", (enc(1), enc(2)))]


@pytest.mark.parametrize("value", [1, "text", {"a": 1}, (1, 2), {1}, None])
def test_only_a_list_grows(value: Any) -> None:
    """Append and extend on another kind of value are refused, naming the key."""
    with pytest.raises(StateValueError, match="no list"):
        fold(state_of(k=value), [more(1)])


@pytest.mark.parametrize("value", [1, "text", [1], None])
def test_only_a_map_is_updated(value: Any) -> None:
    """Update on another kind of value is refused."""
    with pytest.raises(StateValueError, match="no dict"):
        fold(state_of(k=value), [change(a=1)])


def test_a_reducer_that_fails_is_named() -> None:
    """What it raised, and what it returned that cannot be kept, is a `ReducerError`."""

    def broken(current: Any, new: Any) -> Any:
        raise ZeroDivisionError("by zero")

    def odd(current: Any, new: Any) -> Any:
        return object()

    for fold_by, text in ((broken, "by zero"), (odd, "cannot be stored")):
        with pytest.raises(ReducerError, match=text):
            fold(state_of(k=1), [add(2)], reducer=Reducer("mine", fold_by))


def test_ten_thousand_appends_of_one_node_are_one_growth() -> None:
    """A node may append item by item: it costs its items, not their square."""
    state = state_of(k=[])
    ops = fold(state, [more(number) for number in range(10_000)])
    assert len(ops) == 1
    assert after(state, ops) == list(range(10_000))


WRITES = st.one_of(
    st.integers(0, 3).map(put),
    st.just(drop()),
    st.lists(st.integers(0, 3), max_size=2).map(put),
    st.integers(0, 3).map(more),
    st.just(put({})),
    st.integers(0, 3).map(lambda n: change(a=n)),
)


@given(st.sampled_from([None, 1, [1], {"a": 0}]), st.lists(WRITES, max_size=6))
def test_folding_equals_doing(before: Any, writes: list[Write]) -> None:
    """The operations leave what the writes, done one after the other, leave."""
    state = State() if before is None else state_of(k=before)
    value: Any = before
    try:
        for write in writes:
            value = done(value, write)
    except TypeError:
        with pytest.raises(StateValueError):
            fold(state, writes)
        return
    assert after(state, fold(state, writes)) == value


def done(value: Any, write: Write) -> Any:
    """The same write on a Python value; TypeError where state refuses it."""
    if write.kind == "set":
        return decode(write.value, TYPES)
    if write.kind == "delete":
        return None
    if write.kind == "extend":
        if value is not None and not isinstance(value, list):
            raise TypeError
        return [*(value or []), *(decode(item, TYPES) for item in write.items)]
    if value is not None and not isinstance(value, dict):
        raise TypeError
    return {**(value or {}), **{decode(k, TYPES): decode(v, TYPES) for k, v in write.pairs}}
