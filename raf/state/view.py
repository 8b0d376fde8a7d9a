"""What a node sees of the state: its scopes, with its own writes on top.

Rules of this file:
- An invocation reads the state as of the step's start plus its own writes.
- A value is encoded when it is written, so what cannot be stored fails in the node, with its path;
  and what is read back is what a resumed run would read.
- Plain containers handed out are read-only.  Models are fresh copies; `check_unsaved` finds one
  that was changed in place and not assigned.
- Nothing here writes the state: `writes` is handed to the step's fold.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from raf.errors import ConfigurationError, StateValueError, UnsavedChangeError
from raf.state.cell import Cell
from raf.state.fold import Grown
from raf.state.ops import State, StateOp, Write, apply_to_cell
from raf.state.reducers import Reducer
from raf.state.scope import ScopeKey
from raf.values.annotation import Shape
from raf.values.codec import encode
from raf.values.registry import TypeTable


class Rule(Protocol):
    """What is declared of a key."""

    @property
    def shape(self) -> Shape:
        """The declared type."""

    @property
    def reducer(self) -> Reducer | None:
        """How contributions are folded; None: one writer a step."""


class Rules:
    """The declared keys; a rule without a scope holds in every node's own scope."""

    def __init__(self, rules: Mapping[tuple[str | None, str], Rule], types: TypeTable) -> None:
        self._private = {key: rule for (scope, key), rule in rules.items() if scope is None}
        self._shared = {
            (str(ScopeKey.shared("", scope)), key): rule
            for (scope, key), rule in rules.items()
            if scope is not None
        }
        self.types = types

    def get(self, scope: str, key: str) -> Rule | None:
        """The rule of a key; None when it is not declared."""
        if scope.startswith("::"):
            return self._shared.get((scope, key))
        return self._private.get(key)

    def reducer(self, scope: str, key: str) -> Reducer | None:
        """The reducer of a key, if it has one."""
        rule = self.get(scope, key)
        return None if rule is None else rule.reducer


class StateView:
    """The state with pending operations on top, for reading only.

    Conditions get one: `view["key"]` reads the source node's own scope and `view.scope("name")` a
    shared one.
    """

    def __init__(
        self, state: State, rules: Rules, node: str, pending: Iterable[StateOp] = ()
    ) -> None:
        self._state = state
        self._rules = rules
        self._own = str(ScopeKey.private(node))
        self._node = node
        self._pending: dict[tuple[str, str], list[StateOp]] = {}
        for op in pending:
            self._pending.setdefault((op.scope, op.key), []).append(op)
        self._cells: dict[tuple[str, str], Cell | None] = {}

    def at(self, node: str) -> "StateView":
        """The same view from another node's place."""
        twin = StateView(self._state, self._rules, node)
        twin._pending = self._pending
        return twin

    def cell(self, scope: str, key: str) -> Cell | None:
        """The cell behind the pending operations."""
        place = (scope, key)
        if place in self._cells:
            return self._cells[place]
        ops = self._pending.get(place)
        if ops is None:
            return self._state.cell(scope, key)
        cell = self._cells[place] = apply_to_cell(self._state.cell(scope, key), ops)
        return cell

    def keys_of(self, scope: str) -> list[str]:
        """The keys of a scope behind the pending operations, sorted."""
        names = set(self._state.keys(scope)) | {k for s, k in self._pending if s == scope}
        return sorted(key for key in names if self.cell(scope, key) is not None)

    def value(self, scope: str, key: str) -> Any:
        """The decoded value; `KeyError` when the key is absent."""
        cell = self.cell(scope, key)
        if cell is None:
            raise KeyError(key)
        return cell.read(self._rules.types)[0]

    def scope(self, name: str) -> "ReadScope":
        """A shared scope."""
        return ReadScope(self, str(ScopeKey.shared(self._node, name)))

    @property
    def own(self) -> "ReadScope":
        """The node's own scope."""
        return ReadScope(self, self._own)

    def __getitem__(self, key: str) -> Any:
        """The value of a key of the node's own scope."""
        return self.value(self._own, key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key of the node's own scope, or the default."""
        return self.own.get(key, default)

    def __contains__(self, key: object) -> bool:
        """Whether the node's own scope holds the key."""
        return key in self.own


class ReadScope:
    """One scope, for reading."""

    __slots__ = ("_scope", "_view")

    def __init__(self, view: StateView, scope: str) -> None:
        self._view = view
        self._scope = scope

    def __getitem__(self, key: str) -> Any:
        """The value of a key; `KeyError` when it is absent."""
        return self._view.value(self._scope, key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default when it is absent."""
        return self._view.value(self._scope, key) if key in self else default

    def __contains__(self, key: object) -> bool:
        """Whether the scope holds the key."""
        return isinstance(key, str) and self._view.cell(self._scope, key) is not None

    def __iter__(self) -> Iterator[str]:
        """The keys, sorted."""
        return iter(self._view.keys_of(self._scope))

    def __len__(self) -> int:
        """How many keys the scope holds."""
        return len(self._view.keys_of(self._scope))

    def as_dict(self) -> dict[str, Any]:
        """All keys with their values."""
        return {key: self[key] for key in self}


class StateAccess(StateView):
    """The view of one invocation: reads, and collects writes."""

    def __init__(self, state: State, rules: Rules, node: str) -> None:
        super().__init__(state, rules, node)
        self.writes: list[Write] = []
        self._grown: dict[tuple[str, str], Grown] = {}
        self._handed: list[tuple[str, str, bytes, Any, int]] = []
        self._closed = False

    def value(self, scope: str, key: str) -> Any:
        """The decoded value; a fresh copy of a model is remembered for `check_unsaved`."""
        cell = self.cell(scope, key)
        if cell is None:
            raise KeyError(key)
        value, fresh_copy = cell.read(self._rules.types)
        if fresh_copy:
            self._handed.append((scope, key, cell.encoded(), value, len(self.writes)))
        return value

    def write(self, write: Write) -> None:
        """Take a write: later reads of this invocation see it."""
        if self._closed:
            raise ConfigurationError(
                f"node {self._node!r} wrote state after it had ended: await what it starts"
            )
        place = (write.scope, write.key)
        grown = self._grown.get(place)
        if grown is None:
            grown = self._grown[place] = Grown(self._state.cell(*place))
        grown.add(write, self._rules.reducer(*place), self._rules.types)
        self.writes.append(write)
        self._pending[place], self._cells[place] = grown.ops, grown.cell

    def mutable_scope(self, name: str) -> "Scope":
        """A shared scope that can be written."""
        if type(name) is not str or not name:
            raise ConfigurationError(f"a scope's name is text, not {name!r:.80}")
        return Scope(self, str(ScopeKey.shared(self._node, name)))

    @property
    def mutable_own(self) -> "Scope":
        """The node's own scope, for writing too."""
        return Scope(self, self._own)

    def encode_for(self, scope: str, key: str, value: Any, *, whole: bool = True) -> bytes:
        """Encode a value of a key, checked against its declared type when it is the whole value."""
        where = f"{_shown(scope)}[{key!r}]"
        if whole and (rule := self._rules.get(scope, key)) is not None:
            value = rule.shape.fit(value, where)
        return encode(value, self._rules.types, where=where)

    def reducer(self, scope: str, key: str) -> Reducer | None:
        """The reducer of a key, if it has one."""
        return self._rules.reducer(scope, key)

    def close(self) -> None:
        """Take no more writes."""
        self._closed = True

    def check_unsaved(self) -> None:
        """Refuse models that were changed in place and not assigned.

        Raises:
            UnsavedChangeError: The key's bytes would be other than those that were read.
        """
        for scope, key, before, value, at in self._handed:
            later = (w.kind for w in self.writes[at:] if (w.scope, w.key) == (scope, key))
            if any(kind in ("set", "add", "delete") for kind in later):
                continue
            if encode(value, self._rules.types, where=f"{_shown(scope)}[{key!r}]") != before:
                raise UnsavedChangeError(self._node, _shown(scope), key)


def _shown(scope: str) -> str:
    key = ScopeKey.parse(scope)
    return f"scope({key.scope_name!r})" if key.is_shared else "state"


class Scope(ReadScope):
    """One scope, for reading and writing: a map of keys.

    A write is seen by this invocation at once, and by others in the next step.  On a key with a
    reducer an assignment is a contribution.

    Example:
        >>> async def editor(ctx, draft):
        ...     ctx.state["rounds"] = ctx.state.get("rounds", 0) + 1
        ...     ctx.scope("chat").append("messages", {"role": "editor", "text": draft})
    """

    __slots__ = ()

    _view: StateAccess

    def __init__(self, view: StateAccess, scope: str) -> None:
        super().__init__(view, scope)

    def _check_key(self, key: str) -> None:
        if not key or type(key) is not str:
            raise StateValueError(_shown(self._scope), str(key), "a key is text, not empty")

    def __setitem__(self, key: str, value: Any) -> None:
        """Set the key, or contribute to it when it has a reducer; costs the value."""
        self._check_key(key)
        reducer = self._view.reducer(self._scope, key)
        if reducer is None:
            encoded = self._view.encode_for(self._scope, key, value)
            self._view.write(Write(self._scope, key, "set", value=encoded))
        elif reducer.grows_list:
            items = [value] if reducer.name == "append" else self._items(key, value)
            self._extend(key, items)
        elif reducer.merges_map:
            self.update(key, value)
        else:
            whole = reducer.fold is None
            encoded = self._view.encode_for(self._scope, key, value, whole=whole)
            self._view.write(Write(self._scope, key, "add", value=encoded))

    def __delitem__(self, key: str) -> None:
        """Remove the key; `KeyError` when it is absent."""
        if key not in self:
            raise KeyError(key)
        self._view.write(Write(self._scope, key, "delete"))

    def append(self, key: str, item: Any) -> None:
        """Add one item to the list under the key (an absent key starts one); costs the item."""
        self._extend(key, [item])

    def extend(self, key: str, items: Iterable[Any]) -> None:
        """Add items to the list under the key; costs the items."""
        self._extend(key, self._items(key, items))

    def update(self, key: str, changes: Mapping[Any, Any]) -> None:
        """Set some keys of the dict under the key (an absent key starts one); costs the changes."""
        self._check_key(key)
        if not isinstance(changes, Mapping):
            raise StateValueError(_shown(self._scope), key, "update takes a mapping")
        pairs = tuple(
            (self._encode_part(key, name), self._encode_part(key, value))
            for name, value in changes.items()
        )
        self._view.write(Write(self._scope, key, "update", pairs=pairs))

    def _items(self, key: str, items: Any) -> list[Any]:
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            raise StateValueError(_shown(self._scope), key, "extend takes a list of items")
        return list(items)

    def _extend(self, key: str, items: list[Any]) -> None:
        self._check_key(key)
        encoded = tuple(self._encode_part(key, item) for item in items)
        self._view.write(Write(self._scope, key, "extend", items=encoded))

    def _encode_part(self, key: str, value: Any) -> bytes:
        return self._view.encode_for(self._scope, key, value, whole=False)
