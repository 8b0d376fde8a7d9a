"""A worker asks for its queues in turn, and for no more than a limit leaves."""

from raf.worker.turns import Turns

WIDE, NARROW, NIGHT = {"a": None, "b": None}, {"q": 2}, {"night": 1}


def test_each_queue_is_first_in_its_turn() -> None:
    """Those without a limit are asked for together, each other one alone."""
    turns = Turns({"a": None, "q": 2, "b": None, "night": 1})
    assert turns.next_round() == [WIDE, NARROW, NIGHT]
    assert turns.next_round() == [NARROW, NIGHT, WIDE]
    assert turns.next_round() == [NIGHT, WIDE, NARROW]
    assert Turns({"q": 2}).next_round() == [NARROW]


def test_what_is_in_hand_leaves_less_room() -> None:
    """Free slots and the limit both bound it; a queue without a limit takes every slot."""
    turns = Turns({"a": None, "b": None, "q": 2})
    assert (turns.room(WIDE, 8), turns.room(NARROW, 8), turns.room(NARROW, 1)) == (8, 2, 1)
    for session in ("s1", "s2"):
        turns.take(session, NARROW)
        turns.take(f"wide-{session}", WIDE)
    assert (turns.room(WIDE, 8), turns.room(NARROW, 8), turns.room(WIDE, 0)) == (8, 0, 0)
    turns.give("s1")
    turns.give("wide-s1")
    assert (turns.room(WIDE, 8), turns.room(NARROW, 8)) == (8, 1)
