"""Whether a change of a graph can be met by what a session holds; pure.

Rules of this file:
- *Held* is what a session carries from one step to the next: a message (pending, suspended, woken),
  a message in a barrier, one that is parked before a loop edge.  A held thing stands at a node: the
  one that it is for, the target of its barrier, the source of its loop.  A journal record belongs
  to a pending message, and a counter to the loops that enclose one: they stand nowhere else.
- *In reach* is every node on a way from there along edges of any kind, loops and fallbacks among
  them; every edge that leaves such a node, whole; the barriers that hold something or that pending
  messages came from; and, as soon as anything is held, every declared reducer, since any node may
  write any shared key.  A key that is declared without a reducer counts as undeclared.
- Reach is taken in both graphs, each cut down to it, and the two cuts are compared like any other
  two graphs.  The change is compatible for this session when the cuts are equal: what runs from
  here on then finds the same nodes, edges, order of edges, loops and barriers under either graph.
- The loops around a node need no rule of their own: every way that puts a node in reach into a loop
  body leads from that node to the loop's source and on from its target, so it is in reach itself.
- A session that holds nothing (its run is over, or never began) is compatible with every graph.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from raf.topology.fingerprint import canonical, differences
from raf.topology.loops import reachable
from raf.topology.model import (
    Edge,
    FanInEdge,
    Topology,
    edge_sources,
    edge_targets,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Where what a session holds stands in its graph; nothing by default.

    Args:
        nodes: Nodes that messages are for, and sources of loops that park one.
        barriers: Ids of barriers that hold messages.
        late: Ids of barriers that remember sources as late: these may still send.
        fired: Ids of barriers that pending messages came from.
    """

    nodes: frozenset[str] = frozenset()
    barriers: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    fired: frozenset[str] = frozenset()

    @property
    def nothing(self) -> bool:
        """Whether nothing is held."""
        return not (self.nodes or self.barriers)


def changes_in_reach(saved: Topology, current: Topology, held: Held) -> tuple[str, ...]:
    """The changes that something held could meet, in words; empty: the change is compatible.

    Args:
        saved: The graph that the session was saved under.
        current: The graph of the code at hand.
        held: What the session holds, in terms of `saved`.

    Example:
        >>> from raf.topology.model import DirectEdge, NodeSpec
        >>> a, b, other = (NodeSpec(name="a"), NodeSpec(name="b"), NodeSpec(name="b", version="2"))
        >>> way = (DirectEdge(source="a", target="b"),)
        >>> saved = Topology(name="w", start="a", nodes=(a, b), edges=way)
        >>> current = Topology(name="w", start="a", nodes=(a, other), edges=way)
        >>> changes_in_reach(saved, current, Held(nodes=frozenset({"a"})))
        ("node 'b': version '' became '2'",)
        >>> changes_in_reach(saved, current, Held())
        ()
    """
    before, after = (canonical(_cut(topology, held)) for topology in (saved, current))
    return differences({"topology": before}, {"topology": after})


def _cut(topology: Topology, held: Held) -> Topology:
    """The part of a graph that is in reach; a run that goes on does not ask for the start."""
    if held.nothing:
        return Topology(name=topology.name, start="", nodes=(), edges=())
    reached = _reached(topology, held)
    return Topology(
        name=topology.name,
        start="",
        nodes=tuple(node for node in topology.nodes if node.name in reached),
        edges=tuple(_edges_in_reach(topology.edges, reached, held)),
        state=tuple(key for key in topology.state if key.reducer),
    )


def _reached(topology: Topology, held: Held) -> frozenset[str]:
    starts = set(held.nodes)
    for edge in topology.edges:
        if isinstance(edge, FanInEdge):
            if edge.barrier_id in held.barriers:
                starts.add(edge.target)
            if edge.barrier_id in held.late:
                starts |= {edge.target, *edge.sources}
    arcs = [
        (s, t) for edge in topology.edges for s in edge_sources(edge) for t in edge_targets(edge)
    ]
    return frozenset().union(*(reachable(arcs, start) for start in starts))


def _edges_in_reach(edges: Iterable[Edge], reached: frozenset[str], held: Held) -> Iterable[Edge]:
    for edge in edges:
        if not reached.isdisjoint(edge_sources(edge)):
            yield edge
        elif isinstance(edge, FanInEdge):
            if edge.barrier_id in held.barriers:
                yield edge
            elif edge.barrier_id in held.fired:
                # What it gave up is on its way: how it waits is of the past, what it gave is not.
                yield replace(edge, wait="all")
