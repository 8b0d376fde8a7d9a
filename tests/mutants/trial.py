"""A copy of the tree, tests that run on it, and what they say of a guard that is gone."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.mutants.guards import Guard, Project

COPIED = (
    "raf",
    "tests",
    "examples",
    "docs",
    "benchmarks",
    "pyproject.toml",
    "README.md",
    "Makefile",
)
NOT_COPIED = shutil.ignore_patterns("__pycache__", ".hypothesis", "*.pyc")
LONGEST_S = 300.0  # all tests of one guard
GRACE_S = 10.0
TEST_S = 60  # a test that hangs without the guard is red soon
_RED = re.compile(r"(FAILED|ERROR) \S+\.py")  # as pytest's summary says it
GREEN, SOME_RED = 0, 1  # pytest's exit codes; any other one is no verdict of a test


class Verdict(Enum):
    """What came of a guard's absence."""

    NOTICED = "noticed"
    MISSED = "NOT NOTICED"
    BROKEN = "BREAKS NORMAL WORK, so it is no guard"
    UNKNOWN = "NO VERDICT"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How pytest ended: its exit code, the tests that were red, its last line, and all it said."""

    code: int
    red: list[str]
    last: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the tree, in which one guard at a time may be missing."""

    folder: Path

    @contextmanager
    def without(self, guard: Guard) -> Iterator[None]:
        """Take a guard away, and put it back.

        Raises:
            ValueError: Its lines are not there once.
        """
        path = self.folder / guard.file
        text, stat = path.read_text(encoding="utf-8"), path.stat()
        if text.count(guard.old) != 1:
            raise ValueError(f"{guard.file} holds {text.count(guard.old)} times: {guard.old!r}")
        path.write_text(text.replace(guard.old, guard.new), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")
            # With its time, so that what was compiled of the other text is not taken for this one.
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@contextmanager
def copied(root: Path) -> Iterator[Copy]:
    """A copy of a tree in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="raf-mutant-", ignore_cleanup_errors=True) as name:
        for part in COPIED:
            source, target = root / part, Path(name) / part
            if source.is_dir():
                shutil.copytree(source, target, ignore=NOT_COPIED)
            elif source.exists():
                shutil.copy2(source, target)
        yield Copy(Path(name))


def run_tests(
    copy: Copy,
    tests: Sequence[str],
    *,
    workers: int = 1,
    stop_at_first: bool = True,
    longest_s: float = LONGEST_S,
) -> Outcome:
    """Run tests on a copy; one worker runs them in the order in which they are given."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [f"--override-ini=timeout={TEST_S}", f"--basetemp={copy.folder / '.places'}"]
    command += ["-x"] if stop_at_first else []
    command += ["-n", str(workers)] if workers > 1 else []
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with subprocess.Popen(
        [*command, *tests],
        cwd=copy.folder,
        env={**own, "PYTHONPATH": str(copy.folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            said, _ = running.communicate(timeout=longest_s)
        except subprocess.TimeoutExpired:
            _stop(running)
            return Outcome(SOME_RED, [], f"no end within {longest_s:g} s")
    lines = [line for line in said.splitlines() if line.strip()]
    # What was red in its call says more than what went wrong behind it.
    red = sorted(filter(_RED.match, lines), key=lambda line: line.startswith("ERROR"))
    return Outcome(running.returncode, red, lines[-1] if lines else "no word", said)


def _stop(running: subprocess.Popen[str]) -> None:
    """End pytest: first as a person would, so that it stops the servers it has started."""
    running.send_signal(signal.SIGINT)
    try:
        running.communicate(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()


def judge(project: Project, copy: Copy, guard: Guard) -> tuple[Verdict, str]:
    """What the tests say without the guard, and the line of theirs that says so."""
    try:
        with copy.without(guard):
            outcome = run_tests(copy, project.tests_to_run(guard))
    except ValueError as error:
        return Verdict.UNKNOWN, str(error)
    why = outcome.red[0] if outcome.red else outcome.last
    if outcome.code == GREEN:
        return Verdict.MISSED, why
    if outcome.code != SOME_RED:
        return Verdict.UNKNOWN, why
    red = why.split()[1] if outcome.red else ""
    if any(red.startswith(test) for test in project.works_without(guard)):
        return Verdict.BROKEN, why
    return Verdict.NOTICED, why
