"""Durable workflows of agents: supersteps, incremental checkpoints, resume by session id.

Names are loaded on first use, so that `import raf` costs next to nothing; `__init__.pyi` beside this
file tells type checkers where each one lives, and a test holds the two together.
"""

from importlib import import_module
from typing import Any, Final

_HOME: Final = {
    "AgentSession": ("raf.agents.session", "AgentSession"),
    "Checkpoint": ("raf.checkpoint.model", "Checkpoint"),
    "CheckpointConfig": ("raf.checkpoint.config", "CheckpointConfig"),
    "CheckpointInfo": ("raf.checkpoint.model", "CheckpointInfo"),
    "CheckpointManager": ("raf.checkpoint.manager", "CheckpointManager"),
    "Context": ("raf.context", "Context"),
    "Event": ("raf.events", "Event"),
    "FileCheckpointStore": ("raf.store.file", "FileStore"),
    "InMemoryCheckpointStore": ("raf.store.memory", "MemoryStore"),
    "KeyRing": ("raf.store.sealed", "KeyRing"),
    "LoopOptions": ("raf.graph.options", "LoopOptions"),
    "MigrationPlan": ("raf.engine.migrate", "MigrationPlan"),
    "RafError": ("raf.errors", "RafError"),
    "RetryPolicy": ("raf.topology.workflow", "RetryPolicy"),
    "RunResult": ("raf.engine.outcome", "RunResult"),
    "ScopeKey": ("raf.state.scope", "ScopeKey"),
    "SealedStore": ("raf.store.sealed", "SealedStore"),
    "Submitted": ("raf.engine.outcome", "Submitted"),
    "Worker": ("raf.worker.worker", "Worker"),
    "Workflow": ("raf.topology.workflow", "Workflow"),
    "WorkflowBuilder": ("raf.graph.builder", "WorkflowBuilder"),
    "WorkflowEngine": ("raf.engine.engine", "WorkflowEngine"),
    "named": ("raf.graph.names", "named"),
    "register_type": ("raf.values.registry", "register_type"),
    "run_sync": ("raf.agents.sync", "run_sync"),
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - one list of names, not two
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'raf' has no attribute {name!r}")
    value = getattr(import_module(home[0]), home[1])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return [*__all__, "__version__"]
