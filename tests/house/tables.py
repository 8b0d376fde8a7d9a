"""Tables of a page as data: rows by the names of their columns, found by the heading above."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.house import tree

Row = dict[str, str]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(page: Path) -> Iterator[tuple[str, list[str], list[Row]]]:
    """Each table of a page: the heading above it, its columns, its rows."""
    heading, columns, rows = "", list[str](), list[Row]()
    for line in [*tree.text(page).splitlines(), ""]:
        if line.startswith("|"):
            cells = _cells(line)
            if not columns:
                columns = cells
            elif not re.fullmatch(r"[| :-]+", line):
                rows.append(dict(zip(columns, cells, strict=True)))
        else:
            if columns:
                yield heading, columns, rows
                columns, rows = [], []
            if line.startswith("#"):
                heading = line.lstrip("#").strip()


def table(page: Path, heading: str, first: str) -> list[Row]:
    """The rows of the table below a heading whose first column has this name."""
    found = [rows for name, columns, rows in tables(page) if (name, columns[0]) == (heading, first)]
    assert len(found) == 1, f"{page}: {len(found)} tables under {heading!r} begin with {first!r}"
    return found[0]
