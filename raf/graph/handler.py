"""Handlers and conditions: what a function takes and gives, read from its signature.

Rules of this file:
- A handler is called `(payload)` or `(ctx, payload)`.  The first of two is the context when it is
  annotated `Context`, called `ctx` or `context`, or both have no default.
- A condition or chooser is called `(payload)` or `(payload, state)`, a reducer `(current, new)`.
- Nothing is called here.  A fault is raised as a `GraphError` of one problem that begins with the
  verb; the builder says of what it speaks, and reports all of them together.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from raf.context import Context
from raf.errors import GraphError
from raf.graph.names import plain
from raf.topology.workflow import NodeCode, RetryPolicy
from raf.values.annotation import Shape

_CONTEXT_NAMES = ("ctx", "context")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_TAKES = "it is called with (payload) or (ctx, payload)"


def _fault(what: str) -> GraphError:
    return GraphError("", (what,))


@dataclass(frozen=True, slots=True)
class Signature:
    """How a handler is called; annotations are `Any` where there are none."""

    call: Callable[..., Any]
    is_async: bool
    takes_context: bool
    payload: Any
    returns: Any


def read_handler(handler: Any, *, agent: bool = False) -> Signature:
    """How a handler, or the `run` of an agent object, is called.

    Raises:
        GraphError: It cannot be called as a node.
    """
    call = plain(handler)
    if inspect.isclass(call):
        raise _fault(f"is the class {call.__name__}: pass a function or an instance")
    if agent and not inspect.isroutine(call) and callable(getattr(call, "run", None)):
        call = call.run
    if not callable(call):
        wanted = "a callable or an object with run(payload)" if agent else "a function"
        raise _fault(f"is {type(call).__name__}, which cannot be called: pass {wanted}")
    if _is(call, inspect.isgeneratorfunction) or _is(call, inspect.isasyncgenfunction):
        raise _fault("is a generator: return one value, or send several with ctx.send()")
    taken, signature = _taken(call), _signature(call)
    if taken is None or signature is None:
        raise _fault("has no signature that can be read: wrap it in a function of (payload)")
    takes_context, payload = _parameters(call, taken)
    is_async, returns = _returns(call, signature)
    return Signature(
        call=call, is_async=is_async, takes_context=takes_context, payload=payload, returns=returns
    )


def as_handler(name: str, signature: Signature, retry: RetryPolicy, **limits: Any) -> NodeCode:
    """The code of a node, from how its handler is called.

    Args:
        name: The node's name.
        signature: What `read_handler` found.
        retry: When a failed attempt is tried again.
        limits: `timeout_s`, `idle_timeout_s` and `max_concurrency`.
    """
    return NodeCode(
        name=name,
        call=signature.call,
        is_async=signature.is_async,
        takes_context=signature.takes_context,
        payload=Shape.of(signature.payload),
        returns=signature.returns,
        retry=retry,
        **limits,
    )


def takes_state(condition: Callable[..., Any]) -> bool:
    """Whether a condition or chooser is called with the state too.

    Raises:
        GraphError: It is async, a generator, or takes something else.
    """
    _require_sync(condition)
    taken = _taken(condition)
    if taken is None:
        return False
    if not (taken.fits(1) or taken.fits(2)):
        raise _fault("has other parameters: it is called with (payload) or (payload, state)")
    return taken.fits(2) and (not taken.fits(1) or taken.positional[1].name == "state")


def check_reducer(reducer: Callable[..., Any]) -> None:
    """Raise `GraphError` unless it can be called with the current value and a contribution."""
    _require_sync(reducer)
    taken = _taken(reducer)
    if taken is not None and not taken.fits(2):
        raise _fault("has other parameters: it is called with (current, contribution)")


def _require_sync(function: Callable[..., Any]) -> None:
    if not callable(function):
        raise _fault(f"is {type(function).__name__}, which cannot be called: pass a function")
    if _is(function, inspect.iscoroutinefunction):
        raise _fault("is async: it must answer at once, so make it a plain def")
    if _is(function, inspect.isgeneratorfunction) or _is(function, inspect.isasyncgenfunction):
        raise _fault("is a generator: it must return one value")


def _is(function: Any, kind: Callable[[Any], bool]) -> bool:
    """Whether a function, what a decorator wrapped, or an object's call is of that kind."""
    if kind(function) or kind(inspect.unwrap(function)):
        return True
    return not inspect.isclass(function) and kind(_code(function))


def _code(function: Any) -> Any:
    """The function whose code runs, below partials, decorators and callable objects."""
    inner = inspect.unwrap(function.func if isinstance(function, partial) else function)
    return inner if hasattr(inner, "__globals__") else type(inner).__call__


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:
        return None  # built in: Python knows no signature of it


@dataclass(frozen=True, slots=True)
class _Taken:
    """The positional parameters of a function, and keyword-only ones without a default.

    `*args` counts as two more positional ones with a default.
    """

    positional: list[inspect.Parameter]
    keywords: list[str]

    @property
    def needed(self) -> list[str]:
        """Names of the positional parameters without a default."""
        return [p.name for p in self.positional if p.default is p.empty]

    def fits(self, count: int) -> bool:
        """Whether the function can be called with so many positional values."""
        return not self.keywords and len(self.needed) <= count <= len(self.positional)


def _taken(function: Any) -> _Taken | None:
    """What a function takes; None when Python knows no signature of it."""
    signature = _signature(function)
    if signature is None:
        return None
    taken = _Taken([], [])
    for parameter in signature.parameters.values():
        if parameter.kind in _POSITIONAL:
            taken.positional.append(parameter)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            more = parameter.replace(kind=parameter.POSITIONAL_ONLY, default=None)
            taken.positional.extend([more, more])
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            taken.keywords.append(parameter.name)
    return taken


def _parameters(call: Any, taken: _Taken) -> tuple[bool, Any]:
    """Whether the context comes first, and the annotation of the payload."""
    if taken.keywords:
        raise _fault(f"needs the keyword {taken.keywords[0]!r}: {_TAKES}; bind the rest by partial")
    if not taken.positional:
        raise _fault(f"takes nothing: {_TAKES}")
    if not (taken.fits(1) or taken.fits(2)):
        raise _fault(f"needs ({', '.join(taken.needed)}): {_TAKES}; bind the rest by partial")
    first, *rest = taken.positional
    takes_context = bool(rest) and _context_first(call, taken)
    if not rest and (_is_context(call, first) or _is_bare(first)):
        raise _fault(f"takes a context and no payload: {_TAKES}")
    payload = rest[0] if takes_context else first
    return takes_context, _annotation(call, payload.name, payload.annotation)


def _is_bare(parameter: inspect.Parameter) -> bool:
    """Whether it is called as the context is, and nothing says that it is something else."""
    return parameter.name == "ctx" and parameter.annotation is parameter.empty


def _context_first(call: Any, taken: _Taken) -> bool:
    """Whether the first of at least two parameters is the context."""
    first, second, *_ = taken.positional
    if _is_context(call, first) or first.name in _CONTEXT_NAMES:
        return True
    if _is_context(call, second):
        raise _fault(f"takes the context behind the payload: {_TAKES}")
    if taken.fits(1):
        return False
    _refuse_payload_first(call, first)
    return True


def _is_context(call: Any, parameter: inspect.Parameter) -> bool:
    """Whether a parameter is annotated as the context, also by a name not imported at run time."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        if annotation.strip("'\" ").rpartition(".")[2] == Context.__name__:
            return True
        try:
            annotation = _annotation(call, parameter.name, annotation)
        except GraphError:
            return False
    return annotation is Context or (inspect.isclass(annotation) and Context in annotation.__mro__)


def _refuse_payload_first(call: Any, first: inspect.Parameter) -> None:
    """The first of two is annotated as data: then somebody expects two payloads."""
    annotation = _annotation(call, first.name, first.annotation)
    kind = get_origin(annotation) or annotation
    open_ended = (Any, object, Union, UnionType)
    if inspect.isclass(kind) and kind not in open_ended and not _is_protocol(kind):
        raise _fault(
            f"takes {kind.__name__} as the first of two: {_TAKES}, so annotate the first as "
            "Context, or take one payload"
        )


def _is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))  # part of Context, as a node may ask for it


def _annotation(call: Any, name: str, annotation: Any) -> Any:
    """An annotation as an object; `Any` where there is none."""
    if annotation is inspect.Parameter.empty:
        return Any
    holder = SimpleNamespace(__annotations__={name: annotation})
    known = getattr(_code(call), "__globals__", {})
    try:
        hints = get_type_hints(holder, globalns=known, include_extras=True)
    except Exception as error:
        raise _fault(
            f"has the annotation {annotation!r} of {name!r}, which cannot be resolved ({error}): "
            "import or define the type at the top of its module"
        ) from error
    return hints[name]


def _returns(call: Any, signature: inspect.Signature) -> tuple[bool, Any]:
    """Whether a call must be awaited, and the annotation of what comes out."""
    returns = _annotation(call, "return", signature.return_annotation)
    if _is(call, inspect.iscoroutinefunction):
        return True, returns
    origin = get_origin(returns) or returns
    if origin in (Coroutine, Awaitable):
        return True, get_args(returns)[-1] if get_args(returns) else Any
    if origin in (Iterator, AsyncIterator):
        raise _fault("returns an iterator: return one value, or send several with ctx.send()")
    return False, returns
