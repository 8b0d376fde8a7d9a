"""Editing the state of a session at rest."""

from raf.checkpoint.delta import Op
from raf.errors import ConfigurationError
from raf.state.fold import fold_writes
from raf.state.ops import State
from raf.state.scope import ScopeKey
from raf.state.view import Rules, Scope, StateAccess


class StateEditor:
    """What the function given to `engine.edit` writes through."""

    def __init__(self, state: State, rules: Rules, nodes: frozenset[str]) -> None:
        self._state = state
        self._nodes = nodes
        self._rules = rules
        self._access = StateAccess(state, rules, "edit")

    def scope(self, name: str) -> Scope:
        """A shared scope."""
        return self._access.mutable_scope(name)

    def node(self, name: str) -> Scope:
        """The own scope of a node of the workflow."""
        if name not in self._nodes:
            raise ConfigurationError(f"the workflow has no node {name!r:.80}")
        return Scope(self._access, str(ScopeKey.private(name)))

    def ops(self) -> list[Op]:
        """What was written, as operations.

        Raises:
            UnsavedChangeError: A model was changed in place and not assigned.
        """
        self._access.check_unsaved()
        written = [("edit", self._access.writes)]
        return list(fold_writes(self._state, written, self._rules.reducer, self._rules.types))
