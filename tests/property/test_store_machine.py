"""Every store beside a dict of facts, under random commits, crashes, takeovers and deletions."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from raf.testing.store_suite.base import SuiteBase
from tests.conformance.test_file import TestFile as FileSuite
from tests.conformance.test_memory import TestMemory as MemorySuite
from tests.conformance.test_postgres import SCHEMA
from tests.conformance.test_postgres import TestPostgres as PostgresSuite
from tests.conformance.test_redis import TestRedis as RedisSuite
from tests.conformance.test_sqlite import TestSqlite as SqliteSuite
from tests.property.store_machine import StoreMachine
from tests.servers.postgres import empty, shared_url
from tests.servers.valkey import forget, prefix_of, redis_url

__all__ = ["redis_url"]

STEPS = {"short": (12, 25), "long": (300, 60)}  # how often, and how many steps each


def drive(
    suite: type[SuiteBase],
    campaign: str,
    kit: Callable[[], SuiteBase] | None = None,
    clean: Callable[[Path], object] = str,
) -> None:
    """Run the machine on the stores that a suite makes; `clean` empties the place of an example."""
    examples, steps = STEPS[campaign]

    class Machine(StoreMachine):
        def __init__(self) -> None:
            super().__init__(kit or suite)
            clean(self.folder)

        def teardown(self) -> None:
            super().teardown()
            clean(self.folder)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(3600)  # the long form takes its time
@pytest.mark.parametrize("suite", [MemorySuite, SqliteSuite, FileSuite], ids=lambda s: s.__name__)
def test_the_store_is_a_dict_that_survives(suite: type[SuiteBase], campaign: str) -> None:
    """Whatever is done in whatever order, the store shows what the model says."""
    drive(suite, campaign)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_postgres_store_is_a_dict_that_survives(campaign: str) -> None:
    """The same on a Postgres server."""
    url = shared_url()
    drive(PostgresSuite, campaign, clean=lambda _: empty(url, SCHEMA))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_redis_store_is_a_dict_that_survives(campaign: str, redis_url: str) -> None:
    """The same on a Valkey server."""

    def kit() -> SuiteBase:
        made = RedisSuite()
        made.server = redis_url
        return made

    drive(RedisSuite, campaign, kit, lambda folder: forget(redis_url, prefix_of(folder)))
