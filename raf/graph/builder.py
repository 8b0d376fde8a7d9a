"""How a workflow is written down.

Rules of this file:
- The methods only record: none of them fails on a fault of the graph.  `build()` judges everything
  and reports all problems in one `GraphError`.
- What is built does not depend on the order of the calls.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Self

from raf.graph.assemble import Parts, assemble
from raf.graph.options import LoopOptions
from raf.graph.parts import (
    ABSENT,
    DirectPart,
    FanInPart,
    FanOutPart,
    LoopPart,
    NodePart,
    StatePart,
    SwitchPart,
    kept,
    kept_names,
)
from raf.topology.workflow import RetryPolicy, Workflow

__all__ = ["WorkflowBuilder"]


class WorkflowBuilder:
    """Collects nodes, edges and state, and builds a checked, immutable workflow.

    Every method returns the builder.  A builder can go on after `build()`; workflows that were
    built do not change.

    Args:
        name: Names the workflow; a session belongs to a workflow of one name.

    Example:
        >>> def shout(text: str) -> str:
        ...     return text.upper()
        >>> workflow = (
        ...     WorkflowBuilder("shouting").add_node("shout", shout).set_start("shout").build()
        ... )
        >>> workflow.topology.start
        'shout'
    """

    def __init__(self, name: str) -> None:
        self._parts = Parts(name=name)

    def add_node(  # noqa: PLR0913 - each option is a word of its own at the call
        self,
        name: str,
        handler: Callable[..., Any],
        *,
        retry: RetryPolicy | int | None = None,
        timeout_s: float | None = None,
        idle_timeout_s: float | None = None,
        version: str = "",
        max_concurrency: int | None = None,
        on_failure: Literal["fail", "skip"] = "fail",
        fallback: str | None = None,
    ) -> Self:
        """Add a function as a node.

        Args:
            name: Names the node in edges, state, events and errors; unique in the workflow.
            handler: Async or sync; called with `(payload)` or `(ctx, payload)`.  The annotation of
                the payload is the type it gets; what it returns is sent along the node's edges, and
                None sends nothing.  Sync functions run in threads.
            retry: When a failed attempt is tried again; a number means so many attempts in all.
            timeout_s: Longest time of one attempt, in seconds; async handlers only.
            idle_timeout_s: Longest time without `ctx.heartbeat()`, in seconds; async handlers only.
            version: Part of the fingerprint: change it when unfinished sessions must not go on
                with the new code.
            max_concurrency: So many invocations of the node at once, at most; 1 or more.
            on_failure: After the last attempt the run fails ("fail"), or goes on without the
                node's result ("skip").
            fallback: The node that gets the message instead, after the last attempt.
        """
        self._parts.nodes.append(
            NodePart(
                name=name,
                handler=handler,
                kind="function",
                retry=retry,
                timeout_s=timeout_s,
                idle_timeout_s=idle_timeout_s,
                version=version,
                max_concurrency=max_concurrency,
                on_failure=on_failure,
                fallback=fallback,
            )
        )
        return self

    def add_agent_node(  # noqa: PLR0913 - the options of `add_node`
        self,
        name: str,
        agent: Any,
        *,
        retry: RetryPolicy | int | None = None,
        timeout_s: float | None = None,
        idle_timeout_s: float | None = None,
        version: str = "",
        max_concurrency: int | None = None,
        on_failure: Literal["fail", "skip"] = "fail",
        fallback: str | None = None,
    ) -> Self:
        """Add an agent as a node.

        Args:
            name: As in `add_node`, and so are all options.
            agent: An object with an async or sync `run`, called with `(payload)` or
                `(ctx, payload)`; or any callable that `add_node` takes.
            retry: See `add_node`.
            timeout_s: See `add_node`.
            idle_timeout_s: See `add_node`.
            version: See `add_node`.
            max_concurrency: See `add_node`.
            on_failure: See `add_node`.
            fallback: See `add_node`.
        """
        self._parts.nodes.append(
            NodePart(
                name=name,
                handler=agent,
                kind="agent",
                retry=retry,
                timeout_s=timeout_s,
                idle_timeout_s=idle_timeout_s,
                version=version,
                max_concurrency=max_concurrency,
                on_failure=on_failure,
                fallback=fallback,
            )
        )
        return self

    def set_start(self, name: str) -> Self:
        """Say which node gets the input of a run."""
        self._parts.starts.append(name)
        return self

    def add_edge(self, source: str, target: str, when: Callable[..., Any] | None = None) -> Self:
        """Send what `source` returns to `target`.

        Where several edges lead to one node it is called once for each message; `add_fan_in` waits
        for all of them and calls it once.

        Args:
            source: The node that sends.
            target: The node that gets it.
            when: A condition `(payload)` or `(payload, state)`, named and sync.
        """
        self._parts.edges.append(DirectPart(source, target, when))
        return self

    def add_switch(
        self,
        source: str,
        cases: Iterable[tuple[Callable[..., Any], str]] | Mapping[Any, str],
        default: str | None = None,
    ) -> Self:
        """Send what `source` returns to the target of the first case that holds.

        Args:
            source: The node that sends.
            cases: Pairs of a condition (as in `add_edge`) and a node, asked in this order.
            default: The node that gets what no case takes; required.
        """
        self._parts.edges.append(SwitchPart(source, kept(cases), default))
        return self

    def add_fan_out(
        self, source: str, targets: Iterable[str], choose: Callable[..., Any] | None = None
    ) -> Self:
        """Send what `source` returns to every target, or to those chosen.

        Args:
            source: The node that sends.
            targets: The nodes that may get it.
            choose: `(payload)` or `(payload, state)`, named and sync; returns one name of the
                targets, or several.
        """
        self._parts.edges.append(FanOutPart(source, kept_names(targets), choose))
        return self

    def add_fan_in(
        self,
        sources: Iterable[str],
        target: str,
        wait: int | Literal["all", "quiescent"] = "all",
        collect: Literal["list", "dict"] | None = None,
    ) -> Self:
        """Collect one message of each source, and call `target` once with all of them.

        Args:
            sources: Two nodes or more; their order is the order in what the target gets.
            target: The node behind the barrier.
            wait: "all"; a number, for at least so many; or "quiescent": what is there when nothing
                else can run.
            collect: Whether the target gets a list or a dict by source name; by default a dict
                when its payload is annotated as a mapping.
        """
        self._parts.edges.append(FanInPart(kept_names(sources), target, wait, collect))
        return self

    def add_loop(self, source: str, target: str, options: LoopOptions) -> Self:
        """Declare the way back from `source` to `target`; only this may close a cycle.

        A loop is asked before the node's other edges: while `until` is false and the limit is not
        reached, the message goes back and nowhere else.
        """
        self._parts.edges.append(LoopPart(source, target, options))
        return self

    def with_state(
        self,
        key: str,
        type: Any,  # noqa: A002 - the word that reads right at the call
        *,
        scope: str | None = None,
        reducer: str | Callable[[Any, Any], Any] | None = None,
        initial: Any = ABSENT,
    ) -> Self:
        """Declare a key of the state.

        Args:
            key: The key.
            type: The annotation of its values.
            scope: The shared scope it is in; without one it is declared in each node's own scope.
            reducer: How writes of one step become one value: "last", "append", "extend", "sum",
                "merge", or a named function `(current, contribution)`.  Without one, two
                invocations that write the key in one step are a conflict.
            initial: The value a session begins with; without one the key is absent.
        """
        self._parts.state.append(StatePart(key, type, scope, reducer, initial))
        return self

    def with_output_from(self, *names: str) -> Self:
        """Say whose results are the run's outputs; by default nodes that nothing follows."""
        self._parts.outputs.extend(names)
        return self

    def build(self) -> Workflow:
        """Check everything and build the workflow.

        Returns:
            The workflow; it does not change any more.

        Raises:
            GraphError: With every problem and its remedy; the builder is as it was.
        """
        return assemble(self._parts)
