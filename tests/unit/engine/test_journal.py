"""What is kept of a step that is cut off in the middle."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from raf import Context, WorkflowBuilder
from raf.checkpoint.restore import JournalEntry
from raf.engine.journal import read_journal
from raf.engine.result import (
    EFFECT,
    FAILURE,
    INTENT,
    RESET,
    VOID,
    Result,
    Sent,
    result_from_wire,
    result_to_wire,
)
from raf.errors import UndecodableError
from raf.events import Happening, Kind
from raf.state.ops import Write
from raf.store.memory import MemoryStore
from raf.store.transfer import dump, load
from raf.store.urls import open_store
from tests.unit.engine.stage import (
    Gate,
    Ledger,
    collects,
    events_of,
    fan,
    journal_of,
    kill,
    passes,
    running,
    until,
)

Node = Callable[[int], Awaitable[int]]


def worker(ledger: Ledger, name: str, gate: Gate | None = None, delay: float = 0.0) -> Node:
    """A node that counts its calls; the first of them stops at the gate."""

    async def node(value: int) -> int:
        first = ledger.note(name) == 1
        await asyncio.sleep(delay)
        if gate is not None and first:
            await gate.stop()
        return value * 10

    return node


@pytest.mark.parametrize("delay", [0.0, 0.02])
async def test_a_node_that_finished_beside_a_long_one_does_not_run_again(
    place: str, delay: float
) -> None:
    """Killed while one node runs on, the sibling that finished, soon or late, is not called again."""
    ledger, gate, store = Ledger(), Gate(), open_store(place)
    workers = {"quick": worker(ledger, "quick", delay=delay), "long": worker(ledger, "long", gate)}
    async with running(fan("w", passes, workers, collects).build(), store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        for _ in range(1000):
            if [e for e in await journal_of(store, "s") if e[0] == "result"]:
                break
            await asyncio.sleep(0.001)
        await kill(task)
        assert (await engine.run(1, "s")).outputs == [[10, 10]]
        assert ledger == {"quick": 1, "long": 2}


async def test_a_map_of_messages_keeps_what_is_done() -> None:
    """Five messages to one node, two done, one running, two that wait: three calls after a kill."""
    ledger, gate, store = Ledger(), Gate(), MemoryStore()

    async def start(ctx: Context, value: int) -> None:
        for number in range(5):
            ctx.send(number)

    async def work(ctx: Context, number: int) -> None:
        ledger.note(str(number))
        if number == 2 and ledger["2"] == 1:
            await gate.stop()
        ctx.output(number)

    builder = WorkflowBuilder("w").add_node("start", start).set_start("start")
    builder.add_node("work", work, max_concurrency=1).add_edge("start", "work")
    async with running(builder.build(), store) as engine:
        task = asyncio.create_task(engine.run(0, "s"))
        await gate.reached.wait()
        for _ in range(1000):
            if len([e for e in await journal_of(store, "s") if e[0] == "result"]) == 2:
                break
            await asyncio.sleep(0.001)
        await kill(task)
        before = (await engine.state("s")).pending_messages
        result = await engine.run(0, "s")
        assert len(before) == 5
        assert result.outputs == [0, 1, 2, 3, 4]
        assert ledger == {"0": 1, "1": 1, "2": 2, "3": 1, "4": 1}


async def test_messages_in_flight_come_back_once(place: str) -> None:
    """A session killed with three invocations in flight has three of them after it is taken up."""
    ledger, gate, store = Ledger(), Gate(), open_store(place)
    workers = {name: worker(ledger, name, gate) for name in "abc"}
    async with running(fan("w", passes, workers, collects).build(), store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await until(lambda: ledger.total() == 3)
        await kill(task)
        assert len((await engine.state("s")).pending_messages) == 3
        gate.open.set()
        assert (await engine.run(1, "s")).outputs == [[10, 10, 10]]
        assert ledger == {"a": 2, "b": 2, "c": 2}
        completed = [e for e in await events_of(engine, "s") if e.kind == "node_completed"]
        assert [(e.node, e.message) for e in completed] == [
            ("start", 1),
            ("a", 2),
            ("b", 3),
            ("c", 4),
            ("end", 8),
        ]


async def test_history_and_state_do_not_show_a_step_in_flight(place: str, tmp_path: Path) -> None:
    """All ways of looking at a half-finished step agree: what is done in it is kept, and not shown."""
    ledger, gate, store = Ledger(), Gate(), open_store(place)
    workers = {"a": worker(ledger, "a"), "b": worker(ledger, "b", gate)}
    async with running(fan("w", passes, workers, collects).build(), store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        for _ in range(1000):
            if [e for e in await journal_of(store, "s") if e[0] == "result"]:
                break
            await asyncio.sleep(0.001)
        head, last = await engine.manager.head("s"), (await engine.history("s"))[-1]
        state, named = await engine.state("s"), await engine.state("s", 1)
        assert head.commit == last.commit == 1
        assert (state.step_number, state.checkpoint_id) == (0, last.checkpoint_id)
        assert state == named
        assert [p["target"] for p in state.pending_messages] == ["a", "b"]
        assert await engine.manager.load_full_state("s") == (state, state.state_data)
        await dump(store, each("s"), tmp_path / "s.raf")
        await kill(task)
    async with MemoryStore() as copy:
        await load(copy, tmp_path / "s.raf")
        assert [e[1] for e in await journal_of(copy, "s") if e[0] == "result"] == [2]
        async with running(fan("w", passes, workers, collects).build(), copy) as engine:
            assert (await engine.history("s"))[-1] == last
            assert await engine.state("s") == state
            assert (await engine.run(1, "s")).outputs == [[10, 10]]
            assert ledger == {"a": 1, "b": 2}


async def each(*sessions: str) -> AsyncIterator[str]:
    for session in sessions:
        yield session


def full_result(number: int = 7) -> Result:
    return Result(
        number=number,
        sends=(Sent(b"\x01"), Sent(b"\x02", "target"), Sent(b"\x03", None, output=True)),
        outputs=(b"\x04",),
        writes=(
            Write("node", "k", "set", value=b"\x05"),
            Write("::shared", "l", "extend", items=(b"\x06", b"\x07")),
            Write("::shared", "m", "update", pairs=((b"\x08", b"\x09"),)),
            Write("node", "gone", "delete"),
            Write("::shared", "sum", "add", value=b"\x0a"),
        ),
        events=(Happening(Kind.CUSTOM, "node", number, {"a": 1}, b"\x0b"),),
        attempt=3,
        failures=2,
    )


def test_a_result_survives_the_journal() -> None:
    """A result read back from its journal entry equals the one that was written."""
    assert result_from_wire(result_to_wire(full_result())) == full_result()


def read(*entries: Any) -> Any:
    """Fold entries; a number stands for a claim that took over at that position."""
    return read_journal(
        JournalEntry(position=place, took_over=True)
        if entry == "claim"
        else JournalEntry(position=place, entry=tuple(entry))
        for place, entry in enumerate(entries, start=1)
    )


def failure(number: int, count: int) -> list[Any]:
    return [FAILURE, number, count, 10.0 * count, "ValueError", "no", ""]


@pytest.mark.parametrize(
    ("entries", "number", "expected"),
    [
        ([], 1, 0),
        (["claim"], 1, 1),
        (["claim", "claim", "claim"], 1, 3),
        (["claim", [EFFECT, 1, "k", b"d", b"v"]], 1, 0),
        (["claim", [EFFECT, 1, "k", b"d", b"v"], "claim"], 1, 1),
        (["claim", [EFFECT, 2, "k", b"d", b"v"], "claim"], 1, 2),
        (["claim", failure(1, 1), "claim"], 1, 2),
        (["claim", "claim", [RESET], "claim"], 1, 1),
    ],
)
def test_losses_count_from_the_last_durable_record(
    entries: list[Any], number: int, expected: int
) -> None:
    """A loss counts for each unfinished invocation since its last durable record or a reset."""
    assert read(*entries).losses(number) == expected


def test_failures_are_counted_from_their_records() -> None:
    """The count, the time of the first and the text of the last failure are known again."""
    step = read(failure(1, 1), failure(2, 1), failure(1, 2))
    assert step.failures == {1: 2, 2: 1}
    assert step.first_failure == {1: 10.0, 2: 10.0}
    assert step.last_failure[1].text == "no"


def test_a_reset_sets_both_counts_to_zero_and_keeps_what_is_done() -> None:
    """A failed run that a caller continues begins its counts anew; results and effects stay."""
    step = read(
        "claim",
        failure(1, 1),
        [EFFECT, 1, "k", b"d", b"v"],
        result_to_wire(full_result(2)),
        "claim",
        [RESET],
    )
    assert (step.failures, step.first_failure, step.losses(1)) == ({}, {}, 0)
    assert step.results[2] == full_result(2)
    assert step.effects_of(1)["k"].result == b"v"


def test_a_void_takes_results_back_and_leaves_effects() -> None:
    """Results that could not be applied are run again; what was done outside stays done."""
    step = read(
        result_to_wire(full_result(2)),
        result_to_wire(full_result(3)),
        [EFFECT, 2, "k", b"d", b"v"],
        [VOID, 2],
    )
    assert list(step.results) == [3]
    assert step.effects_of(2)["k"].result == b"v"


@pytest.mark.parametrize(
    ("entries", "in_doubt"),
    [
        ([[INTENT, 1, "k", b"d"]], True),
        ([[INTENT, 1, "k", b"d"], [EFFECT, 1, "k", b"d", b"v"]], False),
        ([[INTENT, 1, "k", b"d"], [INTENT, 1, "k", b""]], None),
        ([[INTENT, 1, "k", b"d"], [INTENT, 1, "k", b""], [INTENT, 1, "k", b"d"]], True),
    ],
)
def test_an_intent_without_a_result_is_in_doubt(entries: list[Any], in_doubt: bool | None) -> None:
    """Begun and not recorded is in doubt; recorded or withdrawn it is not."""
    record = read(*entries).effects_of(1).get("k")
    assert (None if record is None else record.result is None) == in_doubt


def test_an_unknown_entry_is_an_error() -> None:
    """An entry that this code does not know is never passed over."""
    with pytest.raises(UndecodableError, match="unknown"):
        read(["new kind", 1, "k", b""])
