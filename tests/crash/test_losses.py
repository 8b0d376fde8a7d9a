"""What is counted when an owner vanishes, and what is kept of the step it was in."""

import asyncio
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from raf import CheckpointManager
from tests.crash.conftest import MakeLife
from tests.crash.forking import over
from tests.crash.life import LOSSES, Kill, Life
from tests.crash.look import look
from tests.crash.processes import fork, told
from tests.crash.script import SESSION
from tests.crash.workflow import read_ledger

pytestmark = [pytest.mark.crash, pytest.mark.parametrize("backend", ["file", "sqlite"])]


async def end_of(life: Life) -> dict[str, object]:
    """Run one more process and tell how it ended."""
    process = fork(life.job)
    await over(process)
    process.close()
    return told(life.job)


def starts_of(life: Life, node: str) -> int:
    """How often a node started."""
    lines = read_ledger(life.job.ledger)
    return sum(line["what"] == "start" and line["node"] == node for line in lines)


async def test_a_node_that_kills_its_process_is_given_up(backend: str, life: MakeLife) -> None:
    """After three losses without progress the run fails as poisoned; run again, counts begin anew."""
    one = life(backend)
    kill = Kill(point="script.node.before")
    for _ in range(LOSSES):
        assert await one._process(kill)
    assert one.faults == []
    answer = await end_of(one)
    assert answer["error"] == "RunFailedError"
    assert "NodePoisonedError" in str(answer["text"])
    assert "'open'" in str(answer["text"])
    assert starts_of(one, "open") == LOSSES
    async with CheckpointManager(one.job.url) as manager:
        head = await manager.head(SESSION)
        assert head.summary.status == "failed"
        assert head.held is None
    # The cause is mended: the same script again is the recovery, and may lose as often again.
    assert await one._process(kill)
    assert (await end_of(one)) == {"outputs": one.model.outputs}


async def test_progress_starts_the_count_anew(backend: str, life: MakeLife) -> None:
    """A node that records an effect before each loss is not given up by a higher count."""
    one = life(backend)
    # `polish` has two effects: it is lost before, between and behind them, twice each.
    first = await end_of_effects(one)
    for _ in range(2):
        assert await one._process(Kill(point="script.effect.before", hit=first))
        first = 1
    for _ in range(2):
        assert await one._process(Kill(point="script.effect.before", hit=2))
    assert one.faults == []
    assert (await end_of(one)) == {"outputs": one.model.outputs}


async def end_of_effects(life: Life) -> int:
    """Which pass of an effect's beginning is the first effect of `polish`."""
    middles = sum(1 for start in life.model.starts if start[2] == "middle" and start[0] == "first")
    return middles + 1


async def test_an_effect_in_doubt_is_reported_and_not_run(backend: str, life: MakeLife) -> None:
    """With on_doubt="fail" an effect that was cut off is not repeated, however often one resumes."""
    one = life(backend, on_doubt="fail")
    assert await one._process(Kill(point="script.effect.after"))
    for _ in range(2):
        answer = await end_of(one)
        assert answer["error"] == "RunFailedError"
        assert "EffectInDoubtError" in str(answer["text"])
    lines = read_ledger(one.job.ledger)
    assert [line["key"] for line in lines if line["what"] == "effect"] == ["middle"]


async def test_finished_siblings_are_kept(backend: str, life: MakeLife, tmp_path: Path) -> None:
    """In a step that lasts, what finished does not run again, however early it finished."""
    gate = tmp_path / "gate"
    one = life(backend)
    process = fork(replace(one.job, gate=str(gate)))
    done: set[str] = set()
    while done != {"left", "middle"}:
        await asyncio.sleep(0.01)
        assert process.is_alive()
        sight = await look(one.job.url) if starts_of(one, "right") else None
        kept = set() if sight is None else {number for _, number in sight.results}
        lines = read_ledger(one.job.ledger)
        done = {line["node"] for line in lines if line["message"] in kept}
    process.kill()
    await over(process)
    assert process.exitcode == -signal.SIGKILL
    process.close()
    assert (await end_of(one)) == {"outputs": one.model.outputs}
    lines = read_ledger(one.job.ledger)
    step = next(line["step"] for line in lines if line["node"] == "left")
    counts = Counter(
        line["node"]
        for line in lines
        if line["what"] == "start" and (line["run"], line["step"]) == ("first", step)
    )
    assert counts == {"left": 1, "middle": 1, "right": 2}
