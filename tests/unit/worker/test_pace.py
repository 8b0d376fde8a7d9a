"""How often a worker asks: rarely when there is nothing, at once when there was something."""

from hypothesis import given
from hypothesis import strategies as st

from raf.worker.pace import Pace

CHANCE = st.floats(0, 1, exclude_max=True)


@given(st.lists(CHANCE, max_size=100))
def test_waits_grow_up_to_a_bound(chances: list[float]) -> None:
    """Each lies between half of its nominal length and all of it."""
    pace = Pace(0.05, 1.0)
    for number, chance in enumerate(chances):
        nominal = min(0.05 * 2.0**number, 1.0)
        assert nominal / 2 <= pace.next_s(chance) <= nominal


def test_news_make_it_short_again() -> None:
    """After something was found the next wait is the first one."""
    pace = Pace(0.1, 8.0)
    assert [pace.next_s(0.999_999) > 0.099 * 2**n for n in range(4)] == [True] * 4
    pace.begin_anew()
    assert pace.next_s(0.5) < 0.1


def test_two_workers_do_not_keep_in_step() -> None:
    """Another chance is another wait."""
    assert Pace(1.0, 1.0).next_s(0.1) != Pace(1.0, 1.0).next_s(0.9)
