"""Which classes may stand in stored values, and the tags that name them there.

Rules of this file
    1. A class is known because the code declared it: by an annotation that a `TypeTable` was made
       of, or by `register_type`.  Nothing is imported by a name found in data.
    2. A tag names one class.  Two classes on one tag are an error that names both.
    3. The default tag is `module:qualname`; a registered tag outlives a move of the class.
    4. A class that changed so that old values do not fit by themselves has a version, and upgrades
       that lead there (`versions`).

Theory of operation
    A table holds the classes reachable from annotations; the registry holds those registered by
    hand, for the whole process.  A look-up asks the table, then the registry.  A registered tag is
    what gets written; the default tag and the aliases are still read.
"""

import dataclasses
import enum
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final, TypeVar, overload

from raf.errors import ConfigurationError
from raf.values.forms import kind_of
from raf.values.hints import alias_target, field_hints
from raf.values.versions import Upgrade, Versions, split_tag

FIRST: Final = Versions()

C = TypeVar("C", bound=type)


def default_tag(cls: type) -> str:
    """The tag of a class that was not given one: `module:qualname`."""
    return f"{_module_of(cls)}:{cls.__qualname__}"


def _module_of(cls: type) -> str:
    """The module of a class, by the name under which others would import it.

    A script is `__main__` to itself and `desk` to whoever imports `desk.py`: a session that the one
    began must be readable by the other.
    """
    if cls.__module__ != "__main__":
        return cls.__module__
    main = sys.modules["__main__"]
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None and spec.name != "__main__":
        return str(spec.name).removesuffix(".__main__")
    return PurePath(path).stem if path else "__main__"


class Registry:
    """The classes registered for the whole process, by tag."""

    def __init__(self) -> None:
        self.changes = 0  # grows with each registration, so that prepared look-ups notice
        self._classes: dict[str, type] = {}
        self._tags: dict[type, str] = {}
        self._versions: dict[type, Versions] = {}

    def add(
        self, cls: type, tag: str | None, aliases: tuple[str, ...], versions: Versions = FIRST
    ) -> None:
        """Registers a class under its tag and aliases; nothing changes when it is refused."""
        if kind_of(cls) is None:
            raise ConfigurationError(
                f"{cls!r} cannot be registered: it is no dataclass, pydantic model, named tuple or "
                "enum (put @register_type above @dataclass)"
            )
        written = default_tag(cls) if tag is None else tag
        names = _checked_tags(written, aliases)
        for name in names:
            if split_tag(name) != (name, 1):
                raise ConfigurationError(f"tag {name!r} ends in a version: give it as version=")
            known = self._classes.get(name)
            if known is not None and not _redefines(cls, known):
                raise ConfigurationError(
                    f"tag {name!r} names both {known!r} and {cls!r}: give one of them another tag="
                )
        for name in names:
            self._tags.pop(self._classes.get(name, cls), None)
            self._classes[name] = cls
        self._classes.setdefault(default_tag(cls), cls)
        self._tags[cls] = versions.tagged(written)
        self._versions[cls] = versions
        self.changes += 1

    def resolve(self, tag: str) -> type | None:
        """The class registered under a tag or alias."""
        return self._classes.get(tag)

    def tag_of(self, cls: type) -> str | None:
        """The tag under which a registered class is written, with its version."""
        return self._tags.get(cls)

    def versions_of(self, cls: type) -> Versions:
        """The version of a class; one that was not registered has its first."""
        return self._versions.get(cls, FIRST)


def _checked_tags(tag: Any, aliases: Any) -> tuple[str, ...]:
    if not isinstance(aliases, tuple | list) or any(
        type(name) is not str or not name for name in (tag, *aliases)
    ):
        what = "a tag is text and aliases are a tuple of tags"
        raise ConfigurationError(f"{what}, not {tag!r:.80} and {aliases!r:.80}")
    return (tag, *aliases)


def _redefines(new: type, old: type) -> bool:
    """Whether a class replaces its former self, as when a module or a cell is run again."""
    same = (new.__module__, new.__qualname__) == (old.__module__, old.__qualname__)
    return new is old or (same and "<locals>" not in new.__qualname__)


REGISTRY = Registry()


@overload
def register_type(
    cls: C,
    *,
    tag: str | None = None,
    aliases: tuple[str, ...] = (),
    version: int = 1,
    upgrade: Mapping[int, Upgrade] | None = None,
) -> C: ...
@overload
def register_type(
    cls: None = None,
    *,
    tag: str | None = None,
    aliases: tuple[str, ...] = (),
    version: int = 1,
    upgrade: Mapping[int, Upgrade] | None = None,
) -> Callable[[C], C]: ...
def register_type(
    cls: C | None = None,
    *,
    tag: str | None = None,
    aliases: tuple[str, ...] = (),
    version: int = 1,
    upgrade: Mapping[int, Upgrade] | None = None,
) -> C | Callable[[C], C]:
    """Lets instances of a class stand in stored values, whatever the annotations say.

    Needed for classes that no annotation reaches: subclasses of a declared class, payloads of
    handlers without annotations.  Function and decorator in one.

    Args:
        cls: a dataclass, pydantic model, named tuple or enum class.
        tag: the name written into records, instead of `module:qualname`; give one before the class
            moves, and the move costs nothing.
        aliases: former tags that are still read.
        version: grows by one when values that were stored do not fit the class any more: a field
            lost, renamed, or of another type, a new one without a default, a member renamed.
        upgrade: version → function, which makes the plain data of the next version of it: the dict
            of all that an instance held, by name; for an enum, the stored name (a flag's number).
            What stands in the dict inside is of today already.

    Returns:
        The class itself, or a decorator.

    Raises:
        ConfigurationError: the class is of no storable kind, the tag names another class, or the
            versions cannot be meant; nothing was registered.

    Example:
        >>> from dataclasses import dataclass
        >>> @register_type(tag="invoice", aliases=("billing:Invoice",))
        ... @dataclass
        ... class Invoice:
        ...     number: str

        Later, when `number` became `code` and lost its leading zeros:

        >>> def to_2(fields):
        ...     return {"code": int(fields["number"])}
        >>> @register_type(tag="invoice", version=2, upgrade={1: to_2})
        ... @dataclass
        ... class Invoice:
        ...     code: int
    """
    versions = Versions.declared(version, upgrade)
    if cls is None:
        return lambda late: register_type(
            late, tag=tag, aliases=aliases, version=version, upgrade=upgrade
        )
    REGISTRY.add(cls, tag, aliases, versions)
    return cls


class TypeTable:
    """The classes that annotations declare, by tag; an immutable value.

    Attributes:
        prepared: what the codec keeps for this table between calls; None until its first use.
    """

    __slots__ = ("_classes", "_known", "prepared")

    def __init__(self, classes: typing.Iterable[type] = ()) -> None:
        self._classes: dict[str, type] = {}
        self.prepared: Any = None
        for cls in classes:
            known = self._classes.setdefault(default_tag(cls), cls)
            if known is not cls:
                raise ConfigurationError(
                    f"{known!r} and {cls!r} (two classes) share the tag {default_tag(cls)!r}: "
                    "rename one, or register one with register_type(tag=...)"
                )
        self._known = frozenset(self._classes.values())

    @classmethod
    def of(cls, *annotations: Any) -> "TypeTable":
        """The table of every class that the annotations reach.

        Args:
            annotations: types as handlers declare them: classes, unions, generics, `Annotated`,
                TypedDicts; their fields are followed.  What cannot be resolved is ignored.

        Returns:
            A new table.

        Raises:
            ConfigurationError: two different classes have one module and qualified name.
        """
        return cls(_Reach().walk(annotations))

    def __or__(self, other: "TypeTable") -> "TypeTable":
        """A table of both tables' classes."""
        return TypeTable([*self._classes.values(), *other._classes.values()])

    @property
    def classes(self) -> tuple[type, ...]:
        """The classes of the table itself, in the order they were found."""
        return tuple(self._classes.values())

    def resolve(self, tag: str) -> type | None:
        """The class that a tag names, or None; nothing is imported to find it."""
        name, _ = split_tag(tag)
        return self._classes.get(name) or REGISTRY.resolve(name)

    def tag_of(self, cls: type) -> str | None:
        """The tag under which instances of the class are written, or None when it is not known."""
        registered = REGISTRY.tag_of(cls)
        if registered is None and cls in self._known:
            return default_tag(cls)
        return registered


class _Reach:
    """Finds the storable classes that annotations reach."""

    def __init__(self) -> None:
        self.found: dict[type, None] = {}
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # so that no id is used twice

    def walk(self, annotations: tuple[Any, ...]) -> list[type]:
        """The classes, each once, in the order they are met."""
        waiting = list(reversed(annotations))
        while waiting:
            annotation = waiting.pop()
            if id(annotation) in self._seen:
                continue
            self._seen.add(id(annotation))
            self._kept.append(annotation)
            waiting.extend(reversed(list(self._behind(annotation))))
        return list(self.found)

    def _behind(self, annotation: Any) -> Iterator[Any]:
        """The annotations that one annotation leads to."""
        if isinstance(annotation, enum.Enum):  # a member inside Literal
            yield type(annotation)
        elif isinstance(annotation, list | tuple):  # the parameters of a Callable
            yield from annotation
        elif isinstance(annotation, TypeVar):
            yield from (annotation.__bound__, *annotation.__constraints__)
        elif isinstance(annotation, dataclasses.InitVar):
            yield annotation.type
        else:
            yield from typing.get_args(annotation)
            yield typing.get_origin(annotation)
            yield getattr(annotation, "__supertype__", None)  # NewType
            if type(annotation).__name__ == "TypeAliasType":
                yield alias_target(annotation)
        if isinstance(annotation, type):
            yield from self._inside(annotation)

    def _inside(self, cls: type) -> Iterator[Any]:
        """The annotations of a class's fields, when it is one that can be stored."""
        if kind_of(cls) is not None:
            self.found.setdefault(cls)
        elif not typing.is_typeddict(cls):
            return
        yield from field_hints(cls).values()
        for info in getattr(cls, "__pydantic_fields__", {}).values():
            yield info.annotation
