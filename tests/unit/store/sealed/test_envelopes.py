"""What is bound to its place cannot stand in another; what is not sealed is not taken."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raf.errors import FormatVersionError, MissingKeyError, SealedRecordError
from raf.store.memory import MemoryStore
from raf.store.model import Lease, Reading, Record, Select, Summary
from raf.store.sealed import KeyRing, SealedStore
from raf.store.sealed.envelope import HEADER, OVERHEAD, parse
from raf.store.sqlite import SqliteStore
from raf.testing.store_suite.base import EVERYTHING, Pen, claim, must_read, new_session

RING = KeyRing({"2026-01": b"k" * 32}, current="2026-01")


class Tampered(MemoryStore):
    """A store whose records an attacker changes between a write and a read."""

    def __init__(self) -> None:
        super().__init__()
        self.change: Callable[[Reading], Reading] = lambda reading: reading

    async def read(self, session_id: str, select: Select) -> Reading | None:
        reading = await super().read(session_id, select)
        return reading and self.change(reading)


async def filled(inner: MemoryStore, ring: KeyRing = RING) -> SealedStore:
    """Two sessions, each with three commits, a journal of two epochs, and a request."""
    store = SealedStore(inner, ring)
    await store.open()
    for name in ("s", "t"):
        pen = await new_session(store, name, commits=2)
        await store.append(pen.lease, [b"secret one", b"secret two"])
        summary = Summary(workflow="w", status="failed", reason="secret reason")
        await pen.write(ends_journal=False, events=1, summary=summary)
        await store.release(pen.lease)
        heir = Pen(store, await claim(store, name), (await must_read(store, name)).head)
        await store.append(heir.lease, [b"secret three"])
        await store.request(name, "r", "secret kind", b"secret request")
    return store


async def raw(store: SealedStore, name: str = "s") -> Reading:
    """A session as it is stored."""
    reading = await store.inner.read(name, EVERYTHING)
    assert reading is not None
    return reading


async def test_nothing_readable_is_left() -> None:
    """Bodies, events, journal, requests with their kinds, and reasons are not in what is stored."""
    store = await filled(MemoryStore())
    told = repr(await raw(store))
    for words in ("secret", "body", "events 1"):
        assert words not in told.replace("events=", "").replace("body=", "").replace(
            "body_size", ""
        )
    opened = await must_read(store)
    assert [record.body for record in opened.chain] == [b"body 0", b"body 1", b"body 2"]
    assert opened.head.summary.reason == "secret reason"
    assert [(r.kind, r.body) for r in opened.requests] == [("secret kind", b"secret request")]


async def test_equal_parts_do_not_look_equal() -> None:
    """Two parts of the same bytes share no bytes when they are sealed."""
    store = await filled(MemoryStore())
    one, two = (await raw(store)).journal[0].body, (await raw(store, "t")).journal[0].body
    assert one[HEADER.size :] != two[HEADER.size :]
    found = [parse(part) for part in (one, two)]
    assert len({envelope.nonce for envelope in found if envelope}) == 2


def swapped(part: str, records: tuple[Record, ...], one: int, two: int) -> tuple[Record, ...]:
    """Records of which two exchange a part."""
    changed = list(records)
    changed[one] = replace(records[one], **{part: getattr(records[two], part)})
    changed[two] = replace(records[two], **{part: getattr(records[one], part)})
    return tuple(changed)


def exchanged(records: tuple[Record, ...], one: int, two: int) -> tuple[Record, ...]:
    """Records of which two exchange all their bytes."""
    return swapped("events", swapped("body", records, one, two), one, two)


MOVES: dict[str, Any] = {
    "commits exchanged": lambda r: replace(r, chain=exchanged(r.chain, 0, 1)),
    "events exchanged": lambda r: replace(r, events=swapped("events", r.events, 0, 1)),
    "journal exchanged": lambda r: replace(r, journal=exchanged(r.journal, 0, 1)),
    "journal of another epoch": lambda r: replace(r, journal=exchanged(r.journal, 1, 3)),
    "journal twice": lambda r: replace(
        r, journal=(r.journal[0], replace(r.journal[1], body=r.journal[0].body))
    ),
    "journal of the step before": lambda r: replace(
        r,
        chain=r.chain,
        journal=(replace(r.journal[0], info=replace(r.journal[0].info, position=9)),),
    ),
    "events as a body": lambda r: replace(
        r, chain=(replace(r.chain[0], body=r.chain[0].events), *r.chain[1:])
    ),
    "a body as events": lambda r: replace(
        r, events=(replace(r.events[0], events=r.events[0].body or b"x"), *r.events[1:])
    ),
    "a commit as another number": lambda r: replace(
        r, chain=(replace(r.chain[0], info=replace(r.chain[0].info, commit=5)),)
    ),
    "a commit of another epoch": lambda r: replace(
        r, chain=(replace(r.chain[0], info=replace(r.chain[0].info, epoch=2)),)
    ),
    "a commit that ended another run": lambda r: replace(
        r, chain=(replace(r.chain[0], info=replace(r.chain[0].info, run_id="other")),)
    ),
    "a delta as a full": lambda r: replace(
        r, chain=(replace(r.chain[1], info=replace(r.chain[1].info, full=True)),)
    ),
    "a plain body": lambda r: replace(r, chain=(replace(r.chain[0], body=b"body 0"),)),
    "plain events": lambda r: replace(r, events=(replace(r.events[0], events=b"events 0"),)),
    "a plain journal record": lambda r: replace(r, journal=(replace(r.journal[0], body=b"x"),)),
    "an empty journal record": lambda r: replace(r, journal=(replace(r.journal[0], body=b""),)),
    "a record cut off": lambda r: replace(
        r, chain=(replace(r.chain[0], body=r.chain[0].body[: OVERHEAD - 1]),)
    ),
    "another session of this name": lambda r: replace(r, head=replace(r.head, nonce="0" * 32)),
    "another session": lambda r: replace(r, head=replace(r.head, session_id="t")),
}


@pytest.mark.parametrize("move", MOVES)
async def test_what_is_not_in_its_place_is_refused(move: str) -> None:
    """A record that was moved, swapped or replaced by a plain one is refused, by name."""
    store = await filled(inner := Tampered())
    await must_read(store)
    inner.change = MOVES[move]
    with pytest.raises(SealedRecordError) as caught:
        await store.read("s", EVERYTHING)
    assert caught.value.session_id in ("s", "t")
    assert caught.value.record


@pytest.mark.parametrize("at", range(0, OVERHEAD + 4, 3))
async def test_a_flipped_bit_is_found(at: int) -> None:
    """Wherever a bit of an envelope is flipped, its bytes are not handed out."""
    store = await filled(inner := Tampered())

    def flip(reading: Reading) -> Reading:
        body = bytearray(reading.chain[0].body)
        body[at] ^= 1
        return replace(reading, chain=(replace(reading.chain[0], body=bytes(body)),))

    inner.change = flip
    with pytest.raises((SealedRecordError, MissingKeyError, FormatVersionError)):
        await store.read("s", EVERYTHING)


async def test_a_request_of_another_session_is_refused() -> None:
    """A request copied from another session does not open."""
    store = await filled(inner := Tampered())
    foreign = (await raw(store, "t")).requests
    inner.change = lambda reading: replace(
        reading, requests=tuple(replace(request, request_id="r2") for request in foreign)
    )
    with pytest.raises(SealedRecordError, match="request 'r2'"):
        await store.read("s", EVERYTHING)


async def test_a_request_that_nobody_with_a_key_wrote_blocks_nobody() -> None:
    """A plain request, and one of a former session of the name, arrive as of no known kind."""
    async with SealedStore(inner := MemoryStore(), RING) as store:
        pen = await new_session(store, commits=1)
        await store.request("s", "good", "cancel", b"main")
        await inner.request("s", "plain", "cancel", b"main")
        good, plain = (await must_read(store)).requests
        assert (good.kind, good.body) == ("cancel", b"main")
        assert (plain.kind, plain.body) == ("not sealed, where encryption is on", b"")
        replayed = (await raw(store)).requests[0]
        await store.delete(pen.lease)
        await new_session(store, commits=1)
        await inner.request("s", replayed.request_id, replayed.kind, replayed.body)
        [former] = (await must_read(store)).requests
        assert (former.kind, former.body) == ("sealed for a former session of this name", b"")


async def test_numbers_go_on_in_another_instance(tmp_path: Path) -> None:
    """A lease that another instance claimed is written on, and what it left stays in order."""
    path = tmp_path / "runs.db"
    async with SealedStore(SqliteStore(path), RING) as store:
        pen = await new_session(store, commits=1)
        await store.append(pen.lease, [b"one", b"two"])
        async with SealedStore(SqliteStore(path), RING) as other:
            await other.append(pen.lease, [b"three"])
            reading = await must_read(other)
            assert [record.body for record in reading.journal] == [b"one", b"two", b"three"]
            pen.store = other
            await pen.write()
            await other.append(pen.lease, [b"four"])
            assert [record.body for record in (await must_read(other)).journal] == [b"four"]


class Slow(MemoryStore):
    """A store whose journal waits at a gate, as one that is in the middle of a system call."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.gate = asyncio.Event(), asyncio.Event()

    async def append(self, lease: Lease, bodies: Sequence[bytes]) -> None:
        self.begun.set()
        await self.gate.wait()
        await super().append(lease, bodies)


async def test_a_cancelled_write_is_not_overtaken() -> None:
    """What a cancelled caller began is written before what comes next, and is known when it ends."""
    async with SealedStore(inner := Slow(), RING) as store:
        pen = await new_session(store, commits=1)
        first = asyncio.create_task(store.append(pen.lease, [b"one"]))
        await inner.begun.wait()
        first.cancel()
        second = asyncio.create_task(store.append(pen.lease, [b"two"]))
        await asyncio.sleep(0)
        assert not first.done()
        inner.gate.set()
        await asyncio.wait([first, second])
        assert first.cancelled()
        assert [record.body for record in (await must_read(store)).journal] == [b"one", b"two"]
