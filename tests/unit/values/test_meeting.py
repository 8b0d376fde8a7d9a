"""Whether a source's annotation and a target's can meet; asked when a graph is built."""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from inspect import Parameter
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Protocol, TypedDict, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, RootModel
from typing_extensions import TypeAliasType

from raf.values import could_accept

T = TypeVar("T")


class A(BaseModel):
    n: int


class SubA(A):
    pass


class B(BaseModel):
    n: int


@dataclass
class D:
    n: int


class Numbers(RootModel[list[int]]):
    pass


class Pair(NamedTuple):
    left: int
    right: int


class Entry(TypedDict):
    name: str


class Longer(Entry):
    size: int


class Numbered(TypedDict):
    name: int


class Loose(TypedDict):
    name: NotRequired[int]


class Color(enum.StrEnum):
    RED = "red"


class Speaks(Protocol):
    def speak(self) -> str: ...


Json = TypeAliasType("Json", "dict[str, Json] | list[Json] | str | None")

MEET: list[tuple[Any, Any]] = [
    *(
        (Any, int),
        (int, Any),
        (Parameter.empty, int),
        (int, Parameter.empty),
        (None, int),
        (int, None),
    ),
    *((T, int), (int, T), ("Unresolved", int), (object, int), (Speaks, int), (A, Speaks)),
    *(
        (int, int),
        (int, float),
        (int, int | str),
        (int | str, int),
        (str | None, None),
        (int | None, float),
    ),
    *(
        (A, A),
        (SubA, A),
        (A, SubA),
        (A, A | B),
        (A | B, B),
        (dict, A),
        (dict[str, Any], A),
        (Entry, A),
    ),
    *((dict, D), (list[dict[str, Any]], list[A]), (list[A], list[A]), (list[SubA], Sequence[A])),
    *(
        (list[Any], list[int]),
        (list, list[int]),
        (list[int], Iterable[int]),
        (Sequence[int], list[int]),
    ),
    *(
        (tuple[int, int], tuple[int, ...]),
        (tuple[int, ...], tuple[int, int]),
        (tuple[int, str], tuple),
    ),
    *((tuple[int, int], Sequence[int]), (Pair, tuple), (tuple[int, int], Pair), (list[int], Pair)),
    *(
        (Pair, tuple[int, int]),
        (list[int], Numbers),
        (str, Numbers),
        (datetime, date),
        (date, datetime),
    ),
    *(
        (Color, str),
        (str, Color),
        (Literal["a"], str),
        (str, Literal["a"]),
        (Literal["a", 1], Literal[1]),
    ),
    *((Color, Literal[Color.RED]), (dict[str, int], Mapping[str, float]), (Entry, dict[str, Any])),
    *((Longer, Entry), (Entry, Longer), (Json, str), (dict[str, str], Json), (Json, Json)),
    *(
        (Annotated[int, Field(gt=0)], int),
        (str, Annotated[str, "note"]),
        (Entry, Entry),
        (dict, Entry),
    ),
    *((Numbered, Loose),),
]

APART: list[tuple[Any, Any]] = [
    *((str, int), (int, str), (float, int), (bool, int), (int, bool), (bool, float), (bytes, str)),
    *(
        (A, B),
        (A, D),
        (D, A),
        (A, dict),
        (A, dict[str, Any]),
        (A, str),
        (str, A),
        (list[A], A),
        (int, A),
    ),
    *(
        (list[str], int),
        (list[str], list[int]),
        (list[A], list[B]),
        (list[int], set[int]),
        (int, list[int]),
    ),
    *(
        (list[int], tuple[int, ...]),
        (tuple[int, int], tuple[int]),
        (tuple[int, str], tuple[int, ...]),
    ),
    *(
        (tuple[int, str], tuple[str, int]),
        (dict[str, int], dict[str, str]),
        (dict[int, A], dict[str, A]),
    ),
    *((dict, list), (list, dict), (str, list[str]), (str, Sequence[str]), (bytes, Sequence[int])),
    *((int | str, A | B), (list[int | str], list[A]), (UUID, str), (str, UUID), (datetime, str)),
    *(
        (Literal["a"], int),
        (Literal["a"], Literal["b"]),
        (int, Literal["a"]),
        (Literal[1], Literal[True]),
    ),
    *((Entry, Numbered), (Entry, list), (Entry, int), (A, Entry), (int, Json), (A, Json)),
    *((Annotated[str, "note"], int), (str, tuple[str, str]), (A, tuple[int, int]), (A, list[A])),
]


@pytest.mark.parametrize(("source", "target"), MEET, ids=str)
def test_annotations_that_can_meet(source: Any, target: Any) -> None:
    """Some value fits both: the graph may be built."""
    assert could_accept(source, target)


@pytest.mark.parametrize(("source", "target"), APART, ids=str)
def test_annotations_that_cannot_meet(source: Any, target: Any) -> None:
    """No value that anybody would declare so fits both: the graph is wrong."""
    assert not could_accept(source, target)
