"""Workers whose machines' clocks are an hour off, on a store whose server has a clock of its own."""

import asyncio

import pytest

from raf import RetryPolicy, Worker
from raf.clock import SystemClock
from raf.errors import SessionBusyError
from raf.store.urls import open_store
from tests.servers.places import SERVERS_ONLY
from tests.unit.engine.stage import Gate, Ledger, adds_one, events_of, line, running

HOUR = 3600.0


class OffClock(SystemClock):
    """The clock of another machine, which somebody set wrong and which booted at another time."""

    def __init__(self, off_s: float) -> None:
        super().__init__()
        self._off_s = off_s
        self.boot_id = "another boot"

    def now(self) -> float:
        return super().now() + self._off_s

    def boot(self) -> float:
        return super().boot() / 2 + 100


@SERVERS_ONLY
@pytest.mark.parametrize("off_s", [HOUR, pytest.param(-HOUR, marks=pytest.mark.slow)])
async def test_what_is_due_is_the_servers_to_say(place: str, off_s: float) -> None:
    """Nothing runs before its time and nothing late; a live owner keeps its session; a retry is timed."""
    ledger, gate = Ledger(), Gate()

    async def node(value: int) -> int:
        ledger.note(str(value))
        if value == 1:
            await gate.stop()
        if value == 4 and ledger["4"] == 1:
            raise ValueError("once")
        return value

    retry = RetryPolicy(attempts=2, backoff_s=0.2, jitter="none")
    workflow = line("w", {"node": node, "last": adds_one}, retry=retry).build()
    wrong = open_store(place, clock=OffClock(off_s))
    async with running(workflow, place) as engine, running(workflow, wrong) as elsewhere:
        now = await engine.manager.store.now()
        assert abs(await wrong.now() - now) < 60
        held = asyncio.create_task(engine.run(1, "held"))
        await gate.reached.wait()
        await engine.submit(2, "due", at=now - 1)
        await engine.submit(3, "later", at=now + HOUR / 2)
        await elsewhere.submit(4, "fails once")
        await elsewhere.submit(5, "later too", at=now + HOUR / 2)
        await Worker([workflow], wrong).run(once=True)
        heads = {head.session_id: head async for head in engine.manager.heads()}
        assert {name: head.summary.status for name, head in heads.items()} == {
            "held": "running",
            "due": "completed",
            "later": "submitted",
            "later too": "submitted",
            "fails once": "completed",
        }
        with pytest.raises(SessionBusyError):
            await elsewhere.run(1, "held")
        gate.open.set()
        assert (await held).outputs == [2]
        assert ledger == {"1": 1, "2": 1, "4": 2}
        for name in ("due", "fails once", "held"):
            assert (await elsewhere.manager.verify(name)).intact
            assert all(abs(event.at - now) < 120 for event in await events_of(engine, name))
