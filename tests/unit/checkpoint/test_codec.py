"""Records: what was written is read, and no damaged byte is taken for data."""

import struct
from dataclasses import replace
from typing import Any

import msgpack
import pytest
import xxhash
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from raf.checkpoint import codec
from raf.checkpoint import delta as d
from raf.checkpoint.codec import (
    CHECKPOINT,
    EVENTS,
    FLAG_ZSTD,
    FORMAT,
    HEADER,
    JOURNAL,
    MAGIC,
    Envelope,
    EventsPart,
    decode_checkpoint,
    decode_events,
    decode_journal,
    encode_checkpoint,
    encode_events,
    encode_journal,
    seal,
    unseal,
)
from raf.checkpoint.delta import as_ops, merge
from raf.checkpoint.snapshot import Message, Output, Parked, Run, Slot, Snapshot, Suspension
from raf.errors import CorruptRecordError, FormatVersionError
from raf.events import Happening, Kind
from raf.state.ops import Delete, Extend, Set, Update

PATH = (("b>a", 2), ("c>c", 1))
MESSAGE = Message(4, "a", "b", PATH, (b"\x01",))
JOINED = Message(9, "a+b>c", "c", (), (b"\x01", b"\x02"), ("a", "b"))
HELD = Suspension(Message(5, "", "n", (), (b"\x03",)), "retry", 12.5, 2, (("k", b"d", b"v"),))
EVERY_OP: tuple[d.Op, ...] = (
    d.Graph("raf1:abc"),
    d.SetRun(Run("main", b"digest", "running", "why")),
    Set("node", "k", b"\xc0"),
    Set("node", "l", b"\x90"),
    Set("::shared \ud800\x00", "k", b"\x80"),
    Extend("node", "l", (b"\x01", b"\x02")),
    Update("::shared \ud800\x00", "k", ((b"\xa1a", b"\x01"),)),
    Delete("node", "k"),
    d.Send(MESSAGE),
    d.Send(JOINED),
    d.Take((4,)),
    d.Hold(("a+b>c", PATH), Slot("a", 6, b"\x01")),
    d.Fire(("a+b>c", PATH), ("b",)),
    d.Hold(("a+b>c", ()), Slot("b", 7, b"\x02")),
    d.Late(("a+b>c", PATH), ()),
    d.Emit(Output(3, "n", b"\x05")),
    d.Count(3, 12, 4, 100),
    d.Grant(("b>a", ()), 6),
    d.Park(Parked(10, "b>a", PATH, b"\x06")),
    d.Park(Parked(11, "b>a", PATH, b"\x06")),
    d.Unpark(10),
    d.Suspend(HELD),
    d.Wake(5),
    d.Suspend(replace(HELD, message=replace(HELD.message, number=8))),
    d.Keep(5, (b"\x07", b"\x08")),
    d.Pin(3),
    d.Pin(4),
    d.Unpin(4),
)
ENVELOPE = Envelope(commit=7, step=3, at=1_800_000_000.25, epoch=2, parent=b"p" * 16)
FULL = replace(
    ENVELOPE, session_id="s \u00e9", nonce="00ff" * 8, manifest={"a": [1]}, sent_at={9: 1.5, 4: 2.5}
)
EVENTS_PART = EventsPart(
    commit=7,
    run_id="main",
    step=3,
    at=5.0,
    events=(
        Happening(Kind.OUTPUT, "n", 4, {"a": 1}, b"\x01"),
        Happening(Kind.STEP_COMMITTED),
        Happening(Kind.DEAD_LETTER, "n", 4, {}, b"\x02"),
    ),
)


def checkpoint(part: bytes) -> Any:
    return decode_checkpoint(part, "s", "commit 7")


def rich() -> Snapshot:
    """A snapshot in which every part holds something."""
    snapshot = Snapshot()
    merge(snapshot, EVERY_OP, at=9.0)
    return snapshot


def test_every_operation_survives_a_delta() -> None:
    """A delta read back holds equal operations in equal order, and its envelope."""
    found = checkpoint(encode_checkpoint(ENVELOPE, EVERY_OP))
    assert found.ops == EVERY_OP
    assert (found.full, found.envelope, found.delta) == (False, ENVELOPE, None)


def test_a_full_holds_the_state_and_its_own_change() -> None:
    """Both lists of operations, the digest of the state, and all that makes it self-contained."""
    whole = tuple(as_ops(rich()))
    found = checkpoint(encode_checkpoint(FULL, EVERY_OP, whole=whole))
    assert (found.ops, found.delta, found.envelope) == (whole, EVERY_OP, FULL)
    assert found.digest == codec.ops_digest(whole)


def test_a_snapshot_is_its_operations() -> None:
    """Merged into an empty snapshot they make it again, and equal snapshots give equal bytes."""
    snapshot, twin = rich(), Snapshot()
    merge(twin, as_ops(snapshot), at=9.0)
    assert tuple(as_ops(twin)) == tuple(as_ops(snapshot))
    assert encode_checkpoint(FULL, (), whole=as_ops(twin)) == encode_checkpoint(
        FULL, (), whole=as_ops(snapshot)
    )
    for name in ("pending", "barriers", "late", "grants", "parked", "suspended", "woken", "pins"):
        assert getattr(twin, name) == getattr(snapshot, name)
        assert getattr(snapshot, name) or name == "late"


def test_a_payload_that_goes_to_many_is_stored_once() -> None:
    """A large payload sent to ten targets makes a record of about one."""
    payload = bytes(range(256)) * 40
    one = encode_checkpoint(ENVELOPE, [d.Send(replace(MESSAGE, payloads=(payload,)))])
    ten = encode_checkpoint(
        ENVELOPE,
        [
            d.Send(replace(MESSAGE, number=n, target=f"t{n}", payloads=(payload,)))
            for n in range(10)
        ],
    )
    assert len(ten) < len(one) + 500


def test_events_and_journal_survive() -> None:
    """Events and journal entries are read as they were written; no events are no bytes."""
    assert decode_events(encode_events(EVENTS_PART), "s", "events") == EVENTS_PART
    assert encode_events(replace(EVENTS_PART, events=())) == b""
    entry = ["result", 4, None, [b"\x00", "\ud800\x00"], {"a": 1.5}]
    assert decode_journal(encode_journal(entry), "s", "journal") == entry


PARTS = {
    "delta": (encode_checkpoint(ENVELOPE, EVERY_OP), checkpoint),
    "full": (encode_checkpoint(FULL, EVERY_OP, whole=as_ops(rich())), checkpoint),
    "events": (encode_events(EVENTS_PART), lambda part: decode_events(part, "s", "events")),
    "journal": (encode_journal(["result", 4]), lambda part: decode_journal(part, "s", "journal")),
    "long": (encode_journal(["result", "x" * 9000]), lambda p: decode_journal(p, "s", "journal")),
}


@pytest.mark.parametrize("kind", PARTS)
def test_a_flipped_bit_anywhere_is_found(kind: str) -> None:
    """Each bit of each byte: a typed error that names the record, never another value."""
    part, decode = PARTS[kind]
    for place in range(len(part)):
        for bit in range(0, 8, 1 if len(part) < 400 else 3):
            damaged = bytearray(part)
            damaged[place] ^= 1 << bit
            with pytest.raises((CorruptRecordError, FormatVersionError)):
                decode(bytes(damaged))


@pytest.mark.parametrize("kind", PARTS)
def test_a_cut_or_a_longer_part_is_found(kind: str) -> None:
    """Cut at any length, empty, or with bytes behind it."""
    part, decode = PARTS[kind]
    for length in range(len(part)):
        with pytest.raises(CorruptRecordError):
            decode(part[:length])
    for more in (b"\x00", part):
        with pytest.raises(CorruptRecordError):
            decode(part + more)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_record(data: bytes) -> None:
    """Whatever stands there, it is refused by a typed error, also behind a right frame."""
    for _, decode in PARTS.values():
        with pytest.raises((CorruptRecordError, FormatVersionError)):
            decode(data)
    for kind in (CHECKPOINT, EVENTS):
        with pytest.raises(CorruptRecordError):
            {CHECKPOINT: checkpoint, EVENTS: PARTS["events"][1]}[kind](seal(kind, data))


@given(
    st.recursive(
        st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=3) | st.binary(max_size=3),
        lambda inner: st.lists(inner, max_size=6),
        max_leaves=30,
    )
)
def test_a_well_framed_body_of_other_data_is_refused(body: Any) -> None:
    """Plain data that is no checkpoint under a right checksum is an error, not an exception."""
    packed = msgpack.packb([7, 3, 1.0, 2, b""]) + msgpack.packb(body)
    try:
        found = checkpoint(seal(CHECKPOINT, packed))
    except CorruptRecordError:
        return
    assert found.ops == ()


def test_parts_do_not_stand_in_for_each_other() -> None:
    """A journal record is no checkpoint, and so on, whatever its checksum says."""
    for kind, (part, _) in PARTS.items():
        for other, (_, decode) in PARTS.items():
            same = {kind, other} <= {"delta", "full"} or {kind, other} <= {"journal", "long"}
            if kind != other and not same:
                with pytest.raises(CorruptRecordError, match="place"):
                    decode(part)


def framed(version: int, kind: int, flags: int, stored: bytes, length: int) -> bytes:
    """A frame with a right checksum, whatever it says."""
    prefix = struct.pack(">3sBBBII", MAGIC, version, kind, flags, len(stored), length)
    checksum = xxhash.xxh3_64_intdigest(prefix + stored)
    return HEADER.pack(MAGIC, version, kind, flags, len(stored), length, checksum) + stored


def test_a_newer_format_says_so() -> None:
    """A record that a later version wrote is not called damaged: the remedy is an upgrade."""
    with pytest.raises(FormatVersionError, match="upgrade"):
        unseal(framed(FORMAT + 1, JOURNAL, 0, b"x", 1), JOURNAL, "s", "r")


def test_a_record_cannot_unpack_to_more_than_it_says() -> None:
    """A compressed body whose own header claims another size is refused before it is unpacked."""
    honest = zstandard.compress(b"\x00" * 1000)
    assert unseal(framed(FORMAT, JOURNAL, FLAG_ZSTD, honest, 1000), JOURNAL, "s", "r")[0]
    # magic, descriptor (8 bytes of size, single segment), a size of a tebibyte, an empty last block
    bomb = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40) + b"\x01\x00\x00"
    for stored, length in ((honest, 10), (honest, 1001), (bomb, 1000), (bomb, 1 << 31)):
        with pytest.raises(CorruptRecordError):
            unseal(framed(FORMAT, JOURNAL, FLAG_ZSTD, stored, length), JOURNAL, "s", "r")
    with pytest.raises(CorruptRecordError):
        unseal(framed(FORMAT, JOURNAL, 0, b"x" * 10, (1 << 30) + 1), JOURNAL, "s", "r")


def test_what_does_not_fit_its_snapshot_is_refused() -> None:
    """Operations of a foreign chain do not merge into something half right."""
    for op in (
        d.Take((99,)),
        d.Fire(("x", ()), ()),
        d.Unpark(3),
        d.Wake(3),
        Extend("n", "k", (b"\x01",)),
        Update("n", "k", ()),
    ):
        with pytest.raises((KeyError, TypeError, ValueError)):
            merge(Snapshot(), [op])
