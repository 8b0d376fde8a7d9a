"""Annotations, read once into a small tree that can be asked questions.

Rules of this file
    1. `fits` asks only whether a value already is what the annotation says; it builds nothing and
       calls no code of the value's class.
    2. Strict: no "1" for an int, no True for an int; an int for a float is allowed, as in Python.
    3. What cannot be read (an unresolved name, a Protocol) accepts everything: the encoder still
       refuses what cannot be stored.

Theory of operation
    `read(annotation)` returns a node.  The nodes are few: Anything, Exactly (a class by isinstance),
    Choice (Literal), Items (list, set, Sequence, ...), Row (a tuple of fixed length), Table (dict,
    Mapping), Record (TypedDict), OneOf (a union), Ruled (Annotated with constraints) and Alias (a
    named alias, which may mean itself).
"""

import collections.abc
import inspect
import types
import typing
from dataclasses import dataclass
from typing import Any, TypeVar

from raf.values.forms import kind_of
from raf.values.hints import alias_target, field_hints


class Node:
    """What an annotation says."""

    label: str

    @property
    def ruled(self) -> bool:
        """Whether rules of `Annotated` stand in it, which `fits` does not ask."""
        return False

    def fits(self, _value: Any, /) -> bool:
        """Whether the value already is what the annotation says."""
        raise NotImplementedError

    def exact(self) -> frozenset[type]:
        """Types whose every instance fits, known without looking at the instance."""
        return frozenset()


@dataclass(slots=True)
class Anything(Node):
    """`Any`, no annotation, a type variable, or something unreadable."""

    label: str = "anything"

    def fits(self, _value: Any, /) -> bool:
        """Always true."""
        return True


@dataclass(slots=True)
class Exactly(Node):
    """A class: instances fit, and instances of its subclasses."""

    cls: type
    label: str
    annotation: Any = None  # the class with its parameters
    built: str | None = None  # the kind, when plain data can be built into it

    def fits(self, value: Any, /) -> bool:
        """By isinstance; a bool is no number, an int is a float."""
        if type(value) is bool:
            return self.cls is bool or self.cls is object
        if self.cls is float:
            return isinstance(value, int | float)
        return isinstance(value, self.cls)

    def exact(self) -> frozenset[type]:
        """The class itself."""
        return frozenset({int, float}) if self.cls is float else frozenset({self.cls})


@dataclass(slots=True)
class Choice(Node):
    """`Literal`: one of a few values, of the very same type."""

    values: tuple[Any, ...]
    label: str

    def fits(self, value: Any, /) -> bool:
        """Equal, and of equal type."""
        return any(type(value) is type(one) and value == one for one in self.values)


@dataclass(slots=True)
class Items(Node):
    """A container of items of one type: list, set, frozenset, tuple[T, ...], Sequence, ..."""

    cls: type
    item: Node
    label: str

    @property
    def ruled(self) -> bool:
        """Whether the items are."""
        return self.item.ruled

    def fits(self, value: Any, /) -> bool:
        """A container of the kind, whose every item fits; a str is no sequence of str."""
        if not self.holds(value):
            return False
        if isinstance(self.item, Anything):
            return True
        if set(map(type, value)) <= self.item.exact():
            return True
        return all(map(self.item.fits, value))

    def holds(self, value: Any) -> bool:
        """Whether the value is such a container, whatever its items."""
        return isinstance(value, self.cls) and not isinstance(value, str | bytes | dict)


@dataclass(slots=True)
class Row(Node):
    """A tuple with a type for each place."""

    items: tuple[Node, ...]
    label: str

    @property
    def ruled(self) -> bool:
        """Whether any place is."""
        return any(item.ruled for item in self.items)

    def fits(self, value: Any, /) -> bool:
        """A tuple of that length, each item fitting its place."""
        return (
            isinstance(value, tuple)
            and len(value) == len(self.items)
            and all(node.fits(item) for node, item in zip(self.items, value, strict=True))
        )


@dataclass(slots=True)
class Table(Node):
    """A dict or mapping with one type of keys and one of values."""

    cls: type
    key: Node
    value: Node
    label: str

    @property
    def ruled(self) -> bool:
        """Whether the keys or values are."""
        return self.key.ruled or self.value.ruled

    def fits(self, value: Any, /) -> bool:
        """A mapping whose every key and value fits."""
        if not self.holds(value):
            return False
        return _all_fit(self.key, value.keys()) and _all_fit(self.value, value.values())

    def holds(self, value: Any) -> bool:
        """Whether the value is such a mapping, whatever it holds."""
        return isinstance(value, self.cls)


def _all_fit(node: Node, values: Any) -> bool:
    """Whether each value fits; by types alone where that is enough."""
    if isinstance(node, Anything) or set(map(type, values)) <= node.exact():
        return True
    return all(map(node.fits, values))


@dataclass(slots=True)
class Record(Node):
    """A TypedDict, its fields read on first use since they may mean itself.

    Other keys than the declared ones are let through: a subclass may add some.
    """

    cls: type
    label: str
    known: dict[str, Node] | None = None
    required: frozenset[str] = frozenset()

    @property
    def fields(self) -> dict[str, Node]:
        """The node of each declared key."""
        if self.known is None:
            hints = field_hints(self.cls)
            self.known = {name: read(hint) for name, hint in hints.items()}
            required: frozenset[str] = self.cls.__required_keys__  # type: ignore[attr-defined]
            # Python does not look into quoted annotations for Required and NotRequired.
            marks = {name: typing.get_origin(hint) for name, hint in hints.items()}
            self.required = frozenset(
                name
                for name in hints
                if marks[name] is typing.Required
                or (name in required and marks[name] is not typing.NotRequired)
            )
        return self.known

    @property
    def ruled(self) -> bool:
        """True: whether rules stand in it is not known before it is read."""
        return True

    def fits(self, value: Any, /) -> bool:
        """A dict with every required key, each known key fitting."""
        if not isinstance(value, dict):
            return False
        fields = self.fields
        return self.required <= value.keys() and all(
            node.fits(value[name]) for name, node in fields.items() if name in value
        )


@dataclass(slots=True)
class OneOf(Node):
    """A union; `annotation` is kept for the choice between members that could both be built."""

    members: tuple[Node, ...]
    annotation: Any
    label: str

    @property
    def ruled(self) -> bool:
        """Whether any member is."""
        return any(member.ruled for member in self.members)

    def fits(self, value: Any, /) -> bool:
        """Whether any member fits."""
        return any(member.fits(value) for member in self.members)

    def exact(self) -> frozenset[type]:
        """The types of all members."""
        return frozenset().union(*(member.exact() for member in self.members))


@dataclass(slots=True)
class Ruled(Node):
    """`Annotated` with constraints or validators, which are asked when a value is taken."""

    node: Node
    annotation: Any
    label: str

    @property
    def ruled(self) -> bool:
        """True: the type alone does not decide."""
        return True

    def fits(self, value: Any, /) -> bool:
        """Whether the type fits."""
        return self.node.fits(value)


@dataclass(slots=True)
class Alias(Node):
    """A named alias, read on first use since it may mean itself."""

    alias: Any
    label: str
    known: Node | None = None

    @property
    def ruled(self) -> bool:
        """True: whether rules stand in it is not known before it is read."""
        return True

    @property
    def node(self) -> Node:
        """What the alias stands for."""
        if self.known is None:
            self.known = Anything()  # for an alias that is nothing but itself
            self.known = read(alias_target(self.alias))
        return self.known

    def fits(self, value: Any, /) -> bool:
        """Whether the target fits."""
        return self.node.fits(value)


_BARE = Anything()
_OPEN = (Any, inspect.Parameter.empty, object, typing.NoReturn, typing.Never)
_WRAPPERS = (typing.Final, typing.ClassVar, typing.Required, typing.NotRequired)
_RULES = ("annotated_types", "pydantic", "pydantic_core")  # where constraints are made


def name_of(annotation: Any) -> str:
    """The annotation as a person would write it."""
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, type):
        return annotation.__qualname__
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(name_of, args))
    if origin is typing.Annotated:
        return name_of(args[0])
    if isinstance(origin, type) and args:
        inner = ", ".join("..." if arg is ... else name_of(arg) for arg in args)
        return f"{origin.__qualname__}[{inner}]"
    return getattr(annotation, "__name__", None) or repr(annotation).replace("typing.", "")


def read(annotation: Any) -> Node:
    """The node of an annotation.

    Args:
        annotation: a type as `typing.get_type_hints` gives it, or nothing (`Parameter.empty`).

    Returns:
        A node; `Anything` for what cannot be read.
    """
    while isinstance(annotation, typing.NewType):
        annotation = annotation.__supertype__
    if _is_open(annotation):
        return _BARE
    if annotation is None or annotation is type(None):
        return Exactly(type(None), "None", None)
    label = name_of(annotation)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is not None:
        return _read_generic(annotation, origin, args, label)
    if type(annotation).__name__ == "TypeAliasType":
        return Alias(annotation, label)
    return _read_class(annotation, label) if isinstance(annotation, type) else _BARE


def _is_open(annotation: Any) -> bool:
    """Whether an annotation says nothing; by identity, since not all can be compared."""
    if isinstance(annotation, str | TypeVar | typing.ForwardRef):
        return True
    return any(annotation is one for one in _OPEN)


def _read_class(cls: type, label: str) -> Node:
    """A class without parameters."""
    if typing.is_typeddict(cls):
        return Record(cls, label)
    if cls in _CONTAINERS or cls is tuple:
        return Items(cls, _BARE, label)
    if cls in _TABLES:
        return Table(cls, _BARE, _BARE, label)
    if getattr(cls, "_is_protocol", False):
        return _BARE
    kind = kind_of(cls)
    return Exactly(cls, label, cls, None if kind == "enum" else kind)


_CONTAINERS = {
    *(list, set, frozenset, collections.abc.Sequence, collections.abc.MutableSequence),
    *(collections.abc.Set, collections.abc.MutableSet),
    *(collections.abc.Collection, collections.abc.Iterable),
}
_TABLES = {dict, collections.abc.Mapping, collections.abc.MutableMapping}


def _read_generic(annotation: Any, origin: Any, args: tuple[Any, ...], label: str) -> Node:
    """A union, a Literal, an Annotated, a wrapper, or a parametrized class."""
    if origin in (typing.Union, types.UnionType):
        return OneOf(tuple(map(read, args)), annotation, label)
    if origin is typing.Literal:
        return Choice(args, label)
    if origin is typing.Annotated:
        node = read(args[0])
        if isinstance(node, OneOf) and any(
            getattr(rule, "discriminator", None) for rule in args[1:]
        ):
            node.annotation = annotation
        return Ruled(node, annotation, label) if any(map(_is_rule, args[1:])) else node
    if origin in _WRAPPERS:
        return read(args[0])
    if type(origin).__name__ == "TypeAliasType":
        return read(alias_target(origin)[args])
    return _read_parametrized(annotation, origin, args, label)


def _read_parametrized(annotation: Any, origin: Any, args: tuple[Any, ...], label: str) -> Node:
    """A class with parameters, or an old name such as `typing.List` without any."""
    if not args:
        return read(origin)
    if origin is tuple and args[-1] is not ...:
        return Row(tuple(map(read, args)), label)
    if origin is tuple or origin in _CONTAINERS:
        return Items(origin, read(args[0]), label)
    if origin in _TABLES:
        return Table(origin, read(args[0]), read(args[1]), label)
    kind = kind_of(origin)
    return Exactly(origin, label, annotation, kind) if kind is not None else _BARE


def _is_rule(metadata: Any) -> bool:
    """Whether a part of `Annotated` can refuse or change a value; a description cannot."""
    cls = metadata if isinstance(metadata, type) else type(metadata)
    if cls.__name__ == "FieldInfo":
        return bool(metadata.metadata)
    return cls.__module__.partition(".")[0] in _RULES or hasattr(
        cls, "__get_pydantic_core_schema__"
    )
