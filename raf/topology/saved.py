"""A workflow as a session keeps it: its graph without the code; pure.

Rules of this file:
- The manifest holds everything of a graph that can change a run, so the graph is had from it whole:
  equal manifests give equal topologies, and the fingerprint is that of the saved graph.
- What comes out can be drawn, compared and looked after (cancel, pin, edit, fork).  It has no
  handlers, conditions and declared types, so nothing can be run with it.
"""

from collections.abc import Mapping
from typing import Any, Final

from raf.errors import UndecodableError
from raf.topology.fingerprint import digest_of
from raf.topology.model import (
    DirectEdge,
    Edge,
    FallbackEdge,
    FanInEdge,
    FanOutEdge,
    LoopEdge,
    NodeSpec,
    StateKey,
    SwitchEdge,
    Topology,
)
from raf.topology.workflow import Workflow
from raf.values.registry import TypeTable

_EDGES: Final[Mapping[str, type[Any]]] = {
    "direct": DirectEdge,
    "switch": SwitchEdge,
    "fan-out": FanOutEdge,
    "fan-in": FanInEdge,
    "loop": LoopEdge,
    "fallback": FallbackEdge,
}


def saved_workflow(manifest: Mapping[str, Any]) -> Workflow:
    """The workflow that a manifest describes, without its code.

    Args:
        manifest: What a session was saved under (`Restored.manifest`, `Workflow.manifest`).

    Raises:
        UndecodableError: It describes no graph that this code knows.

    Example:
        >>> from raf.graph.builder import WorkflowBuilder
        >>> built = WorkflowBuilder("w").add_node("a", str.upper).set_start("a").build()
        >>> saved_workflow(built.manifest).topology == built.topology
        True
    """
    try:
        form = dict(manifest["topology"])
        topology = Topology(
            name=form["name"],
            start=form["start"],
            nodes=tuple(NodeSpec(name=name, **spec) for name, spec in form["nodes"].items()),
            edges=tuple(_edge(edge) for edge in form["edges"]),
            state=tuple(StateKey(**key) for key in form["state"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        why = f"the session's description of its graph is not of this version ({error!r})"
        raise UndecodableError(why) from error
    return Workflow(
        topology=topology,
        fingerprint=digest_of(form),
        manifest=manifest,
        nodes={},
        conditions={},
        state=(),
        types=TypeTable(),
    )


def _edge(form: Mapping[str, Any]) -> Edge:
    fields = {name: _tuples(value) for name, value in form.items() if name != "kind"}
    edge: Edge = _EDGES[form["kind"]](**fields)
    return edge


def _tuples(value: Any) -> Any:
    """Lists as tuples, as the model has them."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value
