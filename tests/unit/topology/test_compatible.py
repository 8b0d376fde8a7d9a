"""Which changes of a graph something held can meet, and how names lead from one graph to another."""

from typing import Any

import pytest

from raf.topology.compatible import Held, changes_in_reach
from raf.topology.model import (
    DirectEdge,
    Edge,
    FallbackEdge,
    FanInEdge,
    FanOutEdge,
    LoopEdge,
    NodeSpec,
    StateKey,
    SwitchEdge,
    Topology,
)
from raf.topology.renaming import Renaming

# first -> split -> (left, right) -> join -> body <-> tail -> end; guard falls back to spare.
EDGES: tuple[Edge, ...] = (
    DirectEdge(source="first", target="split"),
    FanOutEdge(source="split", targets=("left", "right")),
    FanInEdge(sources=("left", "right"), target="join"),
    DirectEdge(source="join", target="body"),
    DirectEdge(source="body", target="tail"),
    LoopEdge(source="tail", target="body", max_iterations=3, variable="__loop_tail"),
    SwitchEdge(source="tail", cases=(("good", "end"),), default="guard"),
    FallbackEdge(source="guard", target="spare"),
)
NAMES = ["first", "split", "left", "right", "join", "body", "tail", "end", "guard", "spare"]


def graph(*edges: Edge, versions: Any = (), more: Any = (), state: Any = (), gone: Any = ()) -> Any:
    """The graph above with other edges, nodes of other versions, more nodes, or without some."""
    nodes = [
        NodeSpec(name=name, version="2" if name in versions else "")
        for name in [*NAMES, *more]
        if name not in gone
    ]
    return Topology(
        name="w", start="first", nodes=tuple(nodes), edges=edges or EDGES, state=tuple(state)
    )


def without(*gone: Edge) -> tuple[Edge, ...]:
    """All edges but these."""
    return tuple(edge for edge in EDGES if edge not in gone)


def at(*nodes: str, **barriers: str) -> Held:
    """Messages for these nodes, and what barriers hold."""
    return Held(
        nodes=frozenset(nodes), **{kind: frozenset({name}) for kind, name in barriers.items()}
    )


OLD = graph()
SUM = StateKey(key="k", scope="s", reducer="sum")
PLAIN = StateKey(key="k", scope="s")
LIMIT = LoopEdge(source="tail", target="body", max_iterations=9, variable="__loop_tail")
QUORUM = FanInEdge(sources=("left", "right"), target="join", wait=1)
BY_NAME = FanInEdge(sources=("left", "right"), target="join", collect="dict")
JOIN = "left+right>join"

CASES: dict[str, tuple[Any, Held, bool]] = {
    # name: the new graph, what is held in the old one, whether the change is compatible
    "nothing held": (graph(versions=NAMES), Held(), True),
    "a node behind": (graph(versions=["first", "split"]), at("join"), True),
    "the node itself": (graph(versions=["join"]), at("join"), False),
    "a node ahead": (graph(versions=["end"]), at("join"), False),
    "a sibling": (graph(versions=["right"]), at("left"), True),
    "a node ahead of a barrier": (graph(versions=["join"]), at("left"), False),
    "an added node beside": (graph(*EDGES, DirectEdge(source="first", target="x"), more="x"), at("join"), True),
    "an added node ahead": (graph(*EDGES, DirectEdge(source="body", target="x"), more="x"), at("join"), False),
    "an added node without edges": (graph(more="x"), at("first"), True),
    "an edge into what is ahead": (graph(*EDGES, DirectEdge(source="first", target="end")), at("join"), True),
    "a removed edge behind": (graph(*without(EDGES[0])), at("split"), True),
    "a removed edge ahead": (graph(*without(EDGES[0])), at("first"), False),
    "a removed node behind": (graph(*without(EDGES[0]), gone=["first"]), at("split"), True),
    "the way back": (graph(*without(EDGES[5]), LIMIT), at("tail"), False),
    "the loop, from its middle": (graph(versions=["body"]), at("tail"), False),
    "the loop, from behind it": (graph(*without(EDGES[5]), LIMIT), at("end"), True),
    "the end of another case": (graph(versions=["guard"]), at("end"), True),
    "a fallback": (graph(versions=["spare"]), at("guard"), False),
    "how a filled barrier waits": (graph(*without(EDGES[2]), QUORUM), at("left", barriers=JOIN), False),
    "how a barrier waits that only holds": (graph(*without(EDGES[2]), QUORUM), at(barriers=JOIN), False),
    "what is behind a filled barrier": (graph(versions=["right"]), at(barriers=JOIN), True),
    "how a fired barrier waits": (graph(*without(EDGES[2]), QUORUM), at("join", fired=JOIN), True),
    "what a fired barrier gives": (graph(*without(EDGES[2]), BY_NAME), at("join", fired=JOIN), False),
    "a source that may be late": (graph(versions=["right"]), at("end", late=JOIN), False),
    "a reducer anywhere": (graph(state=[SUM]), at("end"), False),
    "a reducer, and nothing held": (graph(state=[SUM]), Held(), True),
    "a key without a reducer": (graph(state=[PLAIN]), at("first"), True),
    "another start": (Topology(name="w", start="split", nodes=OLD.nodes, edges=OLD.edges), at("first"), True),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_in_reach(name: str) -> None:
    """A change counts when something held can come to it, in the old graph or in the new one."""
    new, held, compatible = CASES[name]
    assert (changes_in_reach(OLD, new, held) == ()) is compatible
    back = changes_in_reach(new, OLD, held)
    assert (back == ()) is compatible


def test_changes_in_reach_are_named_and_others_are_not() -> None:
    """The words are those of any difference, of the part in reach only."""
    new = graph(versions=["first", "end"])
    assert changes_in_reach(OLD, new, at("tail")) == ("node 'end': version '' became '2'",)


def test_loops_around_what_is_held_are_in_reach() -> None:
    """A loop that grows around a held message, or goes from around it, is met from inside."""
    wider = (LoopEdge(source="end", target="join", max_iterations=2, variable="v"),)
    assert changes_in_reach(OLD, graph(*EDGES, *wider), at("join"))
    assert changes_in_reach(OLD, graph(*EDGES, *wider), at("end"))
    assert not changes_in_reach(OLD, graph(*EDGES, *wider), at("spare"))


# -- names ---------------------------------------------------------------------------------------


def renamed(mapping: dict[str, str], **options: Any) -> Topology:
    """The graph above with other names."""

    def to(name: str) -> str:
        return mapping.get(name, name)

    edges: tuple[Edge, ...] = (
        DirectEdge(source=to("first"), target=to("split")),
        FanOutEdge(source=to("split"), targets=(to("left"), to("right"))),
        FanInEdge(sources=options.get("sources", (to("left"), to("right"))), target=to("join")),
        DirectEdge(source=to("join"), target=to("body")),
        DirectEdge(source=to("body"), target=to("tail")),
        LoopEdge(
            source=to(options.get("back", "tail")),
            target=to("body"),
            max_iterations=3,
            variable="v",
        ),
        DirectEdge(source=to("tail"), target=to("end")),
    )
    names = [*map(to, NAMES), *options.get("more", ())]
    nodes = tuple(NodeSpec(name=name) for name in names)
    return Topology(name="w", start=to("first"), nodes=nodes, edges=edges)


def test_loops_and_barriers_follow_their_nodes() -> None:
    """Their ids are made of the names of their nodes, so mapping the nodes is enough."""
    mapping = {"left": "port", "join": "meet", "tail": "rear"}
    names = Renaming(OLD, renamed(mapping), mapping)
    assert names.faults == ()
    assert names.node("left") == "port"
    assert names.node("body") == "body"
    barrier, loop = names.barrier("left+right>join"), names.loop("tail>body")
    assert barrier is not None
    assert barrier.barrier_id == "port+right>meet"
    assert loop is not None
    assert loop.loop_id == "rear>body"
    assert names.path_at((("tail>body", 2),), "rear") == (("rear>body", 2),)
    assert names.path_at((), "rear") is None
    assert names.path_around((), loop) == ()


def test_a_barrier_is_known_again_by_its_target() -> None:
    """One source more, one less, or another order: it is still the only fan-in of its target."""
    for sources in (("right", "left"), ("left", "right", "x"), ("left",)):
        names = Renaming(OLD, renamed({}, sources=sources, more=["x"]), {})
        barrier = names.barrier("left+right>join")
        assert barrier is not None
        assert barrier.sources == sources


def test_a_loop_that_closes_elsewhere_must_be_named() -> None:
    """Nothing is guessed of a loop: one that leaves another node is gone unless the mapping leads there."""
    new = renamed({}, back="end")
    assert Renaming(OLD, new, {}).loop("tail>body") is None
    loop = Renaming(OLD, new, {"tail>body": "end>body"}).loop("tail>body")
    assert loop is not None
    assert loop.source == "end"


def test_a_name_that_another_takes_over_is_gone() -> None:
    """A node led to a name pushes out the one that had it; two that swap names do not."""
    names = Renaming(OLD, renamed({"left": "right", "right": "gone"}), {"left": "right"})
    assert (names.node("left"), names.node("right")) == ("right", None)
    swap = {"left": "right", "right": "left"}
    names = Renaming(OLD, renamed(swap), swap)
    assert (names.node("left"), names.node("right")) == ("right", "left")


@pytest.mark.parametrize(
    ("mapping", "fault"),
    [
        ({"nobody": "first"}, "'nobody', which is not in the graph"),
        ({"first": "nobody"}, "no node so named; it has: "),
        ({"first": "tail>body"}, "no node so named"),
        ({"tail>body": "first"}, "no loop so named"),
        ({"left+right>join": "x"}, "no barrier so named"),
        ({"left": "first", "right": "first"}, "to one name, 'first'"),
    ],
)
def test_a_mapping_that_cannot_be_meant(mapping: dict[str, str], fault: str) -> None:
    """An unknown name, one of another kind, two led to one: each is a fault that names it."""
    assert any(fault in said for said in Renaming(OLD, OLD, mapping).faults)
