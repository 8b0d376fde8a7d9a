"""How the writes of one step become operations on the state; pure.

Rules of this file:
- Writes are folded key by key, in the order of the step: node order, message number, order of calls.
- The unit of conflict is the invocation: two invocations that write one key conflict, unless the
  key has a reducer and both contribute.  Deleting is no contribution.
- What changes nothing (equal bytes) makes no operation.
- The result costs the change: a grown list is its new items, a changed map its changed keys.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from raf.errors import RafError, ReducerError, StateConflictError, StateValueError
from raf.state.cell import Cell
from raf.state.ops import Delete, Extend, Set, State, StateOp, Update, Write, apply_to_cell
from raf.state.reducers import Reducer
from raf.state.scope import ScopeKey
from raf.values.codec import array_header, decode, encode, map_header
from raf.values.registry import TypeTable


class Grown:
    """A key with writes on top: the operations they make, and the cell behind them.

    Each write costs its change: `base` is copied once, when it first grows.
    """

    __slots__ = ("_is_copy", "cell", "ops")

    def __init__(self, base: Cell | None) -> None:
        self.ops: list[StateOp] = []
        self.cell = base
        self._is_copy = False

    def add(self, write: Write, reducer: Reducer | None, types: TypeTable) -> None:
        """Take one more write.

        Raises:
            StateValueError: append, extend or update on a value of another kind.
            ReducerError: The key's reducer raised.
        """
        match write.kind:
            case "set":
                self._replace(Set(write.scope, write.key, write.value))
            case "delete":
                self._replace(Delete(write.scope, write.key))
            case "extend":
                self._append(_extend(self.cell, write))
            case "update":
                self._append(_update(self.cell, write))
            case "add":
                self._replace(_contribute(self.cell, write, reducer, types))

    def _replace(self, op: StateOp) -> None:
        self.ops.clear()
        self._append(op)

    def _append(self, op: StateOp) -> None:
        self.ops.append(op)
        match op:
            case Set(value=value):
                self.cell, self._is_copy = Cell(value), True
            case Delete():
                self.cell = None
            case Extend(items=items):
                self._copied().extend(items)
            case Update(pairs=pairs):
                self._copied().update(pairs)

    def _copied(self) -> Cell:
        cell = self.cell
        assert cell is not None  # noqa: S101 - only what is there can grow
        if not self._is_copy:
            cell, self._is_copy = cell.copy(), True
            self.cell = cell
        return cell


def own_ops(
    base: Cell | None, writes: Sequence[Write], reducer: Reducer | None, types: TypeTable
) -> list[StateOp]:
    """The operations of writes on one key, in order, on top of `base`.

    Raises:
        StateValueError, ReducerError: As `Grown.add`.
    """
    grown = Grown(base)
    for write in writes:
        grown.add(write, reducer, types)
    return grown.ops


def _extend(current: Cell | None, write: Write) -> StateOp:
    if current is None:
        whole = array_header(len(write.items)) + b"".join(write.items)
        return Set(write.scope, write.key, whole)
    if not current.is_list:
        raise StateValueError(write.scope, write.key, "it holds no list to append to")
    return Extend(write.scope, write.key, write.items)


def _update(current: Cell | None, write: Write) -> StateOp:
    if current is None:
        pairs = dict(write.pairs)
        flat = b"".join(part for pair in pairs.items() for part in pair)
        return Set(write.scope, write.key, map_header(len(pairs)) + flat)
    if not current.is_map:
        raise StateValueError(write.scope, write.key, "it holds no dict to update")
    return Update(write.scope, write.key, write.pairs)


def _contribute(
    current: Cell | None, write: Write, reducer: Reducer | None, types: TypeTable
) -> StateOp:
    if current is None or reducer is None or reducer.name == "last":
        return Set(write.scope, write.key, write.value)
    try:
        new: Any = reducer.combine(decode(current.encoded(), types), decode(write.value, types))
        encoded = encode(new, types, where=f"{write.scope}[{write.key!r}]")
    except RafError as error:
        raise ReducerError(reducer.name, write.scope, write.key, str(error)) from error
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ReducerError(reducer.name, write.scope, write.key, why) from error
    return Set(write.scope, write.key, encoded)


def _changed(base: Cell | None, ops: list[StateOp]) -> list[StateOp]:
    """The same change in the fewest operations; nothing when the bytes stay equal."""
    if not ops:
        return []
    first = ops[0]
    if all(isinstance(op, Extend) for op in ops):
        items = tuple(item for op in ops if isinstance(op, Extend) for item in op.items)
        return [Extend(first.scope, first.key, items)] if items else []
    if all(isinstance(op, Update) for op in ops):
        known = {} if base is None else base.pairs()
        pairs = dict(pair for op in ops if isinstance(op, Update) for pair in op.pairs)
        new = tuple((key, value) for key, value in pairs.items() if known.get(key) != value)
        return [Update(first.scope, first.key, new)] if new else []
    result = apply_to_cell(base, ops)
    if result is None:
        return [] if base is None else [Delete(first.scope, first.key)]
    encoded = result.encoded()
    if base is not None and base.encoded() == encoded:
        return []
    return [Set(first.scope, first.key, encoded)]


def fold_writes(
    state: State,
    written: Iterable[tuple[str, Sequence[Write]]],
    reducer_of: Any,
    types: TypeTable,
) -> list[StateOp]:
    """The operations that a step's writes make, in order of the first write of each key.

    Args:
        state: The state at the step's start.
        written: For each invocation, in the order of the step: how errors name it, its writes.
        reducer_of: `(scope, key) -> Reducer | None`.
        types: How values are decoded for reducers.

    Raises:
        StateConflictError: Two invocations wrote a key that no reducer folds.
        StateValueError, ReducerError: A write does not fit what another invocation made of the key.
    """
    places: dict[tuple[str, str], list[tuple[str, Write]]] = {}
    for name, writes in written:
        for write in writes:
            places.setdefault((write.scope, write.key), []).append((name, write))
    ops: list[StateOp] = []
    for (scope, key), named in places.items():
        reducer: Reducer | None = reducer_of(scope, key)
        _refuse_conflict(scope, key, named, reducer)
        base = state.cell(scope, key)
        ops += _changed(base, own_ops(base, [write for _, write in named], reducer, types))
    return ops


def _refuse_conflict(
    scope: str, key: str, named: Sequence[tuple[str, Write]], reducer: Reducer | None
) -> None:
    first = named[0][0]
    other = next((name for name, _ in named if name != first), None)
    if other is None:
        return
    if reducer is None or any(write.kind == "delete" for _, write in named):
        shown = ScopeKey.parse(scope)
        where = f"scope({shown.scope_name!r})" if shown.is_shared else f"state of {shown.node_id!r}"
        raise StateConflictError(where, key, first, other)
