"""Names of functions, and digests of their sources."""

import sys
import textwrap
from collections.abc import Callable
from functools import partial
from operator import add
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from raf.graph.names import described, name_of, named, plain, source_digest


def long(text: str) -> bool:
    return len(text) > 80


class Judge:
    limit = 80

    def long(self, text: str) -> bool:
        return len(text) > self.limit

    def __call__(self, text: str) -> bool:
        return self.long(text)


NAMES: list[tuple[Any, str | None]] = [
    (long, "long"),
    (Judge().long, "long"),
    (add, "add"),
    (bool, "bool"),
    (lambda text: text, None),
    (partial(long), None),
    (Judge(), None),
    (named("ok", lambda text: text), "ok"),
    (named("", long), None),
    (named(" ok", long), None),
    (None, None),
]


@pytest.mark.parametrize(("function", "name"), NAMES)
def test_names(function: Any, name: str | None) -> None:
    """A function is known by its own name, or by the one given to it; others have none."""
    assert name_of(function) == name


def test_a_named_function_is_called_as_before() -> None:
    """`named` changes nothing but the name."""
    ok = named("ok", lambda text: text * 2)
    assert ok("ab") == "abab"
    assert plain(ok)("ab") == "abab"
    assert plain(long) is long


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (long, "test_names.long (line"),
        (partial(long), "a partial of "),
        (Judge(), "an object of class Judge"),
        (named("ok", long), "test_names.long"),
    ],
)
def test_functions_are_described_so_that_they_can_be_found(function: Any, words: str) -> None:
    """A message names the module, the function and its line."""
    assert words in described(function)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Makes a module of some source and returns its `f`."""
    made: list[Path] = []

    def make(source: str) -> Any:
        path = tmp_path / f"made_{len(made)}.py"
        made.append(path)
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        made_of = ModuleType(path.stem)
        made_of.__file__ = str(path)
        monkeypatch.setitem(sys.modules, path.stem, made_of)
        code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
        exec(code, vars(made_of))
        return vars(made_of)["f"]

    return make


SAME = [
    ("def f(p):\n    return p > 1\n", "# said\ndef f(p):\n    # why\n    return (p >  1)\n"),
    ("f = lambda p: p > 1\n", "\n\nf = (\n    lambda p: p  >\n    1\n)\n"),
    ("f = dict(a=lambda p: p > 1)['a']\n", "f, g = lambda p: p > 1, lambda q: q\n"),
    ("f = lambda p: '中' in p\n", "x = '中'; f = lambda p: '中' in p\n"),
]

OTHER = [
    ("def f(p):\n    return p > 1\n", "def f(p):\n    return p > 2\n"),
    ("f = lambda p: p > 1\n", "f = lambda p: p > 2\n"),
    ("f = lambda p: p\n", "f = lambda q: q\n"),
    (
        "class C:\n    def __call__(self, p):\n        return 1\nf = C()\n",
        "class C:\n    def __call__(self, p):\n        return 2\nf = C()\n",
    ),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_layout_and_comments_do_not_matter(
    module: Callable[[str], Any], one: str, two: str
) -> None:
    """The digest is of the code alone, for a lambda without the statement around it."""
    assert source_digest(module(one)) == source_digest(module(two)) != ""


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_a_changed_body_changes_the_digest(
    module: Callable[[str], Any], one: str, two: str
) -> None:
    """Another body under the same name is seen."""
    assert source_digest(module(one)) != source_digest(module(two))


def test_two_lambdas_of_one_line_are_told_apart() -> None:
    """Each lambda is cut out of its line."""
    one, two = (lambda p: p > 1), (lambda p: p > 2)
    again = lambda p: p > 2  # noqa: E731
    assert source_digest(one) != source_digest(two) == source_digest(again)


def test_the_digest_of_a_named_or_bound_function_is_its_own() -> None:
    """Names and bound values do not change what is looked at."""
    assert source_digest(named("x", long)) == source_digest(long)
    assert source_digest(partial(long)) == source_digest(long)
    assert source_digest(Judge().long) == source_digest(Judge.long)


def test_unknown_sources_have_no_digest(module: Callable[[str], Any]) -> None:
    """What is built in, or whose file is gone, has an empty digest and is no error."""
    assert source_digest(add) == ""
    assert source_digest(len) == ""
    made: dict[str, Any] = {}
    exec("f = lambda p: p\ndef g(p): return p\n", made)
    assert source_digest(made["f"]) == ""
    assert source_digest(made["g"]) == ""
