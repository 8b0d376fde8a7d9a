"""The front door: errors become a sentence and a code, and never a traceback."""

import json
from pathlib import Path

import pytest

import raf.cli
from raf.cli import main
from tests.unit.cli.sessions import fill, url_of


def code_of(*arguments: str) -> int:
    """The exit code of a command line."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    code = ended.value.code
    return code if isinstance(code, int) else 0


@pytest.fixture(autouse=True)
def no_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAF_DEBUG", "0")
    monkeypatch.delenv("RAF_STORE", raising=False)


def test_an_error_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, with what to do next; standard output stays empty."""
    assert code_of("show", "x", "--store", f"sqlite:{tmp_path / 'no.db'}") == 7
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("raf: store sqlite:")
    assert "--store or RAF_STORE" in printed.err


def test_a_machine_gets_the_error_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--json` the error's code, sentence and exit code are a document."""
    assert code_of("show", "x", "--json", "--store", f"sqlite:{tmp_path / 'no.db'}") == 7
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "store_unavailable"
    assert error["exit"] == 7
    assert error["message"]


def test_debug_shows_the_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only when it is asked for."""
    assert code_of("--debug", "show", "x", "--store", f"sqlite:{tmp_path / 'no.db'}") == 7
    assert "Traceback" in capsys.readouterr().err


def test_a_fault_of_ours_is_told_as_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What nobody raised on purpose has a code of its own, and no traceback either."""

    def fault(*_given: object, **_options: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(raf.cli, "app", fault)
    assert code_of("sessions") == 70
    printed = capsys.readouterr()
    assert printed.err == (
        "raf: a fault in raf itself: ZeroDivisionError: oh (raf --debug shows where)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["nothing"], 2),
        (["show"], 2),
        (["show", "x", "--nothing"], 2),
        (["prune", "x", "--max-checkpoints", "0"], 2),
        (["--help"], 0),
        (["run", "--help"], 0),
        (["--version"], 0),
    ],
)
def test_words_it_does_not_know(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped command is usage; help and version are answers."""
    assert code_of(*arguments) == code


async def test_the_store_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RAF_STORE stands in for `--store`."""
    await fill(url_of(tmp_path))
    monkeypatch.setenv("RAF_STORE", url_of(tmp_path))
    # A command runs a loop of its own, so it is called from another thread.
    import asyncio

    assert await asyncio.to_thread(code_of, "history", "good") == 0
    assert await asyncio.to_thread(code_of, "history", "nobody") == 3


def test_what_is_slow_is_loaded_late() -> None:
    """The command line loads no drawing library, no graph checks and no demo until they are used."""
    import subprocess
    import sys

    late = ("rich", "networkx", "raf.cli.demo", "raf.cli.drawn")
    code = f"import sys, raf.cli\nprint([name for name in {late!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "[]"
