"""Damaged, missing and foreign records: a typed error that names them, never an older state."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raf import Context, LoopOptions, WorkflowBuilder, WorkflowEngine
from raf.checkpoint import codec
from raf.errors import CheckpointError, CorruptRecordError, RunFailedError
from raf.store.memory import MemoryStore
from raf.store.model import Record
from tests.unit.engine.stage import running, small_chains


async def node(ctx: Context, value: int) -> int:
    """A node that keeps a list."""
    ctx.scope("s").append("list", value)
    ctx.output(value)
    if ctx.session_id == "broken" and value == 5:
        raise ValueError
    return value + 1


def loop() -> Any:
    builder = WorkflowBuilder("loop").add_node("n", node).set_start("n")
    return builder.add_loop("n", "n", LoopOptions(12)).build()


async def made(store: MemoryStore) -> WorkflowEngine:
    """An engine with a finished session s, a failed session broken, and a third, other."""
    engine = WorkflowEngine(loop(), store=store, checkpoints=small_chains(5))
    await engine.open()
    await engine.run(0, "s")
    await engine.run(0, "other")
    with pytest.raises(RunFailedError):
        await engine.run(0, "broken")
    return engine


def change(store: MemoryStore, session: str, commit: int, **parts: Any) -> None:
    """Replace parts of a stored commit."""
    commits = store._sessions[session].commits
    commits[commit] = replace(commits[commit], **parts)


def drop(store: MemoryStore, session: str, commit: int) -> None:
    """Lose a commit."""
    del store._sessions[session].commits[commit]


def body(store: MemoryStore, session: str, commit: int) -> bytes:
    return store._sessions[session].commits[commit].body


def record(store: MemoryStore, session: str, commit: int) -> Record:
    return store._sessions[session].commits[commit]


def flipped(data: bytes, place: int = -1) -> bytes:
    damaged = bytearray(data)
    damaged[place] ^= 0x10
    return bytes(damaged)


Damage = Callable[[MemoryStore], None]

DAMAGES: dict[str, tuple[Damage, str]] = {
    "a flipped byte in the head": (
        lambda s: change(s, "broken", 6, body=flipped(body(s, "broken", 6))),
        "commit 6",
    ),
    "a flipped byte in the base": (
        lambda s: change(s, "broken", 5, body=flipped(body(s, "broken", 5), 30)),
        "commit 5",
    ),
    "an empty record": (lambda s: change(s, "broken", 6, body=b""), "commit 6"),
    "a cut record": (
        lambda s: change(s, "broken", 6, body=body(s, "broken", 6)[:-1]),
        "commit 6",
    ),
    "another commit of the session in its place": (
        lambda s: change(s, "broken", 6, body=body(s, "broken", 4)),
        "commit 6",
    ),
    "the commit of another session in its place": (
        lambda s: change(s, "broken", 6, body=body(s, "other", 6)),
        "commit 6",
    ),
    "the full of another session as its base": (
        lambda s: change(s, "broken", 5, body=body(s, "other", 5)),
        "commit 5",
    ),
    "a base of an earlier session of that name": (
        lambda s: change(s, "broken", 5, body=reborn(s)),
        "commit 5",
    ),
    "a parent that was written anew": (
        lambda s: change(s, "broken", 5, body=retold(s)),
        "commit 6",
    ),
    "a missing base": (lambda s: drop(s, "broken", 5), "commit"),
}


def reborn(store: MemoryStore) -> bytes:
    """The base of session broken, as an earlier session of that name would have written it."""
    part = codec.decode_checkpoint(body(store, "broken", 5), "broken", "commit 5")
    envelope = replace(part.envelope, nonce="ab" * 16)
    return codec.encode_checkpoint(envelope, part.delta or (), whole=part.ops)


def retold(store: MemoryStore) -> bytes:
    """The base of session broken with another time: a right record, but not the parent."""
    part = codec.decode_checkpoint(body(store, "broken", 5), "broken", "commit 5")
    envelope = replace(part.envelope, at=part.envelope.at + 1)
    return codec.encode_checkpoint(envelope, part.delta or (), whole=part.ops)


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_chain_is_refused_by_name(name: str) -> None:
    """Resume, run, state, fork, pin: a typed error with the record; nothing runs, others go on."""
    damage, where = DAMAGES[name]
    store = MemoryStore()
    engine = await made(store)
    damage(store)
    for call in (
        engine.resume("broken"),
        engine.run(0, "broken"),
        engine.state("broken"),
        engine.fork("broken", "copy"),
        engine.manager.load_full_state("broken"),
        engine.edit("broken", lambda editor: None, reason="r"),
    ):
        with pytest.raises(CorruptRecordError, match=where) as refused:
            await call
        assert refused.value.session_id == "broken"
    found = await engine.manager.verify("broken")
    assert not found.intact
    assert any(where in finding.record for finding in found.findings)
    assert (await engine.run(0, "other")).status == "completed"
    assert (await engine.manager.verify("other")).intact
    assert len(await engine.history("other")) == 13
    await engine.close()


async def test_an_older_point_is_a_choice_and_not_a_fallback() -> None:
    """With the head damaged, the checkpoints of intact chains can be looked at and forked by name."""
    store = MemoryStore()
    engine = await made(store)
    change(store, "broken", 6, body=b"")
    assert (await engine.state("broken", 5)).step_number == 4
    assert (await engine.state("broken", 3)).step_number == 2
    await engine.fork("broken", "mended", 5)
    assert (await engine.state("mended")).state_data["::s"]["list"] == [0, 1, 2, 3, 4]
    assert (await engine.resume("mended")).status == "completed"
    await engine.close()


async def test_a_damaged_chain_hides_no_older_one_and_no_event() -> None:
    """Verify judges each chain on its own; the events of damaged checkpoints are still read."""
    store = MemoryStore()
    engine = await made(store)
    change(store, "s", 7, body=b"x")
    found = await engine.manager.verify("s")
    assert [finding.record for finding in found.findings] == ["commit 7"]
    assert (await engine.state("s")).step_number == 11
    with pytest.raises(CorruptRecordError, match="commit 7"):
        await engine.state("s", 8)
    events = [e async for e in engine.stream(session_id="s", after=0)]
    assert len([e for e in events if e.kind == "output"]) == 13
    await engine.close()


async def test_damaged_events_and_journal_are_found() -> None:
    """A flipped byte in events or in the journal is an error of whoever reads it."""
    store = MemoryStore()
    engine = await made(store)
    change(store, "s", 4, events=flipped(record(store, "s", 4).events))
    with pytest.raises(CorruptRecordError, match="events of commit 4"):
        [e async for e in engine.stream(session_id="s", after=0)]
    assert [f.record for f in (await engine.manager.verify("s")).findings] == ["events of commit 4"]
    journal = store._sessions["broken"].journal
    entries = [place for place, found in enumerate(journal) if found.body]
    journal[entries[-1]] = replace(journal[entries[-1]], body=b"\x00" * 40)
    with pytest.raises(CorruptRecordError, match="journal"):
        await engine.resume("broken")
    assert not (await engine.manager.verify("broken")).intact
    await engine.close()


async def test_a_full_that_tells_another_state_than_its_chain_is_found() -> None:
    """Verify replays the chain before a full and compares, although every checksum is right."""
    store = MemoryStore()
    engine = await made(store)
    await engine.run(0, "lie", max_steps=10)
    part = codec.decode_checkpoint(body(store, "lie", 10), "lie", "commit 10")
    assert part.full
    short = tuple(op for op in part.ops if getattr(op, "key", "") != "list")
    assert len(short) == len(part.ops) - 1
    lie = codec.encode_checkpoint(part.envelope, part.delta or (), whole=short)
    assert (await engine.manager.verify("lie")).intact
    change(store, "lie", 10, body=lie)
    found = await engine.manager.verify("lie")
    assert any("commit 10" in f.record and "chain before" in f.why for f in found.findings)
    await engine.close()


async def test_gaps_in_the_numbers_are_found() -> None:
    """A lost commit in the middle is a missing parent, and missing events."""
    store = MemoryStore()
    engine = await made(store)
    drop(store, "s", 7)
    found = await engine.manager.verify("s")
    assert any(f.record == "commit 7" and "missing" in f.why for f in found.findings)
    with pytest.raises(CorruptRecordError, match=r"commit 8.*is missing"):
        await engine.state("s", 8)
    await engine.close()


async def test_every_bit_of_a_whole_chain() -> None:
    """Any flipped bit of any record of the chain is found when the session is restored."""
    store = MemoryStore()
    engine = await made(store)
    for commit in (5, 6):
        whole = body(store, "broken", commit)
        for place in range(0, len(whole), 7):
            change(store, "broken", commit, body=flipped(whole, place))
            with pytest.raises(CheckpointError):
                await engine.manager.restore("broken")
        change(store, "broken", commit, body=whole)
    assert await engine.manager.restore("broken")
    await engine.close()


@pytest.mark.parametrize("column", ["body", "events"])
async def test_flipped_bytes_in_a_sqlite_file(column: str, tmp_path: Path) -> None:
    """A row that was changed behind the store's back is refused by name; other sessions go on."""
    path = tmp_path / "runs.db"
    async with running(loop(), f"sqlite:{path}", checkpoints=small_chains(5)) as engine:
        await engine.run(0, "s")
        await engine.run(0, "other")
    connection = sqlite3.connect(path)
    key, data = connection.execute(
        f"SELECT key, {column} FROM records WHERE commit_number = 11 ORDER BY key LIMIT 1"
    ).fetchone()
    connection.execute(
        f"UPDATE records SET {column} = ? WHERE key = ?", (flipped(bytes(data), 25), key)
    )
    connection.commit()
    connection.close()
    async with running(loop(), f"sqlite:{path}", checkpoints=small_chains(5)) as engine:
        if column == "body":
            with pytest.raises(CorruptRecordError, match="commit 11"):
                await engine.state("s")
            with pytest.raises(CorruptRecordError, match="commit 11"):
                await engine.run(1, "s", run_id="next")
        else:
            with pytest.raises(CorruptRecordError, match="events of commit 11"):
                [e async for e in engine.stream(session_id="s", after=0)]
        assert not (await engine.manager.verify("s")).intact
        assert (await engine.manager.verify("other")).intact
        assert (await engine.run(1, "other", run_id="next")).status == "completed"
        assert len([head async for head in engine.manager.heads()]) == 2


async def test_a_row_of_another_session_in_a_sqlite_file(tmp_path: Path) -> None:
    """A checkpoint under another session's name is named, and never taken for its own."""
    path = tmp_path / "runs.db"
    async with running(loop(), f"sqlite:{path}", checkpoints=small_chains(5)) as engine:
        await engine.run(0, "s")
        await engine.run(0, "other")
    connection = sqlite3.connect(path)
    (key, *_), (_, *foreign) = connection.execute(
        "SELECT key, body, events FROM records WHERE commit_number = 11 ORDER BY key"
    ).fetchall()
    connection.execute("UPDATE records SET body = ?, events = ? WHERE key = ?", (*foreign, key))
    connection.commit()
    connection.close()
    async with running(loop(), f"sqlite:{path}", checkpoints=small_chains(5)) as engine:
        assert not (await engine.manager.verify("s")).intact
        assert (await engine.manager.verify("other")).intact
        with pytest.raises(CorruptRecordError, match=r"'s'.*commit 11"):
            await engine.state("s")
        with pytest.raises(CorruptRecordError, match=r"'s'.*commit 11"):
            await engine.run(1, "s", run_id="next")
