"""Repair: what is lost is named, nothing is done unasked, and what comes out is whole and goes on."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import xxhash

from raf import CheckpointConfig, CheckpointManager, Context, Event, WorkflowEngine
from raf.checkpoint import codec
from raf.checkpoint.model import Repair
from raf.engine.hub import shown_event
from raf.errors import (
    ConfigurationError,
    CorruptRecordError,
    FormatVersionError,
    SessionBusyError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from raf.store.memory import MemoryStore
from raf.store.model import Kind, Reading, Select
from raf.store.transfer import load
from tests.unit.checkpoint.test_damage import DAMAGES, change, flipped, loop, made, record
from tests.unit.engine.stage import Ledger, fan, kinds, line, passes, running


async def events_of(engine: WorkflowEngine, session: str, after: int = 0) -> list[Event]:
    """The durable events that are stored, also of a session that wants to go on."""
    _, found = await engine.manager.events(session, after=after, limit=1000)
    return [shown_event(session, event, engine.workflow.types) for event in found]


async def repaired(manager: CheckpointManager, session: str, folder: Path) -> Repair:
    """Repair a session, with a backup file where it needs one."""
    found = await manager.repair(session)
    path = folder / "backup.raf"
    backup = path if found.anew else None
    return await manager.repair(session, apply=True, reason="test", backup=backup)


@pytest.mark.parametrize("name", DAMAGES)
async def test_every_damage_is_named_repaired_and_gone_on_with(name: str, tmp_path: Path) -> None:
    """The plan changes nothing; the repair leaves an intact session that goes on, and an event."""
    damage, where = DAMAGES[name]
    store = MemoryStore()
    engine = await made(store)
    head = await engine.manager.head("broken")
    before = [event.number for event in await events_of(engine, "broken")]
    damage(store)
    plan = await engine.manager.repair("broken")
    assert any(where in finding.record for finding in plan.findings)
    assert plan.possible
    assert plan.commit is not None
    assert plan.commit < head.commit
    assert plan.commit in plan.forks
    assert set(range(plan.commit + 1, head.commit + 1)) == set(plan.lost.commits)
    with pytest.raises(CorruptRecordError):
        await engine.state("broken")
    done = await repaired(engine.manager, "broken", tmp_path)
    assert done.left == ()
    assert done.checkpoint == f"broken@{head.commit + 1}"
    events = await events_of(engine, "broken")
    assert [event.number for event in events] == [*before, len(before) + 1]
    assert events[-1].kind == "repaired"
    assert events[-1].data["reason"] == "test"
    assert events[-1].data["from"] == plan.commit
    result = await engine.run(0, "mended")
    assert (await engine.resume("broken", check=False)).status == "failed"  # at its own fault again
    state = (await engine.state("broken")).state_data["::s"]["list"]
    assert state == (await engine.state("mended", 5)).state_data["::s"]["list"] == [0, 1, 2, 3, 4]
    assert result.status == "completed"
    assert (await engine.manager.verify("broken")).intact
    await engine.close()


async def test_an_intact_session_is_left_alone() -> None:
    """Without a finding nothing is written, whatever is asked."""
    store = MemoryStore()
    engine = await made(store)
    before = await store.read("s", Select(log=True, inbox=True))
    done = await engine.manager.repair("s", apply=True, reason="just so")
    assert (done.findings, done.checkpoint, done.possible) == ((), "", False)
    assert await store.read("s", Select(log=True, inbox=True)) == before
    with pytest.raises(SessionNotFoundError):
        await engine.manager.repair("nobody", apply=True, reason="r")
    await engine.close()


async def test_nothing_is_done_unasked() -> None:
    """No reason, no backup where one is needed, a live owner: refused, and nothing is changed."""
    store = MemoryStore()
    engine = await made(store)
    change(store, "s", 4, events=flipped(record(store, "s", 4).events))
    before = await store.read("s", Select(log=True, inbox=True))
    for reason, says in ((" ", "reason"), ("r", "backup")):
        with pytest.raises(ConfigurationError, match=says):
            await engine.manager.repair("s", apply=True, reason=reason)
    claimed = await store.claim("s", engine.machine.owner, lease_s=30)
    with pytest.raises(SessionBusyError):
        await engine.manager.repair("s", apply=True, reason="r", backup="nowhere.raf")
    await store.release(claimed.lease)
    after = await store.read("s", Select(log=True, inbox=True))
    assert before is not None
    assert after is not None
    assert after.log[: len(before.log)] == before.log
    assert after.head.commit == before.head.commit
    await engine.close()


async def test_without_any_intact_point_nothing_is_touched(tmp_path: Path) -> None:
    """Every chain damaged: the plan says so, and applying is refused."""
    store = MemoryStore()
    engine = await made(store)
    for place, each in enumerate(store._sessions["s"].commits):
        if each.info.full:
            change(store, "s", place, body=flipped(each.body))
    plan = await engine.manager.repair("s")
    assert (plan.commit, plan.possible, plan.forks) == (None, False, ())
    for backup in (None, tmp_path / "b.raf"):
        with pytest.raises(CorruptRecordError, match="no checkpoint"):
            await engine.manager.repair("s", apply=True, reason="r", backup=backup)
    assert not (tmp_path / "b.raf").exists()
    assert (await engine.manager.head("s")).commit == plan.head
    await engine.close()


async def test_a_newer_format_is_no_damage() -> None:
    """A record of a later version is refused by its number: nothing is given up for it."""
    store = MemoryStore()
    engine = await made(store)
    body = record(store, "s", 11).body
    prefix = codec._PREFIX.pack(codec.MAGIC, 99, codec.CHECKPOINT, 0, 1, 1)
    checksum = xxhash.xxh3_64_intdigest(prefix + b"x")
    newer = codec.HEADER.pack(codec.MAGIC, 99, codec.CHECKPOINT, 0, 1, 1, checksum) + b"x"
    change(store, "s", 11, body=newer)
    for apply in (False, True):
        with pytest.raises(FormatVersionError):
            await engine.manager.repair("s", apply=apply, reason="r")
    assert not (await engine.manager.verify("s")).intact
    change(store, "s", 11, body=body)
    assert (await engine.manager.verify("s")).intact
    await engine.close()


async def half_done(store: MemoryStore, ledger: Ledger) -> WorkflowEngine:
    """A session that failed in its second step: `a` and `b` are finished, `c` failed."""

    def worker(name: str) -> Callable[[Context, int], Any]:
        async def work(ctx: Context, value: int) -> int:
            ledger.note(name)
            await ctx.effect("act", lambda: ledger.note(f"{name} acts"))
            if name == "c" and ledger["mended"] == 0:
                raise ValueError("not yet")
            return value + 1

        return work

    async def end(values: list[int]) -> list[int]:
        return list(values)

    workers = {name: worker(name) for name in "abc"}
    engine = WorkflowEngine(fan("half", passes, workers, end).build(), store=store)
    await engine.open()
    assert (await engine.run(1, "s", check=False)).status == "failed"
    return engine


async def test_a_damaged_journal_entry_costs_that_entry_only() -> None:
    """The entries that can be read stay: their nodes do not run again."""
    store, ledger = MemoryStore(), Ledger()
    engine = await half_done(store, ledger)
    journal = store._sessions["s"].journal
    results = [
        place
        for place, found in enumerate(journal)
        if found.info.kind is Kind.JOURNAL
        and codec.decode_journal(found.body, "s", "")[0] == "result"
    ]
    assert len(results) == 2
    torn = journal[results[0]]
    journal[results[0]] = replace(torn, body=flipped(torn.body))
    with pytest.raises(CorruptRecordError, match="journal"):
        await engine.resume("s")
    plan = await engine.manager.repair("s")
    assert (plan.anew, plan.lost.journal, plan.lost.commits) == (False, 1, ())
    done = await engine.manager.repair("s", apply=True, reason="test")
    assert done.left == ()
    ledger["mended"] = 1
    assert (await engine.resume("s")).outputs == [[2, 2, 2]]
    assert sorted(ledger[name] for name in "abc") == [1, 2, 2]  # one of a and b, and c
    assert [ledger[f"{name} acts"] for name in "abc"] == [
        1,
        1,
        1,
    ]  # effects have entries of their own
    await engine.close()


async def test_lost_events_keep_their_numbers(tmp_path: Path) -> None:
    """Readers find each intact event under its number, and `lost` where one was."""
    store = MemoryStore()
    engine = await made(store)
    before = await events_of(engine, "s")
    info = record(store, "s", 4).info
    change(store, "s", 4, events=flipped(record(store, "s", 4).events))
    plan = await engine.manager.repair("s")
    span = (info.first_event, info.first_event + info.event_count - 1)
    assert (plan.anew, plan.lost.events, plan.lost.commits) == (True, (span,), ())
    nonce = (await engine.manager.head("s")).nonce
    done = await engine.manager.repair("s", apply=True, reason="r", backup=tmp_path / "b.raf")
    assert done.left == ()
    after = await events_of(engine, "s")
    assert [event.number for event in after] == list(range(1, len(before) + 2))
    for old, new in zip(before, after, strict=False):
        gone = span[0] <= (old.number or 0) <= span[1]
        assert new.kind == ("lost" if gone else old.kind)
        assert gone or new == old
    assert [e.kind for e in await events_of(engine, "s", after=len(before))] == ["repaired"]
    head = await engine.manager.head("s")
    assert head.nonce == nonce
    assert (await engine.run(0, "s")).outputs == [*range(13)]
    assert (await engine.run(3, "s", run_id="next")).status == "completed"
    await engine.close()


async def test_a_run_whose_result_is_lost_goes_on_before_its_end(tmp_path: Path) -> None:
    """The last run takes its last step again; of an earlier one the plan says that it is lost."""
    store, ledger = MemoryStore(), Ledger()

    async def act(value: int) -> int:
        ledger.note("ran")
        return value + 1

    workflow = line("runs", {"before": passes, "act": act}).build()
    async with running(workflow, store) as engine:
        await engine.run(1, "s", run_id="first")
        await engine.run(5, "s", run_id="last")
        for commit, each in enumerate(store._sessions["s"].commits):
            if each.info.run_id:
                change(store, "s", commit, events=flipped(each.events))
        plan = await engine.manager.repair("s")
        assert plan.lost.results == ("first", "last")
        assert (plan.commit, plan.lost.commits) == (4, (5,))
        await engine.manager.repair("s", apply=True, reason="r", backup=tmp_path / "b.raf")
        assert (await engine.manager.verify("s")).intact
        assert (await engine.run(5, "s", run_id="last")).outputs == [6]
        assert ledger["ran"] == 3
        assert (await engine.run(5, "s", run_id="last")).outputs == [6]
        assert (await engine.run(1, "s", run_id="first")).outputs == [2]
        assert ledger["ran"] == 4


async def test_killed_between_deletion_and_import_the_file_holds_it(tmp_path: Path) -> None:
    """The backup is on disk before anything goes; an import finishes the repair."""

    class Dying(MemoryStore):
        alive = True

        async def adopt(self, session: Reading) -> None:
            if not self.alive:
                raise StoreUnavailableError(self.url, "killed")
            await super().adopt(session)

    store, backup = Dying(), tmp_path / "b.raf"
    engine = await made(store)
    change(store, "s", 4, events=b"")
    store.alive = False
    with pytest.raises(StoreUnavailableError):
        await engine.manager.repair("s", apply=True, reason="r", backup=backup)
    store.alive = True
    assert await store.read("s", Select()) is None
    moved = await load(store, backup)
    assert moved.sessions == ("s",)
    assert (await engine.manager.verify("s")).intact
    assert (await engine.run(0, "s")).outputs == [*range(13)]
    await engine.close()


# -- on_corrupt ------------------------------------------------------------------------------------


async def test_an_engine_falls_back_only_when_it_was_told_to(caplog: Any) -> None:
    """`on_corrupt="last-intact"`: the same session goes on, with an event and a line in the log."""
    store = MemoryStore()
    engine = await made(store)
    change(store, "broken", 6, body=b"")
    with pytest.raises(CorruptRecordError):
        await engine.resume("broken")
    await engine.close()
    config = CheckpointConfig(full_snapshot_interval=5)
    async with running(loop(), store, checkpoints=config, on_corrupt="last-intact") as mending:
        result = await mending.resume("broken", check=False)
        assert result.status == "failed"
        assert result.steps == 5
        events = await events_of(mending, "broken")
        [repaired] = [event for event in events if event.kind == "repaired"]
        assert "commit 6" in repaired.data["reason"]
        assert repaired.data["from"] == 5
        assert kinds(events)[-3:] == ["run_resumed", "node_failed", "outcome"]
        assert "was repaired" in caplog.text
        assert (await mending.run(0, "other")).status == "completed"
        assert "repaired" not in kinds(await events_of(mending, "other"))
    with pytest.raises(ConfigurationError, match="on_corrupt"):
        WorkflowEngine(loop(), on_corrupt="maybe")  # type: ignore[arg-type]


# -- what a store of rows can lose -------------------------------------------------------------------

ROWS = {
    "a request": ("DELETE FROM requests WHERE seq = 1", "request 1"),
    "a request that is no row any more": (
        "UPDATE requests SET request_id = 7 WHERE seq = 1",
        "request 1",
    ),
    "a commit in the middle": ("DELETE FROM records WHERE commit_number = 5", "commit 5"),
    "the last commit": ("DELETE FROM records WHERE commit_number = 13", "commit 13"),
    "clear fields of a commit": (
        "UPDATE records SET first_event = 'x' WHERE commit_number = 5",
        "position",
    ),
    "the number of a commit": (
        "UPDATE records SET commit_number = 70 WHERE commit_number = 7",
        "7",
    ),
    "the epoch of a commit": ("UPDATE records SET epoch = 9 WHERE commit_number = 7", "commit 7"),
    "the number of an event": ("UPDATE records SET first_event = 2 WHERE commit_number = 9", "9"),
    "the count of events": ("UPDATE records SET event_count = 9 WHERE commit_number = 9", "9"),
    "a claim": ("DELETE FROM records WHERE kind = 0", "position"),
    "the run's index": ("DELETE FROM runs", "run 'main'"),
    "the summary": ("UPDATE sessions SET summary = '['", "session's row"),
    "the step in the summary": (
        "UPDATE sessions SET summary = replace(summary, ',11,', ',10,')",
        "step 11",
    ),
    "the last commit's number": ("UPDATE sessions SET commit_number = 3", "commit 13"),
    "the count of all events": ("UPDATE sessions SET events = 9", "commit 13"),
    "the count of requests": ("UPDATE sessions SET requests = 0", "the inbox"),
    "the beginning of the journal": ("UPDATE sessions SET journal_from = 'x'", "session's row"),
    "a body that is empty": ("UPDATE records SET body = x'' WHERE commit_number = 12", "commit 12"),
}


@pytest.mark.parametrize("name", ROWS)
async def test_damaged_rows_of_sqlite(name: str, tmp_path: Path) -> None:
    """Found, named, and repaired to a session that is intact and answers; another one is untouched."""
    statement, where = ROWS[name]
    path = tmp_path / "runs.db"
    url = f"sqlite:{path}?synchronous=normal"
    config = CheckpointConfig(full_snapshot_interval=5)
    async with running(loop(), url, checkpoints=config) as engine:
        await engine.run(0, "s")
        await engine.pin("s", 12)
        await engine.manager.claim("s", engine.machine.owner, lease_s=0.001)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount >= 1
    async with running(loop(), url, checkpoints=config) as engine:
        found = await engine.manager.verify("s")
        assert any(where in f"{f.record} {f.why}" for f in found.findings), found.findings
        done = await repaired(engine.manager, "s", tmp_path)
        assert done.left == (), done
        assert done.checkpoint
        assert (await engine.manager.head("s")).summary.workflow == "loop"
        assert [e.number for e in await events_of(engine, "s")] == [
            *range(1, (await engine.manager.head("s")).events + 1)
        ]
        result = await engine.run(0, "s", check=False)
        assert result.outputs == [*range(13)]
        head = await engine.manager.head("s")
        if head.summary.status == "running":  # the result is recorded, its last steps are lost
            assert (await engine.resume("s")).outputs == [*range(13)]
        assert (await engine.run(4, "s", run_id="next")).outputs[-1] == 16
