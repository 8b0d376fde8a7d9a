"""What must hold of the small session after a fault: it stands whole, goes on, and ends as unbroken."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from raf import CheckpointConfig, CheckpointManager
from raf.checkpoint.codec import ops_digest
from raf.checkpoint.restore import Restored
from tests.crash.look import body
from tests.crash.small_run import SESSION, SmallJob, Teller, lines_of, output, run
from tests.crash.unbroken import Logical, logical_events

NOTHING: Final = -2  # the step before the entry's


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallModel:
    """The small session unbroken: its logical events, and the body of each step."""

    logical: tuple[Logical, ...]
    digests: dict[int, bytes]


async def small_model(folder: Path, job: SmallJob) -> SmallModel:
    """Run a job of this kind in this process, on a store that keeps every checkpoint."""
    whole = replace(job, folder=str(folder), url=f"sqlite:{folder / 'model.db'}")
    keep_all = CheckpointConfig(full_snapshot_interval=1000, max_checkpoints=1000)
    await run(whole, Teller(whole.told), keep_all)
    async with CheckpointManager(whole.url) as manager:
        digests = {}
        for info in await manager.history(SESSION):
            restored = await manager.restore(SESSION, info.commit)
            assert restored is not None
            digests[restored.snapshot.step] = ops_digest(body(restored.snapshot))
        return SmallModel(logical=await logical_events(manager, SESSION), digests=digests)


async def stands(job: SmallJob, model: SmallModel) -> Restored | None:
    """What the store shows after a fault: nothing yet, or a whole commit of the unbroken run."""
    async with CheckpointManager(job.url) as manager:
        restored = await manager.restore(SESSION)
        if restored is None:
            return None
        assert (await manager.verify(SESSION)).findings == ()
        assert model.digests[restored.snapshot.step] == ops_digest(body(restored.snapshot))
        return restored


def acknowledged(job: SmallJob) -> int:
    """The last step that was known to be committed: a node starts behind all steps before it."""
    lines = lines_of(job)
    if any(line["what"] == "returned" for line in lines):
        return job.rounds
    return max((line["step"] - 1 for line in lines if "step" in line), default=NOTHING)


async def goes_on(job: SmallJob, model: SmallModel) -> None:
    """Look at the session, run it to its end here, and compare it with the unbroken one.

    Nothing acknowledged is missing, and nothing that was kept is done again.
    """
    before = len(lines_of(job))
    found = await stands(job, model)
    step = NOTHING if found is None else found.snapshot.step
    assert step >= acknowledged(job)
    journal = () if found is None else found.journal
    kept = {entry.entry[1] for entry in journal if entry.entry and entry.entry[0] == "effect"}
    assert await run(job, Teller(job.told)) == output(job)
    later = lines_of(job)[before:]
    assert not [line for line in later if line.get("step", step + 1) <= step]
    assert not [line for line in later if line["what"] == "effect" and line["message"] in kept]
    await is_unbroken(job, model)


async def is_unbroken(job: SmallJob, model: SmallModel) -> None:
    """The session is whole and equal to the unbroken one, and each of its effects was done."""
    async with CheckpointManager(job.url) as manager:
        assert (await manager.verify(SESSION)).findings == ()
        assert await logical_events(manager, SESSION) == model.logical
    lines = [line for line in lines_of(job) if line["what"] == "effect"]
    assert {line["step"] for line in lines} == set(range(job.rounds))
    assert len({line["token"] for line in lines}) == job.rounds
