"""Large payloads, long inboxes and long histories, on every store."""

import asyncio
from typing import Any

import pytest

from raf import Context, LoopOptions, WorkflowBuilder
from raf.errors import CheckpointNotFoundError
from raf.store.model import Select
from raf.store.urls import open_store
from tests.servers.places import BACKENDS, backend_of
from tests.unit.engine.stage import Gate, events_of, line, passes, running, small_chains

MEGABYTE = 1_000_000
SLOW = (pytest.mark.slow, pytest.mark.timeout(900))
ALL_SLOW = pytest.mark.parametrize(
    "place", [pytest.param(name, marks=SLOW) for name in BACKENDS], indirect=True
)


@pytest.mark.parametrize("size", [MEGABYTE, pytest.param(20 * MEGABYTE, marks=SLOW)])
async def test_large_payloads(place: str, size: int) -> None:
    """In input, message, state, effect, output and event: what comes back is what went in."""
    # Not to be compressed away: every third byte is another one.
    data = bytes(number * number % 251 for number in range(4096)) * (size // 4096 + 1)

    async def node(ctx: Context, value: bytes) -> bytes:
        ctx.scope("s")["data"] = value
        same: bytes = await ctx.effect("get", passes_bytes, value)
        ctx.emit(same)
        return same

    workflow = line("w", {"node": node, "last": passes_bytes}).build()
    store = open_store(place)
    async with running(workflow, store) as engine:
        assert (await engine.run(data, "s")).outputs == [data]
    async with running(workflow, store) as engine:
        assert (await engine.run(data, "s")).outputs == [data]
        assert (await engine.state("s")).state_data["::s"]["data"] == data
        events = await events_of(engine, "s")
        assert [event.value for event in events if event.kind == "custom"] == [data]
        assert (await engine.manager.verify("s")).intact


async def passes_bytes(value: bytes) -> bytes:
    return value


@ALL_SLOW
async def test_ten_thousand_requests(place: str) -> None:
    """An inbox that was filled while a node ran is consumed whole, in order."""
    # The file store syncs each of them by itself, and a slow disk takes a while for so many.
    count, gate = 2_000 if backend_of(place) == "file" else 10_000, Gate()

    async def node(value: int) -> int:
        if not gate.open.is_set():
            await gate.stop()
        return value

    store = open_store(place)
    async with running(line("w", {"node": node, "last": passes}).build(), store) as engine:
        task = asyncio.create_task(engine.run(1, "s"))
        await gate.reached.wait()
        for first in range(0, count, 100):
            await asyncio.gather(
                *(store.request("s", f"r{n}", "signal", b"x") for n in range(first, first + 100))
            )
        gate.open.set()
        assert (await task).outputs == [1]
        # The last ones may have come after the engine's last look: then the next run takes them.
        assert (await engine.run(1, "s", run_id="next")).outputs == [1]
        reading = await store.read("s", Select(requests=True, inbox=True))
        assert reading is not None
        assert [request.seq for request in reading.inbox] == list(range(1, count + 1))
        assert (reading.head.requests, reading.head.consumed, reading.requests) == (
            count,
            count,
            (),
        )
        assert (await engine.manager.verify("s")).intact


async def notes(ctx: Context, value: int) -> int:
    """A node that counts on, and keeps the last few values."""
    ctx.scope("s")["last"] = value
    ctx.scope("s")[f"k{value % 7}"] = value
    return value + 1


def looping(times: int) -> Any:
    builder = WorkflowBuilder("w").add_node("n", notes).set_start("n")
    return builder.add_loop("n", "n", LoopOptions(times)).build()


@ALL_SLOW
async def test_five_thousand_commits(place: str) -> None:
    """Forked in the middle, pruned both ways, verified: all that is kept loads and both go on."""
    config = small_chains(interval=50, most=400)
    workflow = looping(5_000)
    store = open_store(place)
    async with running(
        workflow, store, checkpoints=config, durability="async", max_steps=10_000
    ) as engine:
        await engine.run(0, "origin", max_steps=4_000)
        middle = [i for i in await engine.history("origin") if i.byte_size][20].commit
        await engine.fork("origin", "fork", middle)
        assert (await engine.resume("origin", max_steps=10_000)).outputs == [5_000]
        await engine.prune("fork")
        await engine.prune("origin")
        assert (await engine.resume("fork", max_steps=10_000)).outputs == [5_000]
        for session in ("origin", "fork"):
            found = await engine.manager.verify(session)
            assert (found.intact, found.findings) == (True, ())
            history = await engine.history(session)
            kept = [info for info in history if info.byte_size]
            assert 300 < len(kept) < 600
            for info in kept[::40]:
                state = (await engine.state(session, info.commit)).state_data["::s"]
                assert state["last"] == info.step_number or info.step_number < 0
            with pytest.raises(CheckpointNotFoundError, match="pruned"):
                await engine.state(session, history[3].commit)
        head = await engine.manager.head("origin")
        assert (head.commit, len(await engine.history("origin"))) == (5_000 + 1, 5_002)
