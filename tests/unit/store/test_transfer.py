"""Moving sessions: lossless between all embedded stores, of one moment, and never half."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raf import CheckpointConfig, Context, Workflow, WorkflowEngine
from raf.errors import (
    ConfigurationError,
    CorruptRecordError,
    SessionExistsError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from raf.failpoint import set_hook
from raf.store.memory import MemoryStore
from raf.store.model import Reading, Select
from raf.store.port import Store
from raf.store.transfer import copy_session, dump, load, whole
from raf.store.urls import open_store
from tests.unit.engine.stage import BACKENDS, Ledger, collects, events_of, fan, passes, url_of

CONFIG = CheckpointConfig(full_snapshot_interval=2, max_checkpoints=3)
FAULTY = 5


def files_in(folder: Path) -> list[str]:
    """The names of what is in a folder."""
    return [path.name for path in folder.iterdir()]


async def each(*names: str) -> AsyncIterator[str]:
    """The names, as an export asks for them."""
    for name in names:
        yield name


def workflow(ledger: Ledger) -> Workflow:
    """A fan of two with effects; one arm fails on 5 until the ledger says that it is mended."""

    def arm(name: str) -> Callable[[Context, int], Any]:
        async def work(ctx: Context, value: int) -> int:
            ctx.scope("seen")[name] = value

            def act() -> str:
                ledger.note(f"{name} acts on {value}")
                ledger.note(f"key {ctx.idempotency_key('act')}")
                return ctx.idempotency_key("act")

            await ctx.effect("act", act)
            if name == "b" and value == FAULTY and not ledger["mended"]:
                raise ValueError("not yet")
            return value + 1

        return work

    return fan("moving", passes, {name: arm(name) for name in "ab"}, collects).build()


async def live(store: Store, ledger: Ledger) -> WorkflowEngine:
    """Session `s` has many finished runs, pruned chains, a pin, and a failed run; `t` is done."""
    engine = WorkflowEngine(workflow(ledger), store, checkpoints=CONFIG)
    await engine.open()
    for run in range(4):
        await engine.run(10 + run, "s", run_id=f"run {run}")
    await engine.prune("s", events_before=10)
    await engine.pin("s", (await engine.manager.head("s")).commit)
    assert (await engine.run(FAULTY, "s", run_id="last", check=False)).status == "failed"
    await engine.run(1, "t")
    return engine


@pytest.mark.parametrize("target", BACKENDS)
@pytest.mark.parametrize("source", BACKENDS)
async def test_a_half_finished_session_goes_on_elsewhere(
    source: str, target: str, tmp_path: Path
) -> None:
    """Export, import, go on: no effect is repeated, numbers go on, and results are remembered."""
    ledger, file = Ledger(), tmp_path / "x.raf"
    here = open_store(url_of(source, tmp_path / "here"))
    there = open_store(url_of(target, tmp_path / "there"))
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(here)
        engine = await live(here, ledger)
        events = await events_of(engine, "s", after=20)
        before = await whole(here, "s")
        moved = await dump(here, each("s", "t"), file)
        assert (moved.sessions, moved.damaged) == (("s", "t"), ())
        await engine.close()
        await stack.enter_async_context(there)
        assert (await load(there, file)).sessions == ("s", "t")
        after = await whole(there, "s")
        assert after == replace(before, head=replace(before.head, held=None))
        ledger["mended"] = 1
        async with WorkflowEngine(workflow(ledger), there, checkpoints=CONFIG) as engine:
            assert (await engine.manager.verify("s")).intact
            assert await events_of(engine, "s", after=20) == events
            assert (await engine.run(13, "s", run_id="run 3")).outputs == [[14, 14]]
            assert (await engine.resume("s")).outputs == [[6, 6]]
            assert [ledger[f"{name} acts on {FAULTY}"] for name in "ab"] == [1, 1]
            last = (await events_of(engine, "s", after=events[-1].number or 0))[0]
            assert last.number == (events[-1].number or 0) + 1
            assert (await engine.run(20, "s", run_id="new")).status == "completed"
            assert (await engine.manager.verify("s")).intact
        assert {count for key, count in ledger.items() if key.startswith("key ")} == {1}


async def test_copy_session_is_direct() -> None:
    """From store to store without a file; one that is there is not touched."""
    ledger = Ledger()
    async with MemoryStore() as here, MemoryStore() as there:
        engine = await live(here, ledger)
        copied = await copy_session(here, there, "s")
        assert (await whole(there, "s")).log == copied.log
        with pytest.raises(SessionExistsError):
            await copy_session(here, there, "s")
        with pytest.raises(SessionNotFoundError):
            await copy_session(here, there, "nobody")
        await engine.close()


async def test_sessions_that_are_there_are_refused_or_skipped(tmp_path: Path) -> None:
    """One is there: nothing is imported; with `skip_existing` the others are, and it is untouched."""
    ledger, file = Ledger(), tmp_path / "x.raf"
    async with MemoryStore() as here, MemoryStore() as there:
        engine = await live(here, ledger)
        await dump(here, each("s", "t"), file)
        await copy_session(here, there, "t")
        kept = await whole(there, "t")
        with pytest.raises(SessionExistsError, match="'t'"):
            await load(there, file)
        assert await there.read("s", Select()) is None
        moved = await load(there, file, skip_existing=True)
        assert (moved.sessions, moved.skipped) == (("s",), ("t",))
        assert await whole(there, "t") == kept
        await engine.close()


async def test_an_interrupted_import_goes_on(tmp_path: Path) -> None:
    """The store fails after the first session: it is whole, and the same call brings the rest."""

    class Failing(MemoryStore):
        left = 1

        async def adopt(self, session: Reading) -> None:
            if self.left == 0:
                raise StoreUnavailableError(self.url, "gone")
            self.left -= 1
            await super().adopt(session)

    ledger, file = Ledger(), tmp_path / "x.raf"
    async with MemoryStore() as here, Failing() as there:
        engine = await live(here, ledger)
        await dump(here, each("t", "s"), file)
        with pytest.raises(StoreUnavailableError):
            await load(there, file)
        assert await there.read("s", Select()) is None
        there.left = 9
        assert (await load(there, file, skip_existing=True)).sessions == ("s",)
        await engine.close()


async def test_a_damaged_session_is_left_out_by_name(tmp_path: Path) -> None:
    """What cannot be read whole is not in the file; what is damaged inside moves as it is."""
    ledger, file = Ledger(), tmp_path / "x.raf"
    async with MemoryStore() as here, MemoryStore() as there:
        engine = await live(here, ledger)
        session = here._sessions["t"]
        session.head = replace(session.head, requests=2)
        commits = here._sessions["s"].commits
        torn = commits[-1]
        commits[-1] = replace(torn, body=torn.body[:-1] + b"?")
        moved = await dump(here, each("s", "t", "gone"), file)
        assert moved.sessions == ("s",)
        [(name, error)] = moved.damaged
        assert name == "t"
        assert isinstance(error, CorruptRecordError)
        assert "request 1 to 2" in str(error)
        await load(there, file)
        async with WorkflowEngine(workflow(ledger), there) as other:
            assert not (await other.manager.verify("s")).intact
        await engine.close()


async def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """One that is there is never replaced; a killed export leaves none; a bad place is told."""
    ledger, file = Ledger(), tmp_path / "x.raf"
    async with MemoryStore() as here:
        engine = await live(here, ledger)
        file.write_bytes(b"mine")
        with pytest.raises(ConfigurationError, match="there already"):
            await dump(here, each("s"), file)
        assert file.read_bytes() == b"mine"

        async def killed() -> AsyncIterator[str]:
            yield "s"
            raise asyncio.CancelledError

        with suppress(asyncio.CancelledError):
            await dump(here, killed(), tmp_path / "half.raf")
        with pytest.raises(StoreUnavailableError, match="nowhere"):
            await dump(here, each("s"), tmp_path / "nowhere" / "x.raf")
        assert files_in(tmp_path) == ["x.raf"]
        with pytest.raises(ConfigurationError, match="no file"):
            await load(here, tmp_path / "missing.raf")
        await engine.close()


class KilledError(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(
    ("point", "there"),
    [("sync.before", 0), ("sync.after", 0), ("publish.before", 0), ("publish.after", 1)],
)
async def test_an_export_that_is_killed_leaves_no_half(
    point: str, there: int, tmp_path: Path
) -> None:
    """Ended at any point, the file has its name and is whole, or there is none of that name."""
    ledger, file = Ledger(), tmp_path / "x.raf"

    def end(name: str) -> None:
        if name == f"store.export.{point}":
            raise KilledError

    async with MemoryStore() as here, MemoryStore() as other:
        engine = await live(here, ledger)
        set_hook(end)
        try:
            with pytest.raises(KilledError):
                await dump(here, each("s"), file)
        finally:
            set_hook(None)
        assert [name for name in files_in(tmp_path) if name == "x.raf"] == ["x.raf"] * there
        if there:
            assert (await load(other, file)).sessions == ("s",)
        await engine.close()


async def test_an_export_during_writes_holds_what_was_acknowledged(
    place: str, tmp_path: Path
) -> None:
    """Each export is of one moment, never older than the last answer before it, and whole."""
    ledger = Ledger()
    async with open_store(place) as store, MemoryStore() as there:
        async with WorkflowEngine(workflow(ledger), store, checkpoints=CONFIG) as engine:
            await engine.run(0, "s", run_id="0")

            async def go_on() -> None:
                for run in range(1, 8):
                    await engine.run(run, "s", run_id=str(run))
                    ledger["acknowledged"] = run

            ledger["mended"] = 1
            writing = asyncio.ensure_future(go_on())
            taken: list[Path] = []
            while not writing.done():
                known, file = ledger["acknowledged"], tmp_path / f"{len(taken)}.raf"
                assert (await dump(store, each("s"), file)).sessions == ("s",)
                taken.append(file)
                async with MemoryStore() as copy:
                    await load(copy, file)
                    reading = await copy.read("s", Select(run=str(known)))
                    assert reading is not None
                    assert reading.run is not None
                    async with WorkflowEngine(workflow(ledger), copy) as looking:
                        assert (await looking.manager.verify("s")).intact
            await writing
            await dump(store, each("s"), tmp_path / "last.raf")
        await load(there, tmp_path / "last.raf")
        assert (await whole(there, "s")).log == (await whole(store, "s")).log
