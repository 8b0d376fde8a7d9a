"""The sealed records on file: what was sealed once is opened for ever, and can be gone on with."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raf import CheckpointManager, WorkflowEngine
from raf.errors import MissingKeyError
from raf.store.port import Store
from raf.store.sealed import keys_in_use
from raf.store.sealed.envelope import VERSION
from raf.store.urls import open_store
from tests.golden.sessions import CHECKPOINTS, FINISHED, Nodes, told, workflow
from tests.golden.write import SEALED, expected, sealed

ENVELOPES = sorted(SEALED.iterdir())
STORES = {"file": "file:{}/file", "sqlite": "sqlite:{}/runs.sqlite"}


@pytest.fixture(params=ENVELOPES, ids=lambda folder: folder.name)
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one version's records: reading them may fold a log or leave a lock."""
    copy = tmp_path / "records"
    shutil.copytree(request.param, copy)
    return copy


def says(record: Path) -> dict[str, Any]:
    """What must be read."""
    content: dict[str, Any] = json.loads((record / "expected.json").read_text("utf-8"))
    return content


def beneath(backend: str, record: Path) -> Store:
    """The store that keeps the sealed records."""
    return open_store(STORES[backend].format(record))


def test_every_version_is_on_record() -> None:
    """The records of each version of the envelope are there; a number is never used twice."""
    assert [folder.name for folder in ENVELOPES] == [f"envelope-{n + 1}" for n in range(VERSION)]


@pytest.mark.parametrize("backend", STORES)
async def test_every_session_is_opened(backend: str, record: Path) -> None:
    """Every kept checkpoint, event and outcome of every session is what it was, and intact."""
    async with CheckpointManager(sealed(beneath(backend, record))) as manager:
        assert await expected(manager) == says(record)["sessions"]
        for session in says(record)["sessions"]:
            assert (await manager.verify(session)).findings == ()
        assert set(await keys_in_use(manager.store)) == {"golden"}


@pytest.mark.parametrize("backend", STORES)
async def test_unfinished_sessions_go_on(backend: str, record: Path) -> None:
    """Each is resumed to the outputs on record; an effect that is recorded is not repeated."""
    nodes = Nodes()
    store = sealed(beneath(backend, record))
    async with WorkflowEngine(workflow(nodes), store, checkpoints=CHECKPOINTS) as engine:
        for session, outputs in says(record)["resumed"].items():
            result = await engine.resume(session, wait_s=30.0)
            assert [told(output) for output in result.outputs] == outputs
            assert nodes.acted == 0


async def test_without_the_key_nothing_is_read(record: Path) -> None:
    """Whoever has no key hears which one is missing."""
    async with CheckpointManager(beneath("file", record)) as manager:
        with pytest.raises(MissingKeyError, match="'golden'"):
            await manager.restore(FINISHED)


def test_no_word_of_the_sessions_is_in_the_files(record: Path) -> None:
    """What the nodes wrote, and the keys of the state, stand nowhere in clear."""
    for path in record.rglob("*"):
        if path.is_file() and path.name != "expected.json":
            content = path.read_bytes()
            assert b"from begin" not in content
            assert b"::board" not in content


def test_records_are_never_written_again() -> None:
    """The writer refuses a folder that is there."""
    for words in ([], ["sealed"]):
        ran = subprocess.run(
            [sys.executable, "-m", "tests.golden.write", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 1
        assert "is on record and is not written again" in ran.stderr
