"""What the world sees of effects whose process is killed: once, unless it was lost and may be repeated."""

from collections import Counter

import pytest

from tests.crash.conftest import MakeLife
from tests.crash.forking import over
from tests.crash.life import Kill, Life
from tests.crash.processes import fork, told
from tests.crash.witness import Witness, tell
from tests.crash.workflow import read_ledger

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]


async def end_of(one: Life) -> dict[str, object]:
    """Run one more process and tell how it ended."""
    process = fork(one.job)
    await over(process)
    process.close()
    return told(one.job)


@pytest.mark.parametrize(
    ("backend", "end", "hit"),
    [
        ("file", "before", 2),
        ("sqlite", "after", 3),
        *(
            pytest.param(backend, end, hit, marks=pytest.mark.slow)
            for backend in ("file", "sqlite")
            for end in ("before", "after")
            for hit in range(1, 6)
        ),
    ],
)
async def test_an_effect_that_must_not_be_repeated_is_not(
    backend: str, end: str, hit: int, life: MakeLife
) -> None:
    """With on_doubt="fail" the world sees it at most once, however often the run is taken up."""
    async with Witness() as witness:
        one = life(backend, on_doubt="fail", witness=witness.path)
        assert await one._process(Kill(point=f"script.effect.{end}", hit=hit))
        answers = [await end_of(one) for _ in range(2)]
        # Begun and without a result: nobody can know whether it was done.
        assert [answer["error"] for answer in answers] == ["RunFailedError"] * 2
        assert all("EffectInDoubtError" in str(answer["text"]) for answer in answers)
        seen = Counter(one.key for one in witness.seen())
        assert set(seen.values()) <= {1}
        assert len(seen) == hit - (end == "before")


@pytest.mark.parametrize("backend", ["file", "sqlite"])
async def test_a_lost_effect_is_repeated_by_the_next_owner_only(
    backend: str, life: MakeLife
) -> None:
    """Killed behind the act and before its record, it is done again under the same key, once."""
    async with Witness() as witness:
        one = life(backend, witness=witness.path)
        one.witness = witness
        await one.go([Kill(point="script.effect.after", hit=2)])
        assert one.faults == []
        effects = [
            line["token"] for line in read_ledger(one.job.ledger) if line["what"] == "effect"
        ]
        seen = Counter(one.key for one in witness.seen())
        assert seen == Counter(effects)
        assert sorted(seen.values())[-2:] == [1, 2]


async def test_a_repeat_without_a_loss_is_seen(life: MakeLife) -> None:
    """The check of the campaigns finds an effect that was done twice though nobody was killed."""
    async with Witness() as witness:
        one = life("sqlite", witness=witness.path)
        one.witness = witness
        await one.go([])
        assert one.faults == []
        token = next(line["token"] for line in read_ledger(one.job.ledger) if line["token"])
        tell(witness.path, token)
        await one._check_end()
        assert any("repeated without a loss" in fault for fault in one.faults)
