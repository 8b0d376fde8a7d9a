"""Which changes of names a power cut takes; pure but for what each change can undo."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True, kw_only=True)
class Change:
    """A change of names in one folder that was not synced; `undo` is told where that folder is."""

    folder: Path
    names: frozenset[str]
    undo: Callable[[Path], None]

    def moved(self, source: Path, target: Path) -> None:
        """Follow a folder that got another name."""
        if self.folder.is_relative_to(source):
            self.folder = target / self.folder.relative_to(source)


def lost_changes(
    changes: Sequence[Change], kept: float, chance: random.Random | None
) -> list[Change]:
    """The changes that did not reach the platter, oldest first.

    Args:
        changes: All that were not synced, oldest first.
        kept: Which part of them is kept.
        chance: None: of each folder the newest are lost, as where the order is kept.  Else each is
            kept with the likelihood `kept`, unless an earlier one of the same names is lost.
    """
    return _newest(changes, kept) if chance is None else _any(changes, kept, chance)


def _newest(changes: Sequence[Change], kept: float) -> list[Change]:
    count = Counter(change.folder for change in changes)
    keep = {folder: int(number * kept) for folder, number in count.items()}
    lost: list[Change] = []
    for change in changes:
        if keep[change.folder] > 0:
            keep[change.folder] -= 1
        else:
            lost.append(change)
    return lost


def _any(changes: Sequence[Change], kept: float, chance: random.Random) -> list[Change]:
    lost: list[Change] = []
    gone: set[tuple[Path, str]] = set()
    for change in changes:
        places = {(change.folder, name) for name in change.names}
        if places & gone or chance.random() >= kept:
            lost.append(change)
            gone |= places
    return lost
