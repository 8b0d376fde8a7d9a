"""The page of the guarantees: every promise has its limit, and a claim that stands on tests."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.house import tree
from tests.house.tables import Row, table
from tests.house.test_claims import CLAIMS, claims

PAGE = Path("docs/explanation/guarantees.md")
PROMISES = table(PAGE, "The promises", "id")


def test_the_promises_are_numbered() -> None:
    """The ids are P1, P2, P3 and so on, without gaps."""
    assert [row["id"] for row in PROMISES] == [f"P{n}" for n in range(1, len(PROMISES) + 1)]


@pytest.mark.parametrize("row", PROMISES, ids=lambda row: row["id"])
def test_a_promise_has_a_limit_and_a_claim(row: Row) -> None:
    """Each promise says where it ends, and at least one claim begins with its id."""
    assert row["promise"]
    assert row["exact limit"]
    names = [name for name, _ in claims(tomllib.loads(tree.text(CLAIMS)))]
    begins = re.compile(rf"(?:^|\.){row['id']}(?![0-9])")
    assert [name for name in names if begins.search(name)], f"{CLAIMS} has no {row['id']}"
