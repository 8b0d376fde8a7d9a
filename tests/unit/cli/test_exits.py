"""Exit codes: every error and every outcome has one, and they are those of the reference."""

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

import raf.errors
from raf.cli.exits import ExitCode, code_of_error, code_of_status
from raf.engine.outcome import Status
from raf.errors import RafError

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
ERRORS = [
    value
    for _, value in inspect.getmembers(raf.errors, inspect.isclass)
    if issubclass(value, RafError)
]


def made(kind: type[RafError]) -> RafError:
    """An error of a class, its fields left empty: only the class decides."""
    return kind.__new__(kind)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("RunFailedError", 1),
        ("NodeFailedError", 1),
        ("ConfigurationError", 2),
        ("GraphError", 2),
        ("InvalidSessionIdError", 2),
        ("PayloadTypeError", 2),
        ("SessionExistsError", 2),
        ("MissingKeyError", 2),
        ("SessionNotFoundError", 3),
        ("CheckpointNotFoundError", 3),
        ("NothingToResumeError", 3),
        ("EventsGoneError", 3),
        ("SessionBusyError", 4),
        ("RunUnfinishedError", 4),
        ("LeaseLostError", 4),
        ("TopologyChangedError", 5),
        ("WorkflowMismatchError", 5),
        ("RunInputMismatchError", 5),
        ("CorruptRecordError", 6),
        ("FormatVersionError", 6),
        ("UndecodableError", 6),
        ("CommitError", 7),
        ("StoreUnavailableError", 7),
        ("StoreReplacedError", 7),
        ("StoreFullError", 7),
        ("StoreBusyError", 7),
    ],
)
def test_the_code_of_an_error(kind: str, code: int) -> None:
    """What a person must do next decides the code."""
    assert code_of_error(made(getattr(raf.errors, kind))) == code


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code(kind: type[RafError]) -> None:
    """No error ends a command as if all were well."""
    assert 1 <= code_of_error(made(kind)) <= 9


@pytest.mark.parametrize("status", get_args(Status))
def test_every_outcome_has_a_code(status: str) -> None:
    """Only `completed` is 0; pausing outcomes are 8."""
    expected = {"completed": 0, "failed": 1, "cancelled": 9}.get(status, 8)
    assert code_of_status(status) == expected


def test_the_reference_has_every_code() -> None:
    """The table of the reference lists each number once, and no other."""
    rows = re.findall(r"^\| (\d+)[ ,|]", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    signals = {"130", "141", "143"}
    assert sorted(rows) == sorted({str(int(c)) for c in ExitCode} - {"128"} | signals)
