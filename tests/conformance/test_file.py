"""The file store keeps the contract of the port."""

from pathlib import Path

from raf.clock import Clock
from raf.store.file import FileStore
from raf.store.port import Store
from raf.testing.store_suite import StoreSuite


class TestFile(StoreSuite):
    async def make_store(self, tmp_path: Path, clock: Clock) -> Store:
        return FileStore(tmp_path / "place", clock=clock)
