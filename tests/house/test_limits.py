"""The limits of the house: sizes, names, words that have no place in it, and a clean root."""

import ast
import re
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from tests.house import tree

MODULE_LINES = 400
# One tree in one place: classes of one sentence each, and no logic to get lost in.
LONGER_WITH_REASON = {"raf/errors.py"}
FUNCTION_LINES = 50

FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "builtins.eval", "builtins.exec"}
VAGUE_NAMES = {"common", "core", "helpers", "misc", "types", "util", "utils"}

AT_THE_ROOT = {
    "LICENSE",
    "Makefile",
    "README.md",
    "benchmarks",
    "docs",
    "examples",
    "pyproject.toml",
    "raf",
    "tests",
}

MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:root|work|home|Users|opt/pypi|opt/wheels)/[\w.-]+")
REGISTRY_HOST = re.compile(
    r"pypi\.org|pythonhosted\.org|registry\.npmjs|deb\.debian\.org|archive\.ubuntu\.com"
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(module: ast.Module) -> Iterator[Function]:
    """Every function of a module, nested ones too."""
    for node in ast.walk(module):
        if isinstance(node, Function):
            yield node


def code_lines(source: str) -> set[int]:
    """The numbers of the lines that hold code: no blanks, no comments, all lines of a string."""
    empty = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    return {
        line
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type not in empty
        for line in range(token.start[0], token.end[0] + 1)
    }


def docstring_lines(module: ast.Module) -> set[int]:
    """The lines of every docstring of a module."""
    lines: set[int] = set()
    for node in ast.walk(module):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def body_length(function: Function, code: set[int]) -> int:
    """The lines of code in the body of a function, from its first statement to its last."""
    last = function.end_lineno or function.lineno
    return len(code.intersection(range(function.body[0].lineno, last + 1)))


def test_modules_are_short() -> None:
    """No module of the package is longer than the limit."""
    lengths = {str(path): len(tree.text(path).splitlines()) for path in tree.modules("raf")}
    assert lengths
    long = {path for path, n in lengths.items() if n > MODULE_LINES}
    assert long == LONGER_WITH_REASON


def test_functions_are_short() -> None:
    """No function of the package has more lines of code than the limit."""
    long: dict[str, int] = {}
    for path in tree.modules("raf"):
        module = tree.parse(path)
        code = code_lines(tree.text(path)) - docstring_lines(module)
        for function in functions(module):
            if (length := body_length(function, code)) > FUNCTION_LINES:
                long[f"{path}:{function.lineno} {function.name}"] = length
    assert long == {}


def test_the_measure_of_a_function() -> None:
    """Docstrings, comments and blank lines are free; a string over three lines costs three."""
    source = (
        'def f() -> str:\n    """Doc.\n\n    More.\n    """\n    # why\n\n'
        '    value = """a\n    b\n    c"""\n    return value  # so\n'
    )
    module = ast.parse(source)
    code = code_lines(source) - docstring_lines(module)
    assert body_length(next(functions(module)), code) == 4


def forbidden(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines where a module imports or calls what turns data into code."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and tree.dotted(node.func) in FORBIDDEN_CALLS:
            yield node.lineno, tree.dotted(node.func)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imported = [alias.name for alias in node.names]
            for name in imported if isinstance(node, ast.Import) else [node.module or ""]:
                if name.partition(".")[0] in FORBIDDEN_MODULES:
                    yield node.lineno, name


def test_data_never_becomes_code() -> None:
    """The package imports no pickle of any kind and calls neither eval nor exec."""
    found = [
        f"{path}:{line} {what}"
        for path in tree.modules("raf", "examples", "benchmarks")
        for line, what in forbidden(tree.parse(path))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import marshal as m",
        "from shelve import open",
        "eval('1')",
        "builtins.exec('1')",
    ],
)
def test_forbidden_words_are_seen(source: str) -> None:
    """Each way to turn data into code is caught."""
    assert len(list(forbidden(ast.parse(source)))) == 1


def test_names_say_what_is_inside() -> None:
    """No folder and no module is called after nothing in particular."""
    vague = [
        str(path)
        for path in tree.modules("raf", "tests", "benchmarks", "examples")
        if VAGUE_NAMES.intersection([*path.parent.parts, path.stem])
    ]
    assert vague == []


def is_text(path: Path) -> bool:
    """Whether a file can be read as text; golden records and pictures cannot."""
    data = (tree.ROOT / path).read_bytes()
    return b"\0" not in data[:4096] and path.parts[:2] != ("tests", "golden")


def test_the_tree_speaks_of_itself_alone() -> None:
    """No file names a path of one machine or the host of a package registry."""
    found = []
    for path in filter(is_text, tree.files()):
        text = (tree.ROOT / path).read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            if match := MACHINE_PATH.search(line) or REGISTRY_HOST.search(line):
                found.append(f"{path}:{number} {match.group()}")
    assert found == []


def test_pinned_versions_hold_no_address() -> None:
    """The pins are names and versions, one a line, and nothing else."""
    lines = tree.text(Path(".ci/constraints.txt")).splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[\w.!+-]+", pin)] == []


def test_the_root_is_clean() -> None:
    """At the root stand the agreed names and dotfiles, and nothing else."""
    names = {path.parts[0] for path in tree.files()}
    assert {name for name in names if not name.startswith(".")} <= AT_THE_ROOT
