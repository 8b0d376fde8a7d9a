"""Five processes claim and commit at full speed: nobody hears of a lock, nothing is lost, one owns."""

import pytest

from raf.store.urls import open_store
from raf.testing.store_suite.base import bodies, head_of, must_read
from tests.unit.store.test_sqlite_processes import STEPS, start

SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("file", "postgres", "redis")]


@pytest.mark.parametrize("place", SLOW, indirect=True)
async def test_five_processes_at_full_speed(place: str) -> None:
    """Each writes a session of its own and, in turns, one that all of them share."""
    processes = [start("race", place, f"own {n}") for n in range(5)]
    ends = [(process.communicate(timeout=100), process.returncode) for process in processes]
    assert [(out, code) for (out, _), code in ends] == [("", 0)] * 5
    said = [line for (_, errors), _ in ends for line in errors.splitlines()]
    assert all("fsync is off" in line for line in said)  # of the tests' own server
    async with open_store(place) as store:
        shared = await must_read(store, "shared")
        assert [info.commit for info in shared.infos] == list(range(5 * STEPS))
        written = bodies(shared)
        assert {name: written.count(name) for name in set(written)} == {
            f"own {n}".encode(): STEPS for n in range(5)
        }
        assert len({info.epoch for info in shared.infos}) == 5 * STEPS
        for n in range(5):
            assert (await head_of(store, f"own {n}")).commit == STEPS - 1
