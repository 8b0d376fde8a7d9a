"""The functions that a workflow knows by name: conditions, cases, choosers and reducers.

Rules of this file: one name means one function.  Faults are collected, never raised.
"""

import inspect
from collections.abc import Callable
from typing import Any

from raf.errors import GraphError
from raf.graph.handler import check_reducer, takes_state
from raf.graph.names import Named, described, is_name, name_of, plain, source_digest
from raf.state.reducers import BUILTIN, Reducer
from raf.topology.workflow import Condition


class Codes:
    """Collects named functions and what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.conditions: dict[str, Condition] = {}
        self.reducers: dict[str, str] = {}
        self._given: dict[tuple[str, str], Any] = {}

    def condition(self, function: Any, where: str, what: str = "condition") -> str:
        """The name of a condition; empty when it cannot be used, and then the problem is noted."""
        try:
            uses_state = takes_state(plain(function))
        except GraphError as error:
            self._note(where, what, function, error)
            return ""
        name = self._name("condition", function, where, what)
        if name:
            self.conditions[name] = Condition(
                name=name,
                call=plain(function),
                takes_state=uses_state,
                source_digest=source_digest(function),
            )
        return name

    def reducer(self, given: Any, where: str) -> Reducer | None:
        """A builtin or named reducer; None when there is none, or it cannot be used."""
        if given is None:
            return None
        if isinstance(given, str):
            return self._builtin(given, where)
        try:
            check_reducer(plain(given))
        except GraphError as error:
            self._note(where, "reducer", given, error)
            return None
        name = self._name("reducer", given, where, "reducer")
        if name in BUILTIN:
            self.problems.append(
                f"{where}: reducer {described(given)} has the name of the builtin {name!r}: pass "
                f'"{name}" itself, or rename it with named("my_{name}", ...)'
            )
        elif name:
            self.reducers[name] = source_digest(given)
        return Reducer(name, plain(given)) if name else None

    def _builtin(self, name: str, where: str) -> Reducer | None:
        if name in BUILTIN:
            return Reducer(name)
        known = ", ".join(BUILTIN)
        self.problems.append(
            f"{where}: reducer {name!r} is unknown: use one of {known}, or a named function"
        )
        return None

    def _note(self, where: str, what: str, function: Any, error: GraphError) -> None:
        name = name_of(function)
        said = f"{what} {name!r}" if name else f"the {what}"
        self.problems += [f"{where}: {said} {problem}" for problem in error.problems]

    def _name(self, kind: str, function: Any, where: str, what: str) -> str:
        name = name_of(function)
        if name is None:
            self.problems.append(f"{where}: the {what} {_nameless(function)}")
            return ""
        first = self._given.setdefault((kind, name), plain(function))
        if first is not plain(function) and first != plain(function):
            self.problems.append(
                f"{where}: the name {name!r} means two functions, {described(first)} and "
                f'{described(function)}: rename one with named("another name", ...)'
            )
        return name


def _nameless(function: Callable[..., Any]) -> str:
    if isinstance(function, Named) and not is_name(function.name):
        return f"is named {function.name!r}: use printable text without spaces around it"
    if inspect.isroutine(function):
        return 'is a lambda, which has no name: write named("ok", lambda ...)'
    return f'is {described(function)}, which has no name: write named("ok", ...)'
