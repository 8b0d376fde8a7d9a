"""The page of the API shows the signatures that the code has, and no member is left out."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import raf
from raf.state.view import Scope
from tests.house import tree
from tests.house.tables import table

PAGE = Path("docs/reference/api.md")
# What the engine needs of the manager, and nobody else.
INTERNAL = {
    "CheckpointManager": {"claim", "fall_back", "writer"},
    "ScopeKey": {"node_id", "scope_name"},
    "WorkflowEngine": {"give_back", "max_steps", "run_claimed"},  # what a worker needs of it
}
CLASSES: dict[str, type] = {
    "WorkflowBuilder": raf.WorkflowBuilder,
    "Context": raf.Context,
    "Scope": Scope,
    "WorkflowEngine": raf.WorkflowEngine,
    "Worker": raf.Worker,
    "AgentSession": raf.AgentSession,
    "CheckpointManager": raf.CheckpointManager,
    "ScopeKey": raf.ScopeKey,
    "KeyRing": raf.KeyRing,
}
ALONE = (
    "AgentSession",
    "CheckpointConfig",
    "CheckpointManager",
    "Event",
    "FileCheckpointStore",
    "InMemoryCheckpointStore",
    "LoopOptions",
    "RetryPolicy",
    "RunResult",
    "Submitted",
    "Worker",
    "WorkflowBuilder",
    "WorkflowEngine",
    "named",
    "register_type",
    "run_sync",
)

Shape = list[tuple[str, str, str]]


def shape(call: Any, *, bound: bool = False) -> Shape:
    """Kind, name and default of each parameter; a default that is no plain literal is `...`."""
    parameters = list(inspect.signature(call).parameters.values())[1 if bound else 0 :]
    return [(str(p.kind.description), p.name, _default(p.default)) for p in parameters]


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    text = repr(value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return "..."
    return text


def told(text: str) -> tuple[str, Shape]:
    """The name and the parameters of a signature as the page writes it."""
    [call] = ast.parse(f"def {text}: ...").body
    assert isinstance(call, ast.FunctionDef)
    known: dict[str, Any] = {}
    exec(f"def {text}: ...", known)
    return call.name, shape(known[call.name])


def members(name: str) -> set[str]:
    """The public members of a class that `raf` itself wrote."""
    cls = CLASSES[name]
    ours = {
        member
        for base in cls.__mro__
        if base.__module__.startswith("raf.")
        for member in vars(base)
        if not member.startswith("_")
    }
    return ours - INTERNAL.get(name, set())


@pytest.mark.parametrize("name", CLASSES)
def test_the_members_of_a_class(name: str) -> None:
    """Each public member has a row, and its signature is the code's."""
    cls = CLASSES[name]
    rows = [row[name].strip("`") for row in table(PAGE, name, name)]
    seen = set()
    for text in rows:
        if not re.fullmatch(r"\w+\(.*\)", text):
            seen.add(text)
            continue
        called, parameters = told(text)
        if called == name:
            assert parameters == shape(cls), text
            continue
        seen.add(called)
        static = inspect.getattr_static(cls, called)
        bound = not isinstance(static, classmethod | staticmethod)
        assert parameters == shape(getattr(cls, called), bound=bound), text
    plain = {text for text in seen if text.isidentifier()}
    inherited = {"get"} if name == "Scope" else set()
    assert plain == members(name) - inherited


@pytest.mark.parametrize("name", ALONE)
def test_signatures_in_the_text(name: str) -> None:
    """A signature that stands in the text is the code's."""
    [text] = {
        match[1]
        for match in re.finditer(rf"^(?:\| )?`({name}\(.*?\))`", tree.text(PAGE), re.MULTILINE)
    }
    called, parameters = told(text)
    assert (called, parameters) == (name, shape(getattr(raf, name)))
