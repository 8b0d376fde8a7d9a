"""Retention over random histories: no kept delta ever loses its base, nothing goes without need."""

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from raf.checkpoint.config import AUTO_LEAST, AUTO_MOST, KEPT_CHAINS, CheckpointConfig
from raf.checkpoint.retention import ChainSize, chains, full_is_due, to_prune
from raf.store.model import Kind, RecordInfo

LENGTHS: Final = st.lists(st.integers(1, 7), min_size=1, max_size=9)
MOST: Final = st.integers(1, 30)


def history(lengths: list[int], gaps: list[int]) -> list[RecordInfo]:
    """Commits in chains of these lengths; between them other records took positions."""
    infos: list[RecordInfo] = []
    position = 0
    for length in lengths:
        for place in range(length):
            position += 1 + gaps[len(infos) % len(gaps)]
            infos.append(
                RecordInfo(
                    position=position,
                    epoch=1,
                    kind=Kind.COMMIT,
                    created_at=0.0,
                    commit=len(infos),
                    full=place == 0,
                    body_size=10,
                )
            )
    return infos


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[RecordInfo], set[int], CheckpointConfig]:
    """A history, pins (some of commits that never were), and how many may stay."""
    infos = history(draw(LENGTHS), draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)))
    pins = draw(st.sets(st.integers(0, len(infos) + 3), max_size=3))
    return infos, pins, CheckpointConfig(max_checkpoints=draw(MOST))


def without(infos: list[RecordInfo], positions: list[int]) -> list[RecordInfo]:
    """What is left of the bodies."""
    return [info for info in infos if info.position not in positions]


@given(histories())
def test_every_moment_of_a_pruning_leaves_intact_chains(
    kept: tuple[list[RecordInfo], set[int], CheckpointConfig],
) -> None:
    """Killed after any removal, what is left of each chain is its beginning."""
    infos, pins, config = kept
    gone = to_prune(infos, pins, config)
    assert len(gone) == len(set(gone))
    whole = chains(infos)
    for moment in range(len(gone) + 1):
        left = {info.position for info in without(infos, gone[:moment])}
        for chain in whole:
            there = [info.position in left for info in chain]
            assert there == sorted(there, reverse=True)


@given(histories())
def test_the_newest_chains_and_the_pinned_stay(
    kept: tuple[list[RecordInfo], set[int], CheckpointConfig],
) -> None:
    """The newest three chains stay whole; a pinned commit stays with all it builds on."""
    infos, pins, config = kept
    left = without(infos, to_prune(infos, pins, config))
    for chain in chains(infos)[-KEPT_CHAINS:]:
        assert all(info in left for info in chain)
    for chain in chains(infos):
        pinned = [place for place, info in enumerate(chain) if info.commit in pins]
        assert all(info in left for info in chain[: max(pinned, default=-1) + 1])


@given(histories())
def test_no_more_goes_than_must_and_the_oldest_first(
    kept: tuple[list[RecordInfo], set[int], CheckpointConfig],
) -> None:
    """It stops at the limit; older chains go first; doing it again changes nothing."""
    infos, pins, config = kept
    gone = to_prune(infos, pins, config)
    left = without(infos, gone)
    if gone:
        assert len(left) >= config.max_checkpoints
    if len(left) > config.max_checkpoints:
        for chain in chains(left)[:-KEPT_CHAINS]:
            assert chain[-1].commit in pins
    which = {info.position: n for n, chain in enumerate(chains(infos)) for info in chain}
    order = [which[position] for position in gone]
    assert order == sorted(order)
    assert to_prune(left, pins, config) == []


@given(histories(), st.integers(0, 60))
def test_a_pruning_that_was_cut_short_is_taken_up_again(
    kept: tuple[list[RecordInfo], set[int], CheckpointConfig], cut: int
) -> None:
    """Killed midway and done again, exactly what had to go is gone."""
    infos, pins, config = kept
    gone = to_prune(infos, pins, config)
    first = gone[: cut % (len(gone) + 1)]
    assert to_prune(without(infos, first), pins, config) == gone[len(first) :]


@st.composite
def settings(draw: st.DrawFn) -> CheckpointConfig:
    """Any settings, the interval also above what may stay."""
    interval: Any = draw(st.integers(1, 40) | st.just("auto"))
    return CheckpointConfig(full_snapshot_interval=interval, max_checkpoints=draw(MOST))


@given(settings(), st.lists(st.tuples(st.integers(1, 500), st.integers(1, 60)), max_size=120))
def test_what_is_written_can_always_be_kept(
    config: CheckpointConfig, sizes: list[tuple[int, int]]
) -> None:
    """Written as is due and pruned at each full, the head's chain is whole and of bounded length."""
    size, infos = ChainSize(), list[RecordInfo]()
    longest = config.interval or min(AUTO_MOST, config.max_checkpoints) + 1
    for commit, (full_bytes, delta_bytes) in enumerate(sizes):
        full = full_is_due(size, config)
        size.add(full_bytes if full else delta_bytes, full=full)
        infos.append(
            RecordInfo(
                position=commit,
                epoch=1,
                kind=Kind.COMMIT,
                created_at=0.0,
                commit=commit,
                full=full,
                body_size=1,
            )
        )
        if full:
            infos = without(infos, to_prune(infos, (), config))
        chain = chains(infos)[-1]
        assert chain[0].full
        assert [info.commit for info in chain] == list(range(chain[0].commit, commit + 1))
        assert size.members == len(chain) <= longest
        assert len(infos) <= max(config.max_checkpoints + longest, (KEPT_CHAINS + 1) * longest)


@given(
    st.integers(11, 200),
    st.integers(1, 400),
    st.lists(st.integers(1, 60), min_size=1, max_size=300),
)
def test_auto_pays_for_a_full_with_deltas(most: int, state: int, grown: list[int]) -> None:
    """Under "auto" a full that did not have to come is outweighed by the deltas since the last."""
    config = CheckpointConfig(full_snapshot_interval="auto", max_checkpoints=most)
    size = ChainSize()
    for delta in grown:
        state += delta
        if full_is_due(size, config):
            if size.members and size.members <= min(AUTO_MOST, most):
                assert size.members > AUTO_LEAST
                assert size.delta_bytes > size.full_bytes
            size.add(state, full=True)
        else:
            size.add(delta, full=False)
