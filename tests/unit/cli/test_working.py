"""What `raf submit` and `raf worker` read from their words."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import typer

from raf.cli.exits import ExitCode
from raf.cli.working import _queues, _time, submit, worker
from raf.errors import ConfigurationError, StoreUnavailableError

FLOW = "tests.unit.cli.sessions:flow"


def damage(path: Path) -> None:
    """Spoil the body of every record of a SQLite store."""
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE records SET body = x'00'")


def test_queues_with_and_without_a_limit() -> None:
    """NAME serves any number, NAME=LIMIT so many."""
    assert _queues(["default", "nightly=2", "ümlaut x"]) == {
        "default": None,
        "nightly": 2,
        "ümlaut x": None,
    }


@pytest.mark.parametrize("word", ["a=b", "a=", "a=-1", "a=1.5", "a=²"])
def test_a_limit_is_a_number(word: str) -> None:
    """Anything else is refused, with the word."""
    with pytest.raises(ConfigurationError, match="limit"):
        _queues([word])


@pytest.mark.parametrize(
    "text", ["2026-12-01T09:30:00Z", "2026-12-01T10:30:00+01:00", "2026-12-01 04:30-05:00"]
)
def test_a_time_may_be_written_in_any_zone(text: str) -> None:
    """It is one moment."""
    assert _time(text).timestamp() == 1_796_117_400


@pytest.mark.parametrize("text", ["tomorrow", "2026-12-01", "2026-12-01T09:30:00", "", "25:00Z"])
def test_a_time_is_one_moment(text: str) -> None:
    """What is no time, or could be several, is refused."""
    with pytest.raises(ConfigurationError, match="--at"):
        _time(text)


def test_a_queue_has_one_limit() -> None:
    """Which of two holds would be a guess."""
    with pytest.raises(ConfigurationError, match="given twice"):
        _queues(["d=1", "d=2"])


def test_what_goes_with_the_command_is_no_store() -> None:
    """Nobody could ever run what was left in it."""
    with pytest.raises(ConfigurationError, match="memory:"):
        submit(FLOW, text="1", store="memory:")


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_a_worker_makes_no_store(scheme: str, tmp_path: Path) -> None:
    """A mistyped place is told, and nothing is made there."""
    place = tmp_path / "typo"
    with pytest.raises(StoreUnavailableError, match="nothing in that place"):
        worker([FLOW], store=f"{scheme}:{place}", once=True)
    assert not place.exists()


def test_once_ends_with_the_code_of_what_was_put_aside(tmp_path: Path) -> None:
    """A damaged session is left, so not all is done; with nothing left aside it is 0."""
    url = f"sqlite:{tmp_path / 'raf.db'}"
    for spoil, code in ((False, ExitCode.OK), (True, ExitCode.DAMAGED)):
        submit(FLOW, text="fine", session=f"s-{code}", store=url)
        if spoil:
            damage(tmp_path / "raf.db")
        with pytest.raises(typer.Exit) as left:
            worker([FLOW], store=url, once=True)
        assert left.value.exit_code == code
