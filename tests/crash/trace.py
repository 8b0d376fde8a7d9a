"""Which named points a process has passed, in memory that outlives it.

A trace is a file with one counter for each name, mapped by the process and by whoever watches.  A
killed process leaves its counters as they were, so the watcher can tell what it was doing: a point
`X.before` that was passed more often than `X.after` is open.
"""

import mmap
import struct
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_COUNTER: Final = struct.Struct("<Q")


class Trace:
    """Counters by name; open it in one process to count and in another to look."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._index = {name: place * _COUNTER.size for place, name in enumerate(names)}
        size = max(1, len(names)) * _COUNTER.size
        with path.open("a+b") as file:
            file.truncate(size)
            self._memory = mmap.mmap(file.fileno(), size)
        self._lock = threading.Lock()

    def passed(self, name: str) -> int:
        """Count a pass; returns which one it was."""
        place = self._index[name]
        with self._lock:
            count: int = _COUNTER.unpack_from(self._memory, place)[0] + 1
            _COUNTER.pack_into(self._memory, place, count)
        return count

    def counts(self) -> Counter[str]:
        """How often each point was passed; names that were not are left out."""
        found = {
            name: _COUNTER.unpack_from(self._memory, at)[0] for name, at in self._index.items()
        }
        return Counter({name: count for name, count in found.items() if count})

    def close(self) -> None:
        """Let the memory go."""
        self._memory.close()


def open_brackets(counts: Counter[str]) -> set[str]:
    """The stems of points that were passed before and not after."""
    stems = {name.removesuffix(".before") for name in counts if name.endswith(".before")}
    return {stem for stem in stems if counts[f"{stem}.before"] > counts[f"{stem}.after"]}
