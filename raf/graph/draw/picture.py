"""What a drawing shows, before it is known how: boxes and lines with their words; pure.

Rules of this file:
- Every node is a box, every fan-in a box of its own, so that what waits can be seen.
- Boxes are numbered in topology order: names never become identifiers in a picture.
- A node that plain edges reach on two ways at once is called once for each message.  That is no
  fault, but seldom meant, so its box says it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from raf.graph.draw.joins import called_per_message
from raf.topology.model import (
    DirectEdge,
    FallbackEdge,
    FanInEdge,
    FanOutEdge,
    LoopEdge,
    NodeSpec,
    SwitchEdge,
    Topology,
)
from raf.topology.workflow import Workflow

Status: TypeAlias = Literal["done", "running", "failed", "waiting", "pending", "idle"]
Style: TypeAlias = Literal["plain", "loop", "fallback"]

PER_MESSAGE = "called for each message"


@dataclass(frozen=True, slots=True)
class DrawState:
    """How a node of a session stands, to be drawn over the graph.

    Args:
        status: What the node does now, or did last.
        count: How often it was called; 0 or more.
    """

    status: Status
    count: int = 0


Overlay: TypeAlias = Mapping[str, DrawState]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A node, or the barrier of a fan-in."""

    label: str
    is_barrier: bool = False
    notes: tuple[str, ...] = ()
    is_start: bool = False
    is_output: bool = False
    state: DrawState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A way from one box to another, by their numbers."""

    source: int
    target: int
    label: str = ""
    style: Style = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """All boxes and lines of a workflow."""

    title: str
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def picture(workflow: Workflow, overlay: Overlay | None = None) -> Picture:
    """What to draw of a workflow, with the standing of a session's nodes over it."""
    topology = workflow.topology
    often = called_per_message(topology)
    boxes = [_node_box(node, topology, often, overlay or {}) for node in topology.nodes]
    number = {node.name: index for index, node in enumerate(topology.nodes)}
    lines: list[Line] = []
    for edge in topology.edges:
        if isinstance(edge, FanInEdge):
            barrier, target = len(boxes), number[edge.target]
            boxes.append(Box(label=_wait(edge), is_barrier=True))
            lines += [Line(source=number[name], target=barrier) for name in edge.sources]
            lines.append(Line(source=barrier, target=target))
        else:
            lines += [
                Line(source=number[edge.source], target=number[target], label=label, style=style)
                for target, label, style in _ways(edge)
            ]
    return Picture(title=topology.name, boxes=tuple(boxes), lines=tuple(lines))


def _node_box(node: NodeSpec, topology: Topology, often: frozenset[str], overlay: Overlay) -> Box:
    said = (
        (node.kind == "agent", "agent"),
        (node.version != "", f"version {node.version}"),
        (node.on_failure == "skip", "skipped on failure"),
        (node.name in often, PER_MESSAGE),
    )
    return Box(
        label=node.name,
        notes=tuple(note for holds, note in said if holds),
        is_start=node.name == topology.start,
        is_output=node.output,
        state=overlay.get(node.name),
    )


def _wait(edge: FanInEdge) -> str:
    if edge.wait == "quiescent":
        return "what is there"
    if edge.wait == "all":
        return f"all {len(edge.sources)}"
    return f"{edge.wait} of {len(edge.sources)}"


def _ways(
    edge: DirectEdge | SwitchEdge | FanOutEdge | LoopEdge | FallbackEdge,
) -> Iterator[tuple[str, str, Style]]:
    """Each target of an edge with its label and style."""
    match edge:
        case DirectEdge():
            yield edge.target, edge.condition, "plain"
        case SwitchEdge():
            for position, (condition, target) in enumerate(edge.cases, start=1):
                yield target, f"{position}: {condition}", "plain"
            yield edge.default, "else", "plain"
        case FanOutEdge():
            for target in edge.targets:
                yield target, f"{edge.chooser}?" if edge.chooser else "", "plain"
        case LoopEdge():
            until = f", until {edge.until}" if edge.until else ""
            stop = ", then stop" if edge.on_limit == "stop" else ""
            yield edge.target, f"at most {edge.max_iterations}{until}{stop}", "loop"
        case FallbackEdge():
            yield edge.target, "on failure", "fallback"
