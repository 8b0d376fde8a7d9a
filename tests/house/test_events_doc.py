"""The page of the events is what the code knows: names, numbers, groups, fields."""

import re
from dataclasses import fields
from pathlib import Path

from raf.events import LOGICAL, Event, Kind
from tests.house import tree
from tests.house.tables import table

PAGE = Path("docs/reference/events.md")
FIRST_LIVE = 100


def group(kind: Kind) -> str:
    """How the page groups a kind."""
    if kind >= FIRST_LIVE:
        return "live"
    return "logical" if kind in LOGICAL else "operational"


def test_every_kind_has_its_row() -> None:
    """Numbers, names and groups are those of the code, in order."""
    rows = table(PAGE, "All events", "number")
    told = [(int(row["number"]), row["event"], row["group"]) for row in rows]
    assert told == [(int(kind), kind.text, group(kind)) for kind in sorted(Kind)]
    assert all(row["when"] for row in rows)


def test_what_is_reserved_is_written_by_nobody() -> None:
    """A kind that the page calls reserved is used nowhere, and every other one somewhere."""
    rows = table(PAGE, "All events", "number")
    reserved = {row["event"] for row in rows if row["when"] == "reserved"}
    code = "\n".join(tree.text(path) for path in tree.modules("raf") if path.name != "events.py")
    used = {name.lower() for name in re.findall(r"\bKind\.([A-Z_]+)\b", code)}
    assert {kind.text for kind in Kind} - used == reserved


def test_the_fields_of_an_event() -> None:
    """The page lists the fields of `Event`, in order."""
    told = [row["field"] for row in table(PAGE, "Events", "field")]
    assert told == [field.name for field in fields(Event)]
