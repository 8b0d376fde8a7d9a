"""Every call that makes something durable stands between two failpoints.

The crash campaigns kill a process at each named point, so a durable call without one before it and
one after it would be a moment that no campaign reaches.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.house import tree

# What changes the disk for good, or makes a change last. Writes that a later call makes durable
# are not here: until that call they may vanish, and the point before it stands for them.
DURABLE_CALLS = frozenset(
    {
        "os.fdatasync",
        "os.fsync",
        "os.link",
        "os.remove",
        "os.rename",
        "os.replace",
        "os.rmdir",
        "os.truncate",
        "os.ftruncate",
        "os.unlink",
        "shutil.rmtree",
    }
)
DURABLE_METHODS = frozenset({"commit", "hardlink_to", "rmdir", "unlink"})
DURABLE_STATEMENT = re.compile(
    r"\s*(COMMIT|END|RELEASE|VACUUM|PRAGMA\s+WAL_CHECKPOINT)\b", re.IGNORECASE
)
POINT = re.compile(r"store\.(?P<backend>[a-z]+)\.(?P<op>[a-z_]+(\.[a-z_]+)*)\.(before|after)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A durable call or a failpoint, where it stands in the source."""

    at: tuple[int, int]
    name: str


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions defined in it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))


def imported_from_os(module: ast.Module) -> dict[str, str]:
    """Names that a module took out of `os` or `shutil`, so that an alias hides nothing."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and node.module in {"os", "shutil"}
        for alias in node.names
    }


def durable_name(call: ast.Call, aliases: dict[str, str]) -> str:
    """What a call makes durable, or the empty string."""
    name = tree.dotted(call.func)
    name = aliases.get(name, name)
    if name in DURABLE_CALLS:
        return name
    if isinstance(call.func, ast.Attribute):
        own = name == f"self.{call.func.attr}"  # a method of the store, looked at where it stands
        if call.func.attr in DURABLE_METHODS and not own:
            return call.func.attr
        if call.func.attr in {"execute", "executescript"} and is_commit(call):
            return "COMMIT"
    return ""


def is_commit(call: ast.Call) -> bool:
    """Whether an `execute` is given a literal statement that commits."""
    first = call.args[0] if call.args else None
    return (
        isinstance(first, ast.Constant)
        and isinstance(first.value, str)
        and DURABLE_STATEMENT.match(first.value) is not None
    )


def steps(function: Function, aliases: dict[str, str]) -> tuple[list[Step], list[Step]]:
    """The durable calls and the failpoints of a function, in the order of the source."""
    nodes = list(own_nodes(function))
    # `await port.commit(...)` is a room's verb, not a connection's.
    awaited = {id(node.value) for node in nodes if isinstance(node, ast.Await)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and id(node) not in awaited]
    durable: list[Step] = []
    points: list[Step] = []
    for call in calls:
        at = (call.lineno, call.col_offset)
        if tree.dotted(call.func).rpartition(".")[2] == "failpoint":
            points.append(Step(at=at, name=literal(call)))
        elif name := durable_name(call, aliases):
            durable.append(Step(at=at, name=name))
    return sorted(durable, key=place), sorted(points, key=place)


def place(step: Step) -> tuple[int, int]:
    """Where a step stands."""
    return step.at


def literal(call: ast.Call) -> str:
    """The literal name that a failpoint is given, or the empty string."""
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return ""


def complaints(module: ast.Module) -> list[str]:
    """What is wrong with the failpoints of a module."""
    aliases = imported_from_os(module)
    found: list[str] = []
    for function in ast.walk(module):
        if not isinstance(function, Function):
            continue
        durable, points = steps(function, aliases)
        where = f"line {function.lineno}, {function.name}"
        found += [
            f"{where}: {point.name or 'a computed name'!r} does not read store.BACKEND.OP.before"
            for point in points
            if not POINT.fullmatch(point.name)
        ]
        names = {point.name for point in points}
        found += [
            f"{where}: {name} has no partner" for name in sorted(names) if not pair(name, names)
        ]
        for call in durable:
            before = any(p.at < call.at and p.name.endswith(".before") for p in points)
            after = any(p.at > call.at and p.name.endswith(".after") for p in points)
            if not (before and after):
                found.append(f"{where}: {call.name} at line {call.at[0]} is not between two points")
    return found


def pair(name: str, names: set[str]) -> bool:
    """Whether the other end of a point is there."""
    stem, _, end = name.rpartition(".")
    return f"{stem}.{'after' if end == 'before' else 'before'}" in names


STORES = [path for path in tree.modules("raf") if path.parts[1] == "store"]


@pytest.mark.parametrize("path", STORES, ids=str)
def test_durable_calls_stand_between_failpoints(path: Path) -> None:
    """Each durable call of a store has a failpoint before it and one after it, in its function."""
    assert complaints(tree.parse(path)) == []


@pytest.mark.parametrize("backend", ["file", "sqlite"])
def test_the_search_finds_something(backend: str) -> None:
    """Each durable store has durable calls, and its points carry its name."""
    points: set[str] = set()
    durable = 0
    for path in STORES:
        if backend not in (path.stem, *path.parts):
            continue
        module = tree.parse(path)
        for function in ast.walk(module):
            if isinstance(function, Function):
                calls, named = steps(function, imported_from_os(module))
                durable += len(calls)
                points |= {point.name for point in named}
    assert durable
    assert points
    assert {name for name in points if not name.startswith(f"store.{backend}.")} == set()


@pytest.mark.parametrize(
    "body",
    [
        "os.fsync(fd)",
        "failpoint('store.file.write.before'); os.fsync(fd)",
        "os.fsync(fd); failpoint('store.file.write.after')",
        "failpoint(name); os.fsync(fd); failpoint(name)",
        "failpoint('store.file.a.before'); os.fsync(fd); failpoint('store.file.b.after')",
        "connection.execute('COMMIT')",
        "connection.commit()",
        "self._connection.commit()",
        "path.unlink()",
        "sync(fd)",
    ],
)
def test_an_open_flank_is_seen(body: str) -> None:
    """Each way to leave a durable call without its two points is caught."""
    assert complaints(ast.parse(f"from os import fsync as sync\ndef f():\n    {body}"))


@pytest.mark.parametrize(
    "body",
    [
        "failpoint('store.file.a.before'); os.fsync(fd); failpoint('store.file.a.after')",
        "failpoint('store.file.a.before'); c.execute('COMMIT'); failpoint('store.file.a.after')",
        "connection.execute('SELECT 1')",
        "text.replace('a', 'b')",
        "self.commit()",
    ],
)
def test_a_closed_flank_passes(body: str) -> None:
    """A bracketed call, and a call that makes nothing durable, is not a complaint."""
    assert complaints(ast.parse(f"def f():\n    {body}")) == []
