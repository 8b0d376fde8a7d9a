"""What is wrong with the shape of a graph: reachability, cycles, loops; pure.

Rules of this file: only here networkx is used, and this module is loaded by `build()`, not before.
Every answer is in an order that does not depend on the order of the edges.
"""

from collections.abc import Iterable
from itertools import combinations
from typing import Any, TypeAlias

import networkx as nx

from raf.topology.loops import forward_arcs, loop_body
from raf.topology.model import Edge, LoopEdge

Graph: TypeAlias = "nx.DiGraph[Any]"

_SHOWN = 6


def structural_problems(
    start: str, nodes: Iterable[str], edges: Iterable[Edge], loose: Iterable[str]
) -> list[str]:
    """Every fault of the shape, each with its remedy.

    Args:
        start: The start node; empty when there is none, and then reachability is not judged.
        nodes: All nodes.
        edges: Edges between these.
        loose: Nodes that only a broken edge leads to; they count as reachable.
    """
    names, found = sorted(set(nodes)), list(edges)
    graph: Graph = nx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from(sorted(set(forward_arcs(found))))
    cycles = _undeclared_cycles(graph, start)
    said = [_say_cycle(cycle) for cycle in cycles]
    loops = sorted((e for e in found if isinstance(e, LoopEdge)), key=lambda loop: loop.loop_id)
    bodies = [(loop, loop_body(found, loop)) for loop in loops]
    said += [_say_no_cycle(loop) for loop, body in bodies if not body]
    if not cycles:
        said += _crossings([(loop, body) for loop, body in bodies if body])
    graph.add_edges_from((loop.source, loop.target) for loop in loops)
    return [*_unreachable(graph, start, set(loose)), *said]


def _unreachable(graph: Graph, start: str, loose: set[str]) -> list[str]:
    if start not in graph:
        return []
    reached = {start, *nx.descendants(graph, start)}
    for name in sorted(loose & set(graph)):
        reached |= {name, *nx.descendants(graph, name)}
    return [
        f"node {name!r} cannot be reached from the start {start!r}: add an edge to it, or remove it"
        for name in sorted(set(graph) - reached)
    ]


def _undeclared_cycles(graph: Graph, start: str) -> list[list[str]]:
    """One cycle after the other, each broken at its way back before the next is looked for."""
    left = graph.copy()
    distance = nx.single_source_shortest_path_length(graph, start) if start in graph else {}
    far = len(graph)
    cycles: list[list[str]] = []
    while True:
        rings = [
            ring
            for ring in nx.strongly_connected_components(left)
            if len(ring) > 1 or left.has_edge(*2 * tuple(ring))
        ]
        if not rings:
            return cycles
        first = min((distance.get(name, far), name) for ring in rings for name in ring)[1]
        ring = next(ring for ring in rings if first in ring)
        cycle = _shortest_cycle(left.subgraph(ring), first)
        cycles.append(cycle)
        left.remove_edge(*cycle[-2:])


def _shortest_cycle(graph: Graph, first: str) -> list[str]:
    """The shortest way from a node back to it, the node at both ends."""
    ways = [nx.shortest_path(graph, after, first) for after in sorted(graph.successors(first))]
    return [first, *min(ways, key=lambda way: (len(way), way))]


def _say_cycle(cycle: list[str]) -> str:
    source, target = cycle[-2:]
    return (
        f"undeclared cycle {' -> '.join(cycle)}: declare the way back with "
        f"add_loop({source!r}, {target!r}, LoopOptions(max_iterations=...))"
    )


def _say_no_cycle(loop: LoopEdge) -> str:
    return (
        f"loop {loop.source!r} -> {loop.target!r} closes no cycle, as no edges lead from "
        f"{loop.target!r} to {loop.source!r}: swap the two, or use add_edge"
    )


def _crossings(bodies: list[tuple[LoopEdge, frozenset[str]]]) -> list[str]:
    return [
        f"loops {one.source!r} -> {one.target!r} and {other.source!r} -> {other.target!r} cross: "
        f"both hold {_listed(first & second)}, only the first {_listed(first - second)}, only the "
        f"second {_listed(second - first)}: make one lie inside the other, or keep them apart"
        for (one, first), (other, second) in combinations(bodies, 2)
        if first & second and first - second and second - first
    ]


def _listed(names: frozenset[str]) -> str:
    shown = [repr(name) for name in sorted(names)]
    more = [f"{len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    return ", ".join(shown[:_SHOWN] + more)
