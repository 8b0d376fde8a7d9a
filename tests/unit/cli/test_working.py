"""What `raf submit` and `raf worker` read from their words."""

import pytest

from raf.cli.working import _kept, _queues, _time
from raf.errors import ConfigurationError


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


def test_what_goes_with_the_command_is_no_store() -> None:
    """Nobody could ever run what was left in it."""
    with pytest.raises(ConfigurationError, match="memory:"):
        _kept("memory:")
