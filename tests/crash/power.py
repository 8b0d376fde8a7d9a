"""What a disk may hold after a power cut, from a recording of the calls that changed it.

Theory of operation.  A recording is replayed up to some call.  A write is on the platter for certain
once its file was synced behind it; of the later ones any may be there, whole, in part or not at all,
in any order.  Names are taken for lasting as they are made: SQLite syncs the folder of a new log, and
a name without its data is the harder case anyway.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.crash.system_calls import Call

SECTOR: Final = 512
CALLS: Final = ("pwrite64", "ftruncate", "fsync", "fdatasync", "unlink", "writev")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a file: bytes at a place, or, with `data` None, a new length `at`."""

    at: int
    data: bytes | None

    def on(self, content: bytearray) -> None:
        """Do it."""
        if self.data is None:
            del content[self.at :]
            content.extend(bytes(self.at - len(content)))
        else:
            content.extend(bytes(max(0, self.at - len(content))))
            content[self.at : self.at + len(self.data)] = self.data

    def torn(self, chance: random.Random) -> "Change":
        """The same with only some of its sectors."""
        if self.data is None:
            return self
        sectors = -(-len(self.data) // SECTOR)
        first = chance.randrange(sectors) * SECTOR
        return Change(at=self.at + first, data=self.data[first : first + SECTOR])


@dataclass(slots=True)
class Platter:
    """A file: what was synced, and the changes since."""

    synced: bytearray = field(default_factory=bytearray)
    loose: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        """Everything so far lasts."""
        for change in self.loose:
            change.on(self.synced)
        self.loose.clear()

    def after(self, chance: random.Random, *, kept: float) -> bytes:
        """What may be found: each later change with this likelihood, one in four of them torn."""
        content = bytearray(self.synced)
        for change in self.loose:
            if chance.random() < kept:
                (change.torn(chance) if chance.random() < 0.25 else change).on(content)
        return bytes(content)


def disk_at(calls: Sequence[Call], folder: Path) -> dict[Path, Platter]:
    """The files of a folder as these calls leave them."""
    files: dict[Path, Platter] = {}
    for call in calls:
        if call.answer < 0 or call.name == "writev":
            continue
        path = call.target
        if path.parent != folder:
            continue
        file = files.setdefault(path, Platter())
        match call.name:
            case "pwrite64":
                data = call.data[: call.answer]
                file.loose.append(Change(at=call.numbers[-1], data=data))
            case "ftruncate":
                file.loose.append(Change(at=call.numbers[-1], data=None))
            case "unlink":
                del files[path]
            case _:
                file.sync()
    return files


def cut_power(calls: Sequence[Call], folder: Path, target: Path, chance: random.Random) -> None:
    """Write into `target` what the machine may find of `folder` when the power is back."""
    kept = chance.choice([0.0, 0.5, 0.9])
    for path, file in disk_at(calls, folder).items():
        (target / path.name).write_bytes(file.after(chance, kept=kept))
