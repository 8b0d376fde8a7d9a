"""Reducers: how several contributions of one step become one value; pure.

Rules of this file:
- A write on a key with a reducer is a contribution.  Contributions are folded in the order of the
  step (node order, message number, order of calls), never in completion order.
- A key that holds nothing yet starts from the first contribution (append, extend: from []).
- `append` and `extend` cost their items and `merge` its changed keys: they do not touch the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

Builtin: TypeAlias = Literal["last", "append", "extend", "sum", "merge"]
BUILTIN: Final[tuple[str, ...]] = ("last", "append", "extend", "sum", "merge")


@dataclass(frozen=True, slots=True)
class Reducer:
    """A builtin reducer (`fold` is None), or a named function `(current, contribution) -> new`."""

    name: str
    fold: Callable[[Any, Any], Any] | None = None

    @property
    def grows_list(self) -> bool:
        """Whether contributions are new items of a list."""
        return self.fold is None and self.name in ("append", "extend")

    @property
    def merges_map(self) -> bool:
        """Whether contributions are changed keys of a map."""
        return self.fold is None and self.name == "merge"

    def combine(self, current: Any, contribution: Any) -> Any:
        """One step of the fold, for reducers that replace the value."""
        if self.fold is not None:
            return self.fold(current, contribution)
        if self.name == "sum":
            return current + contribution
        return contribution
