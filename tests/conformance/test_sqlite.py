"""The SQLite store keeps the contract of the port, under either setting of `synchronous`."""

from pathlib import Path

import pytest

from raf.clock import Clock
from raf.store.port import Store
from raf.store.sqlite import SqliteStore
from raf.testing.store_suite import StoreSuite


class TestSqlite(StoreSuite):
    async def make_store(self, tmp_path: Path, clock: Clock) -> Store:
        return SqliteStore(tmp_path / "runs.db", clock=clock)


@pytest.mark.slow
class TestSqliteNormal(StoreSuite):
    async def make_store(self, tmp_path: Path, clock: Clock) -> Store:
        return SqliteStore(tmp_path / "runs.db", synchronous="normal", clock=clock)
