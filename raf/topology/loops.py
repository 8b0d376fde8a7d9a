"""Loops, their bodies, and the path of a message; pure.

Rules of this file:
- Forward edges (all but loop edges) form an acyclic graph.
- The body of a loop edge source -> target holds every node on a forward way from target to source,
  both included.  Bodies are nested or disjoint.
- A path has one entry (loop id, iteration) for each loop whose body holds the node, outermost
  first.  A message that enters a body starts at iteration 1, one that leaves drops the entry, and
  the loop edge itself adds 1 and starts every loop further in anew.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from raf.topology.model import Edge, LoopEdge, Topology, edge_sources, edge_targets

Path: TypeAlias = tuple[tuple[str, int], ...]


def forward_arcs(edges: Iterable[Edge]) -> list[tuple[str, str]]:
    """Source and target of every edge that is no loop edge, in order."""
    return [
        (source, target)
        for edge in edges
        if not isinstance(edge, LoopEdge)
        for source in edge_sources(edge)
        for target in edge_targets(edge)
    ]


def reachable(arcs: Iterable[tuple[str, str]], start: str) -> frozenset[str]:
    """Every node on a way from `start` along the arcs, `start` included."""
    following: dict[str, list[str]] = defaultdict(list)
    for source, target in arcs:
        following[source].append(target)
    seen = {start}
    stack = [start]
    while stack:
        for target in following[stack.pop()]:
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return frozenset(seen)


def loop_body(edges: Iterable[Edge], loop: LoopEdge) -> frozenset[str]:
    """The nodes of a loop's body; empty when the edge closes no cycle."""
    arcs = forward_arcs(edges)
    after_target = reachable(arcs, loop.target)
    if loop.source not in after_target:
        return frozenset()
    before_source = reachable([(b, a) for a, b in arcs], loop.source)
    return after_target & before_source


@dataclass(frozen=True, slots=True)
class Loops:
    """Which loops enclose each node, outermost first, and how a message's path changes."""

    of_node: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, topology: Topology) -> "Loops":
        """Find the nesting; the topology's bodies must be nested or disjoint."""
        bodies = [
            (loop.loop_id, loop_body(topology.edges, loop))
            for loop in topology.edges
            if isinstance(loop, LoopEdge)
        ]
        bodies.sort(key=lambda item: (-len(item[1]), item[0]))
        return cls(
            {
                node.name: tuple(name for name, body in bodies if node.name in body)
                for node in topology.nodes
            }
        )

    def enter(self, node: str) -> Path:
        """The path of a message that comes from outside."""
        return tuple((loop, 1) for loop in self.of_node[node])

    def along(self, path: Path, source: str, target: str) -> Path:
        """The path behind a forward edge."""
        here, there = self.of_node[source], self.of_node[target]
        if here == there:
            return path
        shared = 0
        while shared < min(len(here), len(there)) and here[shared] == there[shared]:
            shared += 1
        return path[:shared] + tuple((loop, 1) for loop in there[shared:])

    def back(self, path: Path, loop: LoopEdge) -> Path:
        """The path behind the loop edge itself."""
        depth = self.of_node[loop.source].index(loop.loop_id)
        inner = self.of_node[loop.target][depth + 1 :]
        turn = (loop.loop_id, path[depth][1] + 1)
        return (*path[:depth], turn, *((name, 1) for name in inner))

    def iteration(self, path: Path, loop: LoopEdge) -> int:
        """Which pass of the loop a message at its source belongs to; the first is 1."""
        return path[self.of_node[loop.source].index(loop.loop_id)][1]

    def outer(self, path: Path, loop: LoopEdge) -> Path:
        """The part of the path outside the loop: it tells one stay in the loop from another."""
        return path[: self.of_node[loop.source].index(loop.loop_id)]
