"""What `raf edit` changes: from SCOPE.KEY=JSON to writes on the state of a session."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from raf.checkpoint.model import Checkpoint
from raf.cli.inputs import json_value
from raf.engine.editing import StateEditor
from raf.engine.engine import WorkflowEngine
from raf.errors import ConfigurationError
from raf.state.scope import ScopeKey
from raf.state.view import Scope
from raf.values.plain import Fields

_FORM = "write NODE.KEY for a node's own scope, or ::SCOPE.KEY for a shared one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One key as it was named, and its new value; or that it goes."""

    place: str
    value: Any = None
    goes: bool = False


def read_changes(assign: Sequence[str], delete: Sequence[str]) -> list[Change]:
    """The changes that the options say, in the order of the command line.

    Raises:
        ConfigurationError: There is none, or one is not of the right form.
    """
    changes = []
    for said in assign:
        place, equals, text = said.partition("=")
        if not equals:
            raise ConfigurationError(f"--set {said!r} has no value: write SCOPE.KEY=JSON")
        changes.append(Change(place=place, value=json_value(text, place)))
    changes += [Change(place=place, goes=True) for place in delete]
    if not changes:
        raise ConfigurationError(
            "nothing to change: give --set SCOPE.KEY=JSON or --delete SCOPE.KEY"
        )
    return changes


def editor_for(
    engine: WorkflowEngine, now: Checkpoint, changes: Sequence[Change]
) -> Callable[[StateEditor], None]:
    """What `engine.edit` calls to make these changes.

    Args:
        engine: Of the session's code, or of its saved graph: then types are not known.
        now: The session as it stands.
        changes: What to change.

    Raises:
        ConfigurationError: A scope or key is not there, or its type is only known to the code.
    """
    places = [_place(engine, now, change) for change in changes]

    def edit(editor: StateEditor) -> None:
        for (scope, key), change in zip(places, changes, strict=True):
            opened = _scope(editor, scope)
            if change.goes:
                del opened[key]
            else:
                _put(engine, opened, scope, key, change.value)

    return edit


def _place(engine: WorkflowEngine, now: Checkpoint, change: Change) -> tuple[str, str]:
    """Scope and key, as the state names them; a dot in a name is no hindrance."""
    cuts = [i for i, sign in enumerate(change.place) if sign == "."]
    ways = [(change.place[:i], change.place[i + 1 :]) for i in cuts]
    ways = [(scope, key) for scope, key in ways if scope.removeprefix("::") and key]
    if not ways:
        raise ConfigurationError(f"{change.place!r} names no key: {_FORM}")
    nodes = {node.name for node in engine.workflow.topology.nodes}
    there = [way for way in ways if way[1] in now.state_data.get(way[0], {})]
    known = [way for way in ways if way[0] in nodes or way[0] in now.state_data]
    shared = [way for way in ways if way[0].startswith("::")]
    if change.goes and not there:
        raise ConfigurationError(f"there is no {change.place!r} in the state: see raf show --state")
    if not (there or known or shared):
        raise ConfigurationError(f"{change.place!r}: there is no node of that name; {_FORM}")
    scope, key = (there or known or shared)[0]
    if there and not change.goes and not engine.workflow.nodes:
        _refuse_instance(change.place, now.state_data[scope][key])
    return scope, key


def _refuse_instance(place: str, value: Any) -> None:
    """Without the code an instance would become a plain dict, and no node could read it."""
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, Fields):
            raise ConfigurationError(
                f"{place} holds an instance of a class: name the code with --workflow "
                "MODULE:WORKFLOW, so that it can be made of JSON"
            )
        if isinstance(part, dict):
            parts += part.values()
        elif isinstance(part, list | tuple | set | frozenset):
            parts += part


def _scope(editor: StateEditor, scope: str) -> Scope:
    if scope.startswith("::"):
        return editor.scope(scope[2:])
    return editor.node(scope)


def _put(engine: WorkflowEngine, opened: Scope, scope: str, key: str, value: Any) -> None:
    """Replace the value, also of a key whose writes are contributions."""
    rules = engine.machine.book.rules
    name = ScopeKey.shared("", scope[2:]) if scope.startswith("::") else ScopeKey.private(scope)
    rule = rules.get(str(name), key)
    if rule is not None:
        value = rule.shape.fit(value, f"{scope}.{key}")
    if rule is None or rule.reducer is None:
        opened[key] = value
        return
    if key in opened:
        del opened[key]
    if rule.reducer.grows_list:
        opened.extend(key, value)
    elif rule.reducer.merges_map:
        opened.update(key, value)
    else:
        opened[key] = value
