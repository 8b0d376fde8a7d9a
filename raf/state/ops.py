"""State operations, and the state they act on; pure.

A write of a node (`Write`) is what it asked for; an operation (`StateOp`) is what a step makes of
all writes.  Operations are what deltas store; applying them is the only way the state changes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from raf.state.cell import Cell

Pair: TypeAlias = tuple[bytes, bytes]
WriteKind: TypeAlias = Literal["set", "delete", "extend", "update", "add"]


@dataclass(frozen=True, slots=True)
class Set:
    """The key holds this encoded value."""

    scope: str
    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """The key is gone; in a delta this is its tombstone."""

    scope: str
    key: str


@dataclass(frozen=True, slots=True)
class Extend:
    """The list under the key grew by these encoded items."""

    scope: str
    key: str
    items: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """These keys of the map under the key changed."""

    scope: str
    key: str
    pairs: tuple[Pair, ...]


StateOp: TypeAlias = Set | Delete | Extend | Update


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a node, in encoded form.

    `add` is an assignment to a key with a reducer: a contribution.
    """

    scope: str
    key: str
    kind: WriteKind
    value: bytes = b""
    items: tuple[bytes, ...] = ()
    pairs: tuple[Pair, ...] = ()


class State:
    """All scopes of a session: scope text -> key -> cell."""

    __slots__ = ("_scopes",)

    def __init__(self) -> None:
        self._scopes: dict[str, dict[str, Cell]] = {}

    def cell(self, scope: str, key: str) -> Cell | None:
        """The cell of a key, or None when the key is absent."""
        keys = self._scopes.get(scope)
        return None if keys is None else keys.get(key)

    def keys(self, scope: str) -> Iterator[str]:
        """The keys of a scope, sorted."""
        return iter(sorted(self._scopes.get(scope, ())))

    def scopes(self) -> Iterator[str]:
        """The scopes that hold at least one key, sorted."""
        return iter(sorted(scope for scope, keys in self._scopes.items() if keys))

    def apply(self, op: StateOp) -> None:
        """Change the state by one operation."""
        match op:
            case Set(scope, key, value):
                self._scopes.setdefault(scope, {})[key] = Cell(value)
            case Delete(scope, key):
                keys = self._scopes.get(scope, {})
                keys.pop(key, None)
                if not keys:
                    self._scopes.pop(scope, None)
            case Extend(scope, key, items):
                self._scopes[scope][key].extend(items)
            case Update(scope, key, pairs):
                self._scopes[scope][key].update(pairs)

    def as_ops(self) -> Iterator[Set]:
        """The whole state as operations on an empty one, in canonical order."""
        for scope in self.scopes():
            for key in self.keys(scope):
                yield Set(scope, key, self._scopes[scope][key].encoded())


def apply_to_cell(cell: Cell | None, ops: Iterable[StateOp]) -> Cell | None:
    """A copy of the cell behind operations on its key; the cell itself stays as it is."""
    result = None if cell is None else cell.copy()
    for op in ops:
        match op:
            case Set(value=value):
                result = Cell(value)
            case Delete():
                result = None
            case Extend(items=items) if result is not None:
                result.extend(items)
            case Update(pairs=pairs) if result is not None:
                result.update(pairs)
            case _:
                raise KeyError(op.key)
    return result
