"""Whether fields hold what their class declares now: after a change of type, and after an upgrade; pure.

Rules of this file
    1. A value is put back as it was stored, so a field that became another type would hold one of
       the old type and nobody would know.  Nothing is checked while no declaration changed.
    2. An upgrade is code that runs on old data: each field that it gives is checked, strictly.
    3. Without a version, only the fields that changed are looked at, in every instance of their class in a value.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from raf.errors import UndecodableError
from raf.values.classes import Plan
from raf.values.forms import kind_of
from raf.values.hints import field_hints
from raf.values.prepared import prepare
from raf.values.registry import TypeTable
from raf.values.typenodes import read
from raf.values.walk import parts

Changed: TypeAlias = Mapping[str, frozenset[str]]  # tag -> names of fields


def field_types(cls: type) -> dict[str, Any]:
    """The annotations of what instances of a class hold, by name; of an enum nothing."""
    if kind_of(cls) in (None, "enum"):
        return {}
    models = getattr(cls, "__pydantic_fields__", None)
    if models is not None:
        return {name: info.annotation for name, info in models.items()}
    named: tuple[str, ...] = tuple(
        getattr(cls, "__dataclass_fields__", getattr(cls, "_fields", ()))
    )
    hints = field_hints(cls)
    return {name: hints[name] for name in named if name in hints}


def misfits(value: Any, changed: Changed, types: TypeTable, path: str) -> Iterator[str]:
    """Each field of a decoded value that holds what its class does not declare any more, in words."""
    plans = prepare(types).plans
    waiting = [(path, value)]
    while waiting:
        where, part = waiting.pop()
        tag = types.tag_of(type(part))
        fields = changed.get(tag, ()) if tag is not None else ()
        if fields:
            declared = field_types(type(part))
            for name in sorted(fields):
                node, held = read(declared.get(name, Any)), getattr(part, name, None)
                if not node.fits(held):
                    kind = type(held).__qualname__
                    yield f"{where}.{name} ({tag}) holds {kind} and is declared {node.label} now"
        if not isinstance(part, str | bytes | int | float):
            waiting += [(where + step, inner) for step, inner in parts(part, plans.get)]


def check_upgraded(plan: Plan, fields: Mapping[str, Any]) -> None:
    """Check what the upgrades of a class gave for its fields.

    Raises:
        UndecodableError: A field holds what the class does not declare.
    """
    declared = field_types(plan.cls)
    for name, held in fields.items():
        node = read(declared.get(name, Any))
        if not node.fits(held):
            version, kind = plan.way.steps[-1][0], type(held).__qualname__
            raise UndecodableError(
                f"{plan.way.name}: its upgrade from version {version} gave {kind} for "
                f"{plan.cls.__qualname__}.{name}, which is declared {node.label}"
            )
