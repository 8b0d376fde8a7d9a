"""Wrong calls: each is a clear typed error with the next step, and nothing is lost by it."""

import os
from pathlib import Path
from typing import Any

import pytest

from raf import CheckpointConfig, CheckpointManager, RetryPolicy, WorkflowBuilder, WorkflowEngine
from raf.errors import (
    CheckpointNotFoundError,
    ConfigurationError,
    InvalidSessionIdError,
    PayloadTypeError,
    RafError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from raf.store.urls import open_store
from tests.servers.places import SLOW_ON_SERVERS
from tests.unit.engine.stage import BACKENDS, adds_one, events_of, line, passes, running, url_of

ODD_IDS = [
    "../evil",
    "..",
    ".",
    "a/b",
    "/etc/passwd",
    "a:b",
    "a_b",
    "a.b",
    "A:B",
    "a\\b",
    "é",
    "e\u0301",
    "trailing.",
    "trailing ",
    "trailing",
    " ",
    "con",
    "CON",
    "%2F",
    "x" * 512,
    "x" * 300,
    "漢字" * 100,
    "\U00020000" * 512,
    "é" * 512,
    "e\u0301" * 256,
    "\U0001f600",
    "s@1",
    "a::b",
    "a\nb",
    "-rf",
    "~",
]


@SLOW_ON_SERVERS
async def test_odd_session_ids_are_all_apart_and_stay_inside(place: str, tmp_path: Path) -> None:
    """Whatever an id holds, it is one session of its own, and nothing is written outside the root."""
    async with running(line("w", {"n": adds_one}).build(), place) as engine:
        for number, session in enumerate(ODD_IDS):
            assert (await engine.run(number, session)).outputs == [number + 1]
        for number, session in enumerate(ODD_IDS):
            assert (await engine.run(number, session)).outputs == [number + 1]
            assert (await engine.state(session, f"{session}@1")).session_id == session
            assert (await engine.manager.verify(session)).intact
        found = [head.session_id async for head in engine.manager.heads()]
        assert sorted(found) == sorted(ODD_IDS)
    assert os.listdir(tmp_path) == ["place"]  # noqa: PTH208
    assert all(name.startswith("runs") for name in os.listdir(tmp_path / "place"))  # noqa: PTH208


@pytest.mark.parametrize("session", ["", "x" * 513, "a\x00b", "\ud800", 5, b"bytes", ["s"]])
async def test_what_cannot_name_a_session_is_refused_everywhere(session: Any) -> None:
    """Every call refuses it before it reads or writes."""
    async with running(line("w", {"n": passes}).build()) as engine:
        for call in (
            engine.run(1, session),
            engine.resume(session),
            engine.state(session),
            engine.history(session),
            engine.cancel(session),
            engine.delete(session),
            engine.pin(session, 1),
            engine.prune(session),
            engine.edit(session, lambda editor: None, reason="r"),
            engine.fork("s", session),
        ):
            with pytest.raises((InvalidSessionIdError, SessionNotFoundError)):
                await call
        assert [head async for head in engine.manager.heads()] == []


async def test_an_unknown_session_is_named_with_the_next_step() -> None:
    """Every call on a session that is not there says so."""
    async with running(line("w", {"n": passes}).build()) as engine:
        await engine.run(1, "there")
        for call in (
            engine.resume("nobody"),
            engine.state("nobody"),
            engine.history("nobody"),
            engine.cancel("nobody"),
            engine.delete("nobody"),
            engine.pin("nobody", 1),
            engine.prune("nobody"),
            engine.fork("nobody", "new"),
            engine.edit("nobody", lambda editor: None, reason="r"),
            engine.manager.verify("nobody"),
            engine.manager.diff("nobody", 0, 1),
            engine.manager.events("nobody"),
            anext(engine.stream(session_id="nobody")),
        ):
            with pytest.raises(SessionNotFoundError, match=r"'nobody'.*raf sessions"):
                await call
        assert await engine.manager.load_full_state("nobody") is None


@pytest.mark.parametrize("number", [None, "1", -1, 1.5, True])
async def test_what_counts_no_events_is_refused(number: Any) -> None:
    """Before the store is asked."""
    async with running(line("w", {"n": passes}).build(), open_store("memory:")) as engine:
        await engine.run(1, "s")
        for words in ({"after": number}, {"limit": number}):
            with pytest.raises(ConfigurationError, match="whole number"):
                await engine.manager.events("s", **words)
        if not isinstance(number, str):
            with pytest.raises(ConfigurationError, match="named by text"):
                await engine.manager.run_record("s", number)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "checkpoint",
    [
        "t@1",
        "@1",
        "s@",
        "s@x",
        "s@-1",
        "x",
        "",
        -1,
        99,
        "s@99",
        "99" * 20,
        10**30,
        2**63,
        True,
        "s@1@1",
        "s@¹",
    ],
)
async def test_a_checkpoint_id_that_names_nothing_here(
    backend: str, checkpoint: Any, tmp_path: Path
) -> None:
    """Another session's, one that was never made, one that is no id: refused by name."""
    store = open_store(url_of(backend, tmp_path))
    async with running(line("w", {"n": passes}).build(), store) as engine:
        await engine.run(1, "s")
        await engine.run(1, "t")
        for call in (
            engine.state("s", checkpoint),
            engine.fork("s", "new", checkpoint),
            engine.pin("s", checkpoint),
            engine.manager.load_full_state("s", checkpoint),
            engine.manager.diff("s", 0, checkpoint),
        ):
            with pytest.raises(CheckpointNotFoundError, match="raf history"):
                await call
        assert sorted([h.session_id async for h in engine.manager.heads()]) == ["s", "t"]


@pytest.mark.parametrize("value", ["text", None, 1.5, [1], {"a": 1}, b"1", True])
async def test_an_input_of_the_wrong_type_is_refused_before_anything_is_written(value: Any) -> None:
    """The start node's annotation is what a run takes; nothing is admitted otherwise."""
    async with running(line("w", {"n": passes}).build()) as engine:
        with pytest.raises(PayloadTypeError, match="input"):
            await engine.run(value, "s")
        assert [head async for head in engine.manager.heads()] == []


async def test_an_input_that_cannot_be_stored_is_refused() -> None:
    """Without an annotation anything that can be stored is taken, and nothing else."""

    async def node(value: Any) -> None: ...

    async with running(line("w", {"n": node}).build()) as engine:
        for value in (object(), print, {"a": [object()]}, 3j):
            with pytest.raises(RafError, match="input"):
                await engine.run(value, "s")
        assert [head async for head in engine.manager.heads()] == []


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
async def test_a_place_that_cannot_be_used(scheme: str, tmp_path: Path) -> None:
    """A path below a file cannot be opened: a typed error that names the store."""
    (tmp_path / "file").write_text("not a folder")
    url = f"{scheme}:{tmp_path / 'file' / 'below'}"
    engine = WorkflowEngine(line("w", {"n": passes}).build(), store=url)
    with pytest.raises(StoreUnavailableError, match="below"):
        await engine.run(1, "s")


@pytest.mark.parametrize("url", ["", "runs.db", "mysql:x", "sqlite:", "file:", "memory:x", 5])
def test_a_store_that_is_no_store(url: Any) -> None:
    """An unknown or unfinished URL is refused when the engine is made, with the known forms."""
    with pytest.raises(ConfigurationError):
        WorkflowEngine(line("w", {"n": passes}).build(), store=url)


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    """A file of another program is refused and stays as it is."""
    path = tmp_path / "notes.txt"
    path.write_text("my notes" * 1000)
    engine = WorkflowEngine(line("w", {"n": passes}).build(), store=f"sqlite:{path}")
    with pytest.raises(RafError, match=r"notes\.txt"):
        await engine.run(1, "s")
    assert path.read_text() == "my notes" * 1000


# -- without checkpoints ---------------------------------------------------------------------------


async def test_a_run_without_checkpoints_keeps_nothing() -> None:
    """It runs, streams and fails as ever; twice the same call runs twice; nothing can be resumed."""
    calls = []

    async def node(value: int) -> int:
        calls.append(value)
        return value

    workflow = line("w", {"n": node}).build()
    async with running(workflow, checkpoints=CheckpointConfig.disabled()) as engine:
        assert (await engine.run(1, "s")).outputs == [1]
        assert (await engine.run(1, "s")).outputs == [1]
        assert calls == [1, 1]
        events = [event async for event in engine.stream(2, "s")]
        assert [e.kind for e in events][:1] == ["run_started"]
        numbers = [event.number for event in events if event.durable]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_what_needs_checkpoints_says_so_when_there_are_none() -> None:
    """Looking at, resuming or changing a session is refused with the reason."""
    workflow = line("w", {"n": passes}).build()
    async with running(workflow, checkpoints=CheckpointConfig.disabled()) as engine:
        await engine.run(1, "s")
        for call in (
            engine.resume("s"),
            engine.state("s"),
            engine.history("s"),
            engine.cancel("s"),
            engine.pin("s", 0),
            engine.prune("s"),
            engine.delete("s"),
            engine.fork("s", "t"),
            engine.edit("s", lambda editor: None, reason="r"),
            engine.recover(),
        ):
            with pytest.raises(ConfigurationError, match="checkpoints are disabled"):
                await call


async def test_effects_and_retries_work_without_checkpoints() -> None:
    """In memory an effect of a failed attempt is served to the next as well."""
    done: list[int] = []

    async def node(ctx: Any, value: int) -> int:
        await ctx.effect("e", done.append, value)
        if ctx.attempt == 1:
            raise ValueError
        return value

    retry = RetryPolicy(attempts=2, backoff_s=0)
    workflow = line("w", {"n": node}, retry=retry).build()
    async with running(workflow, checkpoints=CheckpointConfig.disabled()) as engine:
        assert (await engine.run(1, "s")).outputs == [1]
        assert done == [1]


# -- the manager by itself -------------------------------------------------------------------------


async def test_load_full_state_and_diff(tmp_path: Path) -> None:
    """A manager of its own reads what an engine wrote: state, history, differences."""

    async def node(ctx: Any, value: int) -> int:
        ctx.scope("s").append("list", value)
        ctx.scope("s")["last"] = value
        if value == 2:
            del ctx.scope("s")["first"]
        if value == 1:
            ctx.scope("s")["first"] = True
        return value + 1

    builder = WorkflowBuilder("w").add_node("a", node).add_node("b", node).add_node("c", node)
    workflow = builder.add_edge("a", "b").add_edge("b", "c").set_start("a").build()
    url = f"sqlite:{tmp_path / 'runs.db'}"
    async with running(workflow, url) as engine:
        await engine.run(1, "s")
        assert len(await events_of(engine, "s")) > 5
    async with CheckpointManager.with_default_config(url) as manager:
        found = await manager.load_full_state("s")
        assert found is not None
        checkpoint, state = found
        assert state == {"::s": {"list": [1, 2, 3], "last": 3}}
        assert (checkpoint.step_number, checkpoint.status) == (2, "completed")
        changes = {
            (c.where, c.key): (c.kind, c.before, c.after) for c in await manager.diff("s", 1, 3)
        }
        assert changes["state ::s", "list"] == ("changed", [1], [1, 2, 3])
        assert changes["state ::s", "first"] == ("removed", True, None)
        assert changes["run", "status"] == ("changed", "running", "completed")
