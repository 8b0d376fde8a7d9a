"""Loop bodies, nesting, and how the path of a message changes."""

from itertools import pairwise

import pytest

from raf.topology.loops import Loops, forward_arcs, loop_body, reachable
from raf.topology.model import (
    DirectEdge,
    Edge,
    FallbackEdge,
    FanInEdge,
    FanOutEdge,
    LoopEdge,
    NodeSpec,
    SwitchEdge,
    Topology,
)


def line(nodes: str) -> list[Edge]:
    """Direct edges along the letters."""
    return [DirectEdge(source=a, target=b) for a, b in pairwise(nodes)]


def loop(way: str, limit: int = 3) -> LoopEdge:
    """The loop edge between two letters."""
    return LoopEdge(source=way[0], target=way[1], max_iterations=limit, variable="i")


def topology(nodes: str, *loops: str, edges: list[Edge] | None = None) -> Topology:
    """Nodes named by letters in a row, with loops."""
    return Topology(
        name="w",
        start=nodes[0],
        nodes=tuple(NodeSpec(name=n) for n in nodes),
        edges=(*(line(nodes) if edges is None else edges), *map(loop, loops)),
    )


@pytest.mark.parametrize(
    ("edges", "back", "body"),
    [
        (line("abcd"), "cb", "bc"),
        (line("abcd"), "bb", "b"),
        (line("abcd"), "da", "abcd"),
        (line("abcd"), "ad", ""),
        ([*line("ab"), *line("bd"), *line("acd"), *line("ax")], "da", "abcd"),
        ([FanOutEdge(source="a", targets=("b", "c")), *line("bd"), *line("cd")], "da", "abcd"),
        ([*line("ab"), *line("ac"), FanInEdge(sources=("b", "c"), target="d")], "da", "abcd"),
        ([SwitchEdge(source="a", cases=(("ok", "b"),), default="c"), *line("cd")], "da", "acd"),
        ([FallbackEdge(source="a", target="b")], "ba", "ab"),
        ([*line("abc"), loop("ca")], "cb", "bc"),
    ],
)
def test_the_body_of_a_loop(edges: list[Edge], back: str, body: str) -> None:
    """A body holds every node on a forward way from target to source, over every kind of edge."""
    assert loop_body(edges, loop(back)) == frozenset(body)


def test_forward_arcs_leave_loops_out() -> None:
    """Every edge but a loop edge leads forward, fallbacks too."""
    edges: list[Edge] = [
        *line("ab"),
        loop("ba"),
        FanInEdge(sources=("a", "b"), target="c"),
        FallbackEdge(source="c", target="d"),
    ]
    assert forward_arcs(edges) == [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]


def test_reachable_takes_cycles() -> None:
    """A cycle among the arcs ends the search like any other end."""
    assert reachable([("a", "b"), ("b", "a"), ("c", "d")], "a") == {"a", "b"}


def test_nesting_is_outermost_first() -> None:
    """A node knows the loops around it, the widest first."""
    loops = Loops.of(topology("abcde", "da", "cb"))
    assert {n: loops.of_node[n] for n in "abcde"} == {
        "a": ("d>a",),
        "b": ("d>a", "c>b"),
        "c": ("d>a", "c>b"),
        "d": ("d>a",),
        "e": (),
    }


def test_loops_that_share_an_end_nest() -> None:
    """Two loops may leave one node, or lead to one node: the smaller body lies inside."""
    assert Loops.of(topology("abc", "ca", "cb")).of_node["c"] == ("c>a", "c>b")
    assert Loops.of(topology("abc", "ca", "ba")).of_node["a"] == ("c>a", "b>a")


STORY = topology("abcdef", "ea", "cb", "dd")


@pytest.mark.parametrize(
    ("path", "source", "target", "after"),
    [
        ((("e>a", 2),), "a", "b", (("e>a", 2), ("c>b", 1))),
        ((("e>a", 2), ("c>b", 3)), "b", "c", (("e>a", 2), ("c>b", 3))),
        ((("e>a", 2), ("c>b", 3)), "c", "d", (("e>a", 2), ("d>d", 1))),
        ((("e>a", 2), ("d>d", 7)), "d", "e", (("e>a", 2),)),
        ((("e>a", 2),), "e", "f", ()),
    ],
    ids=["enter", "stay", "leave one and enter another", "leave the inner", "leave the outer"],
)
def test_the_path_along_a_forward_edge(
    path: tuple[tuple[str, int], ...],
    source: str,
    target: str,
    after: tuple[tuple[str, int], ...],
) -> None:
    """Entering a body starts at 1, leaving drops the entry, staying keeps it."""
    assert Loops.of(STORY).along(path, source, target) == after


def test_the_path_along_the_way_back() -> None:
    """A loop edge adds 1 to its own entry, keeps outer ones and starts inner ones anew."""
    nested = Loops.of(topology("abcd", "da", "ca", "ba"))
    assert nested.of_node["a"] == ("d>a", "c>a", "b>a")
    back = nested.back((("d>a", 4),), loop("da"))
    assert back == (("d>a", 5), ("c>a", 1), ("b>a", 1))
    assert nested.back((("d>a", 4), ("c>a", 2)), loop("ca")) == (("d>a", 4), ("c>a", 3), ("b>a", 1))
    assert nested.iteration((("d>a", 4), ("c>a", 2)), loop("ca")) == 2
    assert nested.outer((("d>a", 4), ("c>a", 2)), loop("ca")) == (("d>a", 4),)


def test_the_path_from_outside() -> None:
    """The first message of a run is in pass 1 of every loop around the start."""
    assert Loops.of(topology("abc", "ca", "ba")).enter("a") == (("c>a", 1), ("b>a", 1))


def test_a_topology_puts_itself_in_order() -> None:
    """Nodes, edges and state keys given in another order make an equal topology."""
    here = topology("abcd", "da", "cb")
    there = Topology(
        name="w", start="a", nodes=here.nodes[::-1], edges=here.edges[::-1], state=here.state
    )
    assert here == there
    assert [node.name for node in there.nodes] == list("abcd")


def test_a_node_is_found_by_name() -> None:
    """`node` gives the specification, and KeyError for a stranger."""
    assert topology("ab").node("b") == NodeSpec(name="b")
    with pytest.raises(KeyError):
        topology("ab").node("z")
