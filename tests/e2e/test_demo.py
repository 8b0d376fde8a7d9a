"""`raf demo`, as a person starts it: killed, resumed, compared, and honest about it."""

import json
from pathlib import Path

import pytest

from tests.e2e.shell import ROOT, Shell

ANALYSTS = {"themes", "tone", "structure", "names"}


@pytest.mark.parametrize(
    "store", ["sqlite:demo.db", pytest.param("file:demo", marks=pytest.mark.slow)]
)
def test_the_whole_story(store: str, tmp_path: Path) -> None:
    """Half of the analysts are kept, half run again, and all that is compared is equal."""
    shell = Shell(tmp_path)
    answer = shell.raf("demo", "--json", "--keep", "--store", store)
    assert answer.code == 0, answer.err
    seen = answer.json
    assert seen["equal"] is True
    assert all(each["equal"] for each in seen["compared"])
    assert len(seen["compared"]) == 4
    killed = seen["killed"]
    assert len(killed["journaled"]) >= 2
    assert set(killed["journaled"]) | set(killed["unfinished"]) == ANALYSTS
    assert killed["pid"] != seen["resumed"]["pid"]
    assert sorted(seen["again"]) == sorted(killed["unfinished"])
    assert seen["committed_again"] == []
    kept = [row["agent"] for row in seen["invocations"] if row["so"].startswith("kept")]
    assert sorted(kept) == sorted(["split", *killed["journaled"]])
    # What it says stands in the store as well.
    shell.store = store
    listed = shell.raf("sessions", "--json").json["sessions"]
    assert {s["session"]: s["status"] for s in listed} == {
        seen["session"]: "completed",
        seen["unbroken"]: "completed",
    }
    events = shell.raf("show", seen["session"], "--events", "--json").json["events"]
    assert [e["kind"] for e in events].count("taken_over") == 1
    done = [e["node"] for e in events if e["kind"] == "node_completed"]
    assert len(done) == len(seen["invocations"])
    assert shell.raf("verify").code == 0


@pytest.mark.slow
def test_a_document_of_ones_own(tmp_path: Path) -> None:
    """Any text works; what is told holds the graph, each act and the word `equal`."""
    shell = Shell(tmp_path)
    document = ROOT / "examples" / "texts" / "gettysburg-address.md"
    answer = shell.raf("demo", str(document))
    assert answer.code == 0, answer.err
    told = answer.out
    assert "9 agents review 'gettysburg-address.md'" in told
    assert "│ split │" in told
    for act in ("1  A worker", "2  The plug", "3  Another process", "4  For", "5  Resumed"):
        assert f"\n{act}" in told
    assert "SIGKILL to process" in told
    assert "cut off" in told
    assert "# Review: The Gettysburg Address" in told
    assert told.splitlines()[-1].startswith("equal: the work of 3 agents was kept, 2 cut off")
    assert "DIFFERENT" not in told
    assert list(tmp_path.iterdir()) == [tmp_path / "flows.py"]


@pytest.mark.slow
def test_a_store_of_ones_own_is_left_clean(tmp_path: Path) -> None:
    """Without `--keep` the demo's sessions go from a store that was there before."""
    shell = Shell(tmp_path)
    shell.raf("run", "flows:flow", "hi", "--session", "mine")
    answer = shell.raf("demo", "--json", "--store", shell.store)
    assert answer.code == 0, answer.err
    assert [s["session"] for s in shell.raf("sessions", "--json").json["sessions"]] == ["mine"]


def test_a_document_that_is_none(tmp_path: Path) -> None:
    """Told before anything begins."""
    shell = Shell(tmp_path)
    answer = shell.raf("demo", "nowhere.md", "--json")
    assert answer.code == 2
    assert json.loads(answer.out)["error"]["code"] == "configuration"
