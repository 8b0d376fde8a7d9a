"""Armed failpoints: which pass fires, how, and that nothing is left armed."""

import os
import signal
import subprocess
import sys

import pytest

from raf.errors import ConfigurationError
from raf.failpoint import failpoint
from raf.testing import CrashError, arm_from_environment, count_failpoints, crash_at


def test_the_chosen_pass_fires_once() -> None:
    """The n-th pass of the named point raises; the others and other points do not."""
    with crash_at("a", hit=2, how="raise") as armed:
        failpoint("b")
        failpoint("a")
        assert [armed.fired] == [False]
        with pytest.raises(CrashError, match="failpoint a"):
            failpoint("a")
        assert armed.fired
        failpoint("a")


def test_nothing_stays_armed() -> None:
    """After the `with` the point is passed again."""
    with crash_at("a", how="raise"):
        pass
    failpoint("a")


def test_passes_are_counted() -> None:
    """Counting sees every point, also beside an armed one, and ends with the `with`."""
    with count_failpoints() as seen, crash_at("a", hit=3, how="raise"):
        for name in ("a", "b", "a"):
            failpoint(name)
    failpoint("a")
    assert seen == {"a": 2, "b": 1}


@pytest.mark.parametrize("options", [{"hit": 0}, {"hit": -1}, {"how": "explode"}], ids=str)
def test_wrong_options(options: dict[str, object]) -> None:
    """A pass below one and an unknown way are refused."""
    with pytest.raises(ConfigurationError):
        crash_at("a", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "passes", "code"),
    [
        ("p", 1, -signal.SIGKILL),
        ("p:1:kill", 1, -signal.SIGKILL),
        ("p:2:kill", 1, 0),
        ("p:2:exit", 2, 86),
        ("other:1:exit,p:1:exit", 1, 86),
        ("p:1:raise", 1, 1),
        ("", 5, 0),
    ],
)
def test_armed_by_the_environment(value: str, passes: int, code: int) -> None:
    """`name:hit:how` arms a point of a child process; hit and how may be left out."""
    program = (
        "from raf.testing import arm_from_environment; from raf.failpoint import failpoint;"
        f"arm_from_environment(); [failpoint('p') for _ in range({passes})]"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "RAF_FAILPOINT": value},
        capture_output=True,
        check=False,
    )
    assert done.returncode == code


@pytest.mark.parametrize("value", ["p:x", "p:1:explode", ":1:kill"])
def test_an_environment_that_cannot_be_read(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value in another form is an error, so that no test runs unarmed by accident."""
    monkeypatch.setenv("RAF_FAILPOINT", value)
    with pytest.raises(ConfigurationError, match="name:hit:how"):
        arm_from_environment()
