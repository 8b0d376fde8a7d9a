"""Verify, repair, export and import from the command line, as real processes."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.shell import Ended, Shell


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file store with a completed session `a`, a failed one `b`, and another one."""
    shell = Shell(tmp_path_factory.mktemp("made"), store="file:here")
    assert shell.raf("run", "flows:flow", "hi", "--session", "a").code == 0
    assert shell.raf("run", "flows:bad", "hi", "--session", "b").code == 1
    assert shell.raf("run", "flows:long", "1", "--session", "c").code == 0
    return shell.folder / "here"


@pytest.fixture
def shell(tmp_path: Path, made: Path) -> Shell:
    """A copy of that store."""
    shutil.copytree(made, tmp_path / "here")
    return Shell(tmp_path, store="file:here")


def empty(shell: Shell, session: str, place: int) -> None:
    """Empty one record of a session, counted from its end when negative."""
    records = sorted((shell.folder / "here" / session).rglob("*.rec"))
    records[place].write_bytes(b"")


def refused(answer: Ended, code: int, *says: str) -> None:
    assert answer.code == code, answer
    for part in says:
        assert part in answer.err


def test_half_done_here_and_finished_there(shell: Shell) -> None:
    """A failed run is exported and resumed in another store, in other processes."""
    out = shell.raf("export", "b", "--to", "b.raf", "--json")
    assert (out.code, out.json["sessions"], out.json["damaged"]) == (0, ["b"], [])
    into = ("--store", "sqlite:there.db")
    answer = shell.raf("import", "b.raf", *into, "--json")
    assert (answer.code, answer.json["sessions"], answer.json["findings"]) == (0, ["b"], [])
    (shell.folder / "mended").touch()
    resumed = shell.raf("resume", "flows:bad", "b", *into, "--json")
    assert resumed.json["result"]["status"] == "completed"
    assert resumed.json["result"]["resumed_from"].startswith("b@")
    assert shell.raf("verify", *into).code == 0
    refused(shell.raf("import", "b.raf", *into), 2, "already exists")
    assert shell.raf("import", "b.raf", *into, "--skip-existing", "--json").json["skipped"] == ["b"]


def test_what_an_export_refuses(shell: Shell) -> None:
    """No session, no such session, a file that is there; nothing is made."""
    refused(shell.raf("export", "--to", "x.raf"), 2, "--all")
    refused(shell.raf("export", "a", "--all", "--to", "x.raf"), 2, "--all")
    refused(shell.raf("export", "a", "nobody", "--to", "x.raf"), 3, "'nobody'")
    assert not (shell.folder / "x.raf").exists()
    assert shell.raf("export", "--all", "--to", "x.raf").code == 0
    refused(shell.raf("export", "a", "--to", "x.raf"), 2, "there already")
    refused(shell.raf("import", "y.raf"), 2, "no file")
    refused(shell.raf("import", "x.raf", "--store", "memory:"), 2, "memory:")
    data = (shell.folder / "x.raf").read_bytes()
    (shell.folder / "x.raf").write_bytes(data[:-1])
    answer = shell.raf("import", "x.raf", "--store", "file:there", "--json")
    refused(answer, 6, "x.raf")
    assert answer.json["error"]["code"] == "export_file"
    assert shell.raf("sessions", "--store", "file:there").out == "no sessions\n"


@pytest.mark.parametrize("place", [2, pytest.param(-1, marks=pytest.mark.slow)])
def test_a_damaged_session_stops_no_other(shell: Shell, place: int) -> None:
    """Whatever record is empty: others are listed, verified, exported; it is named; exit code 6."""
    empty(shell, "a", place)
    found = shell.raf("verify", "--json")
    assert found.code == 6
    assert {v["session"]: v["intact"] for v in found.json["sessions"]} == {
        "a": False,
        "b": True,
        "c": True,
    }
    assert shell.raf("sessions").code == 0
    out = shell.raf("export", "--all", "--to", "x.raf", "--json")
    assert (out.code, out.json["sessions"]) == (6, ["b", "c"])
    assert out.json["damaged"][0]["session"] == "a"
    assert shell.raf("verify", "a").code == 6
    assert shell.raf("verify", "b").code == 0


@pytest.mark.parametrize("place", [2, pytest.param(-1, marks=pytest.mark.slow)])
def test_repair_shows_first_and_does_when_told(shell: Shell, place: int) -> None:
    """Nothing is changed before `--apply`; then the session is intact, and goes on by its own name."""
    empty(shell, "a", place)
    plan = shell.raf("repair", "a", "--json")
    assert plan.code == 6
    assert plan.json["findings"]
    assert plan.json["checkpoint"] is None
    assert "--apply" in plan.err
    assert "last intact" in shell.raf("repair", "a").out
    apply = ("repair", "a", "--apply")
    refused(shell.raf(*apply), 2, "reason")
    refused(shell.raf(*apply, "--reason", "torn"), 2, "backup")
    done = shell.raf(*apply, "--reason", "torn", "--backup", "saved.raf", "--json")
    assert (done.code, done.json["left"]) == (0, [])
    assert done.json["checkpoint"].startswith("a@")
    assert shell.raf("verify").code == 0
    assert "reason=torn" in shell.raf("show", "a", "--events").out
    again = shell.raf("run", "flows:flow", "hi", "--session", "a")
    assert (again.code, again.out) == (0, "HI!\n")
    assert shell.raf("repair", "a").out == "session a is intact\n"
    assert shell.raf("import", "saved.raf", "--store", "file:there").code == 0


@pytest.mark.slow
def test_what_cannot_be_saved_is_left(shell: Shell) -> None:
    """No checkpoint is intact: told, exit code 6, untouched; deleting is still possible."""
    for place in range(len(list((shell.folder / "here" / "a").rglob("*.rec")))):
        empty(shell, "a", place)
    answer = shell.raf("repair", "a")
    refused(answer, 6, "raf delete a")
    assert "nothing can be saved" in answer.out
    refused(shell.raf("repair", "a", "--apply", "--reason", "r", "--backup", "b.raf"), 6, "trusted")
    assert not (shell.folder / "b.raf").exists()
    assert shell.raf("delete", "a", "--yes").code == 0
    assert shell.raf("verify").code == 0
