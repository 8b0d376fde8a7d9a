"""Walks over Python values: where the unstorable part is, and what msgpack would take amiss.

Rules of this file
    1. Nothing here runs when a value can be stored and holds no bytes or extension values: the
       encoder is one call into C, and these walks are what it leaves to explain.
    2. A path starts with the name the caller gave and goes on as Python would: `.field`, `.key`,
       `[3]`, `["other key"]`, `{*}` for an item of a set, `.keys()[2]` for a key.

Theory of operation
    msgpack packs a few types by itself that would come back as another type: bytearray and
    memoryview as bytes, its own ExtType and Timestamp as whatever their bytes mean to us.
    `holds_foreign` looks for them level by level, by the set of the types of a whole level, so its
    loops run in C and it costs about what packing costs.
    `blame` follows the first part that cannot be encoded on its own, level by level.
"""

from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any
from uuid import UUID

import msgpack

from raf.errors import NotSerializableError
from raf.values.classes import Plan
from raf.values.readonly import ReadOnlyDict, ReadOnlyList, ReadOnlySet
from raf.values.scalars import ENCODERS

FOREIGN: dict[type, str] = {
    bytearray: "it would come back as bytes: use bytes(value)",
    memoryview: "it would come back as bytes: use bytes(value)",
    msgpack.ExtType: "it is msgpack's own",
    msgpack.Timestamp: "it is msgpack's own: use a datetime",
}
# Newer msgpack has a type whose content is written into the stream as it is.
if hasattr(msgpack.ext, "Bypass"):
    FOREIGN[msgpack.ext.Bypass] = "it is msgpack's own"

ATOMS = frozenset({type(None), bool, int, float, str, bytes})
_LEAVES = ATOMS | ENCODERS.keys() | {Decimal, UUID, datetime, date, time, timedelta}
_DICTS = frozenset({dict, ReadOnlyDict})
_RANKS = frozenset({list, tuple, ReadOnlyList})
_SETS = frozenset({set, frozenset, ReadOnlySet})
_PLAIN = _RANKS | _SETS
_LONGEST_KEY = 40  # characters of a key's repr that are shown in a path

MAX_NESTING = 256  # containers within containers; a class instance counts as two
MAX_READING = 1024  # the same in bytes that are read: where msgpack stops
TOO_DEEP = f"it is nested deeper than {MAX_NESTING} levels"

PlanOf = Callable[[type], Plan | None]


def holds_foreign(value: Any, plan_of: PlanOf) -> bool:
    """Whether a value that msgpack took holds one of the types it takes amiss.

    Args:
        value: a value that could be packed, so it is finite.
        plan_of: the plan of a declared class, None for any other type.
    """
    level: list[Any] = [value]
    while level:
        kinds = set(map(type, level))
        if not kinds.isdisjoint(FOREIGN):
            return True
        below: list[Any] = []
        for kind in kinds - _LEAVES:
            group: list[Any] = (
                level if len(kinds) == 1 else [item for item in level if type(item) is kind]
            )
            if kind in _DICTS:
                below.extend(chain.from_iterable(group))
                below.extend(chain.from_iterable(map(dict.values, group)))
            elif kind in _PLAIN:
                below.extend(chain.from_iterable(group))
            elif (plan := plan_of(kind)) is not None:
                below.extend(chain.from_iterable(map(plan.members, group)))
        level = below
    return False


def parts(value: Any, plan_of: PlanOf) -> Iterator[tuple[str, Any]]:
    """What a value holds, each part with its step of a path."""
    kind = type(value)
    if kind in _RANKS:
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif kind in _SETS:
        yield from (("{*}", item) for item in value)
    elif kind in _DICTS:
        for index, (key, item) in enumerate(value.items()):
            yield f".keys()[{index}]", key
            yield step(key), item
    elif (plan := plan_of(kind)) is not None:
        yield from plan.parts(value)


def step(key: Any) -> str:
    """The step of a path that a dict key makes."""
    if type(key) is str and key.isidentifier():
        return f".{key}"
    shown = repr(key) if type(key) in _LEAVES else f"<{type(key).__qualname__}>"
    return f"[{shown if len(shown) <= _LONGEST_KEY else shown[:_LONGEST_KEY] + '…'}]"


def blame(
    value: Any,
    error: Exception,
    *,
    path: str,
    attempt: Callable[[Any], Exception | None],
    plan_of: PlanOf,
) -> NotSerializableError:
    """The error that names the innermost part which cannot be stored.

    Args:
        value: what could not be encoded.
        error: what the encoder said of it.
        path: the caller's name of the value.
        attempt: tries to encode a part; returns what the encoder said, or None.
        plan_of: the plan of a declared class, None for any other type.
    """
    if _is_depth(error):
        return _deep(value, path, plan_of)
    following = True
    while following:
        following = False
        for way, part in parts(value, plan_of):
            said = attempt(part)
            if said is not None:
                path += way
                value, error, following = part, said, True
                break
    return _explain(value, error, path)


def _explain(value: Any, error: Exception, path: str) -> NotSerializableError:
    """What the encoder said, for a person."""
    if isinstance(error, NotSerializableError):
        return NotSerializableError(path + error.path, error.type_name, error.why)
    why = str(error) or type(error).__name__
    return NotSerializableError(path, type(value).__qualname__, why)


def _is_depth(error: Exception) -> bool:
    """Whether the encoder gave up because of too many containers within containers."""
    text = error.why if isinstance(error, NotSerializableError) else str(error)
    return isinstance(error, RecursionError) or "recursion" in text or text == TOO_DEEP


def _deep(value: Any, path: str, plan_of: PlanOf) -> NotSerializableError:
    """The error for a value that contains itself, or that is nested beyond the limit.

    Such a value cannot be tried part by part: each try would fail as late as the whole.
    """
    open_parts = [parts(value, plan_of)]
    ways, ancestors = [path], [value]
    while open_parts:
        way, part = next(open_parts[-1], (None, None))
        if way is None:
            for stack in (open_parts, ways, ancestors):
                stack.pop()
            continue
        if type(part) in _LEAVES:
            continue
        where = "".join([*ways, way])
        if any(part is one for one in ancestors):
            return NotSerializableError(where, type(part).__qualname__, "it contains itself")
        if len(ways) > MAX_NESTING:
            return NotSerializableError(where, type(part).__qualname__, TOO_DEEP)
        open_parts.append(parts(part, plan_of))
        ways.append(way)
        ancestors.append(part)
    return NotSerializableError(path, type(value).__qualname__, TOO_DEEP)
