"""Reading a session as events: no gap, no double, in the order of their numbers."""

import asyncio
import random
from typing import Any

import pytest

from raf import Context, Event, RetryPolicy, WorkflowEngine
from raf.errors import EventsGoneError, RunFailedError, SessionNotFoundError
from raf.store.memory import MemoryStore
from raf.store.urls import open_store
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    SlowStore,
    adds_one,
    events_of,
    kinds,
    line,
    passes,
    running,
    settle,
    small_chains,
    until,
)


async def chatty(ctx: Context, value: int) -> int:
    """A node that shows something durable and something live."""
    ctx.emit({"saw": value})
    ctx.emit("now", live=True)
    return value + 1


def talk(steps: int = 4) -> Any:
    return line("talk", {f"n{number}": chatty for number in range(steps)}).build()


async def read(engine: WorkflowEngine, *args: Any, **options: Any) -> list[Event]:
    return [event async for event in engine.stream(*args, **options)]


def durable(events: list[Event]) -> list[Event]:
    return [event for event in events if event.durable]


def numbers(events: list[Event]) -> list[int]:
    return [event.number for event in events if event.number is not None]


async def test_a_call_as_events() -> None:
    """`stream` with an input runs it and gives all its events, the outcome last."""
    async with running(talk()) as engine:
        events = await read(engine, 1, "s")
        assert numbers(events) == list(range(1, len(numbers(events)) + 1))
        assert (events[0].kind, events[-1].kind) == ("run_started", "outcome")
        assert events[-1].data["outputs"] == [5]
        assert [e.value for e in events if e.kind == "custom"] == [{"saw": n} for n in (1, 2, 3, 4)]
        assert len([e for e in events if e.kind == "progress"]) == 4
        assert (await engine.run(1, "s")).outputs == [5]


async def test_events_are_shown_after_their_commit() -> None:
    """A durable event is seen only once it can be read from the store; a live one at once."""
    store = SlowStore("commit", 2)
    seen: list[str] = []

    async with running(talk(1), store) as engine:

        async def reader() -> None:
            async for event in engine.stream(1, "s"):
                seen.append(event.kind)  # noqa: PERF401 - looked at while it is filled

        task = asyncio.create_task(reader())
        await store.gate.reached.wait()
        await settle()
        assert seen == ["run_started", "node_started", "progress"]
        store.gate.open.set()
        await task
        assert seen == ["run_started", "node_started", "progress", "node_completed", *seen[4:]]


async def test_a_late_reader_sees_what_an_early_one_saw(place: str) -> None:
    """Replay equals what was shown live: the same events, numbers, values and times."""
    async with running(talk(), open_store(place)) as engine:
        live = [e for e in await read(engine, 1, "s") if e.durable]
        assert await events_of(engine, "s") == live
        for after in range(len(live) + 1):
            assert await events_of(engine, "s", after=after) == live[after:]


async def test_after_zero_and_no_after_are_different() -> None:
    """after=0 is from the first event on; without it a watcher begins with what comes next."""
    gate = Gate()

    async def node(value: int) -> int:
        if not gate.open.is_set():
            await gate.stop()
        return value

    async with running(line("w", {"node": node, "next": passes}).build()) as engine:
        run = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        both = [
            asyncio.create_task(read(engine, session_id="s", after=0)),
            asyncio.create_task(read(engine, session_id="s")),
        ]
        await settle()
        gate.open.set()
        await run
        everything, rest = await asyncio.gather(*both)
        assert kinds(everything)[0] == "run_started"
        assert numbers(everything) == list(range(1, len(durable(everything)) + 1))
        assert durable(rest) == durable(everything)[1:]


async def test_readers_that_join_at_any_moment_have_no_gap_and_no_double() -> None:
    """Many readers start and leave at random moments of a run: each sees consecutive numbers."""
    chance = random.Random(7)
    async with running(talk(60), MemoryStore()) as engine:
        begun = asyncio.Event()
        found: list[list[int]] = []

        async def reader() -> None:
            await begun.wait()
            for _ in range(chance.randrange(300)):
                await asyncio.sleep(0)
            after = chance.randrange(20)
            leave = chance.randrange(40, 400)
            got: list[int] = []
            async for event in engine.stream(session_id="s", after=after):
                if event.number is not None:
                    got.append(event.number)
                if len(got) == leave:
                    break
                if chance.random() < 0.3:
                    await asyncio.sleep(0)
            found.append([after, *got])

        readers = [asyncio.create_task(reader()) for _ in range(30)]
        begun.set()
        await engine.run(1, "s")
        await asyncio.gather(*readers)
    assert len(found) == 30
    for got in found:
        assert got == list(range(got[0], got[0] + len(got)))


async def test_a_slow_reader_costs_bounded_memory_and_misses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader that stands still holds a short queue; when it goes on it reads the rest."""
    monkeypatch.setattr("raf.engine.hub.QUEUE", 8)
    monkeypatch.setattr("raf.engine.engine.QUEUE", 8)
    async with running(talk(50)) as engine:
        stream = engine.stream(session_id="s", after=0)
        run = asyncio.create_task(engine.run(1, "s"))
        await until(lambda: engine.machine.keeper.of("s") is not None)
        await settle()
        got = [await anext(stream)]
        await run
        queues = [len(r._queue) for r in engine.machine.hub._readers["s"]]
        assert queues == [8]
        got += [event async for event in stream]
        assert numbers(got) == list(range(1, (await engine.manager.head("s")).events + 1))
        assert got[-1].kind == "outcome"


async def test_a_reader_of_another_engine_polls_the_store() -> None:
    """Who does not share the owner's process sees every event all the same, up to the outcome."""
    gate, store = Gate(), MemoryStore()

    async def node(value: int) -> int:
        await gate.stop()
        return value

    workflow = line("w", {"first": adds_one, "node": node}).build()
    async with running(workflow, store) as owner, running(workflow, store) as other:
        run = asyncio.create_task(owner.run(1, "s"))
        await gate.reached.wait()
        watching = asyncio.create_task(read(other, session_id="s", after=0))
        await settle()
        assert not watching.done()
        gate.open.set()
        await run
        assert await watching == await events_of(owner, "s")


async def test_a_watcher_stays_until_the_run_is_over() -> None:
    """An attempt that fails, a sleep and a takeover end no watcher; the outcome does."""
    calls, store = Ledger(), MemoryStore()

    async def node(value: int) -> int:
        if calls.note("node") == 1:
            raise ConnectionError
        return value

    workflow = line("w", {"node": node}, retry=RetryPolicy(attempts=2, backoff_s=0)).build()
    async with running(workflow, store) as engine:
        events = await read(engine, 1, "s", after=0)
        assert kinds(events)[-1] == "outcome"
        assert kinds(await read(engine, session_id="s")) == []


async def test_the_failure_of_the_call_comes_behind_its_last_event() -> None:
    """A failed run's events are all given before its error is raised."""

    async def node(value: int) -> int:
        raise ValueError("no")

    async with running(line("w", {"node": node}).build()) as engine:
        stream = engine.stream(1, "s")
        seen = [await anext(stream) for _ in range(4)]
        assert kinds(seen) == ["run_started", "node_started", "node_failed", "outcome"]
        with pytest.raises(RunFailedError, match="no"):
            await anext(stream)
        assert kinds(await read(engine, 1, "s", check=False))[-1] == "outcome"


async def test_leaving_a_stream_stops_its_call() -> None:
    """Whoever leaves the stream of a call stops the run, as a kill would; it can be resumed."""
    gate = Gate()

    async def node(value: int) -> int:
        if not gate.open.is_set():
            await gate.stop()
        return value

    async with running(line("w", {"node": node}).build()) as engine:
        stream = engine.stream(1, "s")
        assert (await anext(stream)).kind == "run_started"
        await gate.reached.wait()
        await stream.aclose()  # type: ignore[attr-defined]
        await until(lambda: engine.machine.keeper.of("s") is None)
        head = await engine.manager.head("s")
        assert (head.summary.status, head.held) == ("running", None)
        gate.open.set()
        assert (await engine.resume("s")).outputs == [1]


async def test_a_finished_run_is_streamed_as_its_record() -> None:
    """Asked again with after=0, a finished run gives its events and does not run."""
    calls = Ledger()

    async def node(value: int) -> int:
        calls.note("node")
        return value

    async with running(line("w", {"node": node}).build()) as engine:
        first = await read(engine, 1, "s")
        assert durable(await read(engine, 1, "s", after=0)) == durable(first)
        assert await read(engine, 1, "s") == []
        assert calls["node"] == 1


async def test_an_unknown_session_cannot_be_watched() -> None:
    """A watcher of nothing is told so."""
    async with running(talk()) as engine:
        with pytest.raises(SessionNotFoundError):
            await read(engine, session_id="nobody")


async def test_pruned_events_are_gone_and_not_skipped() -> None:
    """A reader whose events were pruned gets an error that names the oldest left."""
    async with running(talk(), checkpoints=small_chains()) as engine:
        await engine.run(1, "s")
        head = await engine.manager.head("s")
        await engine.prune("s", events_before=6)
        with pytest.raises(EventsGoneError) as gone:
            await events_of(engine, "s", after=0)
        assert 1 < gone.value.first <= 6
        rest = await events_of(engine, "s", after=gone.value.first - 1)
        assert numbers(rest) == list(range(gone.value.first, head.events + 1))
        assert (await engine.run(1, "s")).outputs == [5]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_numbers_have_no_gap_in_every_mode(durability: Any) -> None:
    """However steps are gathered, events are numbered without gaps and are all there."""
    async with running(talk(), durability=durability) as engine:
        live = [e for e in await read(engine, 1, "s") if e.durable]
        assert numbers(live) == list(range(1, len(live) + 1))
        assert kinds(live).count("step_committed") == 4
        assert live == await events_of(engine, "s")
