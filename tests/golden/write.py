"""Write the records of this format: `python -m tests.golden.write`, or `... sealed`.

Records are written once.  When the format changes, its number grows and this writes a new folder
beside the old ones, which are read for ever; a folder that is there is never written again.

    records/format-1/file/          a file store
    records/format-1/runs.sqlite    a SQLite store with the same sessions
    records/format-1/parts/         parts of one of them, each a file
    records/format-1/expected.json  what must be read from all of it
    sealed/envelope-1/              the same, sealed under a key that everybody knows; without parts
"""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from raf import CheckpointManager, RunResult, WorkflowEngine
from raf.checkpoint.codec import FORMAT, decode_journal
from raf.store.file import FileStore
from raf.store.model import Owner, Select
from raf.store.port import Store
from raf.store.sealed import KeyRing, SealedStore
from raf.store.sealed.envelope import VERSION
from raf.store.sqlite import SqliteStore
from raf.testing import ManualClock
from tests.golden.sessions import (
    CHECKPOINTS,
    FINISHED,
    GONE,
    LIMITED,
    ODD,
    OPEN,
    RUNS,
    SLEEPING,
    Nodes,
    Task,
    told,
    told_checkpoint,
    told_event,
    workflow,
)

RECORDS: Final = Path(__file__).with_name("records")
SEALED: Final = Path(__file__).with_name("sealed")
# No secret: whoever reads these records must be able to open them for ever.
RING: Final = KeyRing({"golden": bytes(range(32))}, current="golden")
# A lease of another boot binds for as long: short, so that a test can take the session over.
LEASE_S: Final = 0.05
BOOT: Final = "00000000-0000-4000-8000-000000000000"


def golden_clock() -> ManualClock:
    """A clock that says nothing of the machine: its times and ids are always the same."""
    return ManualClock(now=1_700_000_000.0, boot_id=BOOT, auto_advance=True)


def engine_on(store: Store, nodes: Nodes) -> WorkflowEngine:
    """An engine whose owner says nothing of the machine."""
    engine = WorkflowEngine(workflow(nodes), store, checkpoints=CHECKPOINTS, lease_s=LEASE_S)
    engine.machine.owner = Owner(
        host="golden",
        boot_id=BOOT,
        pid_namespace="pid:[1]",
        pid=1,
        start_time="1",
        token=store.clock.new_id(),
    )
    return engine


async def write_sessions(store: Store, copy: Callable[[], None]) -> None:
    """Make every session on a store; `copy` takes it away while one of them is in mid-step."""
    async with engine_on(store, Nodes()) as engine:
        for number, run_id in enumerate(RUNS):
            await engine.run(Task(mode=FINISHED, value=number), FINISHED, run_id=run_id)
            if number == 0:
                await engine.pin(FINISHED, (await engine.manager.head(FINISHED)).commit)
        await engine.prune(FINISHED, events_before=5)
        for session in (SLEEPING, LIMITED, ODD, GONE):
            await engine.run(Task(mode=session, value=1), session, wait=False)
            # With a request in it no inbox is an empty folder, which version control would drop.
            await engine.pin(session, 0)
        await engine.delete(GONE)
        nodes = Nodes(asyncio.Event())
        async with engine_on(store, nodes) as cut_off:
            run = asyncio.ensure_future(cut_off.run(Task(mode=OPEN, value=1), OPEN))
            await nodes.held.wait()
            await until_journaled(engine.manager)
            await store.request(OPEN, "not consumed", "pin", b"0")
            copy()
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


async def until_journaled(manager: CheckpointManager) -> None:
    """Return when the open session's journal holds a result, a failure and an effect."""
    kinds: set[str] = set()
    while kinds != {"result", "failure", "effect"}:
        await asyncio.sleep(0.005)
        reading = await manager.store.read(OPEN, Select(journal=True))
        bodies = (
            [] if reading is None else [record.body for record in reading.journal if record.body]
        )
        kinds = {decode_journal(body, OPEN, "")[0] for body in bodies}


async def expected(manager: CheckpointManager) -> dict[str, Any]:
    """All that the records say, read with today's code."""
    types = workflow(Nodes())
    sessions: dict[str, Any] = {}
    async for head in manager.heads():
        session = head.session_id
        commits: dict[str, Any] = {}
        for info in await manager.history(session):
            if info.byte_size:
                restored = await manager.restore(session, info.commit)
                assert restored is not None
                commits[str(info.commit)] = told_checkpoint(session, restored, types)
        _, events = await manager.events(session, after=head.first_event - 1)
        sessions[session] = {
            "commit": head.commit,
            "first_event": head.first_event,
            "status": head.summary.status,
            "checkpoints": commits,
            "events": [told_event(event, types) for event in events],
        }
    return sessions


async def write_parts(manager: CheckpointManager, folder: Path) -> dict[str, Any]:
    """The parts of the open session, and what they say."""
    reading = await manager.store.read(OPEN, Select(chain=True, journal=True, events_after=0))
    assert reading is not None
    parts: dict[str, Any] = {"nonce": reading.head.nonce, "chain": [], "events": [], "journal": []}

    def keep(kind: str, body: bytes, said: Any) -> None:
        name = f"{kind}-{len(parts[kind])}.bin"
        (folder / name).write_bytes(body)
        parts[kind].append({"file": name, "says": said})

    types = workflow(Nodes())
    for record in reading.chain:
        restored = await manager.restore(OPEN, record.info.commit)
        assert restored is not None
        keep("chain", record.body, told_checkpoint(OPEN, restored, types))
    _, events = await manager.events(OPEN)
    for record in reading.events:
        mine = [e for e in events if e.commit == record.info.commit]
        keep("events", record.events, [told_event(event, types) for event in mine])
    for record in reading.journal:
        if record.body:
            keep("journal", record.body, told(decode_journal(record.body, OPEN, "")))
    return parts


async def resumed(store: Store) -> dict[str, Any]:
    """What the unfinished sessions end with, in a copy that is thrown away."""
    ends: dict[str, RunResult] = {}
    async with WorkflowEngine(workflow(Nodes()), store, checkpoints=CHECKPOINTS) as engine:
        for session in (SLEEPING, LIMITED, OPEN):
            ends[session] = await engine.resume(session, wait_s=10.0)
    return {session: [told(output) for output in end.outputs] for session, end in ends.items()}


def laid_out(value: Any, depth: int) -> str:
    """JSON that has a line for each checkpoint, event and part."""
    if not depth or not isinstance(value, dict | list) or not value:
        return json.dumps(value, separators=(",", ":"))
    if isinstance(value, list):
        inner = [laid_out(item, depth - 1) for item in value]
        return "[\n" + ",\n".join(inner) + "\n]"
    inner = [f"{json.dumps(key)}: {laid_out(item, depth - 1)}" for key, item in value.items()]
    return "{\n" + ",\n".join(inner) + "\n}"


def plain(store: Store) -> Store:
    """A store as it is."""
    return store


def sealed(store: Store) -> Store:
    """A store that is read and written under the key of the records."""
    return SealedStore(store, RING)


async def main(target: Path, wrap: Callable[[Store], Store] = plain) -> None:
    """Make all records in a folder that is not there."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        draft = work / "draft"
        draft.mkdir()

        def copy_file_store() -> None:
            shutil.copytree(work / "file", draft / "file")

        def copy_database() -> None:
            for end in ("", "-wal"):
                shutil.copyfile(work / f"runs.db{end}", draft / f"runs.sqlite{end}")

        files, database = FileStore(work / "file", clock=golden_clock()), work / "runs.db"
        await write_sessions(wrap(files), copy_file_store)
        await write_sessions(wrap(SqliteStore(database, clock=golden_clock())), copy_database)
        async with CheckpointManager(wrap(SqliteStore(draft / "runs.sqlite"))) as manager:
            sessions = await expected(manager)  # closing it folds the log into the file
        said: dict[str, Any] = {"format": FORMAT, "sessions": sessions}
        async with CheckpointManager(wrap(FileStore(draft / "file"))) as manager:
            assert await expected(manager) == sessions, "the stores differ"
            if wrap is plain:
                (draft / "parts").mkdir()
                said["parts"] = await write_parts(manager, draft / "parts")
        shutil.copytree(draft / "file", work / "copy")
        said["resumed"] = await resumed(wrap(FileStore(work / "copy")))
        (draft / "expected.json").write_text(laid_out(said, 4) + "\n", encoding="utf-8")
        shutil.copytree(draft, target)


if __name__ == "__main__":
    seal = "sealed" in sys.argv[1:]
    place = SEALED / f"envelope-{VERSION}" if seal else RECORDS / f"format-{FORMAT}"
    if place.exists():
        sys.exit(f"{place} is on record and is not written again")
    asyncio.run(main(place, sealed if seal else plain))
    sys.stdout.write(f"wrote {place}\n")
