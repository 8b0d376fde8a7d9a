"""The code in the documents runs: each page in a folder of its own, its blocks in their order.

- A Python block that begins with a comment `# name.py` is that file.
- Other Python blocks are run, those between two console blocks in one process; an `await` at the
  top is allowed.
- In a console block the lines that begin with `$ ` are run, all by one shell, and what follows a
  command is what it prints: `...` stands for some text, on a line of its own for some lines.
  A command below which nothing stands must succeed.
- A block that is marked `no-run` is only read: what sets up the environment.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.house import tree

# Written by others than the code: the words of a release, and rules for the work on the tree.
NOT_RUN = {Path("docs/changelog.md"), Path("docs/contributing.md"), Path("docs/reference/cli.md")}
FILE = re.compile(r"# ([\w./-]+\.py)\n")
END = "raf-end-of-output"

RUN_BLOCKS = """
import ast, asyncio, json, sys
known = {"__name__": "__main__"}
for name, source in json.load(sys.stdin):
    code = compile(source, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    left = eval(code, known)
    if left is not None:
        asyncio.run(left)
"""

Block = tuple[str, str, int]


def blocks(path: Path) -> list[Block]:
    """The Python and console blocks of a page: language, text, line."""
    found = MarkdownIt("commonmark").parse(tree.text(path))
    return [
        (token.info.split()[0], token.content, token.map[0] + 1)
        for token in found
        if token.type == "fence" and token.map and token.info.split()[:1] and is_run(token.info)
    ]


def is_run(info: str) -> bool:
    """Whether a block of this kind is run; `python no-run` is only read."""
    language, *words = info.split()
    return language in ("python", "console") and "no-run" not in words


PAGES = [
    path
    for path in tree.files()
    if path.suffix == ".md" and path not in NOT_RUN and path.parts[0] in ("README.md", "docs")
    if blocks(path)
]


def surroundings() -> dict[str, str]:
    """An environment in which `python` and `raf` are ours."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(tree.ROOT), "COLUMNS": "100"}


def run_python(batch: list[tuple[str, str]], folder: Path) -> None:
    """Run Python blocks one after the other in one process."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_BLOCKS],
        input=json.dumps(batch),
        cwd=folder,
        env=surroundings(),
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def session(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the lines that it is said to print."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, said = part.partition("\n")
        while command.endswith("\\"):
            more, _, said = said.partition("\n")
            command = f"{command}\n{more}"
        yield command, said


def pattern(said: str) -> str:
    """What a command is said to print, as a regular expression."""
    lines = [
        r"(?:.*\n)*?"
        if line.strip() == "..."
        else re.escape(line).replace(r"\.\.\.", ".*") + r" *\n"
        for line in said.rstrip("\n").splitlines()
    ]
    return "".join(lines) if said.strip() else r"(?:.*\n)*"


def run_console(text: str, folder: Path, where: str) -> None:
    """Run the commands of a console block in one shell, and compare what they print."""
    commands = list(session(text))
    script = "".join(f"{command}\necho {END} $?\n" for command, _ in commands)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=surroundings(),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    # A shell that reads a script tells of a killed command whenever it notices.
    shown = re.sub(r"^bash: line \d+: +\d+ Killed .*\n", "", done.stdout, flags=re.MULTILINE)
    *printed, rest = re.split(rf"{END} (\d+)\n", shown)
    assert (len(printed), rest) == (2 * len(commands), ""), done.stdout
    for (command, said), output, code in zip(commands, printed[::2], printed[1::2], strict=True):
        assert said or code == "0", f"{where}: {command}\n{output}"
        assert re.fullmatch(pattern(said), output), (
            f"{where}: {command}\n-- said\n{said}\n-- printed\n{output}"
        )


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_the_page_does_what_it_says(path: Path, tmp_path: Path) -> None:
    """Every block of the page runs, and every command prints what stands below it."""
    batch: list[tuple[str, str]] = []
    for language, text, line in [*blocks(path), ("console", "", 0)]:
        name = FILE.match(text)
        if language == "console":
            if batch:
                run_python(batch, tmp_path)
                batch = []
            run_console(text, tmp_path, f"{path}:{line}")
        elif name:
            (tmp_path / name[1]).write_text(text, encoding="utf-8")
        else:
            batch.append((f"{path}:{line}", text))


@pytest.mark.parametrize(
    ("said", "printed", "fits"),
    [
        ("a b\n", "a b\n", True),
        ("a b\n", "a c\n", False),
        ("at ...\n", "at 12:00\n", True),
        ("...\nend\n", "one\ntwo\nend\n", True),
        ("...\nend\n", "one\ntwo\n", False),
        ("", "anything\nat all\n", True),
        ("a\n\nb\n", "a\n\nb\n", True),
        ("a  \n", "a\n", False),
    ],
)
def test_output_is_compared(said: str, printed: str, *, fits: bool) -> None:
    """A promise of output stands for itself; three dots stand for what differs each time."""
    assert bool(re.fullmatch(pattern(said), printed)) is fits
