"""What the builder's methods record, as they were given; `build()` judges them together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias


class Absent(Enum):
    """Stands for "no initial value", since None is one."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePart:
    """`add_node` and `add_agent_node`."""

    name: Any
    handler: Any
    kind: Literal["function", "agent"]
    retry: Any
    timeout_s: Any
    idle_timeout_s: Any
    version: Any
    max_concurrency: Any
    on_failure: Any
    fallback: Any


@dataclass(frozen=True, slots=True)
class DirectPart:
    """`add_edge`."""

    source: Any
    target: Any
    when: Any


@dataclass(frozen=True, slots=True)
class SwitchPart:
    """`add_switch`."""

    source: Any
    cases: Any
    default: Any


@dataclass(frozen=True, slots=True)
class FanOutPart:
    """`add_fan_out`."""

    source: Any
    targets: Any
    choose: Any


@dataclass(frozen=True, slots=True)
class FanInPart:
    """`add_fan_in`."""

    sources: Any
    target: Any
    wait: Any
    collect: Any


@dataclass(frozen=True, slots=True)
class LoopPart:
    """`add_loop`."""

    source: Any
    target: Any
    options: Any


EdgePart: TypeAlias = DirectPart | SwitchPart | FanOutPart | FanInPart | LoopPart


@dataclass(frozen=True, slots=True)
class StatePart:
    """`with_state`."""

    key: Any
    type: Any
    scope: Any
    reducer: Any
    initial: Any


def kept(items: Any) -> Any:
    """A tuple of what was given, so that later changes to it do not matter; text stays text.

    Sets are sorted: their order differs from process to process.
    """
    if isinstance(items, (set, frozenset)):
        return tuple(sorted(items, key=repr))
    if isinstance(items, Mapping):
        return tuple(items.items())
    if isinstance(items, Iterable) and not isinstance(items, (str, bytes)):
        return tuple(items)
    return items


def kept_names(names: Any) -> Any:
    """As `kept`; of a mapping its keys, as everywhere where names are iterated."""
    return kept(names.keys() if isinstance(names, Mapping) else names)
