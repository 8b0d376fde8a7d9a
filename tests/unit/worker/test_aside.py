"""Sessions that are left alone: longer each time, never for good."""

from hypothesis import given
from hypothesis import strategies as st

from raf.worker.aside import FIRST_S, MOST_S, Aside, delay_s


def test_a_session_that_errs_is_left_alone_and_tried_again() -> None:
    """Until its delay is over; then it is asked for again."""
    aside = Aside()
    assert aside.put("s", ("main", 3), now=100.0) == 1
    assert aside.names(100.0 + FIRST_S / 2) == {"s"}
    assert aside.names(100.0 + FIRST_S) == frozenset()


def test_each_time_for_longer_unless_it_moved() -> None:
    """The same place counts on; another place, or a run without an error, begins anew."""
    aside = Aside()
    assert [aside.put("s", 1, now=0.0) for _ in range(3)] == [1, 2, 3]
    assert aside.names(delay_s(3) - 0.1) == {"s"}
    assert aside.put("s", 2, now=10.0) == 1
    aside.forget("s")
    assert aside.names(10.0) == frozenset()
    assert aside.put("s", 2, now=20.0) == 1


@given(times=st.integers(1, 10**6))
def test_delays_grow_up_to_a_bound(times: int) -> None:
    """Never shorter than the first, never shorter than the one before, never above the bound."""
    assert FIRST_S <= delay_s(times) <= delay_s(times + 1) <= MOST_S


def test_nothing_is_remembered_for_ever() -> None:
    """Sessions that others run by now leave the memory."""
    aside = Aside()
    for number in range(100):
        aside.put(f"s{number}", None, now=0.0)
    assert len(aside.names(0.5)) == 100
    assert aside.names(FIRST_S + MOST_S + 1) == frozenset()
    assert aside.put("s1", None, now=1000.0) == 1
