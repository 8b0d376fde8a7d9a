"""Another process looks, exports and forks at full speed while a session is written: whole steps only."""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from raf import WorkflowEngine
from raf.errors import SessionBusyError, SessionNotFoundError
from raf.store.memory import MemoryStore
from raf.store.transfer import copy_session
from tests.servers.places import DURABLE
from tests.unit.engine import actor

ROOT = Path(__file__).parents[2]
STEPS = 500
PLACES = pytest.mark.parametrize(
    "place", [pytest.param(name, marks=pytest.mark.slow) for name in DURABLE], indirect=True
)


async def sight(engine: WorkflowEngine, turn: int) -> tuple[int, int, int]:
    """What one look shows: the state's step, the last commit listed, and that of an export or fork."""
    state = await engine.state("s")
    assert state.state_data.get("::s", {}) == actor.told_after(state.step_number)
    history = await engine.history("s")
    assert [info.commit for info in history] == list(range(len(history)))
    if turn % 9 == 2:
        async with MemoryStore() as copy:
            await copy_session(engine.manager.store, copy, "s")
            async with WorkflowEngine(actor.WORKFLOWS["long"](), copy) as looking:
                assert (await looking.manager.verify("s")).intact
                taken = (await looking.state("s")).step_number
    elif turn % 9 == 5:
        await engine.fork("s", f"fork {turn}")
        forked = await engine.state(f"fork {turn}")
        taken = forked.step_number
        assert forked.state_data.get("::s", {}) == actor.told_after(taken)
    else:
        taken = state.step_number
        if turn % 9 == 8:
            with suppress(SessionBusyError):  # while somebody owns it, nobody else compacts
                await engine.prune("s")
                assert (await engine.manager.head("s")).summary.status == "completed"
    return state.step_number, history[-1].commit, taken


@PLACES
@pytest.mark.timeout(600)
async def test_a_reader_polls_during_five_hundred_steps(place: str, tmp_path: Path) -> None:
    """Each sight is a committed step and none goes back; copies and forks are whole."""
    writer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.unit.engine.actor", "long", place, "s", str(tmp_path)),
        cwd=ROOT,
        env=dict(os.environ),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        looks, last = 0, (-1, -1, -1)
        async with WorkflowEngine(actor.WORKFLOWS["long"](), place) as engine:
            while writer.returncode is None and last[0] < STEPS - 5:
                try:
                    seen = await sight(engine, looks)
                except SessionNotFoundError:  # not begun yet
                    assert looks == 0
                    continue
                assert seen[0] >= last[0]
                assert seen[1] >= last[1]
                assert seen[2] >= seen[0]
                looks, last = looks + 1, seen
            out, _ = await writer.communicate()
            assert out.strip() == b'["completed", [500]]'
            assert looks > 3  # it was looked at in the middle, however slow this machine is
            assert (await engine.manager.verify("s")).intact
    finally:
        if writer.returncode is None:
            writer.kill()
