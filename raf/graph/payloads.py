"""Whether payload types can meet: what a source returns against what its target takes; pure.

Rules of this file:
- Only annotations are compared, and only what can never fit is a fault: a missing annotation, `Any`
  and a type that might fit are left to the run, which checks each value.
- None sends nothing, so `T | None` meets as `T`.
"""

from collections.abc import Iterable, Mapping
from types import GenericAlias, NoneType, UnionType
from typing import Any, Never, NoReturn, Union, get_args, get_origin

from raf.graph.handler import Signature
from raf.topology.fingerprint import annotation_text
from raf.topology.model import (
    Edge,
    FallbackEdge,
    FanInEdge,
    edge_sources,
    edge_targets,
)
from raf.values.annotation import could_accept


def payload_problems(edges: Iterable[Edge], handlers: Mapping[str, Signature]) -> list[str]:
    """Every pair of nodes whose annotations can never meet, with the remedy."""
    said: dict[str, None] = {}
    for edge in edges:
        for source in edge_sources(edge):
            for target in edge_targets(edge):
                if source in handlers and target in handlers:
                    said[_meeting(edge, source, target, handlers)] = None
    return [problem for problem in said if problem]


def _meeting(edge: Edge, source: str, target: str, handlers: Mapping[str, Signature]) -> str:
    """What is wrong between two nodes; empty when nothing is."""
    takes, handler = handlers[target].payload, handlers[source]
    given = handler.payload if isinstance(edge, FallbackEdge) else _sent(handler.returns)
    if isinstance(edge, FanInEdge) and given is not Never:
        given = GenericAlias(*((list, given) if edge.collect == "list" else (dict, (str, given))))
    if given is Never or could_accept(given, takes):
        return ""
    given, takes = annotation_text(given), annotation_text(takes)
    if isinstance(edge, FallbackEdge):
        return (
            f"fallback {target!r} gets what {source!r} takes, {given}, but takes {takes}: make "
            "both take the same type"
        )
    if isinstance(edge, FanInEdge):
        return (
            f"fan-in into {target!r} hands over a {edge.collect}, {given} from {source!r}, but "
            f"{target!r} takes {takes}: annotate it as list[T] or dict[str, T] of what the sources "
            "return"
        )
    return (
        f"{source!r} returns {given}, but {target!r} takes {takes}: make the annotations agree, or "
        "put a node between that converts"
    )


def _sent(returns: Any) -> Any:
    """What a returned value sends: `Never` when it can only be None."""
    if returns in (None, NoneType, Never, NoReturn):
        return Never
    if get_origin(returns) in (Union, UnionType):
        kept = tuple(kind for kind in get_args(returns) if kind is not NoneType)
        return Union[kept]  # noqa: UP007 - made from values
    return returns
