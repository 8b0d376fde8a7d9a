from raf.agents.session import AgentSession as AgentSession
from raf.agents.sync import run_sync as run_sync
from raf.checkpoint.config import CheckpointConfig as CheckpointConfig
from raf.checkpoint.manager import CheckpointManager as CheckpointManager
from raf.checkpoint.model import Checkpoint as Checkpoint
from raf.checkpoint.model import CheckpointInfo as CheckpointInfo
from raf.context import Context as Context
from raf.engine.engine import WorkflowEngine as WorkflowEngine
from raf.engine.migrate import MigrationPlan as MigrationPlan
from raf.engine.outcome import RunResult as RunResult
from raf.engine.outcome import Submitted as Submitted
from raf.errors import RafError as RafError
from raf.events import Event as Event
from raf.graph.builder import WorkflowBuilder as WorkflowBuilder
from raf.graph.names import named as named
from raf.graph.options import LoopOptions as LoopOptions
from raf.state.scope import ScopeKey as ScopeKey
from raf.store.file import FileStore as FileCheckpointStore
from raf.store.memory import MemoryStore as InMemoryCheckpointStore
from raf.store.sealed import KeyRing as KeyRing
from raf.store.sealed import SealedStore as SealedStore
from raf.topology.workflow import RetryPolicy as RetryPolicy
from raf.topology.workflow import Workflow as Workflow
from raf.values.registry import register_type as register_type
from raf.worker.worker import Worker as Worker

__all__ = [
    "AgentSession",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointInfo",
    "CheckpointManager",
    "Context",
    "Event",
    "FileCheckpointStore",
    "InMemoryCheckpointStore",
    "KeyRing",
    "LoopOptions",
    "MigrationPlan",
    "RafError",
    "RetryPolicy",
    "RunResult",
    "ScopeKey",
    "SealedStore",
    "Submitted",
    "Worker",
    "Workflow",
    "WorkflowBuilder",
    "WorkflowEngine",
    "named",
    "register_type",
    "run_sync",
]
__version__: str
