"""A session that an engine of another workflow looks after stays its own workflow's."""

from collections.abc import Awaitable, Callable

import pytest

from raf.checkpoint.config import CheckpointConfig
from raf.engine.engine import WorkflowEngine
from raf.graph.builder import WorkflowBuilder
from raf.store.memory import MemoryStore


def double(number: int) -> int:
    if number < 0:
        raise ValueError("negative")
    return 2 * number


def flow(name: str, node: str) -> WorkflowBuilder:
    return WorkflowBuilder(name).add_node(node, double).set_start(node)


async def cancel(engine: WorkflowEngine) -> None:
    await engine.cancel("s")


async def pin(engine: WorkflowEngine) -> None:
    await engine.pin("s", 0)


async def prune(engine: WorkflowEngine) -> None:
    await engine.prune("s")


@pytest.mark.parametrize("look_after", [cancel, pin, prune])
async def test_it_is_not_renamed(look_after: Callable[[WorkflowEngine], Awaitable[None]]) -> None:
    """Name, fingerprint and manifest are the session's, whoever commits what was asked of it."""
    store, often = MemoryStore(), CheckpointConfig(full_snapshot_interval=1)
    mine = WorkflowEngine(flow("mine", "d").build(), store, checkpoints=often)
    other = WorkflowEngine(flow("other", "e").build(), store, checkpoints=often)
    async with store, mine, other:
        await mine.run(-1, "s", check=False)
        await look_after(other)
        restored = await mine.manager.restore("s")
        assert restored is not None
        assert restored.head.summary.workflow == "mine"
        assert restored.head.summary.fingerprint == mine.workflow.fingerprint
        assert restored.manifest == dict(mine.workflow.manifest)
        result = await mine.run(-1, "s", check=False)
        assert result.status == ("cancelled" if look_after is cancel else "failed")
