"""The Postgres store keeps the contract of the port, on a real server with its clock in our hand."""

from pathlib import Path

import pytest

from raf.clock import Clock
from raf.store.port import Store
from raf.testing.store_suite import StoreSuite
from tests.servers.postgres import ClockedPostgresStore, empty, shared_url, with_options

SCHEMA = "conformance"


class TestPostgres(StoreSuite):
    @pytest.fixture(autouse=True)
    def clean(self) -> None:
        empty(shared_url(), SCHEMA)

    async def make_store(self, tmp_path: Path, clock: Clock) -> Store:
        return ClockedPostgresStore(with_options(shared_url(), schema=SCHEMA), clock=clock)
