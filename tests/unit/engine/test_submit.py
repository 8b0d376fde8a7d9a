"""Runs that are left for later: durable at once, run by nobody here, idempotent."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from raf import CheckpointConfig, WorkflowEngine
from raf.errors import (
    CommitError,
    ConfigurationError,
    NothingToResumeError,
    PayloadTypeError,
    RunInputMismatchError,
    RunUnfinishedError,
    SessionBusyError,
    StoreFullError,
    WorkflowMismatchError,
)
from raf.store.due import wants_to_run
from raf.store.memory import MemoryStore
from raf.store.model import Summary
from raf.store.owner import this_owner
from raf.store.urls import open_store
from raf.testing import ManualClock
from tests.unit.engine.stage import (
    BACKENDS,
    BrokenStore,
    Gate,
    Ledger,
    VanishingStore,
    adds_one,
    events_of,
    kill,
    kinds,
    line,
    logical,
    running,
    settle,
    url_of,
)

LATER = 3_000_000_000.0
ledger = Ledger()


async def counted(value: int) -> int:
    ledger.note("counted")
    return value + 1


WORKFLOW = line("w", {"a": counted, "b": adds_one}).build()


@pytest.fixture(autouse=True)
def _empty_ledger() -> None:
    ledger.clear()


async def summary_of(engine: WorkflowEngine, session: str = "s") -> Summary:
    return (await engine.manager.head(session)).summary


@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_is_submitted_is_durable_and_nothing_of_it_runs(
    backend: str, tmp_path: Path
) -> None:
    """The entry is committed, the session is free, and a later engine runs it to the same end."""
    store = open_store(url_of(backend, tmp_path))
    async with running(WORKFLOW, store) as engine:
        found = await engine.submit(1, "s", queue="nightly", at=LATER)
        assert (found.session_id, found.run_id, found.status) == ("s", "main", "submitted")
        head = await engine.manager.head("s")
        assert (head.commit, head.held) == (0, None)
        told = head.summary
        assert (told.status, told.queue, told.wake_at) == ("submitted", "nightly", LATER)
        assert (told.workflow, told.fingerprint) == ("w", WORKFLOW.fingerprint)
        assert ledger == {}
        assert (await engine.manager.verify("s")).intact
    again = open_store(url_of(backend, tmp_path)) if backend != "memory" else store
    async with running(WORKFLOW, again) as engine:
        result = await engine.run(1, "s")
        assert (result.outputs, result.resumed_from) == ([3], "s@0")
        told = await summary_of(engine)
        assert (told.status, told.queue, told.wake_at) == ("completed", "nightly", None)
        events = await events_of(engine, "s")
        assert kinds(events)[:2] == ["run_submitted", "run_started"]
        assert dict(events[0].data) == {"run_id": "main", "queue": "nightly", "at": LATER}
        await engine.run(1, "whole")
        assert logical(events) == logical(await events_of(engine, "whole"))


async def test_submitting_twice_is_submitting_once() -> None:
    """The same call changes nothing, before the run, in it, and after it."""
    async with running(WORKFLOW) as engine:
        first = await engine.submit(1, "s", at=LATER)
        assert await engine.submit(1, "s") == first
        assert (await engine.manager.head("s")).commit == 0
        assert (await summary_of(engine)).wake_at == LATER
        await engine.run(1, "s")
        for _ in range(2):
            again = await engine.submit(1, "s")
            assert (again.run_id, again.status) == ("main", "completed")
        assert ledger["counted"] == 1


async def test_another_input_and_another_run_are_refused() -> None:
    """Each is named, before the run and after it; the session stands as it stood."""
    async with running(WORKFLOW) as engine:
        await engine.submit(1, "s")
        with pytest.raises(RunInputMismatchError):
            await engine.submit(2, "s")
        for call in (engine.submit, engine.run):
            with pytest.raises(RunUnfinishedError) as refused:
                await call(2, "s", run_id="next")
            assert "'main'" in str(refused.value)
            assert "submitted" in str(refused.value)
        assert (await engine.manager.head("s")).commit == 0
        await engine.run(1, "s")
        with pytest.raises(RunInputMismatchError):
            await engine.submit(2, "s")
        assert (await engine.submit(2, "s", run_id="next")).status == "submitted"
        assert (await engine.run(2, "s", run_id="next")).outputs == [4]


async def test_a_run_that_goes_on_elsewhere_is_told() -> None:
    """Under a live owner the same call is answered; another run of it is refused."""
    gate, store = Gate(), MemoryStore()

    async def node(value: int) -> int:
        await gate.stop()
        return value

    workflow = line("w", {"node": node}).build()
    async with running(workflow, store) as owner, running(workflow, store) as other:
        task = asyncio.create_task(owner.run(1, "s"))
        await gate.reached.wait()
        assert (await other.submit(1, "s")).status == "running"
        with pytest.raises(RunInputMismatchError):
            await other.submit(2, "s")
        with pytest.raises(RunUnfinishedError):
            await other.submit(2, "s", run_id="next")
        gate.open.set()
        assert (await task).outputs == [1]


async def test_a_session_that_somebody_holds_is_busy() -> None:
    """A session that is held and has no such run can take none."""
    store = MemoryStore()
    async with running(WORKFLOW, store) as engine:
        await engine.run(1, "s")
        for session in ("s", "fresh"):
            lease = (
                await store.claim(session, this_owner(store.clock), lease_s=30, create=True)
            ).lease
            with pytest.raises(SessionBusyError):
                await engine.submit(1, session, run_id="next")
            await store.release(lease)
            assert (await engine.submit(1, session, run_id="next")).status == "submitted"


async def test_many_callers_submit_one_run(place: str) -> None:
    """Eight at once on two engines: one entry, and each is told of it."""
    store = open_store(place)
    async with running(WORKFLOW, store) as one, running(WORKFLOW, store) as two:
        told = await asyncio.gather(*(engine.submit(1, "s") for engine in (one, two) * 4))
        assert {each.status for each in told} == {"submitted"}
        assert (await one.manager.head("s")).commit == 0


@pytest.mark.parametrize("how", ["resume", "stream", "recover"])
async def test_a_submitted_session_can_be_run_at_once(how: str) -> None:
    """`resume` and `stream` do not wait for its time; `recover` leaves it until then."""
    clock = ManualClock()
    async with running(WORKFLOW, MemoryStore(clock=clock)) as engine:
        await engine.submit(1, "s", at=clock.now() + 60)
        if how == "resume":
            assert (await engine.resume("s")).outputs == [3]
        elif how == "stream":
            events = [event.kind async for event in engine.stream(1, "s")]
            assert events[0] == "run_started"
        else:
            assert await engine.recover() == []
            clock.advance(61)
            assert [result.outputs for result in await engine.recover()] == [[3]]
        assert (await summary_of(engine)).status == "completed"


async def test_a_submitted_session_can_be_watched() -> None:
    """Who only watches sees it from its submission to its outcome."""
    async with running(WORKFLOW) as engine:
        await engine.submit(1, "s")

        async def watch() -> list[str]:
            return [event.kind async for event in engine.stream(session_id="s", after=0)]

        watching = asyncio.create_task(watch())
        await settle()
        assert not watching.done()
        await engine.resume("s")
        seen = await watching
        assert (seen[0], seen[-1]) == ("run_submitted", "outcome")


async def test_a_submitted_session_can_be_cancelled() -> None:
    """The outcome is final, and no node has run."""
    async with running(WORKFLOW) as engine:
        await engine.submit(1, "s", at=LATER)
        assert await engine.cancel("s") == "cancelled"
        assert (await summary_of(engine)).wake_at is None
        assert (await engine.submit(1, "s")).status == "cancelled"
        with pytest.raises(NothingToResumeError):
            await engine.resume("s")
        assert ledger == {}


async def test_what_is_asked_of_it_meanwhile_moves_neither_time_nor_queue() -> None:
    """A pin and an edit are commits of a submitted session: it stays submitted for its time."""
    async with running(WORKFLOW) as engine:
        await engine.submit(1, "s", at=LATER, queue="q")
        await engine.pin("s", 0)
        await engine.edit("s", lambda e: e.scope("desk").update("notes", {"a": 1}), reason="r")
        told = await summary_of(engine)
        assert (told.status, told.wake_at, told.queue) == ("submitted", LATER, "q")
        assert (await engine.run(1, "s")).outputs == [3]


async def test_a_fork_of_a_submitted_session_is_submitted() -> None:
    """For the same time, in the same queue; each runs on its own."""
    async with running(WORKFLOW) as engine:
        await engine.submit(1, "s", at=LATER, queue="q")
        await engine.fork("s", "t")
        told = await summary_of(engine, "t")
        assert (told.status, told.wake_at, told.queue) == ("submitted", LATER, "q")
        assert (await engine.run(1, "t")).outputs == [3]
        assert (await summary_of(engine)).status == "submitted"


async def test_the_queue_belongs_to_the_run() -> None:
    """A later run that somebody starts himself is not in the queue of the one before."""
    async with running(WORKFLOW) as engine:
        await engine.submit(1, "s", queue="q")
        await engine.run(1, "s")
        await engine.run(2, "s", run_id="next")
        assert (await summary_of(engine)).queue == "default"


async def test_what_could_not_be_saved_was_not_submitted() -> None:
    """A failed commit is told, and the same call again does it."""
    store = BrokenStore("commit", 1, StoreFullError("memory:", "full"))
    async with running(WORKFLOW, store) as engine:
        with pytest.raises(CommitError):
            await engine.submit(1, "s")
        assert [head async for head in engine.manager.heads()] == []
        assert (await engine.submit(1, "s")).status == "submitted"


async def test_a_kill_in_the_first_node_is_a_loss_and_not_a_new_beginning() -> None:
    """Taken up and lost, a submitted run is a running one: it goes on, and says so."""
    store, gate = VanishingStore(ManualClock()), Gate()

    async def node(value: int) -> int:
        if ledger.note("node") == 1:
            await gate.stop()
        return value

    async with running(line("w", {"node": node}).build(), store) as engine:
        await engine.submit(1, "s")
        task = asyncio.create_task(engine.resume("s"))
        await gate.reached.wait()
        await kill(task)
        assert wants_to_run(await summary_of(engine), store.clock.now())
        [result] = await engine.recover()
        assert (result.outputs, ledger["node"]) == ([1], 2)
        seen = kinds(await events_of(engine, "s"))
        assert seen[:4] == ["run_submitted", "taken_over", "run_started", "taken_over"]
        assert seen.count("run_started") == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queue": ""}, "queue"),
        ({"queue": "a=1"}, "queue"),
        ({"queue": 3}, "queue"),
        ({"queue": "x" * 101}, "queue"),
        ({"queue": "a\nb"}, "queue"),
        ({"at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001 - that is the matter
        ({"at": "2030-01-01"}, "UTC seconds"),
        ({"at": float("nan")}, "UTC seconds"),
        ({"at": 1e300}, "UTC seconds"),
        ({"at": True}, "UTC seconds"),
        ({"at": -1}, "UTC seconds"),
        ({"max_steps": 0}, "max_steps"),
        ({"run_id": ""}, "run_id"),
    ],
)
async def test_what_cannot_be_meant_is_refused(options: dict[str, Any], says: str) -> None:
    """By name, and nothing is kept of it."""
    async with running(WORKFLOW) as engine:
        with pytest.raises(ConfigurationError, match=says):
            await engine.submit(1, "s", **options)
        assert await engine.manager.store.scan() == []


async def test_a_time_zone_is_understood() -> None:
    """The same moment, however it is written."""
    async with running(WORKFLOW) as engine:
        moment = datetime(2030, 1, 1, tzinfo=UTC)
        await engine.submit(1, "a", at=moment)
        await engine.submit(1, "b", at=moment.astimezone(tz=None))
        await engine.submit(1, "c", at=moment.timestamp())
        await engine.submit(1, "d", at=moment - timedelta(0))
        wakes = {(await summary_of(engine, session)).wake_at for session in "abcd"}
        assert wakes == {1_893_456_000.0}


async def test_a_wrong_input_is_refused_when_it_is_submitted() -> None:
    """Not later, in a worker, where nobody waits for it."""
    async with running(WORKFLOW) as engine:
        with pytest.raises(PayloadTypeError):
            await engine.submit("one", "s")
        assert await engine.manager.store.scan() == []


async def test_nothing_can_be_left_where_nothing_is_kept() -> None:
    """Without checkpoints there is nobody who could find it."""
    async with running(WORKFLOW, checkpoints=CheckpointConfig.disabled()) as engine:
        with pytest.raises(ConfigurationError, match="disabled"):
            await engine.submit(1, "s")


async def test_a_session_of_another_workflow_is_refused() -> None:
    """Also when run and input would fit."""
    store = MemoryStore()
    other = line("other", {"a": counted, "b": adds_one}).build()
    async with running(WORKFLOW, store) as engine, running(other, store) as stranger:
        await engine.submit(1, "s")
        with pytest.raises(WorkflowMismatchError):
            await stranger.submit(1, "s")
        await engine.run(1, "s")
        with pytest.raises(WorkflowMismatchError):
            await stranger.submit(1, "s", run_id="next")
