"""Nodes that are called several times in one pass, since plain edges meet there; pure.

Theory of operation: two ways out of a node may both be taken, unless they are cases of one switch.
A node is called for each message when two such ways reach it over different last edges.  Barriers
make one message of many, so ways end at them; loops and fallbacks begin another pass or try.
"""

from collections import defaultdict

from raf.topology.loops import reachable
from raf.topology.model import (
    DirectEdge,
    FanOutEdge,
    SwitchEdge,
    Topology,
    edge_targets,
)


def called_per_message(topology: Topology) -> frozenset[str]:
    """The nodes where ways that may both be taken meet on plain edges."""
    edges = [e for e in topology.edges if isinstance(e, (DirectEdge, FanOutEdge, SwitchEdge))]
    entries: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    for number, edge in enumerate(edges):
        for target in edge_targets(edge):
            entries[target].add((edge.source, number))
    joins = {name: last for name, last in entries.items() if len(last) > 1}
    if not joins:
        return frozenset()
    arcs = [(edge.source, target) for edge in edges for target in edge_targets(edge)]
    reach = {node.name: reachable(arcs, node.name) for node in topology.nodes}
    exits = _exits(edges)
    return frozenset(
        name
        for name, last in joins.items()
        if any(_meet(name, last, source, ways, reach) for source, ways in exits.items())
    )


_Way = tuple[int, tuple[str, ...]]


def _exits(edges: list[DirectEdge | FanOutEdge | SwitchEdge]) -> dict[str, list[_Way]]:
    """The ways out of each node that do not exclude each other: edge number and targets."""
    exits: defaultdict[str, list[_Way]] = defaultdict(list)
    for number, edge in enumerate(edges):
        targets = edge_targets(edge)
        alternatives = [targets] if isinstance(edge, SwitchEdge) else [(t,) for t in targets]
        exits[edge.source] += [(number, way) for way in alternatives]
    return exits


def _meet(
    name: str,
    last: set[tuple[str, int]],
    source: str,
    ways: list[_Way],
    reach: dict[str, frozenset[str]],
) -> bool:
    """Whether two ways out of a node come to another over different last edges."""
    arrivals = []
    for number, targets in ways:
        seen = frozenset[str]().union(*(reach[target] for target in targets))
        over = {entry for entry in last if entry[0] in seen}
        if name in targets:
            over.add((source, number))
        if over:
            arrivals.append(over)
    return len(arrivals) > 1 and len(set[tuple[str, int]]().union(*arrivals)) > 1
