"""The input of a run: text where text is taken, JSON where it is not, and nothing guessed."""

import io
from pathlib import Path
from typing import Any

import pytest

from raf.cli.inputs import json_value, read_input
from raf.errors import ConfigurationError, PayloadTypeError
from raf.graph.builder import WorkflowBuilder
from raf.topology.workflow import Workflow


def flow(handler: Any) -> Workflow:
    return WorkflowBuilder("w").add_node("n", handler).set_start("n").build()


def takes_text(text: str) -> str:
    return text


def takes_number(number: int) -> int:
    return number


def takes_list(items: list[int]) -> int:
    return len(items)


def takes_any(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("handler", "text", "expected"),
    [
        (takes_text, "21", "21"),
        (takes_text, '{"a": 1}', '{"a": 1}'),
        (takes_text, "", ""),
        (takes_any, "21", "21"),
        (takes_number, "21", 21),
        (takes_list, "[1, 2]", [1, 2]),
    ],
)
def test_the_start_node_decides(handler: Any, text: str, expected: Any, tmp_path: Path) -> None:
    """INPUT and a file's text are read alike: as text where it is taken, else as JSON."""
    file = tmp_path / "input"
    file.write_text(text)
    assert read_input(flow(handler), text, None, None) == expected
    assert read_input(flow(handler), None, file, None) == expected


def test_json_is_json_for_any_node() -> None:
    """`--input-json` is never taken as text."""
    assert read_input(flow(takes_any), None, None, '{"a": [1]}') == {"a": [1]}


def test_a_dash_is_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--input-file -` reads standard input."""
    monkeypatch.setattr("sys.stdin", io.StringIO("piped"))
    assert read_input(flow(takes_text), None, Path("-"), None) == "piped"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((None, None, None), "give one of"),
        (("a", None, "1"), "give only one of"),
        ((None, None, "{"), "--input-json is no JSON"),
        ((None, Path("nowhere.txt"), None), "cannot be read"),
    ],
)
def test_what_is_refused(given: tuple[Any, Any, Any], says: str) -> None:
    """None or several inputs, bad JSON and missing files are told before anything runs."""
    with pytest.raises(ConfigurationError, match=says):
        read_input(flow(takes_text), *given)


def test_what_is_neither_is_told_by_its_type() -> None:
    """Text that is no JSON, for a node that takes no text: the type that is wanted is named."""
    with pytest.raises(PayloadTypeError, match="expected int"):
        read_input(flow(takes_number), "many", None, None)


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    """Bytes that are no text are no input."""
    file = tmp_path / "input"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="cannot be read as text"):
        read_input(flow(takes_text), None, file, None)


def test_a_lost_quote_is_told() -> None:
    """Text where JSON is wanted is refused with the way to write it."""
    with pytest.raises(ConfigurationError, match=r"""editor\.x='"draft"'"""):
        json_value("draft", "editor.x")
