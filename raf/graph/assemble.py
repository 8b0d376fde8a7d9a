"""From everything that was recorded to a workflow, or to all problems at once."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from raf.errors import ConfigurationError, GraphError
from raf.graph.codes import Codes
from raf.graph.declared import Declared, draft_state
from raf.graph.edges import Edges
from raf.graph.names import is_name
from raf.graph.nodes import Nodes, draft_nodes
from raf.graph.parts import EdgePart, NodePart, StatePart
from raf.graph.payloads import payload_problems
from raf.topology.fingerprint import digest_of, manifest
from raf.topology.model import Edge, FallbackEdge, LoopEdge, Topology, edge_sources
from raf.topology.workflow import Workflow
from raf.values.registry import TypeTable


@dataclass(slots=True)
class Parts:
    """What a builder recorded."""

    name: Any
    nodes: list[NodePart] = field(default_factory=list)
    edges: list[EdgePart] = field(default_factory=list)
    state: list[StatePart] = field(default_factory=list)
    starts: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)


def assemble(parts: Parts) -> Workflow:
    """Check and build.

    Raises:
        GraphError: With every problem, nodes first, then edges, shape, payloads, state, outputs.
    """
    nodes, codes = draft_nodes(parts.nodes), Codes()
    edges = Edges(nodes, codes)
    for part in parts.edges:
        edges.add(part)
    types, type_faults = _types(parts, nodes)
    declared = draft_state(parts.state, codes, types)
    edges.check_variables(declared.private_keys)
    start, start_faults = _start(parts.starts, nodes)
    outputs, output_faults = _outputs(parts.outputs, nodes, edges.edges)
    every = [*edges.edges, *nodes.fallbacks]
    problems = [
        *_name_faults(parts.name),
        *nodes.problems,
        *start_faults,
        *edges.problems,
        *_shape_faults(start, nodes, every, edges.loose),
        *payload_problems(every, nodes.signatures),
        *type_faults,
        *codes.problems,
        *declared.problems,
        *output_faults,
    ]
    if problems:
        raise GraphError(str(parts.name), tuple(dict.fromkeys(problems)))
    topology = Topology(
        name=parts.name,
        start=start,
        nodes=nodes.specs(outputs),
        edges=tuple(every),
        state=tuple(declared.keys),
    )
    return _workflow(topology, nodes, codes, declared, types)


def _workflow(
    topology: Topology, nodes: Nodes, codes: Codes, declared: Declared, types: TypeTable
) -> Workflow:
    code = nodes.code()
    description = manifest(
        topology,
        nodes=code,
        conditions=codes.conditions,
        reducers=codes.reducers,
        types=types,
    )
    return Workflow(
        topology=topology,
        fingerprint=digest_of(description["topology"]),
        manifest=description,
        nodes=code,
        conditions=codes.conditions,
        state=tuple(declared.code),
        types=types,
        draw=_draw,
    )


def _draw(workflow: Workflow) -> dict[str, str]:
    """The drawing that notebooks show; loaded when one is shown."""
    from raf.graph.draw.as_svg import svg  # noqa: PLC0415 - most programs never draw

    return {"image/svg+xml": svg(workflow)}


def _name_faults(name: Any) -> list[str]:
    if is_name(name):
        return []
    return [
        f"the workflow's name is {name!r}: give printable text, as sessions belong to a workflow "
        "by name"
    ]


def _start(starts: list[Any], nodes: Nodes) -> tuple[str, list[str]]:
    """The start node, empty when there is no usable one."""
    if not starts:
        return "", ["there is no start: call set_start(name)"]
    if any(start != starts[0] for start in starts):
        said = " and ".join(dict.fromkeys(map(repr, starts)))
        return "", [f"the start is set to {said}: call set_start once"]
    fault = nodes.missing(starts[0], "start")
    return ("", [fault]) if fault else (starts[0], [])


def _shape_faults(
    start: str, nodes: Nodes, edges: Iterable[Edge], loose: Iterable[str]
) -> list[str]:
    from raf.graph.check import structural_problems  # noqa: PLC0415 - networkx loads on first use

    return structural_problems(start, nodes.names, edges, loose)


def _types(parts: Parts, nodes: Nodes) -> tuple[TypeTable, list[str]]:
    """The types that values may have, from every annotation."""
    annotations = [
        annotation
        for signature in nodes.signatures.values()
        for annotation in (signature.payload, signature.returns)
    ]
    annotations += [part.type for part in parts.state]
    try:
        return TypeTable.of(*annotations), []
    except ConfigurationError as error:
        return TypeTable(), [str(error)]


def _outputs(names: list[Any], nodes: Nodes, edges: Iterable[Edge]) -> tuple[list[str], list[str]]:
    """The nodes whose results are outputs: those named, else those that nothing follows.

    A way back and a fallback do not count as following: what leaves the loop would go nowhere.
    """
    if names:
        faults = [nodes.missing(name, "with_output_from") for name in names]
        return [name for name in names if isinstance(name, str)], [f for f in faults if f]
    followed = {
        source
        for edge in edges
        if not isinstance(edge, (LoopEdge, FallbackEdge))
        for source in edge_sources(edge)
    }
    return sorted(nodes.names - followed), []
