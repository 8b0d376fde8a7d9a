"""A power cut at any moment of a run on SQLite: what a disk may hold then is opened and gone on with.

The run is recorded by strace; the images are made from the recording, each at another call, with
another part of what was not synced.
"""

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from raf import CheckpointManager
from tests.crash.backends import url_of
from tests.crash.power import CALLS, SECTOR, Change, Platter, cut_power
from tests.crash.small_parity import NOTHING, SmallModel, acknowledged, goes_on, small_model, stands
from tests.crash.small_run import SmallJob
from tests.crash.system_calls import Call, recorded, recording, run_small

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

IMAGES = {"short": 20, "long": 2_000}
ROUNDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A run that was recorded, and how it is unbroken."""

    job: SmallJob
    calls: Sequence[Call]
    model: SmallModel


async def record(folder: Path, options: str) -> Recording:
    """Run the small session on a new file and record what it does to the disk."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    for name in ("run", "model"):
        (folder / name).mkdir()
    job = SmallJob(
        folder=str(folder / "run"), url=url_of("sqlite", folder / "run") + options, rounds=ROUNDS
    )
    log = folder / "calls"
    assert await run_small(job, *recording(log, CALLS)) == 0
    model = await small_model(folder / "model", job)
    return Recording(job=job, calls=list(recorded(log)), model=model)


def image(one: Recording, n: int, folder: Path, options: str, chance: random.Random) -> SmallJob:
    """The job as it stands when the power went behind the n-th call."""
    folder.mkdir()
    source = Path(one.job.folder)
    cut_power(one.calls[:n], source, folder, chance)
    job = replace(one.job, folder=str(folder), url=url_of("sqlite", folder) + options)
    told = b"".join(call.data for call in one.calls[:n] if call.name == "writev")
    job.told.write_bytes(told)
    return job


async def test_full_keeps_what_was_acknowledged(tmp_path: Path, campaign: str) -> None:
    """With synchronous=full no acknowledged step is lost, and the session goes on to its end."""
    one = await record(tmp_path, "")
    chance = random.Random(5 if campaign == "short" else None)
    for number in range(IMAGES[campaign]):
        n = chance.randrange(len(one.calls) + 1)
        folder = tmp_path / f"image-{number}"
        await goes_on(image(one, n, folder, "", chance), one.model)
        shutil.rmtree(folder)


async def test_normal_keeps_a_whole_session(tmp_path: Path, campaign: str) -> None:
    """With synchronous=normal steps may be missing, but what is there is whole; often enough some are."""
    options = "?synchronous=normal"
    one = await record(tmp_path, options)
    chance = random.Random(5 if campaign == "short" else None)
    lost = 0
    for number in range(IMAGES[campaign]):
        n = chance.randrange(len(one.calls) + 1)
        folder = tmp_path / f"image-{number}"
        job = image(one, n, folder, options, chance)
        found = await stands(job, one.model)
        step = NOTHING if found is None else found.snapshot.step
        lost += step < acknowledged(job)
        async with CheckpointManager(job.url) as manager:
            assert len(await manager.store.scan()) <= 1
        shutil.rmtree(folder)
    assert (
        lost > IMAGES[campaign] // 10
    )  # else the images forget nothing, and the test above neither


def test_a_platter_forgets_what_was_not_synced() -> None:
    """Synced bytes stay; later ones are there, in part or not; a torn one has some sectors."""
    file = Platter()
    file.loose.append(Change(at=0, data=b"a" * 4 * SECTOR))
    file.sync()
    file.loose += [Change(at=SECTOR, data=b"b" * 2 * SECTOR), Change(at=3 * SECTOR, data=None)]
    chance = random.Random(1)
    found = {file.after(chance, kept=0.5) for _ in range(200)}
    assert file.after(chance, kept=0.0) == b"a" * 4 * SECTOR
    assert b"a" * SECTOR + b"b" * 2 * SECTOR in found
    assert b"a" * SECTOR + b"b" * SECTOR + b"a" * 2 * SECTOR in found
    assert {content[:SECTOR] for content in found} == {b"a" * SECTOR}
