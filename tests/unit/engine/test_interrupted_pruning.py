"""Pruning that is stopped anywhere leaves a session that goes on, on every store."""

from contextlib import suppress
from typing import Any

import pytest

from raf import Context, LoopOptions, WorkflowBuilder, WorkflowEngine
from raf.errors import CheckpointNotFoundError, RafError
from raf.store.urls import open_store
from raf.testing import CrashError, count_failpoints, crash_at
from tests.servers.places import DURABLE, backend_of
from tests.unit.engine.stage import events_of, running, small_chains

VALUES = [*range(16), *range(3, 19)]  # of a run, and of the next
SLOW = [
    pytest.param(name, marks=pytest.mark.slow) if name != "sqlite" else name for name in DURABLE
]


async def notes(ctx: Context, value: int) -> int:
    """A node that keeps a list."""
    ctx.scope("s").append("list", value)
    return value + 1


def looping(times: int) -> Any:
    builder = WorkflowBuilder("w").add_node("n", notes).set_start("n")
    return builder.add_loop("n", "n", LoopOptions(times)).build()


async def check(engine: WorkflowEngine, session: str) -> None:
    """All that is listed as kept can be loaded, and the events have no gap."""
    assert (await engine.manager.verify(session)).intact
    for info in await engine.history(session):
        if info.byte_size:
            state = await engine.state(session, info.commit)
            listed = state.state_data.get("::s", {}).get("list", [])
            assert listed == VALUES[: len(listed)]
        else:
            with pytest.raises(CheckpointNotFoundError, match="pruned"):
                await engine.state(session, info.commit)
    numbers = [event.number for event in await events_of(engine, session)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("place", SLOW, indirect=True)
async def test_stopped_at_every_point(place: str) -> None:
    """The run that was cut off goes on, a new run ends well, and the next pruning does the rest."""
    config = small_chains(interval=3, most=3)
    backend = backend_of(place)
    async with running(looping(16), open_store(place), checkpoints=config) as engine:
        with count_failpoints() as passed:
            await engine.run(0, "whole")
        kept = sum(info.byte_size > 0 for info in await engine.history("whole"))
        points = {
            point: count
            for point, count in passed.items()
            if point.startswith((f"store.{backend}.prune", "store.file.remove."))
        }
        assert points
        for point, count in points.items():
            for hit in {1, count // 2 or 1, count}:
                session = f"{point} {hit}"
                with crash_at(point, hit=hit, how="raise"), suppress(CrashError, RafError):
                    await engine.run(0, session)
                assert (await engine.run(0, session)).outputs == [16]
                await check(engine, session)
                assert (await engine.run(3, session, run_id="next")).status == "completed"
                await engine.prune(session)
                await check(engine, session)
                left = sum(info.byte_size > 0 for info in await engine.history(session))
                assert left <= kept + 3
