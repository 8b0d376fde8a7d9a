"""What may be said of a loop."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """How often a loop may go back, and what ends it.

    A wrong value is reported by `WorkflowBuilder.build()`, together with every other problem.

    Args:
        max_iterations: How often the body may run for each message that enters it, the first pass
            included; 1 or more.
        loop_variable: The key, in the source node's own scope, that mirrors the iteration;
            `__loop_{source}` when not given.  Required where two loops leave one node.
        until: A condition `(payload)` or `(payload, state)`, named and sync; the loop ends when it
            is true.
        on_limit: At the limit the message leaves the loop ("exit"), or it is parked and the run's
            outcome is `limited` ("stop"); `resume` then grants `max_iterations` more.

    Example:
        >>> LoopOptions(3).on_limit
        'exit'
    """

    max_iterations: int
    _: KW_ONLY
    loop_variable: str | None = None
    until: Callable[..., Any] | None = None
    on_limit: Literal["exit", "stop"] = "exit"
