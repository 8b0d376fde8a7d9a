"""The edges of a workflow by node, as the engine looks them up; derived once, immutable."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from raf.topology.loops import forward_arcs, reachable
from raf.topology.model import (
    DirectEdge,
    FallbackEdge,
    FanInEdge,
    FanOutEdge,
    LoopEdge,
    SwitchEdge,
    edge_targets,
)
from raf.topology.workflow import Workflow

Group: TypeAlias = DirectEdge | SwitchEdge | FanOutEdge | FanInEdge


@dataclass(frozen=True, slots=True)
class Leaving:
    """What leaves one node: loop edges (innermost first), the other edges, its fallback."""

    loops: tuple[LoopEdge, ...]
    groups: tuple[Group, ...]
    fallback: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edges:
    """Look-ups of the engine.

    `place` orders the nodes; `reaches` tells what lies ahead of a node by forward edges.
    """

    leaving: Mapping[str, Leaving]
    barriers: Mapping[str, FanInEdge]
    loops: Mapping[str, LoopEdge]
    place: Mapping[str, int]
    reaches: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, workflow: Workflow) -> "Edges":
        """Derive the look-ups of a workflow."""
        topology = workflow.topology
        arcs = forward_arcs(topology.edges)
        barriers = {e.barrier_id: e for e in topology.edges if isinstance(e, FanInEdge)}
        return cls(
            leaving={node.name: _leaving(workflow, node.name) for node in topology.nodes},
            barriers=barriers,
            loops={e.loop_id: e for e in topology.edges if isinstance(e, LoopEdge)},
            place={node.name: place for place, node in enumerate(topology.nodes)},
            reaches={e.target: reachable(arcs, e.target) for e in barriers.values()},
        )


def _leaving(workflow: Workflow, node: str) -> Leaving:
    enclosing = workflow.loops.of_node[node]
    loops: list[LoopEdge] = []
    groups: list[Group] = []
    fallback = ""
    for edge in workflow.topology.edges:
        match edge:
            case LoopEdge(source=source) if source == node:
                loops.append(edge)
            case FallbackEdge(source=source) if source == node:
                fallback = edge.target
            case DirectEdge() | SwitchEdge() | FanOutEdge() if edge.source == node:
                groups.append(edge)
            case FanInEdge() if node in edge.sources:
                groups.append(edge)
            case _:
                pass
    loops.sort(key=lambda loop: -enclosing.index(loop.loop_id))
    targets = dict.fromkeys(t for edge in [*loops, *groups] for t in edge_targets(edge))
    return Leaving(tuple(loops), tuple(groups), fallback, tuple(targets))
