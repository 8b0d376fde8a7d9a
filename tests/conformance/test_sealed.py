"""The sealed store keeps the contract of the port, whatever store is beneath."""

from pathlib import Path

import pytest

from raf.clock import Clock
from raf.store.file import FileStore
from raf.store.memory import MemoryStore
from raf.store.port import Store
from raf.store.sealed import KeyRing, SealedStore
from raf.store.sqlite import SqliteStore
from raf.testing.store_suite import StoreSuite

RING = KeyRing({"2026-01": b"k" * 32, "2025-01": b"o" * 32}, current="2026-01")


@pytest.mark.slow
class TestSealedMemory(StoreSuite):
    shareable = False

    async def make_store(self, tmp_path: Path, clock: Clock) -> Store:
        return SealedStore(MemoryStore(clock=clock), RING)

    async def reopen(self, store: Store, tmp_path: Path, clock: Clock) -> Store:
        await store.close()
        await store.open()
        return store


@pytest.mark.slow
class TestSealedSqlite(StoreSuite):
    async def make_store(self, tmp_path: Path, clock: Clock) -> Store:
        return SealedStore(
            SqliteStore(tmp_path / "runs.db", synchronous="normal", clock=clock), RING
        )


@pytest.mark.slow
class TestSealedFile(StoreSuite):
    async def make_store(self, tmp_path: Path, clock: Clock) -> Store:
        return SealedStore(FileStore(tmp_path / "place", clock=clock), RING)
