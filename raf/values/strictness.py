"""What plain data must be like before it is built into a class that has no rules of its own.

Rules of this file
    1. Scalars keep their type: no "1" for an int, no 1 for a bool; an int for a float is allowed.
       Containers, dates, enums and the like may come as JSON brings them.
    2. A field that the class does not declare is refused: it would be lost.
    3. A pydantic model or dataclass is not asked: its author has set its rules.
"""

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from raf.errors import PayloadTypeError
from raf.values.hints import field_hints
from raf.values.typenodes import (
    Alias,
    Exactly,
    Items,
    Node,
    OneOf,
    Record,
    Row,
    Ruled,
    Table,
    read,
)
from raf.values.walk import step

_SCALARS = frozenset({int, float, bool, str, bytes, type(None)})
_ARRAYS = (list, tuple, set, frozenset)
_VALIDATORS = ("BeforeValidator", "PlainValidator", "WrapValidator")


def misfit(node: Node, value: Any, path: str) -> PayloadTypeError:
    """The error for a value that does not fit a node."""
    return PayloadTypeError(path, node.label, "None" if value is None else type(value).__qualname__)


def has_own_rules(node: Exactly) -> bool:
    """Whether the class is pydantic's, so that its author's rules decide."""
    return hasattr(node.cls, "__pydantic_validator__")


def comes_first(node: Ruled) -> bool:
    """Whether an author's validator sees the value before its type is asked."""
    return any(type(rule).__name__ in _VALIDATORS for rule in node.annotation.__metadata__)


@lru_cache(maxsize=256)
def _fields(cls: type) -> dict[str, Node]:
    """The nodes of what the class can be built of, by name."""
    hints = field_hints(cls)
    return {name: read(hints.get(name, Any)) for name in inspect.signature(cls).parameters}


def admit_fields(node: Exactly, value: Any, path: str) -> None:
    """Lets plain data for a dataclass or named tuple through to be built.

    Args:
        node: the class.
        value: a dict by field name, or a list or tuple in field order.
        path: the caller's name of the value.

    Raises:
        PayloadTypeError: a field is unknown, or a scalar in it is of a wrong type.
    """
    fields = _fields(node.cls)
    named = value.items() if isinstance(value, dict) else zip(fields, value, strict=False)
    for name, part in named:
        if name not in fields:
            raise PayloadTypeError(
                path + step(name), f"a field of {node.label}", "an unknown field"
            )
        _admit(fields[name], part, path + step(name))


def _admit(node: Node, value: Any, path: str) -> None:
    """Refuses scalars of a wrong type in plain data; the rest is pydantic's to say."""
    way = _WAYS.get(type(node))
    if way is not None:
        way(node, value, path)


def _exactly(node: Exactly, value: Any, path: str) -> None:
    if node.cls in _SCALARS:
        if not node.fits(value):
            raise misfit(node, value, path)
        return
    buildable = node.built and not has_own_rules(node) and not isinstance(value, node.cls)
    if buildable and isinstance(value, dict | list | tuple):
        admit_fields(node, value, path)


def _items(node: Items, value: Any, path: str) -> None:
    for at, item in enumerate(_expect(node, value, path, _ARRAYS)):
        _admit(node.item, item, f"{path}[{at}]")


def _row(node: Row, value: Any, path: str) -> None:
    array = _expect(node, value, path, _ARRAYS)
    for at, (one, item) in enumerate(zip(node.items, array, strict=False)):
        _admit(one, item, f"{path}[{at}]")


def _table(node: Table, value: Any, path: str) -> None:
    for key, item in _expect(node, value, path, (dict,)).items():
        _admit(node.value, item, path + step(key))


def _record(node: Record, value: Any, path: str) -> None:
    table = _expect(node, value, path, (dict,))
    for name, field in node.fields.items():
        if name in table:
            _admit(field, table[name], path + step(name))


def _one_of(node: OneOf, value: Any, path: str) -> None:
    for member in node.members:
        try:
            return _admit(member, value, path)
        except PayloadTypeError:
            continue
    raise misfit(node, value, path)


def _ruled(node: Ruled, value: Any, path: str) -> None:
    if not comes_first(node):
        _admit(node.node, value, path)


def _alias(node: Alias, value: Any, path: str) -> None:
    _admit(node.node, value, path)


_WAYS: dict[type[Node], Callable[[Any, Any, str], None]] = {
    Alias: _alias,
    Exactly: _exactly,
    Items: _items,
    OneOf: _one_of,
    Record: _record,
    Row: _row,
    Ruled: _ruled,
    Table: _table,
}


def _expect(node: Node, value: Any, path: str, kinds: tuple[type, ...]) -> Any:
    """The value, when it is plain data of one of the kinds."""
    if not isinstance(value, kinds):
        raise misfit(node, value, path)
    return value
