"""The drawing for terminals: every node and way of the graph is there, and no sign overlaps."""

import unicodedata
from itertools import pairwise
from typing import Any

import pytest

from raf.graph.builder import WorkflowBuilder
from raf.graph.draw import DrawState, text
from raf.graph.names import named
from raf.graph.options import LoopOptions
from raf.topology.workflow import Workflow
from tests.golden.workflows import every


def work(payload: Any) -> Any:
    return payload


def gather(payloads: list[Any]) -> Any:
    return payloads


def review() -> Workflow:
    builder = WorkflowBuilder("review").add_node("c", gather)
    for name in ("s", "a", "b", "d"):
        builder.add_node(name, work)
    return (
        builder.set_start("s")
        .add_fan_out("s", ["a", "b"])
        .add_fan_in(["a", "b"], "c")
        .add_edge("c", "d")
        .add_loop("d", "c", LoopOptions(3, until=named("good", bool)))
        .build()
    )


def looped() -> Workflow:
    return (
        WorkflowBuilder("looped")
        .add_node("edit", work)
        .add_node("check", work)
        .add_node("print", work)
        .set_start("edit")
        .add_edge("edit", "check")
        .add_loop("check", "edit", LoopOptions(3))
        .add_edge("check", "print", when=named("good", bool))
        .build()
    )


def test_a_loop_runs_up_on_the_right() -> None:
    """The whole drawing, sign by sign; loops and conditions stand below in words."""
    assert text(looped()) == (
        "┌──────┐\n"
        "│ edit │◀──┐\n"
        "└───┬──┘   │\n"
        "    │      │\n"
        "    ▼      │\n"
        "┌───────┐  │\n"
        "│ check │──┘\n"
        "└───┬───┘\n"
        "    │\n"
        "    ▼\n"
        "┌───────┐\n"
        "│ print │\n"
        "└───────┘\n"
        "\n"
        "loop check → edit: at most 3\n"
        "check → print: good"
    )


def test_a_session_over_it() -> None:
    """A mark says how a node stands, a number how often it ran."""
    states = {
        "edit": DrawState("done", 3),
        "check": DrawState("failed", 1),
        "print": DrawState("idle"),
        "gone": DrawState("done", 1),
    }
    drawn = text(looped(), states)
    assert "│ ✓ edit ×3 │" in drawn
    assert "│ ✗ check │" in drawn
    assert "gone" not in drawn


def cells(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in line)


@pytest.mark.parametrize("name", sorted(every()))
def test_every_node_has_a_whole_box(name: str) -> None:
    """Whatever the graph, each node's name stands in one box that nothing runs through."""
    built = every()[name]
    drawn = text(built)
    for node in built.topology.nodes:
        assert drawn.count(f"│ {node.name} │") == 1
    lines = drawn.splitlines()
    for above, line in pairwise(lines):
        for node in built.topology.nodes:
            box = f"│ {node.name} │"
            if box in line:
                left = cells(line[: line.index(box)])
                wide = cells(box)
                top = above.ljust(left + wide)[left : left + wide]
                assert (top[0], top[-1]) == ("┌", "┐")
                assert set(top[1:-1]) == {"─"}


def test_equal_graphs_give_equal_drawings() -> None:
    """No order of calls shows."""
    assert text(review()) == text(review())
    assert "( all 2 )" in text(review())
