"""The Redis store keeps the contract of the port, on a real server."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from raf.clock import Clock
from raf.store.port import Store
from raf.store.redis import RedisStore
from raf.testing import ManualClock
from raf.testing.store_suite import StoreSuite
from tests.servers.valkey import forget, move_back, prefix_of, redis_url

__all__ = ["redis_url"]


class TestRedis(StoreSuite):
    clock_of_its_own: ClassVar[bool] = True

    @pytest.fixture(autouse=True)
    def _place(self, redis_url: str, tmp_path: Path) -> Iterator[None]:
        self.server = redis_url
        yield
        forget(redis_url, prefix_of(tmp_path))

    async def make_store(self, tmp_path: Path, clock: Clock) -> Store:
        return RedisStore(f"{self.server}?prefix={prefix_of(tmp_path)}", clock=clock)

    async def pass_time(self, store: Store, clock: ManualClock, seconds: float) -> None:
        """What is stored ends so much earlier, which is the same as a later time on the server."""
        await super().pass_time(store, clock, seconds)
        prefix = store.url.partition("prefix=")[2]
        move_back(self.server, prefix, seconds)
