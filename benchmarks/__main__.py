"""`python -m benchmarks [--quick] [concern ...]`: a table, then one line of JSON."""

import argparse
import json
from collections.abc import Callable, Sequence

from benchmarks import imports, steps, volume
from benchmarks.rows import QUICK, Row, Size, as_json, table

CONCERNS: dict[str, Callable[[Size], list[Row]]] = {
    "imports": imports.measure,
    "steps": steps.measure,
    "volume": volume.measure,
}


def main(arguments: Sequence[str] | None = None, *, size: Size | None = None) -> None:
    """Measure the concerns that are asked for, all of them when none is."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("concern", nargs="*", help=f"one of {', '.join(CONCERNS)}; all if none")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, shorter runs")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.concern) - set(CONCERNS):
        parser.error(f"unknown concern {', '.join(sorted(unknown))}")
    chosen = size or (QUICK if asked.quick else Size())
    rows = [row for name in asked.concern or CONCERNS for row in CONCERNS[name](chosen)]
    print(table(rows))
    print()
    print(json.dumps(as_json(rows, chosen)))


if __name__ == "__main__":
    main()
