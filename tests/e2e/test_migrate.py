"""`raf migrate` and `--allow-compatible`: what they say, what they leave, and what a kill leaves."""

import asyncio
import signal
from pathlib import Path

import pytest

from raf import CheckpointManager
from tests.e2e.shell import Shell

MODULE = '''
"""An order as two versions of the code see it."""

from raf import Context, WorkflowBuilder
from raf.testing import arm_from_environment


async def price(ctx: Context, text: str) -> str:
    ctx.state["asked"] = text
    return text


def quote(text: str) -> str:
    raise ConnectionError("not today")


def quoted(text: str) -> str:
    return text + "!"


def line(*nodes):
    builder = WorkflowBuilder("order").set_start(nodes[0][0])
    for number, (name, handler) in enumerate(nodes):
        builder.add_node(name, handler)
        if number:
            builder.add_edge(nodes[number - 1][0], name)
    return builder


old = line(("price", price), ("quote", quote)).build()
new = line(("ask", price), ("offer", quoted)).build()
wider = line(("price", price), ("quote", quoted)).add_node("x", quoted).add_edge("price", "x").build()
arm_from_environment()
'''
NAMES = ("--map", "price=ask", "--map", "quote=offer")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder with the module, and session `s` that failed in its second node."""
    made = Shell(tmp_path)
    (tmp_path / "orders.py").write_text(MODULE)
    assert made.raf("run", "orders:old", "tea", "--session", "s").code == 1
    return made


def test_a_dry_run_then_the_move(shell: Shell) -> None:
    """The plan names what has no place; with names it moves, and the run goes on under them."""
    refused = shell.raf("migrate", "orders:new", "--dry-run", "--json")
    [row] = refused.json["sessions"]
    assert (refused.code, row["session"], row["verdict"]) == (5, "s", "refused")
    assert "'quote', which is gone" in row["refusals"][0]
    nowhere = shell.raf("migrate", "orders:new", "s", "--map", "quote=nope")
    assert nowhere.code == 5
    assert "the new graph has no node so named; it has: ask, offer" in nowhere.err
    planned = shell.raf("migrate", "orders:new", "s", *NAMES, "--dry-run", "--json")
    [row] = planned.json["sessions"]
    assert (planned.code, row["verdict"], row["status"]) == (0, "moves", "failed")
    assert row["next"] == [{"node": "offer", "message": 2}]
    shown = shell.raf("migrate", "orders:new", *NAMES, "--dry-run")
    assert "moves" in shown.out
    assert shell.raf("resume", "orders:new", "s").code == 5
    moved = shell.raf("migrate", "orders:new", "s", *NAMES, "--reason", "release 2")
    assert (moved.code, moved.out) == (0, "migrated: s@3\n")
    assert shell.raf("resume", "orders:new", "s").out == "tea!\n"
    shown = shell.raf("show", "s", "--state", "--events", "--json").json
    assert shown["checkpoint"]["state"] == {"ask": {"asked": "tea"}}
    [event] = [event for event in shown["events"] if event["kind"] == "migrated"]
    assert event["data"]["reason"] == "release 2"


def test_all_sessions_at_once(shell: Shell) -> None:
    """One that cannot move is told with its reason, and keeps no other back."""
    shell.raf("run", "orders:new", "milk", "--session", "new")
    shell.raf("run", "orders:wider", "jam", "--session", "wide")
    answer = shell.raf("migrate", "orders:new", *NAMES, "--all", "--json")
    rows = {row["session"]: row for row in answer.json["sessions"]}
    assert answer.code == 0
    verdicts = {name: row["verdict"] for name, row in rows.items()}
    assert verdicts == {"new": "equal", "s": "moves", "wide": "finished"}
    assert {name for name, row in rows.items() if "checkpoint" in row} == {"s", "wide"}
    shown = shell.raf("migrate", "orders:old", "--map", "ask=price", "--all", "--dry-run").out
    assert shown.count("node 'offer' was removed") == 1, "told once, above the table"
    assert "of 3 of 3 sessions" in shown
    again = shell.raf("migrate", "orders:new", *NAMES, "--all")
    assert (again.code, again.out.count("equal")) == (0, 3)
    back = shell.raf("migrate", "orders:old", "--map", "ask=price", "--all", "--json")
    assert back.code == 5
    verdicts = {row["session"]: row["verdict"] for row in back.json["sessions"]}
    assert verdicts == {"new": "finished", "s": "refused", "wide": "finished"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("migrate", "orders:new"), "name one SESSION, or say --all"),
        (("migrate", "orders:new", "s", "--all"), "name one SESSION, or say --all"),
        (("migrate", "orders:new", "s", "--map", "price"), "leads nowhere: write OLD=NEW"),
        (("migrate", "orders:new", "s", "--map", "a=b", "--map", "a=c"), "names 'a' twice"),
        (("migrate", "orders:new", "s", "--reason", " "), "reason says why"),
    ],
)
def test_words_that_cannot_be_meant(shell: Shell, words: tuple[str, ...], told: str) -> None:
    """The command must change: exit code 2, and nothing is written."""
    answer = shell.raf(*words)
    assert (answer.code, answer.out) == (2, "")
    assert told in answer.err


def test_a_compatible_change_is_allowed_by_an_option(shell: Shell) -> None:
    """Refused without it, gone on with it; a fork takes names as well."""
    assert shell.raf("fork", "s", "t", "--workflow", "orders:new", *NAMES).code == 0
    assert shell.raf("resume", "orders:new", "t").out == "tea!\n"
    refused = shell.raf("resume", "orders:wider", "s")
    assert refused.code == 5
    assert "nothing held can meet the change" in refused.err
    assert shell.raf("resume", "orders:wider", "s", "--allow-compatible").code == 0


STORES = {"sqlite": "sqlite:raf.db", "file": "file:runs"}
POINTS = [
    "store.sqlite.commit.before",
    "store.sqlite.commit.after",
    "store.file.link.before:2",
    "store.file.link.after:2",
    *(
        pytest.param(f"store.file.{step}.{side}", marks=pytest.mark.slow)
        for step in ("commit.put", "release")
        for side in ("before", "after")
    ),
    *(
        pytest.param(f"store.file.{step}.{side}:{hit}", marks=pytest.mark.slow)
        for step in ("write", "fsync", "sync_dir")
        for side in ("before", "after")
        for hit in (1, 2)
    ),
]


@pytest.mark.parametrize("point", POINTS)
def test_killed_in_the_middle_it_is_old_or_new(tmp_path: Path, point: str) -> None:
    """Whatever point the kill hits, the session has the old graph or the new one, and goes on."""
    shell = Shell(tmp_path, store=STORES[point.split(".")[1]])
    (tmp_path / "orders.py").write_text(MODULE)
    assert shell.raf("run", "orders:old", "tea", "--session", "s").code == 1
    shell.env["RAF_FAILPOINT"] = point
    killed = shell.raf("migrate", "orders:new", "s", *NAMES)
    del shell.env["RAF_FAILPOINT"]
    assert killed.code == -signal.SIGKILL, f"{point} was not passed: {killed.err}"
    target, scopes = asyncio.run(stands(shell, tmp_path))
    assert (target, scopes) in (("quote", ["price"]), ("offer", ["ask"]))
    assert shell.raf("migrate", "orders:new", "s", *NAMES).code == 0
    assert shell.raf("resume", "orders:new", "s").out == "tea!\n"


async def stands(shell: Shell, folder: Path) -> tuple[str, list[str]]:
    """For whom the pending message of the session is, and whose state it has; it is intact."""
    scheme, _, name = shell.store.partition(":")
    async with CheckpointManager(f"{scheme}:{folder / name}") as manager:
        assert (await manager.verify("s")).intact
        found = await manager.load_full_state("s")
        assert found is not None
        [pending] = found[0].pending_messages
        return pending["target"], sorted(found[1])
