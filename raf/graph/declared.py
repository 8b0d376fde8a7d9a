"""From recorded state declarations to keys and code, with what is wrong with them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, get_origin

from raf.errors import RafError
from raf.graph.codes import Codes
from raf.graph.names import is_name
from raf.graph.parts import ABSENT, StatePart
from raf.state.reducers import Reducer
from raf.topology.fingerprint import annotation_text
from raf.topology.model import StateKey
from raf.topology.workflow import StateCode
from raf.values.annotation import Shape
from raf.values.codec import encode
from raf.values.registry import TypeTable


@dataclass(slots=True)
class Declared:
    """The state keys as far as they are sound."""

    keys: list[StateKey] = field(default_factory=list)
    code: list[StateCode] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def private_keys(self) -> list[str]:
        """Keys that every node has in its own scope."""
        return [key.key for key in self.keys if key.scope is None]


def draft_state(parts: Iterable[StatePart], codes: Codes, types: TypeTable) -> Declared:
    """Read every recorded declaration."""
    declared = Declared()
    seen = set()
    for part in parts:
        where = f"state {part.key!r}" + (f" of scope {part.scope!r}" if part.scope else "")
        if not is_name(part.key):
            declared.problems.append(f"{where}: give the key as printable text")
            continue
        if part.scope is not None and not is_name(part.scope):
            declared.problems.append(f"{where}: scope is {part.scope!r}: give printable text")
            continue
        if (part.scope, part.key) in seen:
            declared.problems.append(f"{where} is declared twice: keep one declaration")
            continue
        seen.add((part.scope, part.key))
        _declare(part, where, declared, codes, types)
    return declared


def _declare(
    part: StatePart, where: str, declared: Declared, codes: Codes, types: TypeTable
) -> None:
    reducer = codes.reducer(part.reducer, where)
    if reducer is not None:
        declared.problems += _misfit(part.type, reducer, where)
    shape = Shape.of(part.type)
    initial = None
    if part.initial is not ABSENT:
        try:
            initial = encode(shape.fit(part.initial, where), types, where=where)
        except RafError as error:
            declared.problems.append(f"{where}: the initial value cannot be used: {error}")
    name = "" if reducer is None else reducer.name
    declared.keys.append(StateKey(key=part.key, scope=part.scope, reducer=name))
    declared.code.append(
        StateCode(key=part.key, scope=part.scope, shape=shape, reducer=reducer, initial=initial)
    )


def _misfit(annotation: Any, reducer: Reducer, where: str) -> list[str]:
    """A builtin reducer that cannot work on values of the declared type."""
    kind = get_origin(annotation) or annotation
    wanted: type = list if reducer.grows_list else dict
    if not (reducer.grows_list or reducer.merges_map) or not isinstance(kind, type):
        return []
    if issubclass(wanted, kind) or issubclass(kind, wanted):
        return []
    return [
        f"{where}: reducer {reducer.name!r} works on a {wanted.__name__}, and the type is "
        f"{annotation_text(annotation)}: declare {_example(wanted)}, or another reducer"
    ]


def _example(wanted: type) -> str:
    return "list[T]" if wanted is list else "dict[str, T]"
