"""Each promise has guards, each guard is there, and the runner that takes them away can fail.

`python -m tests.mutants` itself takes minutes; here stands what can be seen without running it, and
its verdicts on a project of three lines.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.house import tree
from tests.mutants.__main__ import main
from tests.mutants.guards import Guard, Project
from tests.mutants.trial import SOME_RED, Copy, run_tests

PROJECT = Project(tree.ROOT)
PROMISES = [f"P{number}" for number in range(1, 15)]


def named(guard: Guard) -> str:
    """A guard as an id of a test."""
    return f"{guard.promise} {guard.what}"


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_has_guards(promise: str) -> None:
    """At least two lines keep it, and no promise is guarded that is not made."""
    assert len([guard for guard in PROJECT.guards if guard.promise == promise]) >= 2
    assert set(PROJECT.promises) == {guard.promise for guard in PROJECT.guards} == set(PROMISES)


def test_no_guard_is_told_of_twice() -> None:
    """Its promise and its words are a name."""
    names = [named(guard) for guard in PROJECT.guards]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("guard", PROJECT.guards, ids=named)
def test_each_guard_is_there(guard: Guard) -> None:
    """Its lines stand once in its file, go when it is taken away, and leave a program behind."""
    text = tree.text(Path(guard.file))
    assert text.count(guard.old) == 1
    without = text.replace(guard.old, guard.new)
    assert without != text
    if guard.file.endswith(".py"):
        compile(without, guard.file, "exec")


@pytest.mark.parametrize("guard", PROJECT.guards, ids=named)
def test_somebody_is_to_notice(guard: Guard) -> None:
    """Each part of an id matches a test of the promise, and some test shows that work goes on."""
    claimed = PROJECT.promises[guard.promise]
    assert [part for part in guard.tests if not any(part in test for test in claimed)] == []
    assert PROJECT.tests_of(guard)
    assert PROJECT.works_without(guard)


# -- the runner ------------------------------------------------------------------------------------

KEPT = """
def share(total: int, among: int) -> int:
    if among < 1:
        raise ValueError("among nobody")
    return total // max(1, among)
"""
TESTS = """
import pytest

from raf.share import share


def test_it_works() -> None:
    assert share(6, 3) == 2


def test_nobody() -> None:
    with pytest.raises(ValueError):
        share(6, 0)


def test_red() -> None:
    assert share(6, 3) == 3
"""
HANG = """
import threading


def test_hang() -> None:
    threading.Event().wait()
"""
CLAIMS = """
[promises]
P1 = ["tests/test_share.py::test_nobody"]
P2 = ["tests/test_share.py::test_nobody"]
P3 = ["tests/test_share.py::test_red"]
"""
WORKS = """
[works]
"raf/" = ["tests/test_share.py::test_it_works"]
"""
GUARD = """
[[guard]]
promise = "{promise}"
what = "{what}"
file = "raf/share.py"
old = '''{old}'''
new = '''{new}'''
"""
GUARDS = (
    ("P1", "nobody is told", "among < 1", "among < 0"),
    ("P2", "no test looks at it", "max(1, among)", "among"),
    ("P2", "it divides", "// max", "+ max"),
    ("P2", "it is a program", "among < 1", "among <"),
    ("P3", "its test is red before", "among < 1", "among < 0"),
)
PYPROJECT = """
[tool.pytest.ini_options]
pythonpath = ["."]
addopts = ["-p", "no:hypothesispytest", "-p", "no:xdist", "-p", "no:asyncio"]  # they start slowly
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a guard for each verdict."""
    keys = ("promise", "what", "old", "new")
    guards = [GUARD.format(**dict(zip(keys, row, strict=True))) for row in GUARDS]
    for name, text in (
        ("raf/__init__.py", ""),
        ("raf/share.py", KEPT),
        ("tests/test_share.py", TESTS),
        ("tests/claims.toml", CLAIMS),
        ("tests/mutants/guards.toml", "".join([WORKS, *guards])),
        ("pyproject.toml", PYPROJECT),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_guard_that_is_missed_passes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without it a test of the promise is red: that is what is asked for."""
    assert main(["P1"], project) == 0
    first, second, verdict, last = capsys.readouterr().out.splitlines()
    assert first == "all guards in place: 2 tests ..."
    assert second.startswith("all guards in place: green (2 passed")
    assert verdict.startswith(
        "P1  raf/share.py: nobody is told: noticed (FAILED tests/test_share.py::test_nobody"
    )
    assert last == "1 passed, 0 failed"
    assert (project / "raf/share.py").read_text(encoding="utf-8") == KEPT


def test_the_runner_can_fail(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A guard that nobody misses fails, and so does one without which nothing works or runs."""
    assert main(["P2"], project) == 1
    *told, last = capsys.readouterr().out.splitlines()
    said = "\n".join(told)
    assert "no test looks at it: NOT NOTICED (2 passed" in said
    assert "it divides: BREAKS NORMAL WORK, so it is no guard (FAILED" in said
    assert "it is a program: NO VERDICT (ERROR tests/test_share.py" in said
    assert last == "0 passed, 3 failed"


def test_tests_that_are_red_before_prove_nothing(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No guard is judged, and the run fails."""
    assert main(["P3"], project) == 1
    *said, red, test, last = capsys.readouterr().out.splitlines()
    assert "E       assert 2 == 3" in said
    assert red == "all guards in place: RED"
    assert test.startswith("FAILED tests/test_share.py::test_red")
    assert last == "0 passed, 1 failed"


def test_tests_that_do_not_end_are_ended(project: Path) -> None:
    """Without a guard a program may hang: that is red, and nothing of it goes on."""
    (project / "tests/test_hang.py").write_text(HANG, encoding="utf-8")
    outcome = run_tests(Copy(project), ["tests/test_hang.py"], longest_s=0.5)
    assert (outcome.code, outcome.last) == (SOME_RED, "no end within 0.5 s")


def test_nothing_chosen_is_no_success(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A promise without a guard does not pass; a list runs nothing."""
    assert main(["P9"], project) == 2
    assert main(["-k", "somebody"], project) == 2
    assert main(["P1", "--list"], project) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "P1  raf/share.py: nobody is told"


def test_a_guard_that_is_gone_already_is_told(project: Path) -> None:
    """Lines that are not there once cannot be taken away."""
    guard = replace(Project(project).guards[0], old="among < 2")
    with pytest.raises(ValueError, match="holds 0 times"), Copy(project).without(guard):
        pass


def test_a_guard_is_put_back(project: Path) -> None:
    """The copy is as it was, also when the trial fails."""
    guard = Project(project).guards[0]
    path = project / guard.file
    before = path.stat().st_mtime_ns
    with Copy(project).without(guard):
        assert "among < 0" in path.read_text(encoding="utf-8")
    with pytest.raises(KeyError), Copy(project).without(guard):
        raise KeyError
    assert (path.read_text(encoding="utf-8"), path.stat().st_mtime_ns) == (KEPT, before)
