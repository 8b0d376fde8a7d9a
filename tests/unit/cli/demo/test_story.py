"""What the demo says of each agent's turn: only what the ledger and the store bear out."""

from pathlib import Path

import pytest

from raf.cli.demo.acts import Started, read_ledger, was_killed
from raf.cli.demo.story import demo
from raf.cli.demo.tally import agents, invocations, steps
from raf.errors import ConfigurationError


def turn(node: str, step: int, pid: int, *, ended: bool = True) -> Started:
    return Started(session="s", node=node, step=step, passed=0, pid=pid, ended=ended)


CUT = [turn("a", 0, 1), turn("b", 1, 1), turn("c", 1, 1, ended=False)]
AFTER = [turn("c", 1, 2), turn("d", 2, 2)]


def said(started: list[Started]) -> dict[str, str]:
    rows = invocations(started, 1, 2, {("a", 0)}, {("b", 1)})
    return {row["agent"]: row["so"] for row in rows}


def test_kept_and_run_again() -> None:
    """Committed and journaled turns are kept, the one that was cut off ran again."""
    assert said([*CUT, *AFTER]) == {
        "a": "kept: its step was committed",
        "b": "kept: its result, journaled",
        "c": "ran again",
        "d": "ran",
    }


UNBROKEN = [turn("a", 0, 3), turn("b", 1, 3), turn("c", 1, 3), turn("d", 2, 3)]


def test_what_should_have_been_kept_is_told() -> None:
    """If a kept turn began a second time, the demo says so, and is not equal."""
    twice = [*CUT, *AFTER, turn("b", 1, 2)]
    assert said(twice)["b"] == "RAN AGAIN, although it was kept"
    assert not agents(twice, UNBROKEN, again=["b", "c"], wrongly=["b"]).equal


def test_turns_are_counted() -> None:
    """Equal means: the same turns, and one more begin for each that was cut off."""

    def equal(resumed: list[Started], unbroken: list[Started]) -> bool:
        return agents(resumed, unbroken, again=["c"], wrongly=[]).equal

    assert equal([*CUT, *AFTER], UNBROKEN)
    assert not equal([*CUT, *AFTER], UNBROKEN[:-1])
    assert not equal([*CUT, *AFTER, turn("d", 2, 2)], UNBROKEN)


def test_steps_in_words() -> None:
    """One step is one."""
    assert (steps(0), steps(3)) == ("step 0", "steps 0 to 3")


def test_the_ledger_tells_begun_from_ended(tmp_path: Path) -> None:
    """A turn without an end in its own process was cut off; other sessions are left out."""
    ledger = tmp_path / "ledger"
    ledger.write_text(
        '{"what": "begin", "session": "s", "node": "a", "step": 1, "pass": 2, "pid": 7}\n'
        '{"what": "begin", "session": "t", "node": "a", "step": 1, "pass": 0, "pid": 7}\n'
        '{"what": "begin", "session": "s", "node": "a", "step": 1, "pass": 2, "pid": 8}\n'
        '{"what": "end", "session": "s", "node": "a", "step": 1, "pass": 2, "pid": 8}\n'
    )
    found = read_ledger(ledger, "s")
    assert [(each.pid, each.ended, each.passed) for each in found] == [(7, False, 2), (8, True, 2)]


def test_a_kill_is_seen_by_its_code() -> None:
    """Only SIGKILL counts: an end of its own is none."""
    assert was_killed(-9)
    assert not was_killed(0)
    assert not was_killed(-15)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe\x00", "is not text"),
        (b"", "no sentence"),
        (b"x" * 500_001, "too long"),
    ],
)
def test_documents_that_are_none(content: bytes | None, says: str, tmp_path: Path) -> None:
    """What cannot be reviewed is told before any process begins."""
    path = tmp_path / "document.md"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=says):
        demo(path, None, keep=False, as_document=True)


def test_memory_cannot_be_shared() -> None:
    """The store of one process is of no use to the next."""
    with pytest.raises(ConfigurationError, match="not shared"):
        demo(None, "memory:", keep=False, as_document=True)
