"""Versions of a class: how they stand in a tag, and the way from a stored one to today's.

Rules of this file
    1. Version 1 is written as the bare tag, a later one as `tag@version`: what was stored before
       anybody thought of versions is of version 1.
    2. An upgrade leads from one version to the next and is called with plain data: for an enum the
       stored name (a flag's number), else a dict of all that the instance held, by name.
    3. What the last one gives must fit the declared fields (`retyped.check_upgraded`).
    4. A version without a way to today's is refused by name, and so is one from newer code.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from raf.errors import ConfigurationError, UndecodableError

Upgrade: TypeAlias = Callable[[Any], Any]
_VERSIONED: Final = re.compile(r"(.+)@([1-9][0-9]*)", re.DOTALL)


def split_tag(tag: str) -> tuple[str, int]:
    """The name in a stored tag, and the version.

    Example:
        >>> split_tag("invoice@2"), split_tag("invoice")
        (('invoice', 2), ('invoice', 1))
    """
    found = _VERSIONED.fullmatch(tag)
    return (tag, 1) if found is None else (found[1], int(found[2]))


@dataclass(frozen=True, slots=True)
class Versions:
    """The version of a class, and what leads to it from each before."""

    current: int = 1
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a declaration that cannot be meant."""
        if type(self.current) is not int or self.current < 1:
            raise ConfigurationError(f"version is a whole number from 1, not {self.current!r:.80}")
        for version, upgrade in self.upgrades.items():
            if type(version) is not int or not 1 <= version < self.current:
                raise ConfigurationError(
                    f"upgrade leads from a version below {self.current} to the next, not from "
                    f"{version!r:.80}"
                )
            if not callable(upgrade):
                raise ConfigurationError(f"the upgrade from version {version} is no function")

    @classmethod
    def declared(cls, version: int, upgrade: Mapping[int, Upgrade] | None) -> "Versions":
        """What a call of `register_type` says; refuses what is no mapping."""
        if upgrade is not None and not isinstance(upgrade, Mapping):
            raise ConfigurationError(
                f"upgrade is a mapping from versions to functions, not {type(upgrade).__name__}"
            )
        return cls(version, {} if upgrade is None else dict(upgrade))

    def tagged(self, name: str) -> str:
        """The tag that is written."""
        return name if self.current == 1 else f"{name}@{self.current}"

    def way_from(self, name: str, stored: int) -> "Way":
        """What leads from a stored version to today's.

        Raises:
            UndecodableError: Nothing does.
        """
        if stored > self.current:
            raise UndecodableError(
                f"{name} was stored as version {stored}, this code knows {self.current}: run the "
                "newer code"
            )
        for version in range(stored, self.current):
            if version not in self.upgrades:
                raise UndecodableError(
                    f"{name} was stored as version {stored}, and nothing leads from version "
                    f"{version} to the next: declare it with register_type(upgrade=...)"
                )
        return Way(name, tuple((v, self.upgrades[v]) for v in range(stored, self.current)))


@dataclass(frozen=True, slots=True)
class Way:
    """The upgrades that a stored value goes through; none for a value of today."""

    name: str = ""
    steps: tuple[tuple[int, Upgrade], ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.steps)

    def go(self, stored: Any, kind: type) -> Any:
        """The stored data as today's class takes it; each step gives data of the same kind.

        Raises:
            UndecodableError: A step raised, or gave something else.
        """
        for version, upgrade in self.steps:
            where = f"{self.name}: its upgrade from version {version}"
            try:
                stored = upgrade(stored)
            except Exception as error:
                raise UndecodableError(f"{where} raised {type(error).__name__}: {error}") from error
            if type(stored) is not kind:
                what = f"{type(stored).__name__}, not {kind.__name__}"
                raise UndecodableError(f"{where} gave {what}")
        return stored
