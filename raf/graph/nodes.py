"""From recorded nodes to specifications and code, with what is wrong with them."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from raf.errors import GraphError
from raf.graph.handler import Signature, as_handler, read_handler
from raf.graph.limits import limit_faults, retry_of
from raf.graph.names import is_name
from raf.graph.parts import NodePart
from raf.topology.model import FallbackEdge, NodeSpec
from raf.topology.workflow import NodeCode

SEPARATORS = ("+", ">")  # they stand between names in the ids of loops and barriers


@dataclass(slots=True)
class Nodes:
    """The nodes as far as they are sound: every usable name, and signatures that could be read."""

    names: set[str] = field(default_factory=set)
    parts: dict[str, NodePart] = field(default_factory=dict)
    signatures: dict[str, Signature] = field(default_factory=dict)
    fallbacks: list[FallbackEdge] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def missing(self, name: Any, where: str) -> str:
        """What to say when this is no node; empty when it is one."""
        if isinstance(name, str) and name in self.names:
            return ""
        near = difflib.get_close_matches(str(name), sorted(self.names), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "add it with add_node, or mend the name"
        return f"{where}: there is no node {name!r}: {hint}"

    def specs(self, outputs: Iterable[str]) -> tuple[NodeSpec, ...]:
        """The nodes of the topology; only for sound nodes."""
        marked = set(outputs)
        return tuple(
            NodeSpec(
                name=name,
                kind=part.kind,
                version=part.version,
                output=name in marked,
                on_failure="fallback" if part.fallback is not None else part.on_failure,
            )
            for name, part in self.parts.items()
        )

    def code(self) -> dict[str, NodeCode]:
        """The code of each node, by name; only for sound nodes."""
        return {
            name: as_handler(
                name,
                self.signatures[name],
                retry_of(part.retry)[0],
                timeout_s=part.timeout_s,
                idle_timeout_s=part.idle_timeout_s,
                max_concurrency=part.max_concurrency,
            )
            for name, part in sorted(self.parts.items())
        }


def draft_nodes(parts: Iterable[NodePart]) -> Nodes:
    """Read every recorded node."""
    nodes = Nodes()
    for part in parts:
        fault = _name_fault(part.name)
        if fault:
            nodes.problems.append(fault)
        elif part.name in nodes.names:
            nodes.problems.append(f"node {part.name!r} is added twice: give each its own name")
        else:
            nodes.names.add(part.name)
            nodes.parts[part.name] = part
        _read(part, nodes)
    if not nodes.names and not nodes.problems:
        nodes.problems.append("there are no nodes: add one with add_node")
    for part in nodes.parts.values():
        _read_fallback(part, nodes)
    return nodes


def _name_fault(name: Any) -> str:
    if not isinstance(name, str):
        return f"node name {name!r} is {type(name).__name__}: give text"
    if not is_name(name):
        return f"node name {name!r} is odd: use printable text without spaces around it"
    if any(sign in name for sign in SEPARATORS):
        return f"node name {name!r} holds '+' or '>', which separate names in ids: leave them out"
    return ""


def _read(part: NodePart, nodes: Nodes) -> None:
    said: list[str] = []
    is_async = True
    try:
        signature = read_handler(part.handler, agent=part.kind == "agent")
    except GraphError as error:
        what = "agent" if part.kind == "agent" else "handler"
        said += [f"its {what} {problem}" for problem in error.problems]
    else:
        is_async = signature.is_async
        if isinstance(part.name, str):
            nodes.signatures.setdefault(part.name, signature)
    said += retry_of(part.retry)[1]
    said += limit_faults(part, is_async=is_async)
    nodes.problems += [f"node {part.name!r}: {problem}" for problem in said]


def _read_fallback(part: NodePart, nodes: Nodes) -> None:
    if part.fallback is None:
        return
    where = f"fallback of node {part.name!r}"
    if part.fallback == part.name:
        nodes.problems.append(f"{where} is the node itself: name another node, or raise retry")
    elif fault := nodes.missing(part.fallback, where):
        nodes.problems.append(fault)
    else:
        nodes.fallbacks.append(FallbackEdge(source=part.name, target=part.fallback))
