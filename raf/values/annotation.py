"""What an annotation takes: values as they are, and plain data built into classes by pydantic.

Rules of this file
    1. A value that already fits is passed on as it is; a union never rebuilds what fits a member.
    2. Only plain data for a dataclass, model or named tuple is built, by pydantic: a model by the
       rules that its author gave it; a plain dataclass, which has no rules, strictly (no "1" for an
       int, no unknown field).  Everything else is strict.
    3. An instance of a subclass passes; whether it may be stored is the encoder's question.
    4. pydantic is imported here and nowhere else in this room.

Theory of operation
    `Shape.of` reads the annotation once (`raf.values.typenodes`).  `fit` first looks at the type of
    the value alone, then walks the annotation's tree, and only where plain data meets a class asks
    pydantic, whose adapters are made on first use.
"""

from collections.abc import Callable
from typing import Any

import pydantic  # its parts load when they are named: a program without models never pays

from raf.errors import PayloadTypeError
from raf.values.meeting import meet
from raf.values.strictness import admit_fields, comes_first, has_own_rules, misfit
from raf.values.typenodes import (
    Alias,
    Anything,
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


def _unreadable() -> tuple[type[Exception], ...]:
    """What pydantic raises for an annotation that it cannot read."""
    return (pydantic.PydanticUserError, pydantic.PydanticUndefinedAnnotation, NameError)


class Shape:
    """What one annotation takes; an immutable value, made once where the annotation is declared.

    Attributes:
        annotation: as it was given.
        accepts_anything: whether every value fits, as for `Any` or no annotation.

    Example:
        >>> Shape.of(int | str).fit("1", "the input")
        '1'
    """

    __slots__ = ("_exact", "_maker", "_node", "accepts_anything", "annotation")

    def __init__(self, annotation: Any, node: Node) -> None:
        self.annotation = annotation
        self.accepts_anything = isinstance(node, Anything)
        self._node = node
        self._exact = frozenset() if node.ruled else node.exact()
        self._maker = _Maker()

    @classmethod
    def of(cls, annotation: Any) -> "Shape":
        """The shape of an annotation.

        Args:
            annotation: a type as `typing.get_type_hints(..., include_extras=True)` gives it, or
                `inspect.Parameter.empty`; what cannot be read accepts anything.
        """
        return cls(annotation, read(annotation))

    def __repr__(self) -> str:
        return f"Shape.of({self._node.label})"

    def fit(self, value: Any, where: str) -> Any:
        """The value as the annotation wants it.

        Args:
            value: what was sent, set or answered.
            where: the caller's name of the value, the head of the path in errors.

        Returns:
            The value itself when it fits; else the instances that its plain data was built into,
            in new containers.  The value is never changed.

        Raises:
            PayloadTypeError: with the path of the first part that does not fit.
        """
        if self.accepts_anything or type(value) in self._exact:
            return value
        try:
            return self._maker.make(self._node, value, where)
        except RecursionError:
            got = f"{type(value).__qualname__} nested too deep"
            raise PayloadTypeError(where, self._node.label, got) from None

    def json_schema(self) -> dict[str, Any]:
        """The JSON schema of the annotation; empty (anything goes) where there is none."""
        if self.accepts_anything:
            return {}
        try:
            return pydantic.TypeAdapter(self.annotation).json_schema()
        except _unreadable():
            return {}


def could_accept(source: Any, target: Any) -> bool:
    """Whether a value declared as `source` could be taken where `target` is declared.

    Args:
        source: the annotation of what is sent, such as a return annotation.
        target: the annotation of what is taken, such as a parameter's.

    Returns:
        False only when no value fits both, such as str for int, or one model for an unrelated
        one.  True for `Any`, for no annotation, and for a source or target of None, which says
        that nothing is sent by this way.

    Example:
        >>> could_accept(list[str], int)
        False
    """
    if source is None or target is None or type(None) in (source, target):
        return True
    return meet(read(source), read(target))


class _Maker:
    """Takes values by nodes, building instances where plain data meets a class."""

    def __init__(self) -> None:
        self._adapters: dict[int, tuple[Any, pydantic.TypeAdapter[Any] | None]] = {}
        self._ways: dict[type[Node], Callable[[Any, Any, str], Any]] = {
            Alias: self._alias,
            Exactly: self._instance,
            Items: self._items,
            OneOf: self._one_of,
            Record: self._record,
            Row: self._row,
            Ruled: self._ruled,
            Table: self._table,
        }

    def make(self, node: Node, value: Any, path: str) -> Any:
        """The value as the node wants it, or `PayloadTypeError`."""
        if not node.ruled and node.fits(value):
            return value
        way = self._ways.get(type(node))
        if way is None:
            raise misfit(node, value, path)
        return way(node, value, path)

    def _alias(self, node: Alias, value: Any, path: str) -> Any:
        """What the alias stands for, made."""
        return self.make(node.node, value, path)

    def _items(self, node: Items, value: Any, path: str) -> Any:
        """A container of the same kind, its items made."""
        if not node.holds(value):
            raise misfit(node, value, path)
        old = list(value)
        new = [self.make(node.item, item, f"{path}[{at}]") for at, item in enumerate(old)]
        if all(one is other for one, other in zip(old, new, strict=True)):
            return value
        for kind in (tuple, frozenset, set):
            if isinstance(value, kind):
                return kind(new)
        return new

    def _row(self, node: Row, value: Any, path: str) -> Any:
        """A tuple, each place made."""
        if not isinstance(value, tuple) or len(value) != len(node.items):
            raise misfit(node, value, path)
        new = tuple(
            self.make(one, item, f"{path}[{at}]")
            for at, (one, item) in enumerate(zip(node.items, value, strict=True))
        )
        return value if all(a is b for a, b in zip(value, new, strict=True)) else new

    def _table(self, node: Table, value: Any, path: str) -> Any:
        """A dict, its keys and values made."""
        if not node.holds(value):
            raise misfit(node, value, path)
        new = {}
        same = True
        for at, (key, item) in enumerate(value.items()):
            made_key = self.make(node.key, key, f"{path}.keys()[{at}]")
            new[made_key] = made = self.make(node.value, item, path + step(key))
            same = same and made is item and made_key is key
        return value if same else new

    def _record(self, node: Record, value: Any, path: str) -> Any:
        """A dict with its known fields made; unknown ones are kept."""
        if not isinstance(value, dict):
            raise misfit(node, value, path)
        fields = node.fields
        for name in sorted(node.required):
            if name not in value:
                raise PayloadTypeError(path + step(name), f"a field of {node.label}", "nothing")
        new = dict(value)
        for name, field in fields.items():
            if name in value:
                new[name] = self.make(field, value[name], path + step(name))
        return value if all(new[key] is item for key, item in value.items()) else new

    def _one_of(self, node: OneOf, value: Any, path: str) -> Any:
        """The value as the member that it fits, else as the one member it can be built into."""
        said: list[PayloadTypeError] = []
        made: list[Any] = []
        for member in sorted(node.members, key=lambda one: not one.fits(value)):
            try:
                made.append(self.make(member, value, path))
            except PayloadTypeError as error:
                if isinstance(member, Exactly) and member.built and isinstance(value, dict):
                    said.append(error)
                continue
            if member.fits(value):
                return made[0]
        if not made:
            raise said[0] if len(said) == 1 else misfit(node, value, path)
        if len(made) == 1:
            return made[0]
        # Several classes could be built of it: pydantic knows discriminators and closeness.
        chosen = self._validate(node.annotation, node, value, path)
        return next((one for one in made if type(one) is type(chosen)), made[0])

    def _ruled(self, node: Ruled, value: Any, path: str) -> Any:
        """The value, when the rules of `Annotated` let it pass; as sent, unless they change it."""
        try:
            made = self.make(node.node, value, path)
        except PayloadTypeError:
            # A rule that comes before the type may be what makes the value fit.
            if not comes_first(node):
                raise
            return self._validate(node.annotation, node, value, path, strict=True)
        ruled = self._validate(node.annotation, node, made, path)
        return made if ruled == made else ruled

    def _instance(self, node: Exactly, value: Any, path: str) -> Any:
        """The instance that pydantic builds of plain data."""
        if not isinstance(value, _plain_for(node)):
            raise misfit(node, value, path)
        if not has_own_rules(node):
            admit_fields(node, value, path)
        made = self._validate(node.annotation, node, value, path)
        if not isinstance(made, node.cls):
            raise misfit(node, value, path)
        return made

    def _validate(
        self, annotation: Any, node: Node, value: Any, path: str, *, strict: bool | None = None
    ) -> Any:
        """What pydantic makes of a value."""
        adapter = self._adapter(annotation)
        if adapter is None:
            raise misfit(node, value, path)
        try:
            return adapter.validate_python(value, strict=strict)
        except pydantic.ValidationError as error:
            raise _from_pydantic(error, node, path) from error

    def _adapter(self, annotation: Any) -> "pydantic.TypeAdapter[Any] | None":
        """The adapter of an annotation, made once; None when pydantic cannot read it."""
        known = self._adapters.get(id(annotation))
        if known is None:
            try:
                adapter = pydantic.TypeAdapter(annotation)
            except _unreadable():
                adapter = None
            # The annotation is kept with it, so that its id is not used again.
            known = self._adapters[id(annotation)] = (annotation, adapter)
        return known[1]


def _plain_for(node: Exactly) -> tuple[type, ...]:
    """The types of plain data that an instance of the class can be built of."""
    if getattr(node.cls, "__pydantic_root_model__", False):
        return (object,)
    if node.built == "named tuple":
        return (dict, list, tuple)
    return (dict,) if node.built else ()


def _from_pydantic(error: "pydantic.ValidationError", node: Node, path: str) -> PayloadTypeError:
    """Pydantic's first complaint, with the path continued into the value."""
    complaints = error.errors(include_url=False, include_context=False)
    first = complaints[0]
    for part in first["loc"]:
        path += f"[{part}]" if isinstance(part, int) else step(part)
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    what = "nothing" if first["type"] == "missing" else type(first["input"]).__qualname__
    return PayloadTypeError(path, f"{node.label}: {first['msg']}", what + more)
