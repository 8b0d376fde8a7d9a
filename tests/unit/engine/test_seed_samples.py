"""The samples of the document that the project starts from, in Python, under its names.

Each test is one code sample or one note of that document.  Where the project differs on purpose, the
decision records say why: `0001` to `0005` below `docs/explanation/decisions`.
"""

from pathlib import Path

import pytest

from raf import (
    AgentSession,
    Checkpoint,
    CheckpointConfig,
    CheckpointInfo,
    CheckpointManager,
    Context,
    FileCheckpointStore,
    InMemoryCheckpointStore,
    LoopOptions,
    ScopeKey,
    Workflow,
    WorkflowBuilder,
    WorkflowEngine,
)
from raf.errors import TopologyChangedError
from raf.testing import CrashError, crash_at


class Analyzer:
    """An agent: an object with an async `run`."""

    async def run(self, ctx: Context, messages: list[str]) -> dict[str, int]:
        ctx.state["seen"] = len(messages)
        ctx.scope("shared_context").update("lengths", {text: len(text) for text in messages})
        return {"words": sum(len(text.split()) for text in messages)}


class Reporter:
    """Another agent."""

    async def run(self, ctx: Context, analysis: dict[str, int]) -> str:
        lengths = ctx.scope("shared_context")["lengths"]
        return f"{analysis['words']} words in {len(lengths)} messages"


def analyze_and_report(last: str = "report") -> Workflow:
    """The graph of the sample."""
    return (
        WorkflowBuilder("analyze and report")
        .add_agent_node("analyze", Analyzer())
        .add_agent_node(last, Reporter())
        .set_start("analyze")
        .add_edge("analyze", last)
        .with_output_from(last)
        .build()
    )


MESSAGES = ["one two", "three"]


async def test_in_memory_store() -> None:
    """Development and tests: a store in memory under a manager with the default settings."""
    store = InMemoryCheckpointStore()
    cp = CheckpointManager.with_default_config(store)
    assert cp.config == CheckpointConfig()
    async with cp:
        assert await cp.load_full_state("nobody") is None


async def test_a_workflow_with_checkpoints(tmp_path: Path) -> None:
    """A graph, a file store, a manager, an engine with that manager, a session, a run."""
    store = FileCheckpointStore(tmp_path / "checkpoints")
    manager = CheckpointManager.with_default_config(store)
    session = AgentSession.with_id("workflow-1")
    async with WorkflowEngine(analyze_and_report()).with_checkpoint_manager(manager) as engine:
        result = await engine.run(MESSAGES, session)
        assert result.outputs == ["3 words in 2 messages"]
        events = [event async for event in engine.stream(session_id=session, after=0)]
        assert [e.value for e in events if e.kind == "output"] == result.outputs
    assert (tmp_path / "checkpoints").is_dir()


async def test_resume_from_a_checkpoint(tmp_path: Path) -> None:
    """Load the full state, check the fingerprint, and let a new engine go on by itself."""
    place = tmp_path / "checkpoints"
    session_id = "workflow-1"
    workflow = analyze_and_report()
    async with WorkflowEngine(workflow, FileCheckpointStore(place)) as engine:
        with crash_at("engine.commit.after", hit=1, how="raise"), pytest.raises(CrashError):
            await engine.run(MESSAGES, session_id)

    manager = CheckpointManager.with_default_config(FileCheckpointStore(place))
    async with manager:
        found = await manager.load_full_state(session_id)
        assert found is not None
        latest_checkpoint, merged_state = found
        assert isinstance(latest_checkpoint, Checkpoint)
        assert latest_checkpoint.graph_fingerprint == workflow.fingerprint
        assert latest_checkpoint.step_number == 0
        assert merged_state["analyze"] == {"seen": 2}
        assert [m["target"] for m in latest_checkpoint.pending_messages] == ["report"]

    async with WorkflowEngine(analyze_and_report(), FileCheckpointStore(place)) as engine:
        assert (await engine.resume(session_id)).outputs == ["3 words in 2 messages"]


async def test_a_changed_graph_is_refused(tmp_path: Path) -> None:
    """Note 1: the fingerprint is checked when a session is resumed."""
    place = tmp_path / "checkpoints"
    async with WorkflowEngine(analyze_and_report(), FileCheckpointStore(place)) as engine:
        with crash_at("engine.commit.after", hit=1, how="raise"), pytest.raises(CrashError):
            await engine.run(MESSAGES, "workflow-1")
    changed = analyze_and_report(last="summary")
    async with WorkflowEngine(changed, FileCheckpointStore(place)) as engine:
        with pytest.raises(TopologyChangedError, match="summary"):
            await engine.resume("workflow-1")


async def test_the_core_types(tmp_path: Path) -> None:
    """What a checkpoint and its line in the list tell, under the names of the document."""
    manager = CheckpointManager.with_default_config(InMemoryCheckpointStore())
    async with WorkflowEngine(analyze_and_report()).with_checkpoint_manager(manager) as engine:
        await engine.run(MESSAGES, "workflow-1")
        entry = await engine.state("workflow-1", 0)
        assert (entry.step_number, entry.is_full_snapshot) == (-1, True)
        assert entry.parent_checkpoint_id is None
        assert entry.pending_messages[0]["payload"] == MESSAGES
        step = await engine.state("workflow-1", 1)
        assert (step.is_full_snapshot, step.parent_checkpoint_id) == (False, entry.checkpoint_id)
        assert set(step.state_data) == {"analyze", "::shared_context"}
        assert step.edge_state_data == {"barriers": {}, "granted": {}}
        assert step.created_at >= entry.created_at
        infos = await engine.history("workflow-1")
        assert all(isinstance(info, CheckpointInfo) for info in infos)
        assert [info.step_number for info in infos] == [-1, 0, 1]
        assert {info.session_id for info in infos} == {"workflow-1"}
        assert all(info.byte_size > 0 for info in infos)
        assert [info.is_full_snapshot for info in infos] == [True, False, False]
        assert infos[2].parent_checkpoint_id == infos[1].checkpoint_id


@pytest.mark.parametrize("loop_variable", [None, "round"])
async def test_loop_state_is_kept(loop_variable: str | None) -> None:
    """The iteration is a variable of the state: `__loop_{node}`, or the name that was given."""
    name = loop_variable or "__loop_body"
    seen: list[int] = []

    async def body(ctx: Context, value: int) -> int:
        seen.append(ctx.state[name])
        return value + 1

    builder = WorkflowBuilder("loop").add_node("body", body).set_start("body")
    options = LoopOptions(5, loop_variable=loop_variable)
    workflow = builder.add_loop("body", "body", options).build()
    manager = CheckpointManager.with_default_config(InMemoryCheckpointStore())
    async with WorkflowEngine(workflow).with_checkpoint_manager(manager) as engine:
        with crash_at("engine.commit.after", hit=3, how="raise"), pytest.raises(CrashError):
            await engine.run(0, "loop-1")
        found = await manager.load_full_state("loop-1")
        assert found is not None
        assert found[1]["body"][name] == 4
        assert (await engine.resume("loop-1")).outputs == [5]
        assert seen == [1, 2, 3, 4, 5]


def test_scope_keys() -> None:
    """Private and shared scopes, their text, and the text of the document, which is read too."""
    private = ScopeKey.private("node_a")
    shared = ScopeKey.shared("node_a", "shared_context")
    assert (private.node_id, private.scope_name) == ("node_a", None)
    assert (shared.node_id, shared.scope_name) == ("node_a", "shared_context")
    assert str(private) == "node_a"
    assert ScopeKey.parse("node_a") == private
    assert ScopeKey.parse("node_a::shared_context") == shared
    assert shared == ScopeKey.shared("node_b", "shared_context")


def test_settings_of_the_best_practices() -> None:
    """Production, development and "high performance": each can be meant, the last is made safe."""
    production = CheckpointConfig(full_snapshot_interval=20, max_checkpoints=200, enabled=True)
    assert production.interval == 20
    assert not CheckpointConfig.disabled().enabled
    fast = CheckpointConfig(full_snapshot_interval=100, max_checkpoints=50, enabled=True)
    assert fast.interval == 50


async def test_delta_and_full(tmp_path: Path) -> None:
    """49 deltas on a full, then a full with no parent, and the newest three chains stay."""

    async def body(value: int) -> int:
        return value + 1

    builder = WorkflowBuilder("loop").add_node("body", body).set_start("body")
    workflow = builder.add_loop("body", "body", LoopOptions(260)).build()
    manager = CheckpointManager.with_default_config(InMemoryCheckpointStore())
    async with WorkflowEngine(workflow).with_checkpoint_manager(manager) as engine:
        await engine.run(0, "long")
        infos = await engine.history("long")
        fulls = [info for info in infos if info.is_full_snapshot]
        assert [info.commit for info in fulls] == [0, 50, 100, 150, 200, 250]
        assert all(info.parent_checkpoint_id is None for info in fulls)
        kept = [info.commit for info in infos if info.byte_size]
        assert kept == list(range(150, 261))
        assert (await engine.state("long", 260)).status == "completed"


async def test_sessions_are_apart(tmp_path: Path) -> None:
    """Note 2: the checkpoints of different sessions do not meet, in one folder or another."""
    store = FileCheckpointStore(tmp_path / "checkpoints")
    async with WorkflowEngine(analyze_and_report(), store) as engine:
        for number, session in enumerate(("workflow-1", "workflow-2", "Workflow-1")):
            await engine.run(MESSAGES * (number + 1), AgentSession.with_id(session))
        for number, session in enumerate(("workflow-1", "workflow-2", "Workflow-1")):
            state = (await engine.state(session)).state_data
            assert state["analyze"] == {"seen": 2 * (number + 1)}
        await engine.delete("workflow-1")
        assert (await engine.state("Workflow-1")).session_id == "Workflow-1"


async def test_no_temporary_file_is_left(tmp_path: Path) -> None:
    """Note 3: a write happens wholly or not at all, and leaves nothing beside it."""
    place = tmp_path / "checkpoints"
    async with WorkflowEngine(analyze_and_report(), FileCheckpointStore(place)) as engine:
        await engine.run(MESSAGES, "workflow-1")
    assert [path for path in place.rglob("*") if "tmp" in path.name] == []


async def test_nothing_is_kept_when_checkpoints_are_disabled() -> None:
    """`CheckpointConfig.disabled()` for development: a run lives in memory only."""
    store = InMemoryCheckpointStore()
    manager = CheckpointManager(store, CheckpointConfig.disabled())
    async with WorkflowEngine(analyze_and_report()).with_checkpoint_manager(manager) as engine:
        assert (await engine.run(MESSAGES, "workflow-1")).status == "completed"
    async with store:
        assert await store.scan() == []
