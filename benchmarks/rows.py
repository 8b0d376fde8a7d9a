"""What the benchmarks share: a row of results, and how it is shown."""

import platform
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from os import cpu_count
from typing import Any

SEED = 0  # of all chance in the benchmarks
PACKAGES = ("raf-engine", "pydantic", "msgpack", "zstandard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured.

    Args:
        steps: Supersteps of one run.
        repeats: Runs of each case; the median counts.
        processes: Interpreters started for each case of the import benchmark.
    """

    steps: int = 1000
    repeats: int = 5
    processes: int = 20


QUICK = Size(steps=200, repeats=3, processes=5)
SMALLEST = Size(steps=1, repeats=1, processes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure.

    Args:
        concern: The file that measured it.
        case: What was measured.
        value: The median.
        unit: What the value counts.
        floor: The case of the same concern that is the least possible, if there is one.
    """

    concern: str
    case: str
    value: float
    unit: str
    floor: str = ""


def surroundings() -> dict[str, Any]:
    """The machine and the versions, without names of hosts or people."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": cpu_count(),
        "python": sys.version.split()[0],
        "seed": SEED,
        "versions": {name: version(name) for name in PACKAGES},
    }


def as_json(rows: Iterable[Row], size: Size) -> dict[str, Any]:
    """All that is known of a run, as plain data."""
    return {**surroundings(), "size": asdict(size), "rows": [asdict(row) for row in rows]}


def table(rows: Iterable[Row]) -> str:
    """The rows for a person, each with its ratio to its floor."""
    known = list(rows)
    values = {(row.concern, row.case): row.value for row in known}
    lines: list[str] = []
    concern = ""
    for row in known:
        if row.concern != concern:
            concern = row.concern
            lines += ["", concern]
        floor = values.get((row.concern, row.floor))
        ratio = f"{row.value / floor:6.2f} x {row.floor}" if floor else ""
        lines.append(f"  {row.case:<42} {row.value:>12,.1f} {row.unit:<10} {ratio}".rstrip())
    return "\n".join(lines[1:])
