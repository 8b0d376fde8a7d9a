"""A repair never makes an effect happen again unasked: what is over stays over, the rest waits."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from raf import CheckpointConfig, Context, Workflow, WorkflowEngine
from raf.errors import NothingToResumeError, RunFailedError
from raf.store.due import wants_to_run
from raf.store.memory import MemoryStore
from raf.store.model import Due
from tests.unit.checkpoint.test_damage import change
from tests.unit.engine.stage import Ledger, line, passes, running

BACKENDS = ("memory", "sqlite")


def shop(ledger: Ledger, *, fails: bool = False) -> Workflow:
    """An order is read, paid and sent; the last step may fail until it is mended."""

    async def pay(ctx: Context, order: int) -> int:
        await ctx.effect("pay", lambda: ledger.note("paid"))
        return order

    async def send(order: int) -> str:
        if fails and not ledger["mended"]:
            raise ValueError("no parcel")
        return f"order {order} is sent"

    return line("shop", {"read": passes, "check": passes, "pay": pay, "send": send}).build()


class Place:
    """A store of one kind, and how a checkpoint's body is lost in it."""

    def __init__(self, backend: str, folder: Path) -> None:
        self.path = folder / "runs.db"
        self.store: Any = MemoryStore()
        if backend == "sqlite":
            self.store = f"sqlite:{self.path}?synchronous=normal"

    def lose(self, commit: int) -> None:
        """The body of this commit of session s says nothing any more."""
        if isinstance(self.store, MemoryStore):
            change(self.store, "s", commit, body=b"")
            return
        with closing(sqlite3.connect(self.path)) as connection, connection:
            done = connection.execute(
                "UPDATE records SET body = x'' WHERE commit_number = ?", (commit,)
            )
            assert done.rowcount == 1

    @asynccontextmanager
    async def engine(self, workflow: Workflow, **options: Any) -> AsyncIterator[WorkflowEngine]:
        """An engine over it, with one chain only."""
        config = CheckpointConfig(full_snapshot_interval=100)
        async with running(workflow, self.store, checkpoints=config, **options) as engine:
            yield engine


async def due(engine: WorkflowEngine) -> list[str]:
    """The sessions that a worker of this graph would take now."""
    asked = Due(fingerprints=frozenset({engine.workflow.fingerprint}), queues={"default": None})
    found = await engine.manager.store.claim_due(engine.machine.owner, asked, lease_s=30, limit=9)
    for claimed in found:
        await engine.manager.store.release(claimed.lease)
    return [claimed.lease.session_id for claimed in found]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_a_finished_session_stays_finished(backend: str, lost: int, tmp_path: Path) -> None:
    """Its record is readable: nobody goes on with it, nothing is paid again, the answer stands."""
    place, ledger = Place(backend, tmp_path), Ledger()
    async with place.engine(shop(ledger)) as engine:
        first = await engine.run(7, "s")
        place.lose(lost)
        plan = await engine.manager.repair("s")
        assert (plan.commit, plan.status, plan.again) == (lost - 1, "completed", ())
        assert plan.lost.runs == ()
        done = await engine.manager.repair("s", apply=True, reason="r", backup=tmp_path / "b.raf")
        assert done.left == ()
        head = await engine.manager.head("s")
        assert head.summary.status == "completed"
        assert f"commit {lost - 1}" in head.summary.reason
        assert await due(engine) == []
        with pytest.raises(NothingToResumeError):
            await engine.resume("s")
        assert (await engine.run(7, "s")).outputs == first.outputs
        assert ledger["paid"] == 1
        assert (await engine.run(8, "s", run_id="next")).outputs == ["order 8 is sent"]
        assert ledger["paid"] == 2


@pytest.mark.parametrize("backend", BACKENDS)
async def test_an_unfinished_session_waits_for_a_caller(backend: str, tmp_path: Path) -> None:
    """Its lost steps are named and run again only when somebody resumes it."""
    place, ledger = Place(backend, tmp_path), Ledger()
    async with place.engine(shop(ledger, fails=True)) as engine:
        with pytest.raises(RunFailedError):
            await engine.run(7, "s")
        place.lose(2)
        plan = await engine.manager.repair("s")
        assert (plan.commit, plan.status) == (1, "failed")
        assert (plan.again[:2], plan.nodes) == ((1, 2), ("check", "pay"))
        done = await engine.manager.repair("s", apply=True, reason="r", backup=tmp_path / "b.raf")
        assert done.left == ()
        head = await engine.manager.head("s")
        assert head.summary.status == "failed"
        assert head.summary.reason.startswith("repaired: lost steps 1..")
        assert not wants_to_run(head.summary, 1e12)
        assert await due(engine) == []
        assert ledger["paid"] == 1
        ledger["mended"] = 1
        assert (await engine.resume("s")).outputs == ["order 7 is sent"]
        assert ledger["paid"] == 2  # asked for, under the same idempotency key
        assert (await engine.manager.verify("s")).intact


@pytest.mark.parametrize(("lost", "again"), [(1, (0, 1, 2)), (2, (1, 2)), (3, (2,))])
async def test_steps_of_a_commit_that_is_gone_are_those_between(
    lost: int, again: tuple[int, ...], tmp_path: Path
) -> None:
    """The record is gone with its step number: not the step before it runs again, but its own."""
    place, ledger = Place("sqlite", tmp_path), Ledger()
    async with place.engine(shop(ledger, fails=True)) as engine:
        with pytest.raises(RunFailedError):
            await engine.run(7, "s")
        with closing(sqlite3.connect(place.path)) as file, file:
            file.execute("DELETE FROM records WHERE commit_number = ?", (lost,))
        plan = await engine.manager.repair("s")
        assert (plan.commit, plan.again) == (lost - 1, again)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_an_engine_that_was_told_to_goes_on_at_once(backend: str, tmp_path: Path) -> None:
    """`on_corrupt="last-intact"` is asked for beforehand; a finished run is not gone on with."""
    place, ledger = Place(backend, tmp_path), Ledger()
    async with place.engine(shop(ledger, fails=True), on_corrupt="last-intact") as engine:
        with pytest.raises(RunFailedError):
            await engine.run(7, "s")
        place.lose(2)
        ledger["mended"] = 1
        assert (await engine.resume("s")).status == "completed"
        assert ledger["paid"] == 2
        commit = (await engine.manager.head("s")).commit
        place.lose(commit)
        with pytest.raises(NothingToResumeError):
            await engine.resume("s")
        assert ledger["paid"] == 2
