"""The topology: a graph as plain, immutable, canonical data.

Rules of this file:
- Nothing here is callable; conditions, reducers and handlers are named.
- Nodes are sorted by name and edges by `edge_order`, so two builders that add the same things in
  another order make equal topologies.  Orders that mean something (cases of a switch, sources of a
  fan-in) are kept inside their edge.
- The order of nodes and edges here is the order in which a step is planned and applied.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Wait: TypeAlias = int | Literal["all", "quiescent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node as far as it shapes a run; `output` marks that its results are the run's outputs."""

    name: str
    kind: Literal["function", "agent"] = "function"
    version: str = ""
    output: bool = False
    on_failure: Literal["fail", "skip", "fallback"] = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectEdge:
    """From one node to another, when the named condition holds (always without one)."""

    source: str
    target: str
    condition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchEdge:
    """From one node to the target of the first case whose condition holds, else to the default."""

    source: str
    cases: tuple[tuple[str, str], ...]
    default: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutEdge:
    """From one node to all targets, or to those that the named chooser returns."""

    source: str
    targets: tuple[str, ...]
    chooser: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FanInEdge:
    """A barrier: from several nodes to one, once enough of them have sent.

    `wait` is "all", a quorum (at least so many sources) or "quiescent" (fires when nothing else
    can run).  `collect` says whether the target gets a list in source order or a dict by source.
    """

    sources: tuple[str, ...]
    target: str
    wait: Wait = "all"
    collect: Literal["list", "dict"] = "list"

    @property
    def barrier_id(self) -> str:
        """Names the barrier in checkpoints and errors."""
        return f"{'+'.join(self.sources)}>{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopEdge:
    """The declared way back: closes a cycle at most `max_iterations` times.

    `variable` is the key, in the source node's own scope, that mirrors the iteration.
    """

    source: str
    target: str
    max_iterations: int
    variable: str
    until: str = ""
    on_limit: Literal["exit", "stop"] = "exit"

    @property
    def loop_id(self) -> str:
        """Names the loop in paths, checkpoints and errors."""
        return f"{self.source}>{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackEdge:
    """Where the message of a node goes that failed its last attempt."""

    source: str
    target: str


Edge: TypeAlias = DirectEdge | SwitchEdge | FanOutEdge | FanInEdge | LoopEdge | FallbackEdge

_RANK = {LoopEdge: 0, SwitchEdge: 1, FanOutEdge: 2, DirectEdge: 3, FanInEdge: 4, FallbackEdge: 5}


def edge_order(edge: Edge) -> tuple[Any, ...]:
    """The canonical place of an edge among all edges."""
    sources = edge_sources(edge)
    return (sources[0], _RANK[type(edge)], sources, edge_targets(edge), repr(edge))


def edge_sources(edge: Edge) -> tuple[str, ...]:
    """All nodes that an edge leaves."""
    return edge.sources if isinstance(edge, FanInEdge) else (edge.source,)


def edge_targets(edge: Edge) -> tuple[str, ...]:
    """All nodes that an edge may lead to, in its own order, without repeats."""
    match edge:
        case SwitchEdge():
            return tuple(dict.fromkeys([*(target for _, target in edge.cases), edge.default]))
        case FanOutEdge():
            return edge.targets
        case _:
            return (edge.target,)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateKey:
    """A declared key of the state; without a scope it is a key of each node's own scope."""

    key: str
    scope: str | None = None
    reducer: str = ""


def _state_order(key: StateKey) -> tuple[bool, str, str]:
    """Keys of each node's own scope first, then shared scopes by name."""
    return (key.scope is not None, key.scope or "", key.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A checked graph; make it with `raf.graph.builder.WorkflowBuilder`.

    Guarantees: nodes, edges and state keys are in canonical order, whatever order they came in.
    """

    name: str
    start: str
    nodes: tuple[NodeSpec, ...]
    edges: tuple[Edge, ...]
    state: tuple[StateKey, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(sorted(self.nodes, key=lambda node: node.name)))
        object.__setattr__(self, "edges", tuple(sorted(self.edges, key=edge_order)))
        object.__setattr__(self, "state", tuple(sorted(self.state, key=_state_order)))

    def node(self, name: str) -> NodeSpec:
        """The node of that name; `KeyError` when there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)
