"""How an instance of a declared class is taken apart, and how it is built again.

Rules of this file
    1. Only four kinds of classes can be stored: dataclasses, pydantic models, named tuples, enums.
       Everything that an instance holds is stored, or the instance is refused: nothing is cut.
    2. Building calls neither `__init__` nor a validator: the fields are put back as they were.
    3. Fields are stored by name, in declared order.  When the class has changed since: a new field
       takes its default, one without a default and one that is gone are errors that name it, unless
       the class has another version and a way there.
    4. pydantic is read through the attributes its models carry; it is not imported here.

Theory of operation
    `plan_for(cls, tag)` makes a plan once per class.  `take` returns the list that stands for the
    instance in the encoding: a form mark, the tag, the fields (and for models extra, fields set and
    private attributes).  `build` gets what follows the tag and returns the instance.
"""

import dataclasses
import functools
import inspect
import operator
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from raf.errors import NotSerializableError, UndecodableError
from raf.values.enums import EnumPlan
from raf.values.forms import DATACLASS, MODEL, NAMED_TUPLE, Form, kind_of
from raf.values.versions import Way

_PARTS_OF_MODEL = 4  # fields, extra, names of given fields, private attributes
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: the class was made by a class statement


class Plan:
    """How instances of one class are taken apart and built; one subclass for each kind."""

    form: Form

    def __init__(self, cls: type, tag: str, names: tuple[str, ...], *, base: type = object) -> None:
        self.cls = cls
        self.tag = tag
        self.way = Way()  # from the version that the tag tells to today's
        self.names = names
        self.nameset = frozenset(names)
        for parent in cls.__mro__:
            if parent not in (object, base) and not parent.__flags__ & _HEAP_TYPE:
                raise NotSerializableError(
                    "", cls.__qualname__, f"it is also a {parent.__name__}, which would be lost"
                )
        # What a class may keep in an instance without it being a part of the value.
        self.derived = {"__orig_class__"} | {
            name
            for parent in cls.__mro__
            for name, member in vars(parent).items()
            if isinstance(member, functools.cached_property)
        }

    @property
    def shareable(self) -> bool:
        """Whether one instance may be handed to several readers."""
        return not self.form.instance

    def take(self, value: Any) -> list[Any]:
        """The list that stands for the instance."""
        raise NotImplementedError

    def build(self, parts: list[Any]) -> Any:
        """The instance, from what `take` listed after the tag."""
        raise NotImplementedError

    def parts(self, value: Any) -> Iterator[tuple[str, Any]]:
        """What the instance holds, each with its step of a path."""
        for name in self.names:
            if hasattr(value, name):
                yield f".{name}", getattr(value, name)

    def members(self, value: Any) -> Iterable[Any]:
        """What an instance that could be taken apart holds, for a walk that needs no path."""
        raise NotImplementedError

    def ordered(self, held: dict[str, Any]) -> dict[str, Any]:
        """The fields in declared order, when the instance's own dict is not exactly that."""
        for name, part in held.items():
            if name not in self.nameset and name not in self.derived:
                raise NotSerializableError(
                    f".{name}",
                    type(part).__qualname__,
                    f"{self.cls.__qualname__} does not declare it as a field",
                )
        fields = {}
        for name in self.names:
            if name not in held:
                raise self.unset(name)
            fields[name] = held[name]
        return fields

    def unset(self, name: str) -> NotSerializableError:
        """The error for an instance whose field was never given a value."""
        return NotSerializableError(f".{name}", self.cls.__qualname__, "the field has no value")

    def default(self, name: str, _fields: dict[str, Any]) -> Any:
        """The default of a field that the stored instance did not have yet."""
        raise NotImplementedError

    def evolved(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Stored fields made to fit the class of today, in declared order.

        Raises:
            UndecodableError: naming the class and a field that is gone or has no default.
        """
        for name in fields:
            if name not in self.nameset:
                raise UndecodableError(
                    f"{self.tag} has no field {name!r}: keep the field, or say what becomes of it "
                    "with register_type(version=..., upgrade=...)"
                )
        whole: dict[str, Any] = {}
        for name in self.names:
            whole[name] = fields[name] if name in fields else self.default(name, whole)
        return whole

    def missing(self, name: str) -> UndecodableError:
        """The error for a field that is neither stored nor given by a default."""
        return UndecodableError(
            f"{self.tag} was stored without field {name!r}: give the field a default, or say what "
            "it is in old values with register_type(version=..., upgrade=...)"
        )

    def takes(self, form: Form) -> bool:
        """Whether what was stored in this form can become an instance."""
        other = bool(self.way) and form.instance and self.form.instance
        return form is self.form or other

    def upgraded(self, parts: list[Any]) -> list[Any]:
        """What was stored of an older version, in any form, as today's version is stored."""
        return [self.way.go(_held(parts, self.tag), dict)]

    def checked(self, parts: list[Any], count: int) -> dict[str, Any]:
        """The stored fields, fitted to the class; refuses a damaged list."""
        if len(parts) != count or not isinstance(parts[0], dict):
            raise UndecodableError(f"{self.tag}: damaged {self.form.name}")
        fields = parts[0]
        return fields if tuple(fields) == self.names else self.evolved(fields)


class DataclassPlan(Plan):
    """Dataclasses, also frozen, with slots, with fields outside `__init__`."""

    form = DATACLASS

    def __init__(self, cls: type, tag: str) -> None:
        self.fields = {field.name: field for field in dataclasses.fields(cls)}
        super().__init__(cls, tag, tuple(self.fields))
        self.slotted = []
        for name in self.names:
            member = inspect.getattr_static(cls, name, None)
            if isinstance(member, types.MemberDescriptorType):
                self.slotted.append(name)
            elif hasattr(type(member), "__set__"):
                raise NotSerializableError(
                    f".{name}",
                    cls.__qualname__,
                    "the field is a descriptor, its value is elsewhere",
                )
        self.open = cls.__dictoffset__ != 0
        self.spare = [
            name
            for parent in cls.__mro__
            for name, member in vars(parent).items()
            if isinstance(member, types.MemberDescriptorType) and name not in self.nameset
        ]
        self.getter = _getter(self.names)

    def take(self, value: Any) -> list[Any]:
        """The form, the tag, and the fields by name."""
        if self.open and not self.slotted and not self.spare:
            held = value.__dict__
            if tuple(held) == self.names:
                return [self.form.mark, self.tag, held]
            # A field that was never assigned may still be a default of the class.
            defaults = {n: getattr(value, n) for n in self.names if hasattr(value, n)}
            return [self.form.mark, self.tag, self.ordered({**held, **defaults})]
        held = dict(value.__dict__) if self.open else {}
        for name in self.spare:
            if hasattr(value, name):
                held[name] = getattr(value, name)
        try:
            values = self.getter(value)
        except AttributeError as error:
            raise self.unset(error.name or "?") from error
        fields = dict(zip(self.names, values, strict=True))
        return [self.form.mark, self.tag, self.ordered(held | fields) if held else fields]

    def members(self, value: Any) -> Iterable[Any]:
        """The values of the fields."""
        return self.getter(value)

    def build(self, parts: list[Any]) -> Any:
        """The instance, its fields put back without `__init__` or `__post_init__`."""
        fields = self.checked(parts, 1)
        value: Any = object.__new__(self.cls)
        if self.slotted:
            for name, part in fields.items():
                object.__setattr__(value, name, part)
        elif fields:
            value.__dict__.update(fields)
        return value

    def default(self, name: str, _fields: dict[str, Any]) -> Any:
        """The declared default, or what the declared factory makes."""
        field = self.fields[name]
        if field.default is not dataclasses.MISSING:
            return field.default
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        raise self.missing(name)


class NamedTuplePlan(Plan):
    """`typing.NamedTuple` and `collections.namedtuple` classes."""

    form = NAMED_TUPLE

    def __init__(self, cls: Any, tag: str) -> None:
        super().__init__(cls, tag, cls._fields, base=tuple)
        self.defaults: dict[str, Any] = dict(getattr(cls, "_field_defaults", {}))

    @property
    def shareable(self) -> bool:
        """A subclass with a `__dict__` of its own can be changed in place."""
        return self.cls.__dictoffset__ == 0

    def take(self, value: Any) -> list[Any]:
        """The form, the tag, and the items by field name."""
        if len(value) != len(self.names):
            raise NotSerializableError("", self.cls.__qualname__, "its length is not its fields'")
        fields = dict(zip(self.names, value, strict=True))
        held = getattr(value, "__dict__", None)
        return [self.form.mark, self.tag, self.ordered(held | fields) if held else fields]

    def members(self, value: Any) -> Iterable[Any]:
        """The items."""
        items: tuple[Any, ...] = value
        return items

    def build(self, parts: list[Any]) -> Any:
        """The named tuple, without a call of its own `__new__`."""
        return tuple.__new__(self.cls, self.checked(parts, 1).values())

    def parts(self, value: Any) -> Iterator[tuple[str, Any]]:
        """The items, each by its field name."""
        return ((f".{name}", part) for name, part in zip(self.names, value, strict=False))

    def default(self, name: str, _fields: dict[str, Any]) -> Any:
        """The declared default."""
        if name not in self.defaults:
            raise self.missing(name)
        return self.defaults[name]


class ModelPlan(Plan):
    """pydantic models: fields as they are, extra, the set of given fields, private attributes."""

    form = MODEL

    def __init__(self, cls: Any, tag: str) -> None:
        if not cls.__pydantic_complete__:
            cls.model_rebuild(raise_errors=False)
        self.infos: dict[str, Any] = dict(cls.__pydantic_fields__)
        self.private: dict[str, Any] = dict(cls.__private_attributes__)
        self.extra = cls.model_config.get("extra") == "allow"
        super().__init__(cls, tag, tuple(self.infos))

    def take(self, value: Any) -> list[Any]:
        """The form, the tag, fields, extra, the names of given fields, private attributes."""
        held = value.__dict__
        fields = held if tuple(held) == self.names else self.ordered(held)
        try:
            given = value.__pydantic_fields_set__
            private = value.__pydantic_private__
            extra = value.__pydantic_extra__
        except AttributeError as error:
            raise NotSerializableError("", self.cls.__qualname__, "it was never made") from error
        if private:
            private = {name: private[name] for name in sorted(private)}
        return [self.form.mark, self.tag, fields, extra, sorted(given), private]

    def members(self, value: Any) -> Iterable[Any]:
        """The values of the fields, and the dicts of extra and private attributes."""
        return (
            *value.__dict__.values(),
            value.__pydantic_extra__,
            value.__pydantic_private__,
        )

    def build(self, parts: list[Any]) -> Any:
        """The model, without validation and without `model_post_init`."""
        fields = self.checked(parts, 4)
        _, extra, given, private = parts
        well_formed = (
            (extra is None or isinstance(extra, dict))
            and (private is None or isinstance(private, dict))
            and isinstance(given, list)
            and all(type(name) is str for name in given)
        )
        if not well_formed:
            raise UndecodableError(f"{self.tag}: damaged model")
        if extra and not self.extra:
            raise UndecodableError(f"{self.tag} has no field {next(iter(extra))!r}")
        value: Any = object.__new__(self.cls)
        object.__setattr__(value, "__dict__", fields)
        object.__setattr__(value, "__pydantic_fields_set__", set(given))
        object.__setattr__(value, "__pydantic_extra__", (extra or {}) if self.extra else None)
        object.__setattr__(value, "__pydantic_private__", self._private(private))
        return value

    def upgraded(self, parts: list[Any]) -> list[Any]:
        """Each name of the upgraded data where it belongs; what the upgrade made counts as given."""
        before = _held(parts, self.tag)
        given = set(parts[2]) if len(parts) == _PARTS_OF_MODEL else set(before)
        data = self.way.go(dict(before), dict)
        private = {name: part for name, part in data.items() if name in self.private}
        fields = {name: part for name, part in data.items() if name not in private}
        extra = {name: part for name, part in fields.items() if name not in self.nameset}
        if self.extra:
            fields = {name: part for name, part in fields.items() if name not in extra}
        named = sorted(n for n in fields if n in given or n not in before)
        return [fields, extra if self.extra else None, named, private or None]

    def _private(self, stored: dict[str, Any] | None) -> dict[str, Any] | None:
        """The private attributes, new ones filled by their defaults."""
        if not self.private and not stored:
            return None
        stored = stored or {}
        for name in stored:
            if name not in self.private:
                raise UndecodableError(f"{self.tag} has no private attribute {name!r}")
        whole = {}
        for name, info in self.private.items():
            part = stored[name] if name in stored else info.get_default()
            # pydantic marks "no default" by a class of its own, which is not imported here.
            if name in stored or type(part).__name__ != "PydanticUndefinedType":
                whole[name] = part
        return whole

    def parts(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Fields, extra and private attributes, each by its name."""
        groups = (
            {name: part for name, part in value.__dict__.items() if name in self.nameset},
            getattr(value, "__pydantic_extra__", None) or {},
            getattr(value, "__pydantic_private__", None) or {},
        )
        return ((f".{name}", part) for group in groups for name, part in group.items())

    def default(self, name: str, _fields: dict[str, Any]) -> Any:
        """The declared default, or what the declared factory makes of the fields before it."""
        info = self.infos[name]
        if info.is_required():
            raise self.missing(name)
        return info.get_default(call_default_factory=True, validated_data=_fields)


_PLANS: dict[str, Callable[[Any, str], Plan | EnumPlan]] = {
    "dataclass": DataclassPlan,
    "named tuple": NamedTuplePlan,
    "model": ModelPlan,
    "enum": EnumPlan,
}


def plan_for(cls: type, tag: str, way: Way | None = None) -> Plan | EnumPlan:
    """The plan for a class of one of the storable kinds.

    Args:
        cls: the class.
        tag: the tag that was found, or is to be written.
        way: what leads from the version of a tag that was found to today's.

    Raises:
        NotSerializableError: the class keeps a part of its value where no plan reaches it.
    """
    plan = _PLANS[kind_of(cls) or "dataclass"](cls, tag)
    plan.way = way or plan.way
    return plan


def _held(parts: list[Any], tag: str) -> dict[str, Any]:
    """All that a stored instance held, by name: fields, and of a model extra and private ones."""
    named = [parts[place] for place in (0, 1, 3) if place < len(parts)]
    if not named or any(part is not None and not isinstance(part, dict) for part in named):
        raise UndecodableError(f"{tag}: damaged instance")
    return {name: value for part in named for name, value in (part or {}).items()}


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """One call that reads all fields; `attrgetter` of a single name returns no tuple."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)
