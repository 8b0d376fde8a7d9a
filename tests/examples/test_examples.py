"""Each example runs in a process of its own, twice, and prints what its last lines say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import tree

EXAMPLES = [path for path in tree.modules("examples") if re.match(r"\d\d_", path.name)]
LONGEST = 80


def run(script: Path, folder: Path) -> str:
    """What a script prints when it is run in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(tree.ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(tree.ROOT / script)],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def promised(script: Path, heading: str) -> str:
    """What the comment below a heading says that a script prints."""
    lines = iter(tree.text(script).splitlines())
    assert f"# {heading} run:" in lines, f"{script} does not say what its {heading} run prints"
    said: list[str] = []
    for line in lines:
        if not line.startswith("# >"):
            break
        said.append(line.removeprefix("# >").removeprefix(" "))
    return "".join(f"{line}\n" for line in said)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_prints_what_it_says(script: Path, tmp_path: Path) -> None:
    """In an empty folder the first run prints what is promised, and so does a second one.

    The second run finds what the first one left: it returns what is recorded.
    """
    assert run(script, tmp_path) == promised(script, "first")
    assert run(script, tmp_path) == promised(script, "second")


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_is_short_and_says_what_it_shows(script: Path) -> None:
    """The first line is a sentence that says what the example shows; the whole fits on a page."""
    lines = tree.text(script).splitlines()
    assert re.fullmatch(r'"""[A-Z].*\."""', lines[0])
    assert len(lines) <= LONGEST


def test_examples_are_numbered_without_gaps() -> None:
    """The numbers of the examples are 01, 02, 03 and so on."""
    numbers = [int(path.name[:2]) for path in EXAMPLES]
    assert numbers == list(range(1, len(numbers) + 1))
