"""The built workflow: a topology and the code behind its names.  Immutable."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from raf.state.reducers import Reducer
from raf.topology.loops import Loops
from raf.topology.model import Topology
from raf.values.annotation import Shape
from raf.values.registry import TypeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a failed attempt is tried again.

    Args:
        attempts: Tries in all, the first included; 1 or more.
        backoff_s: Nominal delay before the second attempt, in seconds.
        factor: The nominal delay grows by this with each attempt.
        max_backoff_s: Upper bound of the nominal delay, in seconds.
        jitter: With "full" the delay is drawn evenly from zero to the nominal one.
        on: Only errors of these types are tried again.
        total_s: No attempt begins later than this after the first, in seconds.

    Example:
        >>> RetryPolicy(attempts=3, backoff_s=0.5).attempts
        3
    """

    attempts: int = 1
    backoff_s: float = 1.0
    factor: float = 2.0
    max_backoff_s: float = 60.0
    jitter: Literal["full", "none"] = "full"
    on: tuple[type[Exception], ...] = (Exception,)
    total_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCode:
    """The code of one node and how it is called; not part of the fingerprint but by `NodeSpec`."""

    name: str
    call: Callable[..., Any]
    is_async: bool
    takes_context: bool
    payload: Shape
    returns: Any = Any
    retry: RetryPolicy = RetryPolicy()
    timeout_s: float | None = None
    idle_timeout_s: float | None = None
    max_concurrency: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A named function of `(payload)` or `(payload, state)`: a condition, case, until or chooser.

    `source_digest` tells a changed body under the same name; empty when the source is unknown.
    """

    name: str
    call: Callable[..., Any]
    takes_state: bool
    source_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCode:
    """What is declared of one state key: type, reducer, initial value (encoded; None: absent)."""

    key: str
    scope: str | None
    shape: Shape
    reducer: Reducer | None = None
    initial: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """What `WorkflowBuilder.build()` returns.

    `manifest` describes the graph in plain data, to name a difference later; `fingerprint` is
    equal for equal topologies only.  `draw` gives the pictures that notebooks show, by media type.
    """

    topology: Topology
    fingerprint: str
    manifest: Mapping[str, Any]
    nodes: Mapping[str, NodeCode]
    conditions: Mapping[str, Condition]
    state: tuple[StateCode, ...]
    types: TypeTable
    draw: Callable[["Workflow"], dict[str, str]] | None = field(
        default=None, repr=False, compare=False
    )
    loops: Loops = field(init=False)

    def __post_init__(self) -> None:
        """Derive what the engine looks up, and close the maps."""
        object.__setattr__(self, "loops", Loops.of(self.topology))
        object.__setattr__(self, "nodes", MappingProxyType(dict(self.nodes)))
        object.__setattr__(self, "conditions", MappingProxyType(dict(self.conditions)))

    @property
    def name(self) -> str:
        """The workflow's name; its sessions carry it."""
        return self.topology.name

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """How notebooks show a workflow: as the drawing that its builder gave along."""
        del include, exclude
        text = f"Workflow({self.name!r}, {len(self.nodes)} nodes, {self.fingerprint})"
        return {"text/plain": text} | (self.draw(self) if self.draw else {})
