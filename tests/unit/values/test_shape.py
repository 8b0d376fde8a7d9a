"""What annotations take: nothing rebuilt that fits, nothing coerced, plain data built into classes."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from inspect import Parameter
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NotRequired,
    Protocol,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import pydantic
import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    StringConstraints,
)
from pydantic_core import TzInfo
from typing_extensions import TypeAliasType

from raf.errors import PayloadTypeError
from raf.values import ReadOnlyDict, ReadOnlyList, Shape
from tests.unit.values.sameness import traits

T = TypeVar("T")


class Kind(enum.StrEnum):
    NEW = "new"


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass
class Line:
    points: list[Point]
    at: datetime | None = None
    kind: Kind = Kind.NEW
    pair: tuple[int, int] = (0, 0)
    prices: dict[str, Decimal] = field(default_factory=dict)
    mixed: int | str = 0
    whole: int = field(init=False, default=9)


class Document(BaseModel):
    title: str
    pages: int = 1
    point: Point | None = None


class Report(BaseModel):
    name: str
    document: Document | None = None


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    n: int


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str = "?"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str = "?"


class Near(BaseModel):
    a: int = 0


class Far(BaseModel):
    a: int = 0
    b: int = 0


class Numbers(RootModel[list[int]]):
    pass


class Pair(NamedTuple):
    left: int
    right: str = ""


class Entry(TypedDict):
    name: str
    point: NotRequired[Point]
    inner: "NotRequired[Entry]"


class Sub(Document):
    more: int = 0


@dataclass
class Box(Generic[T]):
    content: T


@pydantic.dataclasses.dataclass
class Checked:
    n: int


class Speaks(Protocol):
    def speak(self) -> str: ...


Json = TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | float | bool | None")
Percent = Annotated[int, Field(ge=0, le=100)]
Slug = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]

AS_SENT: list[tuple[Any, Any]] = [
    *((Any, object()), (Parameter.empty, 1), (object, 1), (T, "x"), ("NoSuchName", 5), (Speaks, 1)),
    *((int, 1), (float, 1.5), (float, 1), (str, "1"), (bool, True), (bytes, b""), (None, None)),
    *((type(None), None), (int | str, "1"), (str | list[int], [1, 2]), (int | None, None)),
    *((date | datetime, datetime(2024, 1, 1, tzinfo=UTC)), (date | datetime, date(2024, 1, 1))),
    *((datetime | date, date(2024, 1, 1)), (float | int, 1), (bool | int, 1), (int | bool, True)),
    *((list, [1, "a"]), (list[int], [1]), (list[int], []), (list[float], [1, 1.5]), (list, [1])),
    *((tuple, (1,)), (tuple[int, ...], (1, 2)), (tuple[int, str], (1, "a")), (tuple[()], ())),
    *(
        (set[int], {1}),
        (frozenset[str], frozenset("a")),
        (dict, {1: 2}),
        (dict[str, int], {"a": 1}),
    ),
    *((Sequence[int], [1]), (Sequence[int], (1,)), (Mapping[str, int], {"a": 1})),
    *((dict[str, list[int | None]], {"a": [1, None]}), (list[dict[str, Any]], [{"a": object}])),
    *((Literal["a", 1], 1), (Literal[Kind.NEW], Kind.NEW), (Kind, Kind.NEW), (str, Kind.NEW)),
    *(
        (UUID, UUID(int=1)),
        (Decimal, Decimal(1)),
        (Point, Point(1)),
        (Document, Document(title="a")),
    ),
    *(
        (Document, Sub(title="a")),
        (list[Document], [Sub(title="a")]),
        (Document | Report, Report(name="r")),
    ),
    *(
        (Pair, Pair(1)),
        (tuple, Pair(1)),
        (Numbers, Numbers([1])),
        (Box[int], Box(1)),
        (Checked, Checked(1)),
    ),
    *(
        (Entry, {"name": "a", "point": Point(1), "inner": {"name": "b"}}),
        (Entry, {"name": "a", "z": 1}),
    ),
    *((Json, {"a": [1, None, {"b": 1.5}]}), (Percent, 50), (Slug, "a"), (list[Percent], [1, 2])),
    *((Annotated[int, "a comment"], 1), (Annotated[float, Field(gt=0)], 1), (Percent | None, None)),
    *((list[int], ReadOnlyList([1])), (dict[str, list[int]], ReadOnlyDict(a=ReadOnlyList([1])))),
]


@pytest.mark.parametrize(
    ("annotation", "value"), AS_SENT, ids=lambda part: str(part).split(" at 0x")[0]
)
def test_what_fits_is_passed_on_as_it_is(annotation: Any, value: Any) -> None:
    """The very object, neither copied nor rebuilt."""
    assert Shape.of(annotation).fit(value, "value") is value


BUILT: list[tuple[Any, Any, Any]] = [
    (Document, {"title": "a"}, Document(title="a")),
    (Document, {"title": "a", "point": {"x": 1}}, Document(title="a", point=Point(1))),
    (Document, ReadOnlyDict(title="a"), Document(title="a")),
    (Document, {"title": "a", "pages": "2"}, Document(title="a", pages=2)),
    (Document | None, {"title": "a"}, Document(title="a")),
    (Document | Report, {"name": "r"}, Report(name="r")),
    (Near | Far, {"a": 1, "b": 2}, Far(a=1, b=2)),
    (Cat | Dog, {"kind": "dog"}, Dog(kind="dog")),
    (
        Annotated[Cat | Dog, Field(discriminator="kind")],
        {"kind": "dog", "name": "d"},
        Dog(kind="dog", name="d"),
    ),
    (
        list[Document],
        [{"title": "a"}, Document(title="b")],
        [Document(title="a"), Document(title="b")],
    ),
    (dict[str, Point], {"a": {"x": 1}}, {"a": Point(1)}),
    (tuple[Point, ...], ({"x": 1},), (Point(1),)),
    (tuple[int, Point], (1, {"x": 1}), (1, Point(1))),
    (Sequence[Point], [{"x": 1}], [Point(1)]),
    (Point, {"x": 1, "y": 2}, Point(1, 2.0)),
    (Line, {"points": [{"x": 1}, Point(2)]}, Line([Point(1), Point(2)])),
    (
        Line,
        {"points": [], "at": "2024-01-01T00:00:00Z", "kind": "new", "pair": [1, 2], "mixed": "1"},
        Line([], datetime(2024, 1, 1, tzinfo=TzInfo(0)), Kind.NEW, (1, 2), mixed="1"),
    ),
    (Line, {"points": [], "prices": {"a": "1.10"}}, Line([], prices={"a": Decimal("1.10")})),
    (Pair, {"left": 1, "right": "a"}, Pair(1, "a")),
    (Pair, [1, "a"], Pair(1, "a")),
    (Numbers, [1, 2], Numbers([1, 2])),
    (Box[int], {"content": 1}, Box(1)),
    (Checked, {"n": "5"}, Checked(5)),
    (Strict, {"n": 5}, Strict(n=5)),
    (Entry, {"name": "a", "inner": {"name": "b", "point": {"x": 1}}}, None),
    (Slug, "  a ", "a"),
    (Annotated[int, BeforeValidator(int)], "5", 5),
    (Annotated[list[int], AfterValidator(sorted)], [2, 1], [1, 2]),
    (TypeAliasType("Docs", list[Document]), [{"title": "a"}], [Document(title="a")]),
]


@pytest.mark.parametrize(("annotation", "value", "expected"), BUILT, ids=str)
def test_plain_data_for_a_class_is_built(annotation: Any, value: Any, expected: Any) -> None:
    """Dicts become instances wherever the annotation has a class; the value stays as it was."""
    if expected is None:
        expected = {"name": "a", "inner": {"name": "b", "point": Point(1)}}
    before = repr(value)
    made = Shape.of(annotation).fit(value, "value")

    assert traits(made) == traits(expected)
    assert repr(value) == before


REFUSED: list[tuple[Any, Any, str]] = [
    *((int, "1", ""), (int, True, ""), (int, 1.0, ""), (int, None, ""), (float, True, "")),
    *(
        (float, "1", ""),
        (bool, 1, ""),
        (str, 1, ""),
        (str, b"a", ""),
        (bytes, "a", ""),
        (None, 0, ""),
    ),
    *((str | int, 1.5, ""), (date, "2024-01-01", ""), (Kind, "new", ""), (Literal[1], True, "")),
    *((Literal["a"], "b", ""), (UUID, str(UUID(int=1)), ""), (Decimal, 1, "")),
    *((list[int], [1, "2"], "[1]"), (list[int], (1,), ""), (list[int], {1}, ""), (list, "ab", "")),
    *((Sequence[str], "ab", ""), (tuple[int, str], (1,), ""), (tuple[int, str], (1, 2), "[1]")),
    *((tuple[int, ...], [1], ""), (set[int], [1], ""), (dict[str, int], {"a": "1"}, ".a")),
    *(
        (dict[str, int], {1: 1}, ".keys()[0]"),
        (dict[str, list[int]], {"a b": [True]}, "['a b'][0]"),
    ),
    *(
        (dict, [], ""),
        (list[int | None], ["x"], "[0]"),
        (Percent, 101, ""),
        (list[Percent], [1, -1], "[1]"),
    ),
    *(
        (Slug, "  ", ""),
        (Json, {"a": [1j]}, ""),
        (Document, Report(name="r"), ""),
        (Document, "a", ""),
    ),
    *(
        (Document, {}, ".title"),
        (Document, {"title": 1}, ".title"),
        (Document, {"title": "a", "pages": "x"}, ".pages"),
    ),
    (Document, {"title": "a", "point": {"x": "far"}}, ".point.x"),
    *((Document | None, {"title": 1}, ".title"), (Document | Report, {"x": 1}, "")),
    *(
        (Strict, {"n": "5"}, ".n"),
        (Strict, {"n": 5, "m": 1}, ".m"),
        (list[Strict], [{"n": 1}, {}], "[1].n"),
    ),
    *(
        (Point, {"x": "1"}, ".x"),
        (Point, {"x": True}, ".x"),
        (Point, {"x": 1.0}, ".x"),
        (Point, {}, ".x"),
    ),
    *(
        (Point, {"x": 1, "z": 1}, ".z"),
        (Point, [1], ""),
        (Line, {"points": [], "whole": 1}, ".whole"),
    ),
    *(
        (Line, {"points": [{"x": 1}, {"x": "1"}]}, ".points[1].x"),
        (Line, {"points": {}}, ".points"),
    ),
    *((Line, {"points": [], "mixed": 1.5}, ".mixed"), (Line, {"points": [], "at": 5.5j}, ".at")),
    *(
        (Line, {"points": [], "pair": ["1", 2]}, ".pair[0]"),
        (Line, {"points": [], "at": "soon"}, ".at"),
    ),
    *(
        (Pair, {"left": "1"}, ".left"),
        (Pair, ["1"], ".left"),
        (Numbers, ["x"], "[0]"),
        (Checked, {"n": "x"}, ".n"),
    ),
    *(
        (Entry, {}, ".name"),
        (Entry, {"name": 1}, ".name"),
        (Entry, {"name": "a", "inner": {}}, ".inner.name"),
    ),
    *((Box[int], {"content": "x"}, ".content"), (Entry, [], "")),
]


@pytest.mark.parametrize(("annotation", "value", "way"), REFUSED, ids=str)
def test_what_does_not_fit_is_refused_with_its_path(annotation: Any, value: Any, way: str) -> None:
    """Strict, and the path leads to the first part that is wrong."""
    with pytest.raises(PayloadTypeError) as caught:
        Shape.of(annotation).fit(value, "$")

    assert caught.value.path == f"${way}"


def test_an_error_says_what_was_expected() -> None:
    """The sentence names place, type and what came instead."""
    with pytest.raises(PayloadTypeError, match=r"^the input\.a: expected int \| None, got str$"):
        Shape.of(dict[str, int | None]).fit({"a": "x"}, "the input")
    with pytest.raises(PayloadTypeError, match=r"^x\.title: expected Document: .*, got nothing$"):
        Shape.of(Document).fit({}, "x")


def test_classes_that_pydantic_cannot_read() -> None:
    """Instances pass; plain data for them is refused, not a crash."""

    class Handle:
        pass

    @dataclass
    class Holder:
        handle: Handle

    holder = Holder(Handle())
    assert Shape.of(Holder).fit(holder, "x") is holder
    with pytest.raises(PayloadTypeError):
        Shape.of(Holder).fit({"handle": 1}, "x")
    assert Shape.of(Holder).json_schema() == {}


def test_very_deep_values() -> None:
    """A value deeper than Python's stack is refused like any other that does not fit."""
    value: Any = 1
    for _ in range(20_000):
        value = [value]
    with pytest.raises(PayloadTypeError, match="nested too deep"):
        Shape.of(Json).fit(value, "x")


@pytest.mark.parametrize(
    ("annotation", "accepts"),
    [
        (Any, True),
        (Parameter.empty, True),
        (T, True),
        (int, False),
        (None, False),
        (list[Any], False),
    ],
    ids=str,
)
def test_which_shapes_accept_anything(annotation: Any, accepts: bool) -> None:
    """No annotation and `Any` accept anything; everything else asks."""
    assert Shape.of(annotation).accepts_anything is accepts


def test_json_schema() -> None:
    """The schema of the annotation; empty where anything goes."""
    assert Shape.of(int).json_schema() == {"type": "integer"}
    assert Shape.of(Document).json_schema()["title"] == "Document"
    assert Shape.of(Any).json_schema() == {}
    assert Shape.of(Parameter.empty).json_schema() == {}
    assert Shape.of(Speaks).json_schema() == {}
