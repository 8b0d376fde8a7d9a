"""Which classes are known, under which tags; and that data never makes the code import anything."""

import enum
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from raf.errors import ConfigurationError, NotSerializableError, UndecodableError
from raf.values import TypeTable, decode, encode, register_type
from raf.values.registry import REGISTRY

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _clean_registry() -> Iterator[None]:
    """What a test registers is gone after it."""
    kept = {name: dict(part) for name, part in vars(REGISTRY).items() if isinstance(part, dict)}
    yield
    vars(REGISTRY).update(kept)
    REGISTRY.changes += 1


@dataclass
class Leaf:
    a: int = 1


class Shade(enum.Enum):
    DARK = 1


@dataclass
class Tree:
    left: "Tree | None" = None
    leaf: "Leaf | None" = None
    missing: "NoSuchName | None" = None  # type: ignore[name-defined]  # noqa: F821
    seed: InitVar[Shade | None] = None


class Note(BaseModel):
    leaf: Leaf
    next: "Note | None" = None
    _shade: Shade | None = None


class Pair(NamedTuple):
    one: Leaf
    two: "Note"


class Entry(TypedDict, total=False):
    leaf: Leaf
    inner: "Entry"


@dataclass
class Box(Generic[T]):
    content: T


class Page(BaseModel, Generic[T]):
    items: list[T]


Bound = TypeVar("Bound", bound=Leaf)
Chosen = TypeVar("Chosen", Leaf, Shade)
Named = NewType("Named", Leaf)
Recursive = TypeAliasType("Recursive", "dict[str, Recursive] | Leaf | list[Recursive]")


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, []),
        (Leaf, [Leaf]),
        (Leaf | None, [Leaf]),
        (typing.Optional[Leaf], [Leaf]),  # noqa: UP045 - the old spelling is what is tested
        (Annotated[Leaf, Field(description="x")], [Leaf]),
        (list[dict[str, tuple[Leaf, ...]]], [Leaf]),
        (Mapping[Shade, Sequence[set[Leaf]]], [Shade, Leaf]),
        (Literal[Shade.DARK, "x"], [Shade]),
        (Tree, [Tree, Leaf, Shade]),
        (Note, [Note, Leaf, Shade]),
        (Pair, [Pair, Leaf, Note, Shade]),
        (Entry, [Leaf]),
        (Box[Leaf], [Leaf, Box]),
        (Page[Leaf], [Page[Leaf], Leaf]),
        (Callable[[Leaf], Shade], [Leaf, Shade]),
        (Bound, [Leaf]),
        (Chosen, [Leaf, Shade]),
        (Named, [Leaf]),
        (type[Leaf], [Leaf]),
        ("Leaf", []),
        (None, []),
        (Any, []),
        (BaseModel, []),
    ],
    ids=str,
)
def test_classes_that_an_annotation_reaches(annotation: Any, expected: list[type]) -> None:
    """Every storable class inside an annotation is found, through fields as well."""
    assert set(TypeTable.of(annotation).classes) == set(expected)


def test_named_aliases_are_followed() -> None:
    """A recursive alias is followed once."""
    alias = TypeAliasType("alias", "list[alias] | Leaf")  # type: ignore[misc]
    assert TypeTable.of(alias).classes in ((), (Leaf,))
    assert Leaf in TypeTable.of(TypeAliasType("other", list[Leaf])).classes


def test_tables_join() -> None:
    """A joined table knows what either knows."""
    joined = TypeTable.of(Leaf) | TypeTable.of(Shade, Leaf)

    assert set(joined.classes) == {Leaf, Shade}
    assert TypeTable().classes == ()


def test_look_ups() -> None:
    """By default a class is known as module:qualname; what is unknown is None."""
    table = TypeTable.of(Leaf)
    tag = f"{__name__}:Leaf"

    assert (table.tag_of(Leaf), table.resolve(tag)) == (tag, Leaf)
    assert (table.tag_of(Shade), table.resolve(f"{__name__}:Shade")) == (None, None)


def made(name: str = "Thing") -> Any:
    @dataclass
    class Thing:
        a: int = 1

    Thing.__name__ = name
    Thing.__qualname__ = f"made.{name}"
    return Thing


def test_registering() -> None:
    """Function and decorator; with a tag, an alias, or neither."""
    one, two, three = made("One"), made("Two"), made("Three")

    assert register_type(one) is one
    assert register_type(tag="two")(two) is two
    assert register_type(three, tag="three", aliases=("drei", "trois")) is three

    bare = TypeTable()
    assert [bare.tag_of(cls) for cls in (one, two, three)] == [
        f"{__name__}:made.One",
        "two",
        "three",
    ]
    assert [bare.resolve(tag) for tag in ("two", "three", "drei", "trois")] == [two, *[three] * 3]
    assert decode(encode(three(5), bare), bare) == three(5)


def test_a_table_made_before_the_registration_notices_it() -> None:
    """Look-ups that were prepared are made anew."""
    table = TypeTable()
    cls = made()
    with pytest.raises(NotSerializableError):
        encode(cls(), table)
    register_type(cls, tag="late")

    assert b"late" in encode(cls(), table)
    assert decode(encode(cls(2), table), table) == cls(2)


def test_a_class_that_moved() -> None:
    """What was stored under the default tag is read under an alias, and written under the tag."""
    old, new = made("Old"), made("New")
    data = encode(old(3), TypeTable([old]))
    with pytest.raises(UndecodableError, match=r"unknown type tag .*made\.Old.*register_type"):
        decode(data, TypeTable())
    register_type(new, tag="thing", aliases=(f"{__name__}:made.Old",))

    assert decode(data, TypeTable()) == new(3)
    assert b"thing" in encode(new(3), TypeTable())


def test_a_declared_class_with_a_registered_tag() -> None:
    """The registered tag is written; what was stored under the default tag is still read."""
    cls = made()
    table = TypeTable([cls])
    before = encode(cls(1), table)
    register_type(cls, tag="short")

    assert encode(cls(1), table) != before
    assert decode(before, table) == decode(encode(cls(1), table), table) == cls(1)


def test_two_classes_on_one_tag() -> None:
    """The error names both, and nothing is registered."""
    one, two = made("One"), made("Two")
    register_type(one, tag="same")
    for arguments in ({"tag": "same"}, {"aliases": ("same",)}):
        with pytest.raises(ConfigurationError, match=r"made\.One.*made\.Two"):
            register_type(two, **arguments)

    assert TypeTable().resolve("same") is one
    assert TypeTable().tag_of(two) is None
    with pytest.raises(ConfigurationError, match="two classes"):
        TypeTable([made(), made()])


def test_a_class_defined_again_replaces_itself() -> None:
    """As when a notebook cell or a module is run again."""
    first: Any = dataclass(type("Cell", (), {"__annotations__": {"a": int}}))
    second: Any = dataclass(type("Cell", (), {"__annotations__": {"a": int}}))
    register_type(first, tag="cell")
    register_type(second, tag="cell")

    assert TypeTable().resolve("cell") is second
    assert TypeTable().tag_of(first) is None


@pytest.mark.parametrize("cls", [int, dict, object, BaseModel, list[int], type("Plain", (), {}), 5])
def test_only_storable_classes_can_be_registered(cls: Any) -> None:
    """Anything else is refused with the reason."""
    with pytest.raises(ConfigurationError, match="cannot be registered"):
        register_type(tag="x")(cls)


@pytest.mark.parametrize(
    "words", [{"tag": 5}, {"tag": ""}, {"aliases": "x"}, {"aliases": 5}, {"aliases": ("",)}]
)
def test_a_tag_is_text(words: dict[str, Any]) -> None:
    """And aliases are several: a lone text would be taken letter by letter."""
    with pytest.raises(ConfigurationError, match="a tag is text"):
        register_type(made("Untagged"), **words)


def test_nothing_is_imported_by_a_name_in_data() -> None:
    """A tag that names an importable class of a module not yet loaded stays unknown."""
    sys.modules.pop("wsgiref.headers", None)
    for tag in ("wsgiref.headers:Headers", "os:system", "builtins:eval", f"{__name__}:Leaf"):
        data = b"\x93\xd4\x01\x04" + encode(tag, TypeTable()) + b"\x80"
        with pytest.raises(UndecodableError, match="unknown type tag"):
            decode(data, TypeTable())

    assert "wsgiref.headers" not in sys.modules


def test_a_script_and_its_importer_agree_on_tags(tmp_path: Path) -> None:
    """A class of a script has one tag, whether the script is run or imported; sessions cross over."""
    script = tmp_path / "desk.py"
    script.write_text(
        "from dataclasses import dataclass\n"
        "from raf.values.registry import default_tag\n\n\n"
        "@dataclass\nclass Finding:\n    text: str\n\n\n"
        "print(default_tag(Finding))\n"
    )
    for command in (["desk.py"], ["-c", "import desk"], ["-m", "desk"]):
        run = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert run.stdout == "desk:Finding\n"
