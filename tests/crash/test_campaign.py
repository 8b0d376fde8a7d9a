"""kill -9 of real processes at every named point and at random moments, on each durable store."""

import os
import random
from pathlib import Path

import pytest

from tests.crash.backends import EMBEDDED, SERVERS
from tests.crash.campaign import Campaign
from tests.crash.conftest import MakeLife
from tests.crash.life import Kill
from tests.crash.phases import BESIDE, PHASES
from tests.crash.points import points_of_backend
from tests.crash.script import TURNS

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

SEED = "RAF_CRASH_SEED"
KILLS = {"short": 20, "long": 260}  # of each backend: over a thousand in a long campaign


def seed_of(campaign: str) -> int:
    """The seed that is asked for; else a fixed one every day, and a new one for a long campaign."""
    if named := os.environ.get(SEED):
        return int(named)
    return 1 if campaign == "short" else random.SystemRandom().randrange(1 << 32)


@pytest.mark.parametrize(
    "backend",
    [*EMBEDDED, *(pytest.param(backend, marks=pytest.mark.slow) for backend in SERVERS)],
)
async def test_killed_sessions_end_as_unbroken_ones(
    backend: str, campaign: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No committed step is lost, nothing that was kept runs again, and there is no third state."""
    one = Campaign(folder=tmp_path, backend=backend, seed=seed_of(campaign), kills=KILLS[campaign])
    await one.run()
    with capsys.disabled():
        print(f"\n{one.report()}")  # noqa: T201 - the seed and the histogram are for whoever watches
    assert one.faults == [], f"{SEED}={one.seed} repeats this plan"
    assert one.counted >= KILLS[campaign]
    assert set(points_of_backend(backend)) - one.killed_at == set()
    assert [phase for phase in PHASES if not one.histogram[phase]] == []


async def test_a_session_lost_twice_beside_is_let_go_on(life: MakeLife) -> None:
    """When one more kill would be one too many, a life goes on to its end instead."""
    one = life("file")
    first_turn = sum(run == TURNS[0] for run, _ in one.model.places)
    point = "store.file.commit.put.before"
    # Behind the first turn come the pin, the entry of the session beside, and its steps.
    kills = [Kill(point=point, hit=first_turn + 4), Kill(point=point, hit=2), Kill(point=point)]
    await one.go(kills)
    assert one.faults == []
    assert [died.phase for died in one.died] == [BESIDE, BESIDE]
    assert one.unfired == kills[2:]
