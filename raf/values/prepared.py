"""What is worked out once for a type table, and kept with it: how its classes are put and read.

Rules of this file
    1. A plan is made when a class or tag is first met, and kept until a class is registered.
    2. Tags found in data are looked up, never imported.
"""

from collections.abc import Callable
from typing import Any

import msgpack

from raf.errors import NotSerializableError, UndecodableError
from raf.values.classes import Plan, plan_for
from raf.values.enums import EnumPlan
from raf.values.forms import kind_of
from raf.values.registry import REGISTRY, TypeTable
from raf.values.scalars import DECODERS, ENUM
from raf.values.versions import split_tag
from raf.values.walk import FOREIGN


class Prepared:
    """What is worked out once for a table: plans by class and by tag, and spare writers."""

    def __init__(self, types: TypeTable) -> None:
        self.types = types
        self.changes = REGISTRY.changes
        self.writers: list[Any] = []  # idle writers, each with its buffer
        self.plans: dict[type, Plan] = {}  # of the classes met so far, for walks over values
        self.by_tag: dict[str, Plan | EnumPlan] = {}

    def putter(self, cls: type) -> Callable[[Any], Any]:
        """The function that turns instances of a class into what msgpack packs.

        Raises:
            NotSerializableError: instances of the class cannot be stored; says why.
        """
        if kind_of(cls) is None:
            raise NotSerializableError("", cls.__qualname__, _why_not(cls))
        tag = self.types.tag_of(cls)
        if tag is None:
            raise NotSerializableError("", f"{cls.__module__}.{cls.__qualname__}")
        plan = plan_for(cls, tag)
        if isinstance(plan, Plan):
            self.plans[cls] = plan
        return plan.take

    def plan(self, tag: object) -> Plan | EnumPlan:
        """The plan of the class that a stored tag names."""
        if type(tag) is not str:
            raise UndecodableError("damaged tag")
        plan = self.by_tag.get(tag)
        if plan is None:
            cls = self.types.resolve(tag)
            if cls is None:
                raise UndecodableError(
                    f"unknown type tag {tag!r}: declare the class by annotation, or register it "
                    "with register_type(tag=..., aliases=...)"
                )
            way = REGISTRY.versions_of(cls).way_from(*split_tag(tag))
            plan = self.by_tag[tag] = plan_for(cls, tag, way)
            if isinstance(plan, Plan):
                self.plans.setdefault(cls, plan)
        return plan

    def single(self, code: int, payload: bytes) -> Any:
        """The value of an extension value that is no mark."""
        if code == ENUM:
            parts = msgpack.unpackb(payload, unicode_errors="surrogatepass")
            if type(parts) is list and len(parts) == len(("tag", "member")):
                plan = self.plan(parts[0])
                if isinstance(plan, EnumPlan):
                    return plan.build(parts[1])
            raise UndecodableError("damaged enum member")
        decoder = DECODERS.get(code)
        if decoder is None:
            raise UndecodableError(f"unknown extension code {code}")
        return decoder(payload)


def _why_not(cls: type) -> str:
    """The remedy for a class of no storable kind; empty for the general one."""
    if cls in FOREIGN:
        return FOREIGN[cls]
    for base in (str, bytes, int, float, list, tuple, dict, set, frozenset):
        if issubclass(cls, base):
            return f"a subclass of {base.__name__} would be cut: use {base.__name__}(value)"
    if issubclass(cls, type):
        return "a class is code: store its name, or an enum member"
    if cls.__module__.startswith("pydantic"):
        return "declare the field as a plain type, such as str for a URL"
    return "use plain data, a dataclass or a pydantic model"


def prepare(types: TypeTable) -> Prepared:
    """The table's prepared state, made anew when a class was registered since.

    `encode` and `decode` ask the first question themselves: a call would cost as much as the rest.
    """
    prepared: Prepared | None = types.prepared
    if prepared is None or prepared.changes != REGISTRY.changes:
        prepared = types.prepared = Prepared(types)
    return prepared
