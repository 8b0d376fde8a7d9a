"""MODULE:WORKFLOW: every form that is allowed, and a clear refusal of all others."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raf.cli.loading import load_workflow
from raf.errors import ConfigurationError, GraphError

SOURCE = """
from raf import WorkflowBuilder

def shout(text: str) -> str:
    return text.upper()

class Flows:
    inner = WorkflowBuilder("inner").add_node("shout", shout).set_start("shout").build()

builder = WorkflowBuilder("w").add_node("shout", shout).set_start("shout")
flow = builder.build()
number = 3

def make():
    return builder.build()

def makes_no():
    return 7

def needs(what):
    return builder.build()

def raises():
    raise OSError("no such thing")

def broken_graph():
    return WorkflowBuilder("w").build()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with modules in it; what was imported is forgotten behind."""
    (tmp_path / "some_flows.py").write_text(SOURCE)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "other_flows.py").write_text(SOURCE)
    (tmp_path / "broken_flows.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "bad_syntax.py").write_text("def (:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(tmp_path)])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("some_flows:flow", "w"),
        ("some_flows:make", "w"),
        ("some_flows:Flows.inner", "inner"),
        ("some_flows.py:flow", "w"),
        ("./some_flows.py:flow", "w"),
        ("sub/other_flows.py:flow", "w"),
        ("sub.other_flows:flow", "w"),
    ],
)
def test_what_can_be_named(folder: Path, reference: str, name: str) -> None:
    """A module or a file, a workflow or a factory of one, at the top or inside a class."""
    assert load_workflow(reference).name == name


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("flow", "names no workflow"),
        ("some_flows:", "names no workflow"),
        (":flow", "names no workflow"),
        ("nowhere_flows:flow", "there is no module 'nowhere_flows'"),
        ("nowhere.flows:flow", "there is no module 'nowhere.flows'"),
        ("nowhere.py:flow", "there is no file"),
        ("some_flows:nothing", "has no 'nothing'; workflows there: flow"),
        ("some_flows:builder", "is a builder: name what its build"),
        ("some_flows:number", "is int, not a workflow"),
        ("some_flows:makes_no", "returned int"),
        ("some_flows:needs", "made no workflow: TypeError"),
        ("some_flows:raises", "OSError: no such thing"),
        ("broken_flows:flow", "cannot be imported: ModuleNotFoundError"),
        ("broken_flows.py:flow", "cannot be imported: ModuleNotFoundError"),
        ("bad_syntax.py:flow", "cannot be imported: SyntaxError"),
    ],
)
def test_what_cannot_is_refused(folder: Path, reference: str, says: str) -> None:
    """The refusal says what is wrong, and where a name is missing, which ones there are."""
    with pytest.raises(ConfigurationError, match=says.replace("(", r"\(")):
        load_workflow(reference)


def test_a_graph_that_cannot_be_built_speaks_for_itself(folder: Path) -> None:
    """Problems of the graph are not wrapped: each comes with its remedy."""
    with pytest.raises(GraphError, match="start"):
        load_workflow("some_flows:broken_graph")


def test_a_file_never_hides_a_loaded_module(folder: Path) -> None:
    """A file with the name of another module that is loaded is refused, not mixed up with it."""
    (folder / "json.py").write_text(SOURCE)
    with pytest.raises(ConfigurationError, match="rename the file"):
        load_workflow("json.py:flow")
