"""Encrypted sessions: verified record by record, repaired, moved, and readable nowhere on the way."""

from pathlib import Path

import pytest

from raf import CheckpointConfig, InMemoryCheckpointStore, KeyRing, SealedStore, WorkflowEngine
from raf.checkpoint.manager import CheckpointManager
from raf.errors import MissingKeyError
from raf.store.memory import MemoryStore
from raf.store.transfer import copy_session, dump, load
from tests.unit.checkpoint.test_damage import change, flipped, loop, record
from tests.unit.store.test_transfer import each

RING = KeyRing({"2026-01": bytes(range(32))}, current="2026-01")
OTHER = KeyRing({"2027-01": bytes(range(1, 33))}, current="2027-01")
CONFIG = CheckpointConfig(full_snapshot_interval=4)
SECRET = b"list"  # a key of the state


async def sealed_engine(inner: MemoryStore) -> WorkflowEngine:
    """An engine over an encrypted store, with a finished session `s`."""
    engine = WorkflowEngine(loop(), SealedStore(inner, RING), checkpoints=CONFIG)
    await engine.open()
    await engine.run(0, "s")
    assert (await engine.manager.verify("s")).intact
    return engine


@pytest.mark.parametrize("part", ["body", "events"])
async def test_a_damaged_record_is_named_and_repaired(part: str, tmp_path: Path) -> None:
    """One record does not open: it alone is given up, and the backup file is sealed as the rest."""
    inner, backup = MemoryStore(), tmp_path / "b.raf"
    engine = await sealed_engine(inner)
    torn = record(inner, "s", 5)
    change(inner, "s", 5, **{part: flipped(getattr(torn, part))})
    found = await engine.manager.verify("s")
    assert any("commit 5" in finding.record for finding in found.findings)
    plan = await engine.manager.repair("s")
    assert plan.anew
    assert plan.commit == 12
    done = await engine.manager.repair("s", apply=True, reason="test", backup=backup)
    assert done.left == ()
    assert (await engine.run(0, "s")).outputs == [*range(13)]
    assert (await engine.run(5, "s", run_id="next")).status == "completed"
    for data in (backup.read_bytes(), *(r.body for r in inner._sessions["s"].commits)):
        assert SECRET not in data
    assert all(r.body[:4] in (b"", b"RAFS") for r in inner._sessions["s"].commits)
    await engine.close()


async def test_a_missing_key_is_no_damage() -> None:
    """Without the key nothing is judged damaged, and nothing is given up."""
    inner = MemoryStore()
    engine = await sealed_engine(inner)
    async with CheckpointManager(SealedStore(inner, OTHER)) as blind:
        assert "2026-01" in (await blind.verify("s")).findings[0].why
        with pytest.raises(MissingKeyError):
            await blind.repair("s", apply=True, reason="r", backup="nowhere.raf")
    assert (await engine.manager.verify("s")).intact
    await engine.close()


async def test_an_export_needs_no_key_and_stays_sealed(tmp_path: Path) -> None:
    """From the store beneath or through the sealed one: the same file; with the key it goes on."""
    inner, there = MemoryStore(), InMemoryCheckpointStore()
    engine = await sealed_engine(inner)
    for name, store in (("raw", inner), ("through", engine.manager.store)):
        moved = await dump(store, each("s"), tmp_path / name)
        assert moved.sessions == ("s",)
        assert SECRET not in (tmp_path / name).read_bytes()
    async with SealedStore(there, RING) as other:
        await load(other, tmp_path / "through")
        async with WorkflowEngine(loop(), other, checkpoints=CONFIG) as engine_there:
            assert (await engine_there.manager.verify("s")).intact
            assert (await engine_there.run(0, "s")).outputs == [*range(13)]
            assert (await engine_there.run(7, "s", run_id="next")).status == "completed"
    await engine.close()


async def test_a_copy_is_sealed_on_its_way() -> None:
    """What was in clear is encrypted by copying it into an encrypted store."""
    async with MemoryStore() as clear, MemoryStore() as inner:
        async with WorkflowEngine(loop(), clear, checkpoints=CONFIG) as engine:
            await engine.run(0, "s")
        sealed = SealedStore(inner, RING)
        await copy_session(clear, sealed, "s")
        assert all(r.body.startswith(b"RAFS") for r in inner._sessions["s"].commits)
        async with WorkflowEngine(loop(), sealed, checkpoints=CONFIG) as engine:
            assert (await engine.manager.verify("s")).intact
            assert (await engine.run(0, "s")).outputs == [*range(13)]
        async with CheckpointManager(inner) as blind:
            with pytest.raises(MissingKeyError):
                await blind.repair("s")
