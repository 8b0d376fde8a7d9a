"""The annotations of a class's fields, resolved as far as they can be.

Rules of this file
    1. A string annotation is resolved by `typing.get_type_hints` in the module of the class that
       wrote it, never in a place that data could name.
    2. One annotation that cannot be resolved costs only itself: the others are still returned.
"""

import sys
import types
import typing
from typing import Any


def field_hints(cls: type) -> dict[str, Any]:
    """The annotations of a class and its bases, by field name.

    Args:
        cls: a dataclass, model, named tuple or TypedDict class, or any other class.

    Returns:
        name → annotation, with `Annotated` kept; names whose annotation cannot be resolved are left
        out.
    """
    try:
        return typing.get_type_hints(cls, localns={cls.__name__: cls}, include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation is an expression of the user, it may raise anything
        return _one_by_one(cls)


def alias_target(alias: Any) -> Any:
    """What a named alias (`type Name = ...`, `TypeAliasType`) stands for.

    Args:
        alias: the alias; the names in its quoted parts are looked up where it was defined.

    Returns:
        The annotation, or the text itself when it cannot be resolved.
    """
    target = alias.__value__
    return _resolve("target", target, alias.__module__, {alias.__name__: alias}).get(
        "target", target
    )


def _one_by_one(cls: type) -> dict[str, Any]:
    """The hints that can be resolved when some cannot."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, annotation in vars(base).get("__annotations__", {}).items():
            found.pop(name, None)
            found |= _resolve(name, annotation, base.__module__, {cls.__name__: cls})
    return found


def _resolve(name: str, annotation: Any, module: str, known: dict[str, Any]) -> dict[str, Any]:
    """One annotation by its name, or nothing when it cannot be resolved."""
    space = vars(sys.modules.get(module, types.ModuleType(module)))
    holder = types.SimpleNamespace(__annotations__={name: annotation})
    try:
        return typing.get_type_hints(holder, space, known, include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation is an expression of the user, it may raise anything
        return {}
