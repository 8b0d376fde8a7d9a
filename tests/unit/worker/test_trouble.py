"""Nothing that goes wrong ends a worker, and no session is lost to it."""

import logging
from typing import Any

import pytest

from raf import Context, Worker
from raf.errors import (
    StoreClosedError,
    StoreError,
    StoreReplacedError,
    StoreUnavailableError,
)
from raf.store.memory import MemoryStore
from raf.store.model import Claimed, Due, Owner, Reading, Select
from raf.testing import ManualClock
from tests.unit.engine.stage import (
    BrokenStore,
    Gate,
    Ledger,
    adds_one,
    events_of,
    line,
    running,
    until,
)
from tests.unit.worker.floor import (
    QUICK,
    TWO_STEPS,
    at_work,
    heads,
    held,
    stand,
    statuses,
    time_passes,
)

# -- errors ----------------------------------------------------------------------------------------


async def test_a_failed_run_is_an_outcome() -> None:
    """It is told once and not taken up again by anybody but a caller."""
    ledger, store = Ledger(), MemoryStore()

    async def node(value: int) -> int:
        ledger.note("node")
        raise ValueError("no")

    workflow = line("w", {"node": node}).build()
    async with running(workflow, store) as engine:
        await engine.submit(1, "s")
        worker = Worker([workflow], store, **QUICK)
        async with at_work(worker):
            await stand(store, "failed")
            await engine.submit(1, "t")
            await stand(store, "failed", "failed")
        assert (ledger["node"], worker.outcomes) == (2, {"failed": 2})


async def test_a_session_that_cannot_go_on_is_put_aside_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Others are run meanwhile; it is tried again later and later, and once more when mended."""
    clock = ManualClock()

    class Damaged(MemoryStore):
        tries = 0
        damaged = False

        async def read(self, session_id: str, select: Select) -> Reading | None:
            if self.damaged and session_id == "bad" and select.chain:
                self.tries += 1
                raise StoreUnavailableError("memory:", "a damaged page")
            return await super().read(session_id, select)

    store = Damaged(clock=clock)
    async with running(TWO_STEPS, store) as engine:
        await engine.submit(1, "bad")
        await engine.submit(1, "good")
        store.damaged = True
        worker = Worker([TWO_STEPS], store)
        with caplog.at_level(logging.ERROR, logger="raf.worker"):
            await worker.run(once=True)
            assert await statuses(store) == {"bad": "submitted", "good": "completed"}
            for _ in range(100):
                clock.advance(1)
                await worker.run(once=True)
        assert 5 <= store.tries <= 8
        assert caplog.text.count("'bad'") == 1
        assert "a damaged page" in caplog.text
        assert await held(store) == []
        store.damaged = False
        clock.advance(300)
        await worker.run(once=True)
        assert (await statuses(store))["bad"] == "completed"


async def test_a_store_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """Told in the log, with growing waits; what was running stays resumable; the worker goes on."""
    clock = ManualClock(auto_advance=True)

    class Away(MemoryStore):
        asked = 0

        async def claim_due(
            self, owner: Owner, due: Due, *, lease_s: float, limit: int
        ) -> list[Claimed]:
            self.asked += 1
            if 2 <= self.asked <= 6:
                raise StoreUnavailableError(self.url, "away")
            return await super().claim_due(owner, due, lease_s=lease_s, limit=limit)

    store = Away(clock=clock)
    async with running(TWO_STEPS, store) as engine:
        await engine.submit(1, "a")
        before = clock.monotonic()
        with caplog.at_level(logging.WARNING, logger="raf.worker"):
            async with at_work(Worker([TWO_STEPS], store, concurrency=1)):
                await until(lambda: store.asked > 6)
                await engine.submit(1, "b")
                await stand(store, "completed", "completed")
        assert clock.monotonic() - before > 3
        told = [record.message for record in caplog.records if "cannot be asked" in record.message]
        assert len(told) == 5
        assert "away" in told[0]
        assert caplog.text.count("answers again") == 1


async def test_a_session_whose_lease_could_not_be_given_back_is_given_back_later() -> None:
    """A store that is away at the end of a run does not keep the session until its lease ends."""
    store = BrokenStore("release", 2, StoreUnavailableError("memory:", "away"))
    async with running(TWO_STEPS, store) as engine:
        await engine.submit(1, "s")
        await Worker([TWO_STEPS], store).run(once=True)
        assert (await statuses(store), await held(store)) == ({"s": "completed"}, [])


async def test_a_fault_of_a_listener_ends_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """What `on_outcome` raises is told in the log; the sessions are done."""
    store = MemoryStore()

    def listen(_result: Any) -> None:
        raise ValueError("no listener")

    async with running(TWO_STEPS, store) as engine:
        for session in "ab":
            await engine.submit(1, session)
        await Worker([TWO_STEPS], store, on_outcome=listen).run(once=True)
        assert await statuses(store) == {"a": "completed", "b": "completed"}
        assert "no listener" in caplog.text


@pytest.mark.parametrize(
    "error",
    [StoreReplacedError("memory:", "another took its place"), StoreClosedError("memory:")],
    ids=lambda error: type(error).__name__,
)
async def test_a_store_that_only_opening_helps_ends_the_worker(error: StoreError) -> None:
    """Asking again could not help: whoever looks after it begins it anew."""

    class Gone(MemoryStore):
        async def claim_due(
            self, owner: Owner, due: Due, *, lease_s: float, limit: int
        ) -> list[Claimed]:
            raise error

    with pytest.raises(type(error)):
        await Worker([TWO_STEPS], Gone(), **QUICK).run()


async def test_what_is_put_aside_is_told_to_the_caller() -> None:
    """With the error; a listener that fails ends nobody."""
    told: list[tuple[str, Exception]] = []

    def listen(session_id: str, error: Exception) -> None:
        told.append((session_id, error))
        raise ValueError("no listener")

    class Damaged(MemoryStore):
        damaged = False

        async def read(self, session_id: str, select: Select) -> Reading | None:
            if self.damaged:
                raise StoreUnavailableError(self.url, "a damaged page")
            return await super().read(session_id, select)

    store = Damaged()
    async with running(TWO_STEPS, store) as engine:
        await engine.submit(1, "s")
        store.damaged = True
        await Worker([TWO_STEPS], store, on_aside=listen).run(once=True)
    assert [name for name, _ in told] == ["s"]


# -- leases ----------------------------------------------------------------------------------------


async def test_a_replaced_worker_drops_its_session_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Frozen past its lease: its late result is refused, and it takes the next session."""
    clock, ledger, gate = ManualClock(), Ledger(), Gate()
    store = MemoryStore(clock=clock)

    async def node(value: int) -> int:
        if ledger.note("node") == 1:
            await gate.stop()
        return value

    workflow = line("w", {"node": node, "last": adds_one}).build()
    async with running(workflow, store) as engine:
        await engine.submit(1, "s")
        frozen = Worker([workflow], store, **QUICK)
        async with at_work(frozen):
            await gate.reached.wait()
            clock.advance(31)
            await Worker([workflow], store).run(once=True)
            assert await statuses(store) == {"s": "completed"}
            before = (await heads(store))["s"].commit
            gate.open.set()
            await until(lambda: not frozen.running)
            await engine.submit(1, "t")
            await time_passes(clock, lambda: frozen.outcomes.total() == 1)
            assert await statuses(store) == {"s": "completed", "t": "completed"}
        assert frozen.outcomes == {"completed": 1}
        assert "'s' is dropped" in caplog.text
        assert (await heads(store))["s"].commit == before
        assert ledger["node"] == 3


async def test_a_late_success_outside_is_reported_as_in_doubt() -> None:
    """The slow owner acted and lost its lease: the heir does not repeat it and says why."""
    clock, ledger, gate = ManualClock(), Ledger(), Gate()
    store = MemoryStore(clock=clock)

    async def pay() -> str:
        ledger.note("paid")
        await gate.stop()
        return "receipt"

    async def node(ctx: Context, value: int) -> str:
        return str(await ctx.effect("pay", pay, on_doubt="fail"))

    workflow = line("w", {"node": node}).build()
    async with running(workflow, store) as engine:
        await engine.submit(1, "s")
        slow = Worker([workflow], store, **QUICK)
        async with at_work(slow):
            await gate.reached.wait()
            clock.advance(31)
            await Worker([workflow], store).run(once=True)
            gate.open.set()
            await until(lambda: not slow.running)
        [outcome] = [e for e in await events_of(engine, "s") if e.kind == "outcome"]
        assert outcome.data["status"] == "failed"
        assert "doubt" in outcome.data["reason"]
        assert (ledger["paid"], slow.outcomes) == (1, {})


async def test_it_asks_for_nothing_that_it_has_in_hand() -> None:
    """With its own lease run out, a worker does not begin the session a second time."""
    clock, ledger, gate = ManualClock(), Ledger(), Gate()
    store = MemoryStore(clock=clock)

    async def node(value: int) -> int:
        ledger.note("node")
        await gate.stop()
        return value

    workflow = line("w", {"node": node}).build()
    asked: list[Due] = []
    ask = store.claim_due

    async def listened(owner: Owner, due: Due, *, lease_s: float, limit: int) -> list[Claimed]:
        asked.append(due)
        return await ask(owner, due, lease_s=lease_s, limit=limit)

    store.claim_due = listened  # type: ignore[method-assign]
    async with running(workflow, store) as engine:
        await engine.submit(1, "s")
        async with at_work(Worker([workflow], store, **QUICK)):
            await gate.reached.wait()
            clock.advance(31)
            before = len(asked)
            await time_passes(clock, lambda: len(asked) > before + 1)
            assert all("s" in due.skip for due in asked[before:])
            gate.open.set()
            await stand(store, "completed")
        assert ledger["node"] == 1


async def test_what_it_has_in_hand_counts_for_a_limit_without_a_lease() -> None:
    """With its leases run out while it runs on, it takes no more of that queue than the limit."""
    clock, ledger, gate = ManualClock(), Ledger(), Gate()
    store = MemoryStore(clock=clock)

    async def node(value: int) -> int:
        ledger.note("node")
        await gate.stop()
        return value

    workflow = line("w", {"node": node}).build()
    async with running(workflow, store) as engine:
        for name in ("a", "b", "c", "d"):
            await engine.submit(1, name, queue="q")
        queues = {"default": None, "q": 2}
        async with at_work(Worker([workflow], store, queues=queues, **QUICK)) as worker:
            await until(lambda: ledger["node"] == 2)
            clock.advance(31)
            await engine.submit(1, "other")
            await time_passes(clock, lambda: ledger["node"] > 2)
            assert worker.running == {"a", "b", "other"}
            gate.open.set()
            await time_passes(clock, lambda: not worker.running)
