"""The memory store keeps the contract of the port: it is a verified fake."""

from pathlib import Path

from raf.clock import Clock
from raf.store.memory import MemoryStore
from raf.store.port import Store
from raf.testing.store_suite import StoreSuite


class TestMemory(StoreSuite):
    shareable = False

    async def make_store(self, tmp_path: Path, clock: Clock) -> Store:
        return MemoryStore(clock=clock)

    async def reopen(self, store: Store, tmp_path: Path, clock: Clock) -> Store:
        await store.close()
        await store.open()
        return store
