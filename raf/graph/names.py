"""Names for functions, and digests of their sources.

Rules of this file:
- Conditions and reducers are known by name: the name is part of the fingerprint, so it must stay
  the same from process to process.  A lambda, a partial and a bare callable object have none.
- The digest covers a function's own text, without comments and layout.  It tells that a body was
  edited; what the body calls is not looked at.
"""

import ast
import hashlib
import inspect
import linecache
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any

_LAMBDA = "<lambda>"


@dataclass(frozen=True, slots=True)
class Named:
    """A callable with a name; made by `named`."""

    name: str
    call: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        """Calls the function that was named."""
        return self.call(*args)


def named(name: str, function: Callable[..., Any]) -> Named:
    """Give a lambda, a partial or a callable object the name that a workflow knows it by.

    Args:
        name: Part of the workflow's fingerprint; unique among the workflow's conditions (or
            reducers).
        function: What is called.

    Example:
        >>> named("long", lambda text: len(text) > 80)("short")
        False
    """
    return Named(name, function)


def plain(function: Any) -> Any:
    """The function itself, without the name that was given to it."""
    return function.call if isinstance(function, Named) else function


def name_of(function: Any) -> str | None:
    """The name that a function is known by; None when it has none that could be kept."""
    if isinstance(function, Named):
        name: Any = function.name
    else:
        name = getattr(function, "__name__", None)
    return name if is_name(name) and name != _LAMBDA else None


def is_name(name: Any) -> bool:
    """Whether this can name something in a workflow: printable text without spaces around it."""
    return isinstance(name, str) and name != "" and name.isprintable() and name == name.strip()


def described(function: Any) -> str:
    """A function as a person finds it again."""
    function = plain(function)
    if isinstance(function, partial):
        return f"a partial of {described(function.func)}"
    name = getattr(function, "__qualname__", None)
    if name is None:
        return f"an object of class {type(function).__name__}"
    code = getattr(function, "__code__", None)
    where = f" (line {code.co_firstlineno})" if isinstance(code, CodeType) else ""
    return f"{function.__module__}.{name}{where}"


def source_digest(function: Any) -> str:
    """SHA-256 of the function's own text; empty when its source cannot be found."""
    text = _text(plain(function))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if text else ""


def _text(function: Any) -> str:
    if isinstance(function, partial):
        return _text(function.func)
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        function = type(function)  # an object that is called: its class is the code
    function = inspect.unwrap(function)
    if getattr(function, "__name__", "") == _LAMBDA:
        return _lambda_text(function.__code__)
    try:
        source = textwrap.dedent(inspect.getsource(function))
        return ast.unparse(ast.parse(source))
    except (OSError, TypeError, SyntaxError, ValueError):
        return ""  # built in, typed into a shell, or no longer the text that was compiled


def _lambda_text(code: CodeType) -> str:
    """The body of a lambda: `getsource` gives the whole statement around it, so cut it out."""
    spans = [
        ((line, column), (end_line, end_column))
        for line, end_line, column, end_column in code.co_positions()
        if line is not None and end_line is not None
        if column is not None and end_column  # the first instruction stands for no text
    ]
    lines = [line.encode() for line in linecache.getlines(code.co_filename)]
    line, column = min((begin for begin, _ in spans), default=(0, 0))
    end_line, end_column = max((end for _, end in spans), default=(0, 0))
    if not 0 < line <= end_line <= len(lines):
        return ""
    cut = lines[line - 1 : end_line]
    cut[-1] = cut[-1][:end_column]
    cut[0] = cut[0][column:]
    arguments = ", ".join(code.co_varnames[: code.co_argcount])
    try:
        body = ast.parse(b"(" + b"".join(cut) + b"\n)", mode="eval")
    except SyntaxError:
        return ""
    return f"lambda {arguments}: {ast.unparse(body)}"
