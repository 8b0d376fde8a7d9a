"""One session's whole life, told step by step: what a crash campaign of the file store interrupts.

Run as a program it tells the story to a store in a folder and prints a line after each step, so that
whoever kills it knows what was acknowledged: `python -m tests.crash.file_story FOLDER`.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raf.clock import Clock, SystemClock
from raf.store.file import FileStore
from raf.store.memory import MemoryStore
from raf.store.model import Kind, Lease, Reading, Select, Summary
from raf.store.port import Store
from raf.testing.clock import ManualClock
from raf.testing.crash import arm_from_environment
from raf.testing.store_suite.base import EVERYTHING, LEASE_S, Pen, live_owner

SESSION = "Story/1"

View = tuple[Any, ...] | None


@dataclass
class Hand:
    """What the teller holds between two steps."""

    store: Store
    clock: Clock
    pen: Pen | None = None
    whole: Reading | None = None

    @property
    def lease(self) -> Lease:
        assert self.pen is not None
        return self.pen.lease


Step = Callable[[Hand], Awaitable[None]]


async def view(store: Store) -> View:
    """All that can be read of the session, without what depends on who owned it how often."""
    reading = await store.read(SESSION, EVERYTHING)
    if reading is None:
        return None
    head = reading.head
    chains = []
    for at in range(head.commit + 1):
        older = await store.read(SESSION, Select(chain=True, at=at))
        assert older is not None
        chains.append(tuple((r.info.commit, r.body, r.events) for r in older.chain))
    run = await store.read(SESSION, Select(run="main"))
    assert run is not None
    return (
        ("head", head.commit, head.events, head.first_event, head.consumed, head.requests),
        ("summary", head.summary),
        ("chains", *chains),
        ("events", *((r.info.first_event, r.events) for r in reading.events)),
        ("infos", *((i.commit, i.body_size, i.events_size, i.run_id) for i in reading.infos)),
        ("journal", *(r.body for r in reading.journal if r.info.kind is Kind.JOURNAL)),
        ("inbox", *((r.seq, r.request_id, r.body) for r in reading.requests)),
        ("run", run.run and (run.run.info.commit, run.run.body, run.run.events)),
    )


def claim() -> Step:
    async def step(hand: Hand) -> None:
        owner = live_owner(hand.clock, hand.clock.new_id())
        claimed = await hand.store.claim(SESSION, owner, lease_s=LEASE_S, create=True)
        reading = await hand.store.read(SESSION, Select())
        assert reading is not None
        hand.pen = Pen(hand.store, claimed.lease, reading.head)

    return step


def commit(name: str, **changes: Any) -> Step:
    async def step(hand: Hand) -> None:
        assert hand.pen is not None
        summary = Summary(workflow="story", status="running", reason=name)
        draft = hand.pen.draft(commit_id=name, summary=summary, **changes)
        await hand.store.commit(hand.lease, draft)
        hand.pen.wrote(draft)

    return step


def append(*bodies: bytes) -> Step:
    async def step(hand: Hand) -> None:
        await hand.store.append(hand.lease, bodies)

    return step


def request(request_id: str) -> Step:
    async def step(hand: Hand) -> None:
        await hand.store.request(SESSION, request_id, "signal", request_id.encode())

    return step


def prune(*commits: int, before: int | None = None) -> Step:
    async def step(hand: Hand) -> None:
        reading = await hand.store.read(SESSION, Select(infos=True))
        assert reading is not None
        where = {info.commit: info.position for info in reading.infos}
        positions = [where[number] for number in commits if number in where]
        await hand.store.prune(hand.lease, positions, events_before=before)

    return step


async def renew(hand: Hand) -> None:
    assert await hand.store.renew([hand.lease]) == [True]


async def release(hand: Hand) -> None:
    await hand.store.release(hand.lease)


async def delete(hand: Hand) -> None:
    await hand.store.delete(hand.lease)


async def take_away(hand: Hand) -> None:
    """Keep all of the session, as an export does, and delete it."""
    hand.whole = await hand.store.read(SESSION, Select(log=True, inbox=True)) or hand.whole
    await hand.store.delete(hand.lease)


async def bring_back(hand: Hand) -> None:
    assert hand.whole is not None
    await hand.store.adopt(hand.whole)


async def scan(hand: Hand) -> None:
    for head in await hand.store.scan():
        failed = head.summary.status == "damaged" and "Errno" in head.summary.reason
        assert failed or head.summary.status in ("running", "new")


# Each step with the smaller steps that it may stop between, as a reader sees them.
STORY: list[tuple[Step, list[Step]]] = [
    (step, parts or [step])
    for step, parts in [
        (claim(), []),
        (commit("c0", events=2), []),
        (commit("c1"), []),
        (append(b"a"), []),
        (request("r1"), []),
        (commit("c2", consumed=1, events=0), []),
        (append(b"b", b"c"), [append(b"b"), append(b"c")]),
        (commit("c3", ends_journal=False), []),
        (request("r2"), []),
        (renew, []),
        (scan, []),
        (release, []),
        (claim(), []),
        (commit("c4", full=True, run_id="main"), []),
        (commit("c5", events=3), []),
        (commit("c6", full=True), []),
        (prune(3, 2, 1, 0), []),
        (append(b"d"), []),
        (prune(before=4), []),
        (prune(5, 4, before=7), [prune(before=7), prune(5, 4, before=7)]),
        (commit("c7"), []),
        (delete, []),
        (claim(), []),
        (request("r1"), []),
        (commit("d0"), []),
        (commit("d1", consumed=1), []),
        (release, []),
        (claim(), []),
        (take_away, []),
        (bring_back, []),
    ]
]

CLAIMS = [number for number, (step, _) in enumerate(STORY, start=1) if "claim" in step.__qualname__]


async def told() -> list[list[View]]:
    """What may be read after so many steps: the last of each list when the step was finished."""
    clock = ManualClock()
    views: list[list[View]] = [[None]]
    async with MemoryStore(clock=clock) as store:
        hand = Hand(store, clock)
        for _, parts in STORY:
            views.append([])
            for part in parts:
                await part(hand)
                views[-1].append(await view(store))
    return views


async def tell(store: Store, clock: Clock, done: Callable[[int], None]) -> None:
    """Tell the story; `done` learns of each step that was acknowledged."""
    async with store:
        hand = Hand(store, clock)
        for number, (step, _) in enumerate(STORY, start=1):
            await step(hand)
            done(number)


def main() -> None:
    arm_from_environment()
    clock = SystemClock()
    store = FileStore(Path(sys.argv[1]), clock=clock)
    asyncio.run(tell(store, clock, say))


def say(number: int) -> None:
    """Tell whoever listens, at once."""
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
