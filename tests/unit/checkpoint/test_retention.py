"""When a full is written, and which checkpoints go: decided on clear fields alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raf import CheckpointConfig
from raf.checkpoint.config import AUTO_LEAST, KEPT_CHAINS
from raf.checkpoint.retention import ChainSize, full_is_due, to_prune
from raf.errors import ConfigurationError
from raf.store.model import Kind, RecordInfo


@pytest.mark.parametrize(
    ("options", "interval"),
    [
        ({}, 50),
        ({"full_snapshot_interval": 20, "max_checkpoints": 200}, 20),
        ({"full_snapshot_interval": 100, "max_checkpoints": 50}, 50),
        ({"full_snapshot_interval": 1}, 1),
        ({"full_snapshot_interval": "auto"}, None),
    ],
)
def test_the_interval_that_is_really_used(options: dict[str, Any], interval: int | None) -> None:
    """An interval above `max_checkpoints` is cut to it: no kept delta can lose its base."""
    assert CheckpointConfig(**options).interval == interval


@pytest.mark.parametrize(
    "options",
    [
        {"full_snapshot_interval": 0},
        {"full_snapshot_interval": -1},
        {"full_snapshot_interval": True},
        {"full_snapshot_interval": 2.0},
        {"full_snapshot_interval": "often"},
        {"full_snapshot_interval": None},
        {"max_checkpoints": 0},
        {"max_checkpoints": "9"},
        {"max_checkpoints": float("nan")},
        {"enabled": 1},
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, Any]) -> None:
    """What cannot be meant is an error that names the setting."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        CheckpointConfig(**options)


def test_the_defaults_and_the_switch() -> None:
    """50, 100, enabled; `disabled()` keeps nothing; settings do not change."""
    config = CheckpointConfig()
    assert (config.full_snapshot_interval, config.max_checkpoints, config.enabled) == (
        50,
        100,
        True,
    )
    assert not CheckpointConfig.disabled().enabled
    with pytest.raises(AttributeError):
        config.enabled = False  # type: ignore[misc]


def sizes(config: CheckpointConfig, full: int, delta: int, count: int) -> list[bool]:
    """Which of so many commits are fulls."""
    chain, made = ChainSize(), []
    for _ in range(count):
        due = full_is_due(chain, config)
        chain.add(full if due else delta, full=due)
        made.append(due)
    return made


def test_a_full_comes_when_the_chain_has_its_members() -> None:
    """With interval 5 every fifth commit is a full, the first included."""
    made = sizes(CheckpointConfig(full_snapshot_interval=5), 100, 1, 16)
    assert [place for place, full in enumerate(made) if full] == [0, 5, 10, 15]
    assert all(sizes(CheckpointConfig(full_snapshot_interval=1), 100, 1, 5))


def test_auto_waits_until_the_deltas_outweigh_the_full() -> None:
    """Not before 10 deltas, at the latest after min(1000, max_checkpoints) of them."""
    auto = CheckpointConfig(full_snapshot_interval="auto", max_checkpoints=5000)
    small = [i for i, full in enumerate(sizes(auto, 100, 1, 400)) if full]
    assert small == [0, 102, 204, 306]
    heavy = [i for i, full in enumerate(sizes(auto, 100, 1000, 40)) if full]
    assert heavy == [0, AUTO_LEAST + 1, 2 * (AUTO_LEAST + 1), 3 * (AUTO_LEAST + 1)]
    assert [i for i, full in enumerate(sizes(auto, 10**9, 1, 2500)) if full] == [0, 1001, 2002]
    tight = CheckpointConfig(full_snapshot_interval="auto", max_checkpoints=20)
    assert [i for i, full in enumerate(sizes(tight, 10**9, 1, 50)) if full] == [0, 21, 42]


@given(st.integers(1, 400), st.integers(1, 400))
def test_auto_writes_bytes_linear_in_the_work(full: int, delta: int) -> None:
    """All fulls together weigh no more than a constant times the deltas."""
    auto = CheckpointConfig(full_snapshot_interval="auto", max_checkpoints=5000)
    made = sizes(auto, full, delta, 2000)
    fulls, deltas = sum(made), len(made) - sum(made)
    assert fulls * full <= full + deltas * delta + full


def log(*chains: int) -> list[RecordInfo]:
    """Commits in chains of these lengths; position = commit + 100."""
    infos: list[RecordInfo] = []
    for length in chains:
        for member in range(length):
            commit = len(infos)
            infos.append(
                RecordInfo(
                    position=commit + 100,
                    epoch=1,
                    kind=Kind.COMMIT,
                    created_at=0.0,
                    commit=commit,
                    full=member == 0,
                    body_size=1,
                )
            )
    return infos


def kept(most: int) -> CheckpointConfig:
    return CheckpointConfig(full_snapshot_interval=3, max_checkpoints=most)


@pytest.mark.parametrize(
    ("chains", "pins", "most", "gone"),
    [
        ((3, 3, 3), [], 1, []),
        ((3, 3, 3, 3), [], 1, [2, 1, 0]),
        ((3, 3, 3, 3), [], 11, [2]),
        ((3, 3, 3, 3), [], 10, [2, 1]),
        ((3, 3, 3, 3), [], 12, []),
        ((3, 3, 3, 3, 3), [], 9, [2, 1, 0, 5, 4, 3]),
        ((3, 3, 3, 3, 3), [], 11, [2, 1, 0, 5]),
        ((3, 3, 3, 3), [1], 1, [2]),
        ((3, 3, 3, 3), [2], 1, []),
        ((3, 3, 3, 3), [0], 1, [2, 1]),
        ((3, 3, 3, 3, 3), [1], 1, [2, 5, 4, 3]),
        ((), [], 1, []),
    ],
)
def test_what_goes(chains: tuple[int, ...], pins: list[int], most: int, gone: list[int]) -> None:
    """Oldest chain first, newest record first within it, while too many remain and no pin holds."""
    found = to_prune(log(*chains), pins, kept(most))
    assert [position - 100 for position in found] == gone


LOGS = st.lists(st.integers(1, 6), max_size=12)


@given(LOGS, st.sets(st.integers(0, 40), max_size=4), st.integers(1, 40))
def test_what_is_left_can_be_loaded_at_any_moment(
    chains: list[int], pins: set[int], most: int
) -> None:
    """Cut off after any record: each that is left has its base and all between.

    Pins and the newest three chains stay, and nothing goes that need not.
    """
    infos = log(*chains)
    gone = to_prune(infos, pins, kept(most))
    newest = infos[sum(chains[: max(0, len(chains) - KEPT_CHAINS)]) :]
    for cut in range(len(gone) + 1):
        left = [info for info in infos if info.position not in gone[:cut]]
        there = {info.commit for info in left}
        for info in left:
            commit = info.commit
            while not infos[commit].full:
                commit -= 1
                assert commit in there
        assert {info.commit for info in newest} <= there
        assert pins & {info.commit for info in infos} <= there
    assert len(infos) - len(gone) >= min(most, len(infos))
