"""The records on file: whatever was released once is read for ever, and can be gone on with."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raf import CheckpointManager, WorkflowEngine
from raf.checkpoint.codec import decode_checkpoint, decode_events, decode_journal, part_hash
from raf.checkpoint.restore import replay, stored_events
from raf.engine.journal import read_journal
from raf.store.model import Head, Kind, Reading, Record, RecordInfo
from raf.store.order import new_head
from raf.store.urls import open_store
from tests.golden.sessions import (
    CHECKPOINTS,
    FINISHED,
    GONE,
    OPEN,
    RUNS,
    VALUES,
    Nodes,
    Task,
    told,
    told_checkpoint,
    told_event,
    workflow,
)
from tests.golden.write import RECORDS, expected, main

FORMATS = sorted(RECORDS.iterdir())
STORES = {"file": "file:{}/file", "sqlite": "sqlite:{}/runs.sqlite"}


@pytest.fixture(params=FORMATS, ids=lambda folder: folder.name)
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one format's records: reading them may fold a log or leave a lock."""
    copy = tmp_path / "records"
    shutil.copytree(request.param, copy)
    return copy


def says(record: Path) -> dict[str, Any]:
    """What must be read."""
    content: dict[str, Any] = json.loads((record / "expected.json").read_text("utf-8"))
    return content


def test_format_1_is_on_record() -> None:
    """The records of the first format are there; a number is never used twice."""
    assert [folder.name for folder in FORMATS][:1] == ["format-1"]
    assert [says(folder)["format"] for folder in FORMATS] == list(range(1, len(FORMATS) + 1))


@pytest.mark.parametrize("backend", STORES)
async def test_every_session_is_read(backend: str, record: Path) -> None:
    """Every kept checkpoint, event and outcome of every session is what it was."""
    async with CheckpointManager(STORES[backend].format(record)) as manager:
        assert await expected(manager) == says(record)["sessions"]


@pytest.mark.parametrize("backend", STORES)
async def test_every_session_is_intact(backend: str, record: Path) -> None:
    """Records, links, numbers and merged states of every session hold; the deleted one is gone."""
    async with CheckpointManager(STORES[backend].format(record)) as manager:
        for session in says(record)["sessions"]:
            verified = await manager.verify(session)
            assert verified.findings == ()
            assert verified.checkpoints > 0
        assert await manager.restore(GONE) is None


@pytest.mark.parametrize("backend", STORES)
async def test_values_keep_their_types(backend: str, record: Path) -> None:
    """Every kind of value comes back equal and of its own type."""
    nodes = Nodes()
    store = STORES[backend].format(record)
    async with WorkflowEngine(workflow(nodes), store) as engine:
        found = (await engine.state(FINISHED)).state_data["::board"]["values"]
    assert told(found) == told(VALUES)


@pytest.mark.parametrize("backend", STORES)
async def test_finished_runs_return_their_result(backend: str, record: Path) -> None:
    """A finished run is not run again: its outputs come from the record."""
    nodes = Nodes()
    async with WorkflowEngine(workflow(nodes), STORES[backend].format(record)) as engine:
        for number, run_id in enumerate(RUNS):
            result = await engine.run(Task(mode=FINISHED, value=number), FINISHED, run_id=run_id)
            assert result.status == "completed"
            assert result.resumed_from is None
            assert len(result.outputs) == 2
    assert nodes.acted == 0


@pytest.mark.parametrize("backend", STORES)
async def test_unfinished_sessions_go_on(backend: str, record: Path) -> None:
    """Each is resumed to the outputs on record; an effect that is recorded is not repeated."""
    nodes = Nodes()
    store = STORES[backend].format(record)
    async with WorkflowEngine(workflow(nodes), store, checkpoints=CHECKPOINTS) as engine:
        for session, outputs in says(record)["resumed"].items():
            result = await engine.resume(session, wait_s=30.0)
            assert result.status == "completed"
            assert [told(output) for output in result.outputs] == outputs
            assert nodes.acted == 0
            assert (await engine.manager.verify(session)).intact


def part_of(record: Path, item: dict[str, Any]) -> bytes:
    """The bytes of a part."""
    return (record / "parts" / str(item["file"])).read_bytes()


def head_for(parts: dict[str, Any]) -> Head:
    """A head that fits the parts."""
    return replace(new_head(OPEN, parts["nonce"], 0.0), commit=len(parts["chain"]) - 1)


def test_checkpoint_parts(record: Path) -> None:
    """A full and its deltas, read from bare bytes, make the snapshots on record."""
    parts = says(record)["parts"]
    head, chain, parent = head_for(parts), list[Record](), b""
    for number, item in enumerate(parts["chain"]):
        body = part_of(record, item)
        part = decode_checkpoint(body, OPEN, item["file"])
        assert part.envelope.parent == parent
        parent = part_hash(body)
        info = RecordInfo(
            position=number + 1,
            epoch=part.envelope.epoch,
            kind=Kind.COMMIT,
            created_at=part.envelope.at,
            commit=part.envelope.commit,
            step=part.envelope.step,
            full=part.full,
        )
        chain.append(Record(info=info, body=body))
        restored = replay(Reading(head=head, chain=tuple(chain)))
        assert told_checkpoint(OPEN, restored, workflow(Nodes())) == item["says"]
    assert [record.info.full for record in chain] == [True] + [False] * (len(chain) - 1)


def test_event_parts(record: Path) -> None:
    """The events of each commit are read from bare bytes."""
    parts = says(record)["parts"]
    number = 1
    for item in parts["events"]:
        body = part_of(record, item)
        part = decode_events(body, OPEN, item["file"])
        info = RecordInfo(
            position=number,
            epoch=1,
            kind=Kind.COMMIT,
            created_at=part.at,
            commit=part.commit,
            first_event=number,
            event_count=len(part.events),
        )
        events = stored_events(head_for(parts), Record(info=info, events=body))
        assert [told_event(event, workflow(Nodes())) for event in events] == item["says"]
        number += len(events)
    assert number > 1


async def test_journal_parts(record: Path) -> None:
    """Results, failures and effects of a step in flight are read from bare bytes."""
    parts = says(record)["parts"]
    kinds: set[str] = set()
    for item in parts["journal"]:
        entry = decode_journal(part_of(record, item), OPEN, item["file"])
        assert told(entry) == item["says"]
        kinds.add(entry[0])
    assert {"result", "failure", "effect"} <= kinds
    async with CheckpointManager(open_store(STORES["file"].format(record))) as manager:
        restored = await manager.restore(OPEN)
        assert restored is not None
        step = read_journal(restored.journal)
        assert (len(step.results), len(step.failures)) == (1, 1)
        assert [list(effects) for effects in step.effects.values() if effects] == [["send"]]
        assert [request.request_id for request in restored.requests] == ["not consumed"]


@pytest.mark.slow
async def test_todays_code_writes_what_it_reads(tmp_path: Path) -> None:
    """The writer of records works: it is run when a new format is released."""
    await main(tmp_path / "today")
    newest = says(FORMATS[-1])
    today = says(tmp_path / "today")
    assert today["resumed"] == newest["resumed"]
