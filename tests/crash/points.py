"""The named points of the package, read from its source, and those of the script."""

import ast
from collections.abc import Iterator
from functools import cache
from typing import Final

from tests.crash.workflow import EFFECT, NODE
from tests.house import tree

SCRIPT_POINTS: Final = tuple(
    f"{stem}.{end}" for stem in (NODE, EFFECT) for end in ("before", "after")
)


@cache
def points_of_the_source() -> tuple[str, ...]:
    """Every name that a call of `failpoint` in the package is given, in order."""
    sources = (tree.parse(path) for path in tree.modules("raf") if "failpoint(" in tree.text(path))
    return tuple(sorted({name for module in sources for name in points_of(module)}))


def points_of(module: ast.Module) -> Iterator[str]:
    """The literal names that a module's failpoints have."""
    for node in ast.walk(module):
        if (
            isinstance(node, ast.Call)
            and tree.dotted(node.func).rpartition(".")[2] == "failpoint"
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
        ):
            yield node.args[0].value


def points_of_backend(backend: str) -> tuple[str, ...]:
    """The points that a process on this store can pass, those of the script included."""
    rooms = ("engine.", f"store.{backend}.")
    return (*(name for name in points_of_the_source() if name.startswith(rooms)), *SCRIPT_POINTS)


def store_point(backend: str, operation: str) -> str:
    """The stem of the points around an operation of a store as a whole."""
    stem = f"store.{backend}.{operation}"
    known = points_of_backend(backend)
    ways = (f"{stem}.put", f"{stem}.pack", stem)
    return next(way for way in ways if f"{way}.before" in known)
