"""Each claim of the project stands on tests that exist and run.

`tests/claims.toml` maps the id of a claim (a promise, a trap, a case from the field, a known defect
of others) to the node ids of the tests that hold it. Tables group claims as one likes:

    [promises]
    P1-admission-durable = ["tests/crash/test_kill.py::test_admission_survives"]

An id may leave out the parameters: it then stands for every case of that test.
"""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.house import tree

# The whole suite is collected in a process of its own, which a busy machine takes its time for.
pytestmark = pytest.mark.timeout(600)

CLAIMS = Path("tests/claims.toml")
NOT_RUN = {"skip", "xfail"}


def claims(table: dict[str, Any], path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Each claim of a table, nested ones by their dotted path, with its node ids."""
    for key, value in table.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from claims(value, name)
        else:
            assert isinstance(value, list), f"{name} is not a list of node ids"
            yield name, [str(item) for item in value]


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What pytest collects in a process of its own: node ids and the marks on each."""
    listing = tmp_path_factory.mktemp("collected") / "ids.json"
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    own = {name: os.environ[name] for name in os.environ if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [*command, "-p", "tests.house.collected"],
        cwd=tree.ROOT,
        env={**own, "RAF_COLLECTED": str(listing)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    return {node: set(marks) for node, marks in json.loads(listing.read_text("utf-8")).items()}


def cases(node: str, collected: dict[str, set[str]]) -> list[str]:
    """The collected tests that a node id stands for: itself, or each of its parameters."""
    return [name for name in collected if name == node or name.startswith(f"{node}[")]


def complaints(table: dict[str, Any], collected: dict[str, set[str]]) -> Iterator[str]:
    """What is wrong with a table of claims."""
    for name, nodes in claims(table):
        if not nodes:
            yield f"{name}: no test"
        for node in nodes:
            found = cases(node, collected)
            if not found:
                yield f"{name}: {node} is not collected"
            for case in found:
                if marks := collected[case] & NOT_RUN:
                    yield f"{name}: {case} is marked {', '.join(sorted(marks))}"


def test_every_claim_stands_on_tests(collected: dict[str, set[str]]) -> None:
    """Each claim names at least one test, each named test is collected, none is skipped."""
    table = tomllib.loads(tree.text(CLAIMS))
    assert list(claims(table)), f"{CLAIMS} claims nothing"
    assert list(complaints(table, collected)) == []


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (["t.py::a"], []),
        (["t.py::b"], []),
        ([], ["g.c: no test"]),
        (["t.py::gone"], ["g.c: t.py::gone is not collected"]),
        (["t.py::b[3]"], ["g.c: t.py::b[3] is not collected"]),
        (["t.py::s"], ["g.c: t.py::s is marked skip"]),
        (["t.py::x"], ["g.c: t.py::x[1] is marked xfail"]),
    ],
)
def test_a_claim_without_ground_is_seen(nodes: list[str], expected: list[str]) -> None:
    """A claim without a test, on a test that is not there, or on one that is not run, is caught."""
    there: dict[str, set[str]] = {
        "t.py::a": set(),
        "t.py::b[1]": set(),
        "t.py::b[2]": {"parametrize"},
        "t.py::s": {"skip"},
        "t.py::x[1]": {"xfail", "parametrize"},
    }
    assert list(complaints({"g": {"c": nodes}}, there)) == expected
