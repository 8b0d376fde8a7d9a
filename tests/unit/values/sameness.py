"""What "exactly the same value" means in these tests: types, order, bits, all the way down."""

import dataclasses
import struct
from collections.abc import Callable
from datetime import datetime, time, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic import BaseModel


def traits(value: Any) -> Any:
    """A value's exact identity, as something that `==` compares without mercy."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, _PLAIN[kind](value)
    if isinstance(value, BaseModel):
        fields = {name: vars(value)[name] for name in kind.__pydantic_fields__}
        return kind, traits(fields), *map(traits, _hidden(value))
    if dataclasses.is_dataclass(value):
        held = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return kind, traits(held)
    return kind, traits(tuple(value)) if isinstance(value, tuple) else value


def _ranked(items: Any) -> Any:
    return [traits(item) for item in items]


def _unranked(items: Any) -> Any:
    return sorted(_ranked(items), key=repr)


def _clock(value: Any) -> Any:
    return value.replace(tzinfo=None), value.fold, zone(value.tzinfo)


_PLAIN: dict[type, Callable[[Any], Any]] = {
    float: lambda value: struct.pack(">d", value),
    list: _ranked,
    tuple: _ranked,
    set: _unranked,
    frozenset: _unranked,
    dict: lambda value: _ranked(value.items()),
    Decimal: str,
    UUID: lambda value: (value.bytes, value.is_safe),
    datetime: _clock,
    time: _clock,
}


def _hidden(model: BaseModel) -> tuple[Any, ...]:
    return (model.__pydantic_extra__, model.__pydantic_fields_set__, model.__pydantic_private__)


def zone(tzinfo: Any) -> Any:
    """A zone's class and what makes it that zone."""
    if type(tzinfo) is timezone:
        return timezone, tzinfo.__getinitargs__()  # type: ignore[attr-defined]
    offset = tzinfo and tzinfo.utcoffset(None)  # pydantic's class for fixed offsets
    return type(tzinfo), getattr(tzinfo, "key", None), offset
