"""What keeps each promise, as `guards.toml` tells it, and which tests are to notice its absence."""

import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

GUARDS = "tests/mutants/guards.toml"
CLAIMS = "tests/claims.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Lines that keep a promise, and what stands there without them.

    Args:
        promise: "P1" to "P14".
        what: What the lines do, in a few words.
        file: Where they are, from the root.
        old: The lines; they occur once in the file.
        new: What replaces them.
        tests: Which of the promise's tests should notice, as parts of their ids; all when empty.
    """

    promise: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()


class Project:
    """A tree with its promises, their tests and their guards.

    Args:
        root: Where it is.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def guards(self) -> tuple[Guard, ...]:
        """The guards, in the order of the file."""
        rows = self._table(GUARDS)["guard"]
        return tuple(Guard(**{**row, "tests": tuple(row.get("tests", ()))}) for row in rows)

    @cached_property
    def works(self) -> dict[str, list[str]]:
        """Tests of normal work, by the beginning of the paths whose files they ask for it."""
        return dict(self._table(GUARDS).get("works", {}))

    @cached_property
    def promises(self) -> dict[str, list[str]]:
        """The tests of each promise."""
        return dict(self._table(CLAIMS)["promises"])

    def works_without(self, guard: Guard) -> list[str]:
        """The tests that stay green without the guard."""
        return [
            test
            for path, tests in self.works.items()
            if guard.file.startswith(path)
            for test in tests
        ]

    def tests_of(self, guard: Guard) -> list[str]:
        """The tests that go red without the guard; not one of those that stay green."""
        stay = self.works_without(guard)
        claimed = [test for test in self.promises[guard.promise] if test not in stay]
        if not guard.tests:
            return claimed
        return [test for test in claimed if any(part in test for part in guard.tests)]

    def tests_to_run(self, guard: Guard) -> list[str]:
        """Both kinds, those that stay green first."""
        return [*self.works_without(guard), *self.tests_of(guard)]

    def _table(self, path: str) -> dict[str, Any]:
        return tomllib.loads((self.root / path).read_text(encoding="utf-8"))
