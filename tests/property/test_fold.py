"""The fold of a step's writes over random steps, against the plainest way to do the same."""

from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raf.errors import StateConflictError
from raf.state.fold import fold_writes
from raf.state.ops import Delete, Extend, Set, State, StateOp, Update, Write
from raf.state.reducers import Reducer
from raf.values.codec import decode, encode
from raf.values.registry import TypeTable

TYPES: Final = TypeTable()
SCOPE: Final = "::board"
SMALL: Final = st.integers(0, 3)


def mixed(current: int, contribution: int) -> int:
    """A reducer that depends on the order."""
    return current * 7 + contribution


# key: its reducer, what it holds, how it may be written besides being deleted
KEYS: Final[dict[str, tuple[Reducer | None, str, tuple[str, ...]]]] = {
    "plain": (None, "item", ("set",)),
    "rows": (None, "list", ("set", "extend")),
    "table": (None, "map", ("set", "update")),
    "log": (Reducer("append"), "list", ("extend",)),
    "total": (Reducer("sum"), "item", ("add",)),
    "last": (Reducer("last"), "item", ("add",)),
    "merged": (Reducer("merge"), "map", ("update",)),
    "mixed": (Reducer("mixed", mixed), "item", ("add",)),
}
Step = list[tuple[str, list[Write]]]


def enc(value: Any) -> bytes:
    """An encoded value."""
    return encode(value, TYPES)


def reducer_of(_scope: str, key: str) -> Reducer | None:
    """The reducer of a key."""
    return KEYS[key][0]


def values(shape: str) -> st.SearchStrategy[Any]:
    """Values of a shape."""
    maps = st.dictionaries(st.sampled_from("xyz"), SMALL, max_size=3)
    return {"item": SMALL, "list": st.lists(SMALL, max_size=3), "map": maps}[shape]


@st.composite
def writes(draw: st.DrawFn) -> Write:
    """A write that any state of its key takes."""
    key = draw(st.sampled_from(sorted(KEYS)))
    _, shape, ways = KEYS[key]
    way = draw(st.sampled_from([*ways, *ways, "delete"]))
    value = draw(values(shape))
    match way:
        case "delete":
            return Write(SCOPE, key, "delete")
        case "extend":
            return Write(SCOPE, key, "extend", items=tuple(map(enc, value)))
        case "update":
            pairs = tuple((enc(name), enc(item)) for name, item in value.items())
            return Write(SCOPE, key, "update", pairs=pairs)
        case "add":
            return Write(SCOPE, key, "add", value=enc(value))
    return Write(SCOPE, key, "set", value=enc(value))


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """What some invocations wrote, in the order of the step."""
    written = draw(st.lists(st.lists(writes(), max_size=4), max_size=4))
    return [(f"invocation {place}", made) for place, made in enumerate(written)]


@st.composite
def states(draw: st.DrawFn) -> State:
    """A state that holds some of the keys."""
    state = State()
    for key, (_, shape, _) in KEYS.items():
        if draw(st.booleans()):
            state.apply(Set(SCOPE, key, enc(draw(values(shape)))))
    return state


def told(state: State) -> dict[str, Any]:
    """What a state holds, maps with their order."""
    held = {op.key: decode(op.value, TYPES) for op in state.as_ops()}
    return {k: list(v.items()) if isinstance(v, dict) else v for k, v in held.items()}


def plainly(state: State, step: Step) -> dict[str, Any]:
    """The same by hand: one write after the other, on Python values."""
    held: dict[str, Any] = {op.key: decode(op.value, TYPES) for op in state.as_ops()}
    for _, made in step:
        for write in made:
            _write(held, write)
    return {k: list(v.items()) if isinstance(v, dict) else v for k, v in held.items()}


def _write(held: dict[str, Any], write: Write) -> None:
    key, old = write.key, held.get(write.key)
    new: Any = decode(write.value, TYPES) if write.value else None
    match write.kind:
        case "delete":
            held.pop(key, None)
        case "extend":
            held[key] = [*(old or []), *(decode(item, TYPES) for item in write.items)]
        case "update":
            pairs = {decode(k, TYPES): decode(v, TYPES) for k, v in write.pairs}
            held[key] = {**(old or {}), **pairs}
        case "add" if old is not None and key in ("total", "mixed"):
            held[key] = old + new if key == "total" else mixed(old, new)
        case _:
            held[key] = new


def conflicts(step: Step) -> list[str]:
    """Keys that two invocations wrote and that no reducer folds, in the order of first writes."""
    found = []
    for key in dict.fromkeys(write.key for _, made in step for write in made):
        mine = [(name, w.kind) for name, made in step for w in made if w.key == key]
        folds = KEYS[key][0] is not None and all(kind != "delete" for _, kind in mine)
        if len({name for name, _ in mine}) > 1 and not folds:
            found.append(key)
    return found


def folded(state: State, step: Step) -> list[StateOp]:
    """The operations of a step."""
    return fold_writes(state, step, reducer_of, TYPES)


def applied(state: State, ops: Sequence[StateOp]) -> State:
    """Another state: this one behind the operations."""
    after = State()
    for op in [*state.as_ops(), *ops]:
        after.apply(op)
    return after


@given(states(), steps())
def test_a_fold_is_one_write_after_the_other_or_a_conflict(state: State, step: Step) -> None:
    """Two that write one key conflict unless a reducer folds them; else all is done in order."""
    before = told(state)
    if keys := conflicts(step):
        with pytest.raises(StateConflictError) as caught:
            folded(state, step)
        assert caught.value.key == keys[0]
        assert len({caught.value.first, caught.value.second}) == 2
    else:
        assert told(applied(state, folded(state, step))) == plainly(state, step)
    assert told(state) == before


@given(states(), steps())
def test_a_fold_has_the_fewest_operations(state: State, step: Step) -> None:
    """One operation a key, in the order of first writes; none for what ended as it was."""
    if conflicts(step):
        return
    ops = folded(state, step)
    order = list(dict.fromkeys(write.key for _, made in step for write in made))
    keys = [op.key for op in ops]
    assert keys == [key for key in order if key in keys]
    after = told(applied(state, ops))
    for op in ops:
        if isinstance(op, Set | Delete | Extend):
            assert after.get(op.key) != told(state).get(op.key)


@pytest.mark.slow
@given(states(), steps())
def test_growing_costs_the_growth(state: State, step: Step) -> None:
    """A list that only grew is told by its new items, a map by the keys that were written."""
    if conflicts(step):
        return
    for op in folded(state, step):
        mine = [write for _, made in step for write in made if write.key == op.key]
        if state.cell(SCOPE, op.key) is not None and {w.kind for w in mine} == {"extend"}:
            assert isinstance(op, Extend)
            assert op.items == tuple(item for write in mine for item in write.items)
        if state.cell(SCOPE, op.key) is not None and {w.kind for w in mine} == {"update"}:
            assert isinstance(op, Update)
            assert dict(op.pairs) == dict(pair for write in mine for pair in write.pairs)


@given(states(), steps(), st.integers(0, 20))
def test_who_contributes_does_not_matter_only_the_order(state: State, step: Step, cut: int) -> None:
    """The same contributions in the same order, made by others or in two steps, give the same."""
    made = [w for _, ws in step for w in ws if KEYS[w.key][0] and w.kind != "delete"]
    at_once = applied(state, folded(state, [("one", made)]))
    each = applied(state, folded(state, [(str(n), [write]) for n, write in enumerate(made)]))
    cut = cut % (len(made) + 1)
    half = applied(state, folded(state, [("one", made[:cut])]))
    in_two = applied(half, folded(half, [("other", made[cut:])]))
    assert told(at_once) == told(each) == told(in_two)
