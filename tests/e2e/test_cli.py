"""The command line, as real processes: each command, its answers, and its exit codes."""

import json
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.e2e.shell import Ended, Shell, ended, told


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A store with a completed session `a` and a failed one `b`; for tests that only look."""
    shell = Shell(tmp_path_factory.mktemp("done"))
    assert shell.raf("run", "flows:flow", "hi", "--session", "a").code == 0
    assert shell.raf("run", "flows:bad", "hi", "--session", "b").code == 1
    return shell


def is_refused(answer: Ended, code: int, *says: str) -> None:
    """One sentence on standard error, nothing on standard output, no traceback."""
    assert (answer.code, answer.out) == (code, ""), answer.err
    assert answer.err.startswith("raf: ")
    assert "Traceback" not in answer.err
    for part in says:
        assert part in answer.err


# -- run and go on ---------------------------------------------------------------------------------


def test_running_again_is_the_recovery(shell: Shell) -> None:
    """A finished run answers what is recorded; another input under its name is a mismatch."""
    first = shell.raf("run", "flows.py:make", "hi", "--session", "s")
    assert (first.code, first.out, first.err) == (0, "HI!\n", "")
    again = shell.raf("run", "flows:flow", "hi", "--session", "s", "--json")
    assert again.code == 0
    result = again.json["result"]
    assert (result["status"], result["outputs"], result["run"]) == ("completed", ["HI!"], "main")
    is_refused(shell.raf("run", "flows:flow", "ho", "--session", "s"), 5, "another input")
    is_refused(shell.raf("run", "flows:other", "hi", "--session", "s"), 5, "belongs to workflow")
    is_refused(shell.raf("resume", "flows:flow", "s"), 3, "nothing to continue")
    second = shell.raf("run", "flows:flow", "ho", "--session", "s", "--run", "two")
    assert (second.code, second.out) == (0, "HO!\n")


def test_a_new_session_is_told(shell: Shell) -> None:
    """Without `--session` the id is on standard error, so that the run can be resumed."""
    (shell.folder / "input.json").write_text("[1]")
    (shell.folder / "input.txt").write_text("3")
    answer = shell.raf("run", "flows:long", "--input-file", "input.txt")
    assert (answer.code, answer.out) == (0, "6\n")
    session = answer.err.split()[1]
    assert shell.raf("show", session, "--json").json["outputs"] == [6]
    wrong = shell.raf("run", "flows:long", "--input-file", "input.json", "--session", "x")
    is_refused(wrong, 2, "expected int")
    is_refused(shell.raf("show", "x"), 3)


def test_events_as_they_happen(shell: Shell) -> None:
    """`--stream` shows each event; with `--json` one document a line, the result last."""
    answer = shell.raf("run", "flows:flow", "hi", "--session", "s", "--stream", "--json")
    lines = [json.loads(line) for line in answer.out.splitlines()]
    events = [line["event"] for line in lines[:-1] if line["event"]["number"] is not None]
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    assert events[0]["kind"] == "run_started"
    assert events[-1]["kind"] == "outcome"
    assert lines[-1]["result"]["outputs"] == ["HI!"]


def test_a_failed_run_says_how_to_go_on(shell: Shell) -> None:
    """Exit code 1 and the reason; once the cause is mended, resume goes on from the last step."""
    failed = shell.raf("run", "flows:bad", "hi", "--session", "s")
    is_refused(failed, 1, "ValueError: not mended yet", "raf resume flows:bad s")
    assert failed.err.count("\n") == 1
    (shell.folder / "mended").touch()
    answer = shell.raf("resume", "flows:bad", "s", "--json")
    assert answer.code == 0
    assert answer.json["result"]["resumed_from"].startswith("s@")
    with_trace = shell.raf("--debug", "run", "flows:bad", "ho", "--session", "s", "--run", "two")
    assert with_trace.code == 0


def test_debug_shows_where_a_node_failed(shell: Shell) -> None:
    """With `--debug` the traceback reaches into the node's own code."""
    answer = shell.raf("--debug", "run", "flows:bad", "hi", "--session", "s")
    assert answer.code == 1
    assert "flows.py" in answer.err
    assert "not mended yet" in answer.err


def test_a_limited_run_pauses(shell: Shell) -> None:
    """Exit code 8; resume grants more."""
    paused = shell.raf("run", "flows:long", "1", "--session", "s", "--max-steps", "2")
    is_refused(paused, 8, "limited", "raf resume flows:long s")
    assert shell.raf("resume", "flows:long", "s").out == "4\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "flows:flow"), "give one of INPUT"),
        (("run", "flows:nothing", "x"), "workflows there: bad, flow, long, other"),
        (("run", "nowhere:flow", "x"), "no module 'nowhere'"),
        (("run", "flows:flow", "x", "--interval", "0"), "--interval"),
        (("run", "flows:flow", "x", "--session", ""), "1 to 512 characters"),
        (("run", "flows:flow", "x", "--store", "nosql:x"), "names no store"),
        (("sessions", "--store", "memory:"), "gone with its process"),
        (("sessions", "--status", "fine"), "is none of"),
    ],
)
def test_usage(done: Shell, arguments: tuple[str, ...], says: str) -> None:
    """What the command must say differently: exit code 2, before anything runs."""
    is_refused(done.raf(*arguments), 2, says)


# -- signals and other processes -------------------------------------------------------------------


def test_sigterm_drains_and_resume_goes_on(shell: Shell) -> None:
    """The step in flight ends and is committed; another process goes on behind it."""
    with shell.held("run", "flows:flow", "hi", "--session", "s") as (process, gate):
        assert "stopping at the end of this step" in told(process, signal.SIGTERM)
        gate.open()
        stopped = ended(process)
    assert (stopped.code, stopped.out) == (143, "")
    assert "raf resume flows:flow s" in stopped.err
    kinds = [e["kind"] for e in shell.raf("show", "s", "--events", "--json").json["events"]]
    assert kinds.count("step_committed") == 2
    answer = shell.raf("resume", "flows:flow", "s")
    assert (answer.code, answer.out) == (0, "HI!\n")


def test_a_second_signal_stops_at_once(shell: Shell) -> None:
    """Also where a thread is stuck in a node; the session stands at its last step."""
    with shell.held("run", "flows:flow", "hi", "--session", "s") as (process, _gate):
        told(process, signal.SIGINT)
        assert "stopped in mid-step" in told(process, signal.SIGINT)
        assert ended(process).code == 130
    assert shell.raf("resume", "flows:flow", "s").out == "HI!\n"


def test_a_live_owner_is_not_disturbed(shell: Shell) -> None:
    """A second process gets `busy`, with who and until when; looking is always allowed."""
    with shell.held("run", "flows:flow", "hi", "--session", "s") as (process, gate):
        for command in (
            ("run", "flows:flow", "hi", "--session", "s"),
            ("resume", "flows:flow", "s"),
            ("edit", "s", "--set", "n0.seen=1"),
            ("prune", "s"),
            ("delete", "s", "--yes"),
        ):
            is_refused(shell.raf(*command), 4, f"pid {process.pid}", "until")
        session = shell.raf("show", "s", "--json").json["session"]
        assert session["status"] == "running"
        assert session["owner"].endswith(f"pid {process.pid}")
        pinned = shell.raf("pin", "s", "0", "--json")
        assert (pinned.code, pinned.json["done"]) == (0, False)
        gate.open()
        assert ended(process).out == "HI!\n"
    assert shell.raf("pin", "s", "0", "--json").json["done"] is True


def test_cancel_reaches_a_running_owner(shell: Shell) -> None:
    """The owner stops in mid-step, and its own command ends as cancelled."""
    with shell.held("run", "flows:flow", "hi", "--session", "s") as (process, gate):
        answer = shell.raf("cancel", "s", "--wait-s", "30", "--json")
        assert (answer.code, answer.json["status"]) == (0, "cancelled")
        gate.open()
        stopped = ended(process)
    assert stopped.code == 9
    assert "raf fork s NEW" in stopped.err
    is_refused(shell.raf("cancel", "s"), 3, "is cancelled")


def test_what_was_killed_is_recovered(shell: Shell) -> None:
    """`interrupted` in the list; `recover` adopts it and leaves other workflows alone."""
    shell.raf("run", "flows:bad", "x", "--session", "b")
    with shell.held("run", "flows:flow", "hi", "--session", "s") as (process, _gate):
        process.kill()
        assert ended(process).code == -signal.SIGKILL
    listed = shell.raf("sessions", "--status", "interrupted", "--json").json["sessions"]
    assert [session["session"] for session in listed] == ["s"]
    results = shell.raf("recover", "flows:flow", "--json").json["results"]
    assert [(r["session"], r["status"], r["outputs"]) for r in results] == [
        ("s", "completed", ["HI!"])
    ]
    assert shell.raf("recover", "flows:flow").out == "nothing to recover\n"


def test_what_cannot_be_recovered_is_told(shell: Shell) -> None:
    """A session of a changed graph is left as it was, with its reason; the others go on."""
    with shell.held("run", "flows:flow", "hi", "--session", "old") as (process, _gate):
        process.kill()
    shell.change_the_graph()
    with shell.held("run", "flows:flow", "hi", "--session", "new") as (process, _gate):
        process.kill()
    answer = shell.raf("recover", "flows:flow", "--json")
    assert answer.code == 5
    assert [result["session"] for result in answer.json["results"]] == ["new"]
    assert [(each["session"], each["code"]) for each in answer.json["left"]] == [
        ("old", "topology_changed")
    ]
    assert "left as it was" in shell.raf("recover", "flows:flow").out


# -- looking ---------------------------------------------------------------------------------------


def test_lists_and_histories(done: Shell) -> None:
    """Plain text in a pipe, JSON for a machine, of the same things."""
    plain = done.raf("sessions", "--search", "A")
    assert plain.out.splitlines()[0].split()[:3] == ["session", "workflow", "run"]
    assert plain.out.splitlines()[1].split()[:4] == ["a", "flow", "main", "completed"]
    assert len(plain.out.splitlines()) == 2
    checkpoints = done.raf("history", "a", "--json").json["checkpoints"]
    assert [c["commit"] for c in checkpoints] == [0, 1, 2, 3]
    assert [c["kind"] for c in checkpoints] == ["full", "delta", "delta", "delta"]
    assert checkpoints[-1]["finished_run"] == "main"
    changes = done.raf("diff", "a", "0", "a@1", "--json").json["changes"]
    assert {"state n0", "state ::desk", "pending"} <= {change["where"] for change in changes}
    assert done.raf("diff", "a", "1", "1").out == "no differences\n"


def test_any_value_is_shown(done: Shell) -> None:
    """Bytes, NaN and sets have a form in JSON, and none stops the command."""
    shown = done.raf("show", "a", "--state", "--json").json
    assert shown["checkpoint"]["state"]["::desk"] == {
        "odd": {"$float": "nan"},
        "raw": {"$bytes": "AA=="},
        "set": {"$set": [1, 2]},
    }
    earlier = done.raf("show", "a@0", "--json").json["checkpoint"]
    assert (earlier["step"], earlier["status"]) == (-1, "running")
    assert earlier["pending"][0]["payload"] == "hi"


def test_the_parts_of_show(done: Shell) -> None:
    """Events from a number on, the journal, and the reason of a failure."""
    events = done.raf("show", "a", "--events", "--after", "3", "--json").json["events"]
    assert events[0]["number"] == 4
    failed = done.raf("show", "b")
    assert "ValueError: not mended yet" in failed.out
    assert done.raf("show", "a", "--journal").out.startswith("the journal is empty")


def test_a_graph_with_a_session_over_it(done: Shell) -> None:
    """Mermaid in a pipe, SVG by the file's ending, states of the nodes in JSON."""
    assert done.raf("graph", "flows:flow").out.startswith("flowchart TD")
    assert "│ ✓ n2 │" in done.raf("graph", "flows:flow", "--session", "a", "--format", "text").out
    written = done.raf("graph", "flows:bad", "--session", "b", "-o", "b.svg", "--json")
    assert written.json["nodes"]["n1"]["status"] == "failed"
    assert (done.folder / "b.svg").read_text().startswith("<svg")
    is_refused(done.raf("graph", "flows:flow", "--session", "b"), 5, "belongs to workflow")


@pytest.mark.parametrize("name", ["nobody", "../x", "a@99", "a@b", "b@1@1"])
def test_what_is_not_there(done: Shell, name: str) -> None:
    """Unknown ids are told as such, whatever they look like; nothing is made."""
    before = sorted(done.folder.iterdir())
    is_refused(done.raf("show", name), 3)
    assert sorted(done.folder.iterdir()) == before


def test_a_reader_that_has_gone(done: Shell) -> None:
    """A pipe whose reader has closed it ends the command quietly."""
    process = done.start("show", "a", "--events", "--json")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


# -- changing --------------------------------------------------------------------------------------


def test_an_id_is_no_path(tmp_path: Path) -> None:
    """A session called `../x` lives inside its store like any other, and goes from there."""
    (tmp_path / "in").mkdir()
    shell = Shell(tmp_path / "in", store="file:runs")
    assert shell.raf("run", "flows:flow", "hi", "--session", "../x").out == "HI!\n"
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert shell.raf("show", "../x@1", "--json").json["session"]["session"] == "../x"
    assert shell.raf("delete", "../x", "--yes").code == 0
    is_refused(shell.raf("show", "../x"), 3)


def test_edit_and_fork_need_no_code(shell: Shell) -> None:
    """A fork of an older checkpoint runs on from there; an edit is a commit with its reason."""
    shell.raf("run", "flows:flow", "hi", "--session", "s")
    forked = shell.raf("fork", "s", "t", "--at", "1", "--json")
    assert (forked.code, forked.json["checkpoint"]) == (0, "t@0")
    is_refused(shell.raf("fork", "s", "t"), 2, "already exists")
    edited = shell.raf("edit", "t", "--set", 'n0.seen="edited"', "--reason", "to see")
    assert (edited.code, edited.out) == (0, "edited: t@1\n")
    event = shell.raf("show", "t", "--events", "--json").json["events"][-1]
    assert (event["kind"], event["data"]["reason"]) == ("edited", "to see")
    assert shell.raf("resume", "flows:flow", "t").out == "HI!\n"
    assert shell.raf("show", "t", "--json").json["session"]["forked_from"] == "s@1"


def test_pins_and_pruning(shell: Shell) -> None:
    """Old chains go, what is pinned stays, and the session is intact as before."""
    for run in range(6):
        shell.raf(
            *("run", "flows:long", "1", "--session", "s", "--run", str(run), "--interval", "2")
        )
    assert shell.raf("pin", "s", "2").out == "s@2 pinned\n"
    gone = shell.raf("prune", "s", "--max-checkpoints", "1", "--events-before", "5", "--json").json
    assert gone["checkpoints"] > 5
    assert gone["events"] > 0
    kept = {
        c["commit"] for c in shell.raf("history", "s", "--json").json["checkpoints"] if c["kept"]
    }
    assert 2 in kept
    is_refused(shell.raf("show", "s", "--events"), 3, "were pruned")
    assert shell.raf("verify", "s").code == 0
    assert shell.raf("unpin", "s", "2").out == "s@2 unpinned\n"


def test_delete_wants_a_yes(shell: Shell) -> None:
    """Without it nothing happens; with it the session is gone."""
    shell.raf("run", "flows:flow", "hi", "--session", "s")
    is_refused(shell.raf("delete", "s"), 2, "--yes")
    assert shell.raf("show", "s").code == 0
    assert shell.raf("delete", "s", "--yes", "--json").json == {"session": "s", "deleted": True}
    is_refused(shell.raf("delete", "s", "--yes"), 3)


def test_a_changed_graph_is_named(shell: Shell) -> None:
    """An unfinished session does not go on under another graph; a fork onto it does."""
    with shell.held("run", "flows:flow", "hi", "--session", "s") as (process, _gate):
        process.kill()
    shell.change_the_graph()
    is_refused(shell.raf("resume", "flows:flow", "s"), 5, "node 'n3' was added")
    assert shell.raf("fork", "s", "t", "--workflow", "flows:flow").code == 0
    assert shell.raf("resume", "flows:flow", "t").out == "HI!\n"


# -- damage ----------------------------------------------------------------------------------------


def test_damage_is_found_and_never_used(shell: Shell) -> None:
    """A flipped bit in a record: `verify` names it, nothing older is used, what is before it forks."""
    shell.raf("run", "flows:flow", "hi", "--session", "s")
    shell.raf("run", "flows:flow", "hi", "--session", "fine")
    database = sqlite3.connect(shell.folder / "raf.db")
    with database:
        key, body = database.execute(
            "SELECT key, body FROM records WHERE commit_number = 2 ORDER BY key LIMIT 1"
        ).fetchone()
        broken = bytes(byte ^ (place == len(body) - 3) for place, byte in enumerate(body))
        database.execute("UPDATE records SET body = ? WHERE key = ?", (broken, key))
    database.close()
    checked = shell.raf("verify", "--json")
    assert (checked.code, checked.json["intact"]) == (6, False)
    damaged = [s for s in checked.json["sessions"] if not s["intact"]]
    assert [s["session"] for s in damaged] == ["s"]
    assert "commit 2" in damaged[0]["findings"][0]["why"] + damaged[0]["findings"][0]["record"]
    is_refused(shell.raf("show", "s"), 6, "cannot be trusted", "raf verify")
    assert shell.raf("show", "s@1").code == 0
    assert shell.raf("sessions").code == 0
    assert shell.raf("delete", "s", "--yes").code == 0
    assert shell.raf("verify").code == 0


def test_a_store_that_is_none(shell: Shell) -> None:
    """A missing file, another program's file: exit code 7, and neither is touched."""
    is_refused(shell.raf("sessions"), 7, "nothing in that place")
    (shell.folder / "raf.db").write_text("somebody's notes, no database\n" * 50)
    is_refused(shell.raf("sessions"), 7, "no SQLite database")
    is_refused(shell.raf("run", "flows:flow", "hi", "--session", "s"), 7)
    assert (shell.folder / "raf.db").read_text().startswith("somebody's notes")
