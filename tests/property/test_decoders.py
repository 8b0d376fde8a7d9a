"""Whatever bytes a decoder gets, it answers with a value or an error of ours, and does nothing else."""

import io
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raf.checkpoint import codec, shapes
from raf.checkpoint.opcodes import ops_to_wire
from raf.errors import (
    CorruptRecordError,
    NotSerializableError,
    RafError,
    UndecodableError,
)
from raf.state.ops import Extend, Set
from raf.store import record
from raf.store.sqlite import rows
from raf.topology.saved import saved_workflow
from raf.values.codec import decode
from raf.values.plain import decode_plain
from raf.values.registry import TypeTable
from tests.property.decoders import DECODERS, ENVELOPE, FULL, packed

# There are many decoders: each gets a share of the examples.
FEWER = settings(max_examples=max(20, settings().max_examples // 3))
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([-1, 2**31, 2**53, 2**63, 2**64 - 1])
ATOMS = (
    st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=8) | st.binary(max_size=8)
)
KEYS = st.text(max_size=8) | NUMBERS | st.binary(max_size=4)
PLAIN = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=4)
)
# Headers that declare more than there is.
HUGE = st.sampled_from(
    [
        bytes([code]) + b"\xff" * size
        for code, size in (
            (0xDC, 2),
            (0xDD, 4),
            (0xDE, 2),
            (0xDF, 4),
            (0xC6, 4),
            (0xDB, 4),
            (0xC9, 4),
            (0xC4, 1),
        )
    ]
)


@st.composite
def mutated(draw: st.DrawFn, sample: bytes) -> bytes:
    """A sample with some of its bytes changed, taken out, doubled, or replaced."""
    data = bytearray(sample)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 6)))
        with_ = draw(
            st.binary(max_size=6) | HUGE | st.just(bytes(data[at:end]) * 2) | ATOMS.map(_packed)
        )
        data[at:end] = with_
    return bytes(data)


def _packed(value: Any) -> bytes:
    return packed([value])


@st.composite
def reshaped(draw: st.DrawFn, sample: bytes) -> bytes:
    """A sample of msgpack values in which some parts are other values."""
    values = list(
        msgpack.Unpacker(
            _stream(sample), strict_map_key=False, raw=False, unicode_errors="surrogatepass"
        )
    )
    for _ in range(draw(st.integers(1, 3))):
        _replace(values, draw)
    return packed(values)


def _stream(sample: bytes) -> Any:
    return io.BytesIO(sample)


def _replace(values: Any, draw: st.DrawFn) -> None:
    """Put another value somewhere into nested lists and maps."""
    while True:
        places = list(values) if isinstance(values, dict) else list(range(len(values)))
        if not places:
            return
        place = draw(st.sampled_from(places))
        inner = values[place]
        if not isinstance(inner, list | dict) or not inner or draw(st.integers(0, 3)) == 0:
            values[place] = draw(PLAIN)
            return
        values = inner


def answers(read: Callable[[bytes], object], data: bytes) -> None:
    """Decode; an error must be of our tree, and nothing may be imported, opened or run."""
    done: list[str] = []
    WATCH.append(done)
    try:
        read(data)
    except RafError:
        pass
    finally:
        WATCH.pop()
    assert done == []


WATCH: list[list[str]] = []
_DEEDS = (
    "import",
    "exec",
    "compile",
    "open",
    "os.",
    "subprocess.",
    "socket.",
    "ctypes.",
    "pickle.",
)
# Of a time zone only the database may be asked, and a pydantic zone is of pydantic's class.
_ALLOWED = ("tzdata", "pydantic_core", "zoneinfo", "importlib", "_zoneinfo")


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if WATCH and event.startswith(_DEEDS) and not any(word in repr(args) for word in _ALLOWED):
        WATCH[-1].append(f"{event} {args!r}")


sys.addaudithook(_audit)


@pytest.mark.parametrize("name", DECODERS)
def test_samples_are_read(name: str) -> None:
    """The samples are what the decoders read: else the other tests look at nothing."""
    for sample in DECODERS[name].samples:
        if name == "delta":  # alone it fits no session
            part = codec.seal(codec.CHECKPOINT, sample)
            assert codec.decode_checkpoint(part, "s", "r").ops
        else:
            DECODERS[name].read(sample)


@pytest.mark.parametrize("name", DECODERS)
@FEWER
@given(data=st.data())
def test_random_bytes(name: str, data: st.DataObject) -> None:
    """Bytes at random."""
    answers(DECODERS[name].read, data.draw(st.binary(max_size=200)))


@pytest.mark.parametrize("name", DECODERS)
@FEWER
@given(data=st.data())
def test_changed_records(name: str, data: st.DataObject) -> None:
    """Bytes of a valid record, changed in some places."""
    answers(
        DECODERS[name].read, data.draw(mutated(data.draw(st.sampled_from(DECODERS[name].samples))))
    )


@pytest.mark.parametrize("name", ["full", "delta", "events", "journal", "value"])
@FEWER
@given(data=st.data())
def test_other_values_in_valid_records(name: str, data: st.DataObject) -> None:
    """Valid msgpack of the right form in which some values are of another type or size."""
    sample = data.draw(st.sampled_from(DECODERS[name].samples))
    if name == "value":
        answers(DECODERS[name].read, packed([data.draw(PLAIN)]))
    else:
        answers(DECODERS[name].read, data.draw(reshaped(sample)))


@FEWER
@given(st.dictionaries(st.text(max_size=8), PLAIN), PLAIN)
@example({"topology": {}}, None)
def test_manifests(manifest: dict[str, Any], inner: Any) -> None:
    """The description of a graph, whatever it says."""
    form = {"name": "w", "start": "a", "nodes": inner, "edges": inner, "state": inner}
    for each in (manifest, {"topology": manifest}, {"topology": form}):
        answers(lambda _, each=each: saved_workflow(each), b"")  # type: ignore[misc]


CELLS = st.none() | NUMBERS | st.floats() | st.text(max_size=20) | st.binary(max_size=20)


@given(st.lists(CELLS, min_size=20, max_size=20), st.text(max_size=30) | PLAIN.map(str))
def test_rows_of_sqlite(cells: list[Any], text: str) -> None:
    """Columns of a row may hold anything, for SQLite lets them."""
    row = tuple(cells)
    good = (1, "s", "n", 1, 1, 0, 1, 0, 0, 1, 0, 0, 1.0, 1.0, "[]", None, None, None, "", 0)
    for each in (row, (*good[:14], text, text, *row[16:18], "", 0), (*row[:4], *good[4:])):
        answers(lambda _, each=each: rows.session_row(each), b"")  # type: ignore[misc]
        answers(lambda _, each=each: rows.claimable_row(each), b"")  # type: ignore[misc]
    key = 1 << 32 | 1
    answers(lambda _: rows.record_of((key, *row[:11]), "s"), b"")
    answers(lambda _: rows.info_of((key, *row[:9], 1, 1), "s"), b"")
    answers(lambda _: rows.request_of(row[:5], "s"), b"")
    answers(lambda _: rows.fence_of(row[:10], "s"), b"")


# -- limits ------------------------------------------------------------------------------------------


def bomb(length: int, byte: bytes = b"\x90") -> bytes:
    """A right frame whose data grow to a body of so many bytes."""
    packed_ = codec._ZSTD.compress(byte * length)
    prefix = codec._PREFIX.pack(
        codec.MAGIC, codec.FORMAT, codec.JOURNAL, codec.FLAG_ZSTD, len(packed_), length
    )
    checksum = xxhash.xxh3_64_intdigest(prefix + packed_)
    return prefix + checksum.to_bytes(8) + packed_


def test_a_body_that_grows_too_much_is_refused() -> None:
    """A small record cannot ask for much room: beyond a few MiB the ratio is limited."""
    with pytest.raises(CorruptRecordError, match="would grow from"):
        codec.decode_journal(bomb(codec.FREE_LENGTH * 4), "s", "r")


def test_what_is_written_can_be_read() -> None:
    """A body that would compress too well is stored as it is, and read."""
    text = "x" * (codec.FREE_LENGTH + 1)
    part = codec.encode_journal(["effect", text])
    assert len(part) > codec.FREE_LENGTH
    assert codec.decode_journal(part, "s", "r") == ["effect", text]
    shorter = codec.encode_journal(["effect", text[: 1 << 20]])
    assert len(shorter) < 1 << 16


def test_a_body_that_is_too_long_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no reader takes is refused by the writer."""
    monkeypatch.setattr(codec, "MAX_BODY", 1000)
    with pytest.raises(NotSerializableError, match="more than the 1000"):
        codec.encode_journal(["effect", "x" * 1000])


def test_a_longer_body_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A length beyond the longest body is damage."""
    monkeypatch.setattr(codec, "MAX_BODY", 10)
    with pytest.raises(CorruptRecordError, match="does not fit its place"):
        codec.decode_checkpoint(FULL, "s", "r")


def test_too_many_items_are_neither_written_nor_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """One list or map of a record has a greatest count, on both sides."""
    part = codec.encode_checkpoint(ENVELOPE, [Extend("a", "k", (b"\x01",) * 50)])
    monkeypatch.setattr(shapes, "MAX_ITEMS", 40)
    monkeypatch.setattr(codec, "MAX_ITEMS", 40)
    with pytest.raises(CorruptRecordError, match="max_array_len"):
        codec.decode_checkpoint(part, "s", "r")
    with pytest.raises(NotSerializableError, match="more than a record holds"):
        ops_to_wire([Extend("a", "k", (b"\x01",) * 41)])
    with pytest.raises(NotSerializableError, match="more than a record holds"):
        ops_to_wire([Set("a", str(n), b"") for n in range(21)])


def test_numbers_have_a_greatest_one() -> None:
    """A number beyond what a float holds exactly is damage, and so is one below -1."""
    for number in (shapes.MAX_NUMBER + 1, -2, 1.0, True, "1"):
        body = packed([[number, 0, 1.0, 1, b""], [[]]])
        with pytest.raises(CorruptRecordError, match="no checkpoint"):
            codec.decode_checkpoint(codec.seal(codec.CHECKPOINT, body), "s", "r")


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_a_body_has_a_greatest_depth() -> None:
    """Plain data in a part may not be nested deeper than the limit."""
    good = codec.seal(codec.JOURNAL, packed([["k", nested(shapes.MAX_DEPTH - 1)]]))
    assert codec.decode_journal(good, "s", "r")[0] == "k"
    bad = codec.seal(codec.JOURNAL, packed([["k", nested(shapes.MAX_DEPTH + 1)]]))
    with pytest.raises(CorruptRecordError, match="nested deeper"):
        codec.decode_journal(bad, "s", "r")


@pytest.mark.parametrize("head", [b"\x91", b"\x81\xc0", b"\x92\xd4\x01\x01"])
def test_a_value_has_a_greatest_depth(head: bytes) -> None:
    """However deep a value pretends to be, no stack overflows."""
    for read in (lambda d: decode(d, TypeTable()), decode_plain):
        with pytest.raises(UndecodableError):
            read(head * 100_000 + b"\xc0")


def test_clear_fields_have_a_greatest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clear fields of a file may not be longer than the limit."""
    file = record.pack(record.Content.LEASE, {"session": "s", "more": "x" * 100})
    monkeypatch.setattr(record, "MAX_META", 50)
    with pytest.raises(CorruptRecordError, match="more than 50"):
        record.unpack(file, record.Content.LEASE, "s", "r")


def test_a_zone_leads_nowhere_else() -> None:
    """The name of a time zone in a value is no path and no module."""
    for key in (
        b"../../etc/passwd",
        b"/etc/passwd",
        b"a.b",
        b"UTC\x00",
        b"",
        b"a//b",
        b"__main__.x",
    ):
        stamp = bytes(12) + b"Z" + key
        value = msgpack.packb(msgpack.ExtType(4, b"\x07\xe8\x01\x01" + stamp[4:]))
        answers(lambda d: decode(d, TypeTable()), value)
        with pytest.raises(UndecodableError):
            decode(value, TypeTable())


def test_hostile_bytes_take_little_memory() -> None:
    """Where a process may have 2 GiB, every answer is an error of ours, and little was taken."""
    script = """
        import contextlib, resource, struct
        from raf.errors import RafError
        from tests.property.decoders import DECODERS
        from tests.property.test_decoders import bomb

        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        bombs = [bomb(length) for length in (1 << 22, 1 << 26)]
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        before = peak()
        count = 1 << 20
        for code in (0xDC, 0xDD, 0xDE, 0xDF, 0xC6, 0xDB, 0xC9):
            head = bytes([code])
            head += struct.pack(">I", count) if code not in (0xDC, 0xDE) else b"\\xea\\x60"
            for body in (head + bytes(count), head * 400 + bytes(count), head * 1000):
                for name in ("full", "delta", "events", "journal", "record file", "value"):
                    with contextlib.suppress(RafError):
                        DECODERS[name].read(body)
        for data in bombs:
            with contextlib.suppress(RafError):
                DECODERS["journal part"].read(data)
        print(peak() - before)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    unit = 1 if sys.platform == "linux" else 1024  # what the system counts in
    assert int(ran.stdout) // unit < 400 * 1024, "KiB"
