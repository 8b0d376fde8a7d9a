"""Every kind of handler and condition is read as it will be called."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import pytest

from raf.context import Context
from raf.errors import GraphError
from raf.graph.handler import check_reducer, read_handler, takes_state
from raf.graph.names import named


async def payload_only(payload: int) -> str:
    return str(payload)


async def with_context(ctx: Context, payload: int) -> str:
    return str(payload)


async def by_name(ctx, payload: int) -> str:  # type: ignore[no-untyped-def]
    return str(payload)


async def by_long_name(context: Any, payload: int) -> str:
    return str(payload)


async def by_annotation(c: "Context", payload: "int") -> "str":
    return str(payload)


async def by_count(c, payload: int) -> str:  # type: ignore[no-untyped-def]
    return str(payload)


async def unimported(ctx: "engine.Context", payload: int) -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(payload)


class Sends(Protocol):
    """What one node needs of the context."""

    def send(self, payload: Any) -> None: ...


async def by_part(out: Sends, payload: int) -> str:
    return str(payload)


async def with_default(payload: int, temperature: float = 0.5) -> str:
    return str(payload)


async def with_context_and_default(ctx: Context, payload: int, more: str = "") -> str:
    return str(payload)


async def keywords(payload: int, *, more: str = "", **rest: Any) -> str:
    return str(payload)


def sync(payload: int) -> str:
    return str(payload)


def sync_with_context(ctx: Context, payload: int) -> str:
    return str(payload)


def awaitable(payload: int) -> Awaitable[str]:
    return payload_only(payload)


def coroutine(payload: int) -> Coroutine[Any, Any, str]:
    return payload_only(payload)


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain decorator, which hides that what it wraps is async."""

    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


class Agent:
    async def run(self, ctx: Context, payload: int) -> str:
        return str(payload)

    def think(self, payload: int) -> str:
        return str(payload)

    @staticmethod
    async def static(payload: int) -> str:
        return str(payload)

    @classmethod
    async def of_class(cls, ctx: Context, payload: int) -> str:
        return str(payload)


class Called:
    async def __call__(self, ctx: Context, payload: int) -> str:
        return str(payload)


async def bound(model: str, payload: int) -> str:
    return model + str(payload)


HANDLERS: list[tuple[Any, bool, bool]] = [
    (payload_only, True, False),
    (with_context, True, True),
    (by_name, True, True),
    (by_long_name, True, True),
    (by_annotation, True, True),
    (by_count, True, True),
    (unimported, True, True),
    (by_part, True, True),
    (with_default, True, False),
    (with_context_and_default, True, True),
    (keywords, True, False),
    (sync, False, False),
    (sync_with_context, False, True),
    (awaitable, True, False),
    (coroutine, True, False),
    (logged(with_context), True, True),
    (logged(sync), False, False),
    (Agent().think, False, False),
    (Agent().static, True, False),
    (Agent().of_class, True, True),
    (Called(), True, True),
    (functools.partial(bound, "m"), True, False),
    (functools.partial(Called()), True, True),
    (named("n", payload_only), True, False),
]


@pytest.mark.parametrize(("handler", "is_async", "takes_context"), HANDLERS)
def test_handlers(handler: Any, *, is_async: bool, takes_context: bool) -> None:
    """Async or sync, with the context or without, and the types of what goes in and comes out."""
    read = read_handler(handler)
    assert (read.is_async, read.takes_context) == (is_async, takes_context)
    assert (read.payload, read.returns) == (int, str)
    arguments = (None, 5) if takes_context else (5,)
    result = read.call(*arguments)
    assert (asyncio.run(result) if is_async else result) in ("5", "m5")


def test_missing_annotations_are_any() -> None:
    """Nothing is guessed of a payload that says nothing."""
    read = read_handler(lambda payload: payload)
    assert (read.payload, read.returns) == (Any, Any)


def test_a_payload_may_be_called_context_when_it_says_what_it_is() -> None:
    """One parameter is the payload, unless it says that it is the context."""

    def summarize(context: dict[str, str]) -> str:
        return str(context)

    assert read_handler(summarize).payload == dict[str, str]


def test_an_agent_is_called_by_its_run() -> None:
    """An object with run, or any callable, can be an agent."""
    assert read_handler(Agent(), agent=True).takes_context
    assert read_handler(payload_only, agent=True).payload is int
    assert read_handler(Called(), agent=True).takes_context
    with pytest.raises(GraphError):
        read_handler(Agent())


CONDITIONS: list[tuple[Any, bool]] = [
    (lambda payload: True, False),
    (lambda payload, state: True, True),
    (lambda payload, s: True, True),
    (lambda payload, limit=3: True, False),
    (lambda payload, state=None: True, True),
    (lambda *args: True, False),
    (bool, False),
    (len, False),
    (functools.partial(lambda limit, payload: True, 3), False),
]


@pytest.mark.parametrize(("condition", "wants_state"), CONDITIONS)
def test_conditions(condition: Any, *, wants_state: bool) -> None:
    """A second parameter is the state when it has no default, or is called so."""
    assert takes_state(condition) is wants_state


@pytest.mark.parametrize("reducer", [max, lambda a, b: a, lambda a, b, c=1: a, lambda *a: a])
def test_reducers(reducer: Any) -> None:
    """A reducer is called with two values."""
    check_reducer(reducer)


@pytest.mark.parametrize("reducer", [lambda a: a, lambda a, b, c: a, lambda a, *, b: a])
def test_wrong_reducers(reducer: Any) -> None:
    """Anything else is refused."""
    with pytest.raises(GraphError, match="current, contribution"):
        check_reducer(reducer)
