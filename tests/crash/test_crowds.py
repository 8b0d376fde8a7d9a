"""Two hundred sessions at once on one store, while the processes that run them are killed."""

import os
import random
from pathlib import Path

import pytest

from tests.crash.backends import BACKENDS, forget, url_of
from tests.crash.crowd import Crowd, crowd_job
from tests.crash.small_parity import small_model

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(1800)]

SESSIONS = {"short": 60, "long": 200}
KILLS = {"short": 6, "long": 40}
ROUNDS = 12


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_crowd_under_kills(backend: str, campaign: str, tmp_path: Path) -> None:
    """Each session ends as the unbroken one, whoever of the processes was killed and when."""
    seed = int(os.environ.get("RAF_CRASH_SEED") or random.SystemRandom().randrange(1 << 32))
    job = crowd_job(tmp_path, url_of(backend, tmp_path), rounds=ROUNDS)
    (tmp_path / "model").mkdir()
    model = await small_model(tmp_path / "model", job)
    crowd = Crowd(job=job, sessions=SESSIONS[campaign], kills=KILLS[campaign], seed=seed)
    await crowd.run()
    await crowd.check(model)
    assert crowd.faults == [], f"RAF_CRASH_SEED={seed} repeats this plan"
    assert crowd.killed
    forget(backend, tmp_path)
