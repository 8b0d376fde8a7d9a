"""The one way to the store: order, what waits for what, and what a cancelled caller leaves."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from raf.checkpoint.delta import Count
from raf.checkpoint.snapshot import Snapshot
from raf.checkpoint.writer import Committed, MemoryWriter, Prepared
from raf.engine.commits import Commits, Durability
from raf.errors import CommitError, StoreUnavailableError
from raf.events import Happening, Kind
from tests.unit.engine.stage import settle


class SlowWriter(MemoryWriter):
    """Each write stands still until it is let through; what is done is noted in order."""

    def __init__(self) -> None:
        super().__init__(Snapshot())
        self.done: list[str] = []
        self.waiting: list[asyncio.Event] = []
        self.error: Exception | None = None

    async def _turn(self, what: str) -> None:
        mine = asyncio.Event()
        self.waiting.append(mine)
        await mine.wait()
        if self.error is not None:
            raise self.error
        self.done.append(what)

    async def let_through(self) -> None:
        """Let the oldest write go on."""
        await settle()
        self.waiting.pop(0).set()
        await settle()

    async def write(self, prepared: Prepared) -> Committed:
        await self._turn(f"commit {prepared.committed.commit}")
        return prepared.committed

    async def append(self, entries: Sequence[Sequence[Any]]) -> None:
        await self._turn("journal " + " ".join(str(entry[0]) for entry in entries))


def commits_of(durability: Durability) -> tuple[Commits, SlowWriter, list[int]]:
    writer, shown = SlowWriter(), []

    async def now() -> float:
        return 7.0

    commits = Commits(writer, durability, lambda c: shown.append(c.commit), now)
    return commits, writer, shown


HAPPENED = [Happening(Kind.STEP_COMMITTED)]
COUNTED = [Count(0, 1, 0, 0)]


async def test_records_that_wait_together_go_in_one_write() -> None:
    """While one write is out, entries gather; they go together, in order."""
    commits, writer, _ = commits_of("sync")
    first = asyncio.create_task(commits.record(["a"]))
    await settle()
    others = [asyncio.create_task(commits.record([name])) for name in "bcd"]
    await writer.let_through()
    assert first.done()
    await writer.let_through()
    await asyncio.gather(*others)
    assert writer.done == ["journal a", "journal b c d"]


async def test_a_cancelled_caller_takes_no_record_of_another_with_it() -> None:
    """The task whose turn it was to write is cancelled: what others wait for is written all the same."""
    commits, writer, _ = commits_of("sync")
    first = asyncio.create_task(commits.record(["first"]))
    await settle()
    hasty, patient = (asyncio.create_task(commits.record([n])) for n in ("hasty", "patient"))
    await writer.let_through()
    hasty.cancel()
    await settle()
    assert hasty.cancelled()
    assert not patient.done()
    await writer.let_through()
    await asyncio.gather(first, patient)
    assert writer.done == ["journal first", "journal hasty patient"]


async def test_a_commit_waits_for_records_that_nobody_waits_for() -> None:
    """A journal record written in the background is durable before the next commit begins."""
    commits, writer, _ = commits_of("sync")
    commits.record_soon(["result"])
    step = asyncio.create_task(commits.step(COUNTED, HAPPENED))
    await settle()
    assert len(writer.waiting) == 1
    await writer.let_through()
    await writer.let_through()
    await step
    assert writer.done == ["journal result", "commit 0"]


@pytest.mark.parametrize(("durability", "ahead"), [("sync", 0), ("async", 1), ("exit", 9)])
async def test_how_far_steps_run_ahead(durability: Durability, ahead: int) -> None:
    """sync: no step ahead of the disk; async: one, bounded; exit: as many as there are."""
    commits, writer, shown = commits_of(durability)
    taken = 0

    async def steps() -> None:
        nonlocal taken
        for _ in range(9):
            await commits.step(COUNTED, HAPPENED)
            taken += 1

    task = asyncio.create_task(steps())
    await settle()
    assert taken == ahead
    assert shown == []
    if durability != "exit":
        await writer.let_through()
        assert (taken, shown) == (ahead + 1, [0])
    task.cancel()
    commits.abandon("s")
    await asyncio.gather(task, return_exceptions=True)


async def test_gathered_steps_become_one_commit_at_the_outcome() -> None:
    """Under "exit" the events of all steps are shown with the one commit, in order."""
    commits, writer, shown = commits_of("exit")
    for _ in range(3):
        await commits.step(COUNTED, HAPPENED)
    last = asyncio.create_task(commits.outcome([], [Happening(Kind.OUTCOME)]))
    await settle()
    assert shown == []
    await writer.let_through()
    await last
    assert (writer.done, shown) == (["commit 0"], [0])


@pytest.mark.parametrize("durability", ["async", "exit"])
async def test_everybody_who_asks_waits_for_the_commit_in_flight(durability: Durability) -> None:
    """Three ask for durability while one commit is out: none of them goes on before it is done."""
    commits, writer, _ = commits_of(durability)
    await commits.step(COUNTED, HAPPENED)
    asking = [asyncio.create_task(commits.flush()) for _ in range(3)]
    await settle()
    assert not any(task.done() for task in asking)
    asking[0].cancel()
    await settle()
    assert not any(task.done() for task in asking[1:])
    await writer.let_through()
    await asyncio.gather(*asking[1:])
    assert writer.done == ["commit 0"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_after_a_failed_write_nothing_more_is_written(durability: Durability) -> None:
    """The first failure is told to all who come after it; the store is asked no more."""
    commits, writer, shown = commits_of(durability)
    writer.error = CommitError("s", 0, "no room")

    async def some() -> None:
        await commits.step(COUNTED, HAPPENED)
        await commits.flush()

    task = asyncio.create_task(some())
    await writer.let_through()
    with pytest.raises(CommitError, match="no room"):
        await task
    for later in (commits.step([], []), commits.outcome([], []), commits.record(["x"])):
        with pytest.raises(CommitError, match="no room"):
            await later
    commits.record_soon(["x"])
    await settle()
    assert (writer.waiting, writer.done, shown) == ([], [], [])


async def test_a_failed_record_in_the_background_is_told_by_the_next_commit() -> None:
    """Nobody waits for the record of a finished node; its failure is not lost."""
    commits, writer, _ = commits_of("sync")
    writer.error = CommitError("s", 0, "no room")
    commits.record_soon(["result"])
    await writer.let_through()
    with pytest.raises(CommitError, match="no room"):
        await commits.step(COUNTED, HAPPENED)


async def test_an_abandoned_run_writes_no_more() -> None:
    """Stopped as by a kill: what was in flight is left alone, and later writes are refused."""
    commits, writer, _ = commits_of("async")
    await commits.step(COUNTED, HAPPENED)
    commits.record_soon(["result"])
    await settle()
    commits.abandon("s")
    await settle()
    with pytest.raises(CommitError, match="stopped"):
        await commits.record(["late"])
    assert writer.done == []


async def test_no_record_of_a_failed_batch_is_taken_for_durable() -> None:
    """Whatever the store raises, each record of the batch fails, and so does the next commit."""
    commits, writer, _ = commits_of("sync")
    first = asyncio.create_task(commits.record(["first"]))
    await settle()
    batch = [asyncio.create_task(commits.record([name])) for name in ("second", "third")]
    await writer.let_through()
    writer.error = OSError("gone")
    await writer.let_through()
    answers = await asyncio.gather(first, *batch, return_exceptions=True)
    assert answers[0] is None
    assert all(isinstance(answer, OSError | StoreUnavailableError) for answer in answers[1:])
    with pytest.raises(StoreUnavailableError, match="OSError: gone"):
        await commits.step(COUNTED, HAPPENED)
