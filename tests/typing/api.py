"""The public API as users type it: only type-checked, never run."""

from dataclasses import dataclass

from raf import (
    AgentSession,
    Checkpoint,
    CheckpointConfig,
    CheckpointInfo,
    CheckpointManager,
    Context,
    Event,
    LoopOptions,
    RetryPolicy,
    RunResult,
    Workflow,
    WorkflowBuilder,
    WorkflowEngine,
    named,
    run_sync,
)


@dataclass
class Draft:
    """What the two agents hand to each other."""

    text: str
    round: int = 0


async def write(ctx: Context, topic: str) -> Draft:
    """An async node with a context."""
    ctx.scope("notes").append("topics", topic)
    saved: str = await ctx.effect("save", str.upper, topic)
    return Draft(saved)


def review(draft: Draft) -> Draft:
    """A sync node."""
    return Draft(draft.text, draft.round + 1)


def good_enough(draft: Draft) -> bool:
    """A condition."""
    return draft.round > 2


workflow: Workflow = (
    WorkflowBuilder("review")
    .add_node("write", write, retry=RetryPolicy(attempts=3), timeout_s=5.0)
    .add_node("review", review)
    .set_start("write")
    .add_edge("write", "review")
    .add_loop("review", "review", LoopOptions(3, until=good_enough))
    .with_state("topics", list[str], scope="notes", reducer="extend", initial=[])
    .with_output_from("review")
    .build()
)
also: object = named("long", lambda text: len(text) > 3)


async def main() -> None:
    """The engine's calls."""
    config = CheckpointConfig(full_snapshot_interval="auto", max_checkpoints=10)
    async with WorkflowEngine(workflow, store="memory:", checkpoints=config) as engine:
        result: RunResult = await engine.run("topic", session_id="s", wait_s=1.0)
        result = await engine.resume("s", check=False)
        async for event in engine.stream("topic", "s2", after=0):
            seen: Event = event
            assert seen.number, seen.kind
        history: list[CheckpointInfo] = await engine.history("s")
        state: Checkpoint = await engine.state("s", history[-1].checkpoint_id)
        entry: str = await engine.fork("s", "s3", state.checkpoint_id)
        turn: RunResult = await AgentSession("s4", engine).send("hello", key="first")
        assert entry, (turn.output, result.outputs)
    manager = CheckpointManager.with_default_config("memory:")
    found = await manager.load_full_state("s")
    if found is not None:
        checkpoint, values = found
        assert checkpoint.step_number, values
    assert run_sync(workflow, "topic").outputs
