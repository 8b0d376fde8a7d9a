"""What is printed in a pipe: plain text in columns, whatever the values hold."""

import io
import sys
from typing import Any

import pytest

from raf.cli import screen


def test_a_table_in_a_pipe_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    """One row a line, columns under each other, no colours, no frames, no control characters."""
    screen.table(("id", "value"), [("分", {"a": 1}), ("long id", "x\ny\x1b[0m")], none="none")
    assert capsys.readouterr().out == (
        'id       value\n分       {"a": 1}\nlong id  x\\ny\\x1b[0m\n'
    )


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """No rows: a sentence instead of headers."""
    screen.table(("id",), [], none="no sessions")
    assert capsys.readouterr().out == "no sessions\n"


def test_answers_and_hints_go_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """The answer is all of standard output, so that it can be piped on."""
    screen.answer({"a": 1}, as_document=True, show=lambda: None)
    screen.hint("a hint")
    printed = capsys.readouterr()
    assert printed.out == '{\n  "a": 1\n}\n'
    assert printed.err == "a hint\n"


def test_no_bar_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """Progress is for a person who looks on."""
    with screen.progress("verifying", 5) as advance:
        advance()
    assert capsys.readouterr() == ("", "")


class Narrow(io.TextIOWrapper):
    """A standard output that knows ASCII only."""


def test_a_drawing_in_plain_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where lines cannot be written, plain signs stand for them."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Narrow(raw, encoding="ascii", write_through=True))
    screen.drawing("┌─┐\n│✓│▼◀\n└┴┘ ×2 → …·")
    assert raw.getvalue() == b"+-+\n|*|v<\n+++ x2 > ..\n"


class Terminal(io.StringIO):
    """A standard output that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "draw",
    [
        lambda: screen.table(("session", "status"), [("[red]a[/red]", "failed")], none=""),
        lambda: screen.facts([("session", "[red]a[/red]"), ("status", "failed")]),
        lambda: screen.heading("[red]a[/red] failed"),
    ],
    ids=["table", "facts", "heading"],
)
def test_on_a_terminal_values_are_values(draw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like markup of the drawing library is shown as it stands."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    draw()
    assert "[red]a[/red]" in terminal.getvalue()
    assert "failed" in terminal.getvalue()
