"""Keys that change, keys that are missing, and sessions that move between plain and sealed stores."""

import logging
from dataclasses import replace

import pytest

from raf.checkpoint.codec import decode_checkpoint, decode_events, decode_journal
from raf.errors import CorruptRecordError, MissingKeyError, SealedRecordError
from raf.store.memory import MemoryStore
from raf.store.model import Kind, Reading, Select, Summary
from raf.store.port import Store
from raf.store.sealed import KeyRing, SealedStore, keys_in_use
from raf.testing import ManualClock
from raf.testing.store_suite.base import EVERYTHING, Pen, claim, must_read, new_session

EXPORT = Select(log=True, inbox=True)
FIRST = KeyRing({"2025": b"\x01" * 32}, current="2025")
BOTH = KeyRing({"2026": b"\x02" * 32, "2025": b"\x01" * 32}, current="2026")
SECOND = KeyRing({"2026": b"\x02" * 32}, current="2026")
WRONG = KeyRing({"2025": b"\x03" * 32}, current="2025")


async def fill(store: Store) -> Reading:
    """A session with commits, an open journal of two epochs, and requests."""
    pen = await new_session(store, commits=2)
    await store.append(pen.lease, [b"one"])
    failed = Summary(workflow="w", status="failed", reason="why")
    await pen.write(ends_journal=False, summary=failed)
    await store.release(pen.lease)
    lease = await claim(store)
    await store.append(lease, [b"two", b"three"])
    await store.request("s", "r", "cancel", b"main")
    await store.release(lease)
    return await must_read(store)


async def moved(source: Store, target: Store) -> None:
    """Copy a session as `copy_session` does."""
    await target.adopt(await must_read(source, select=EXPORT))


def content(reading: Reading) -> object:
    """What a session says, whatever its records weigh."""
    return (
        [(r.info.position, r.info.epoch, r.body) for r in reading.chain],
        [(r.info.position, r.info.kind, r.body) for r in reading.journal],
        [(r.info.first_event, r.events) for r in reading.events],
        reading.requests,
        replace(reading.head, held=None),
    )


async def test_an_old_key_opens_and_the_current_one_seals() -> None:
    """After a rotation the session goes on; its records are of two keys, and both are named."""
    async with MemoryStore(clock=ManualClock()) as inner:
        await fill(SealedStore(inner, FIRST))
        assert await keys_in_use(inner) == {"2025": 11}
        store = SealedStore(inner, BOTH)
        lease = await claim(store)
        await Pen(store, lease, (await must_read(store)).head).write()
        await store.release(lease)
        assert [record.body for record in (await must_read(store)).chain][-1] == b"body 3"
        used = await keys_in_use(store)
        assert used["2026"] == 3
        assert used["2025"] > 0
        with pytest.raises(MissingKeyError, match="'2025'") as caught:
            await SealedStore(inner, SECOND).read("s", EVERYTHING)
        assert caught.value.key == "2025"


async def test_after_compaction_and_pruning_the_old_key_is_not_used() -> None:
    """Nothing is sealed with a key whose records were all pruned, so it may go."""
    async with MemoryStore(clock=ManualClock()) as inner:
        first = SealedStore(inner, FIRST)
        old = await new_session(first, commits=3)
        await first.release(old.lease)
        store = SealedStore(inner, BOTH)
        lease = await claim(store)
        reading = await must_read(store)
        pen = Pen(store, lease, reading.head)
        await pen.write(full=True)
        await store.prune(
            lease,
            [info.position for info in reading.kept],
            events_before=reading.head.events + 1,
        )
        assert set(await keys_in_use(store)) == {"2026"}
        later = SealedStore(inner, SECOND)
        assert [record.body for record in (await must_read(later)).chain] == [b"body 3"]


async def test_copying_seals_anew() -> None:
    """A session that is copied from one ring to another is the same and uses only the new key."""
    clock = ManualClock()
    async with MemoryStore(clock=clock) as one, MemoryStore(clock=clock) as two:
        before = await fill(SealedStore(one, FIRST))
        target = SealedStore(two, SECOND)
        await moved(SealedStore(one, FIRST), target)
        assert content(await must_read(target)) == content(before)
        assert set(await keys_in_use(two)) == {"2026"}
        lease = await claim(target)
        await target.append(lease, [b"four"])
        assert (await must_read(target)).journal[-1].body == b"four"


async def test_plain_and_sealed_stores_exchange_sessions() -> None:
    """Into a sealed store a plain session goes sealed, and out of it plain again, nothing lost."""
    clock = ManualClock()
    plain, inner, back = (MemoryStore(clock=clock) for _ in range(3))
    async with plain, inner, back:
        before = await fill(plain)
        sealed = SealedStore(inner, FIRST)
        await moved(plain, sealed)
        assert content(await must_read(sealed)) == content(before)
        assert set(await keys_in_use(sealed)) == {"2025"}
        await moved(sealed, back)
        assert await must_read(back) == before


async def test_a_raw_copy_stays_sealed() -> None:
    """Copied beneath the sealed store, records stay as they are and open elsewhere under the ring."""
    clock = ManualClock()
    async with MemoryStore(clock=clock) as one, MemoryStore(clock=clock) as two:
        before = await fill(SealedStore(one, FIRST))
        await moved(one, two)
        assert await must_read(SealedStore(two, FIRST)) == before


async def test_without_keys_the_error_says_so() -> None:
    """Whoever reads sealed records as they are hears of encryption and the key, not of damage."""
    async with MemoryStore() as inner:
        await fill(SealedStore(inner, FIRST))
        reading = await must_read(inner)
        record = reading.chain[0]
        for decode, part in (
            (decode_checkpoint, record.body),
            (decode_events, record.events),
            (decode_journal, next(r.body for r in reading.journal if r.info.kind is Kind.JOURNAL)),
        ):
            with pytest.raises(MissingKeyError, match=r"encrypted with key '2025'.*RAF_KEYS"):
                decode(part, "s", "commit 0")


async def test_another_key_of_the_same_name_is_told() -> None:
    """The error of a wrong key names its id and holds none of its bytes."""
    async with MemoryStore() as inner:
        await fill(SealedStore(inner, FIRST))
        store = SealedStore(inner, WRONG)
        with pytest.raises(SealedRecordError, match="its key '2025' is another") as caught:
            await store.read("s", EVERYTHING)
        assert isinstance(caught.value, CorruptRecordError)
        assert "\\x03" not in repr(caught.value)


async def test_a_list_shows_what_it_cannot_open() -> None:
    """A list of sessions shows a reason that does not open as such; nothing else is held up."""
    async with MemoryStore() as inner:
        await fill(SealedStore(inner, FIRST))
        assert [head.summary.reason for head in await SealedStore(inner, FIRST).scan()] == ["why"]
        [head] = await SealedStore(inner, SECOND).scan()
        assert head.summary.status == "failed"
        assert "'2025'" in head.summary.reason
        pen = await new_session(inner, "plain", commits=1)
        await inner.release(pen.lease)
        plain = next(h for h in await SealedStore(inner, FIRST).scan() if h.session_id == "plain")
        assert plain.summary.reason == "(it is not sealed)"
        assert (await keys_in_use(inner))[""] == 2


async def test_keys_are_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """At any level, nothing of a key is logged."""
    caplog.set_level(logging.DEBUG)
    async with MemoryStore() as inner:
        await fill(SealedStore(inner, FIRST))
    assert repr(b"\x01" * 4)[2:-1] not in caplog.text
