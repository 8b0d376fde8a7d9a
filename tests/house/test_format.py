"""The page of the format is what the code writes: sizes, offsets, codes, fields."""

import enum
import re
import struct
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

import msgpack
import pytest

from raf.checkpoint import codec, delta, opcodes, shapes
from raf.checkpoint.codec import Envelope, EventsPart
from raf.checkpoint.restore import JournalEntry
from raf.checkpoint.snapshot import Message, Output, Parked, Run, Slot, Suspension
from raf.engine import result
from raf.engine.journal import read_journal
from raf.errors import UndecodableError
from raf.events import Happening, Kind
from raf.state import ops
from raf.store import record
from raf.store.sealed import envelope
from raf.store.sqlite import schema
from raf.values import codec as values
from raf.values import forms, scalars
from raf.values.registry import TypeTable, register_type
from tests.house.tables import Row, table, tables

PAGE = Path("docs/reference/checkpoint-format.md")


def layout(form: struct.Struct) -> list[tuple[int, int]]:
    """Offset and size of each field of a struct, in order."""
    order, codes = form.format[0], form.format[1:]
    fields: list[tuple[int, int]] = []
    digits = at = 0
    for code in codes:
        if code.isdigit():
            digits = digits * 10 + int(code)
            continue
        size = struct.calcsize(f"{order}{digits or 1}{code}")
        fields.append((at, size))
        digits, at = 0, at + size
    return fields


def fixed(rows: list[Row]) -> list[tuple[int, int]]:
    """Offset and size of the rows that have both as numbers."""
    pairs = [(row["offset"], row["size"]) for row in rows]
    return [(int(at), int(size)) for at, size in pairs if at.isdigit() and size.isdigit()]


def numbers(heading: str, first: str, column: str) -> dict[str, int]:
    """A table of names and numbers."""
    return {row[first]: int(row[column]) for row in table(PAGE, heading, first)}


def test_the_frame() -> None:
    """Offsets and sizes are those of the header, and a sealed part has its bytes there."""
    rows = {row["field"]: row for row in table(PAGE, "Frame", "offset")}
    assert fixed(list(rows.values())) == layout(codec.HEADER)
    assert int(rows["data"]["offset"]) == codec.HEADER.size

    body = b"x" * 300
    part = codec.seal(codec.EVENTS, body)

    def found(name: str) -> bytes:
        at = int(rows[name]["offset"])
        return part[at : at + int(rows[name]["size"])]

    assert found("magic") == b"RAF" == codec.MAGIC
    assert found("format") == bytes([codec.FORMAT]) == bytes([int(rows["format"]["meaning"])])
    assert found("part") == bytes([codec.EVENTS])
    assert found("flags") == bytes([codec.FLAG_ZSTD])
    assert int.from_bytes(found("stored length")) == len(part) - codec.HEADER.size
    assert int.from_bytes(found("body length")) == len(body)


def test_parts_flags_and_limits() -> None:
    """The numbers of parts and flags, and the limits, are those of the code."""
    assert numbers("Frame", "part", "number") == {
        "checkpoint": codec.CHECKPOINT,
        "events": codec.EVENTS,
        "journal": codec.JOURNAL,
    }
    assert numbers("Frame", "flag", "bit") == {"zstd": codec.FLAG_ZSTD, "full": codec.FLAG_FULL}
    assert numbers("Frame", "limit", "value") == {
        "longest body": codec.MAX_BODY,
        "compressed from": codec.COMPRESS_FROM,
        "free length": codec.FREE_LENGTH,
        "greatest ratio": codec.MAX_RATIO,
        "items": shapes.MAX_ITEMS,
        "greatest number": shapes.MAX_NUMBER,
        "deepest plain data": shapes.MAX_DEPTH,
    }


def unpacked(part: bytes, kind: int) -> list[Any]:
    """The msgpack values of a part's body."""
    body, _ = codec.unseal(part, kind, "s", "r")
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(body)
    return list(unpacker)


def test_the_envelope() -> None:
    """Each field stands at its place; the last ones are in full snapshots only."""
    told = {
        "commit": 3,
        "step": 2,
        "at": 4.5,
        "epoch": 7,
        "parent": b"p" * 16,
        "session_id": "s",
        "nonce": "0" * 32,
        "manifest": {"m": 1},
        "sent_at": {5: 6.5},
    }
    envelope = Envelope(**told)  # type: ignore[arg-type]
    wire = {**told, "nonce": bytes(16), "sent_at": [5, 6.5]}
    rows = table(PAGE, "Envelope", "place")
    assert [int(row["place"]) for row in rows] == list(range(len(rows)))

    delta_part = unpacked(codec.encode_checkpoint(envelope, []), codec.CHECKPOINT)
    full = unpacked(codec.encode_checkpoint(envelope, [], whole=[]), codec.CHECKPOINT)

    assert delta_part[0] == [wire[row["field"]] for row in rows if row["in"] == "all"]
    assert full[0] == [wire[row["field"]] for row in rows]
    assert (len(delta_part), len(full)) == (2, 3)


MESSAGE = Message(1, "a", "b", (("l", 2),), (b"\xc0",), ("a",))
OPERATIONS: list[delta.Op] = [
    ops.Set("a", "k", b"\xc0"),
    ops.Delete("a", "k"),
    ops.Extend("a", "k", (b"\xc0",)),
    ops.Update("a", "k", ((b"\xc0", b"\xc0"),)),
    delta.Send(MESSAGE),
    delta.Take((1, 2)),
    delta.Hold(("a+b>c", ()), Slot("a", 1, b"\xc0")),
    delta.Fire(("a+b>c", ()), ("b",)),
    delta.Late(("a+b>c", ()), ("b",)),
    delta.Emit(Output(0, "a", b"\xc0")),
    delta.Count(0, 2, 1, 10),
    delta.Grant(("a>b", ()), 3),
    delta.Park(Parked(1, "a>b", (), b"\xc0")),
    delta.Unpark(1),
    delta.Suspend(Suspension(MESSAGE, "retry", 1.0, 1, (("k", b"d", b"\xc0"),))),
    delta.Wake(1),
    delta.SetRun(Run("main", b"d", "running", "")),
    delta.Clear(),
    delta.Graph("raf1:0"),
    delta.Pin(1),
    delta.Unpin(1),
    delta.Keep(1, (b"r",)),
]


def fields(row: Row) -> list[str]:
    """The fields that a row names."""
    told = row["fields"].strip("`")
    return [name.strip() for name in told.split(",")] if told else []


def named(op: delta.Op) -> str:
    """The name of an operation, such as `set_run` for `SetRun`."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", type(op).__name__).lower()


def test_every_operation_has_its_row() -> None:
    """Names and codes are those that the code writes, and the samples cover every operation."""
    rows = table(PAGE, "Operations", "code")
    written = {named(op): opcodes.ops_to_wire([op])[1][0] for op in OPERATIONS}
    assert {row["operation"]: int(row["code"]) for row in rows} == written
    assert {type(op) for op in OPERATIONS} == {ops.Set, *(row.kind for row in opcodes.TABLE)}


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: type(op).__name__)
def test_the_fields_of_an_operation(op: delta.Op) -> None:
    """On the wire an operation is its code and the fields of its row."""
    rows = {int(row["code"]): fields(row) for row in table(PAGE, "Operations", "code")}
    _, (code, *wire) = opcodes.ops_to_wire([op])
    named = rows[code]
    assert wire if named else not wire
    if not (named and named[-1].endswith("…")):
        assert len(wire) == len(named)


def test_the_events() -> None:
    """The list of a commit's events, and each event in it, has the fields of its rows."""
    head, event = (
        rows
        for rows in tables_under("Events")
        if [int(row["place"]) for row in rows] == list(range(len(rows)))
    )
    happening = Happening(Kind.OUTPUT, "a", 1, {"d": 2}, b"\xc0")
    part = EventsPart(commit=1, run_id="main", step=0, at=2.5, events=(happening,))
    [told] = unpacked(codec.encode_events(part), codec.EVENTS)
    plain = {"commit": 1, "run_id": "main", "step": 0, "at": 2.5}
    assert told[:4] == [plain[row["field"]] for row in head[:4]]
    assert len(told) == len(head)
    wire = {"kind": 4, "node": "a", "message": 1, "data": {"d": 2}, "payload": b"\xc0"}
    assert told[4] == [[wire[row["field"]] for row in event]]


def tables_under(heading: str) -> Iterator[list[Row]]:
    """The tables below a heading."""
    return (rows for name, _, rows in tables(PAGE) if name == heading)


SAMPLES: dict[str, Any] = {
    "number": 1,
    "failures": 1,
    "at": 1.0,
    "error_type": "ValueError",
    "text": "t",
    "code": "",
    "key": "k",
    "digest": b"d",
    "result": b"\xc0",
    "number …": 1,
}


def test_the_journal() -> None:
    """The rows are the kinds of the code, and entries of these fields are understood."""
    rows = {row["kind"]: fields(row) for row in table(PAGE, "Journal", "kind")}
    assert set(rows) == {
        result.RESULT,
        result.FAILURE,
        result.EFFECT,
        result.INTENT,
        result.VOID,
        result.RESET,
    }
    assert len(result.result_to_wire(result.Result(number=1))) == 1 + len(rows["result"])
    for kind, names in rows.items():
        if kind != result.RESULT:
            entry = (kind, *(SAMPLES[name] for name in names))
            read_journal([JournalEntry(position=1, entry=entry)])
    for entry in (("effect", 1, "k"), ("failure", 1), ("another kind", 1)):
        with pytest.raises(UndecodableError, match="journal entry"):
            read_journal([JournalEntry(position=1, entry=entry)])


class Colour(enum.Enum):
    """A member of this class is a sample."""

    RED = 1


register_type(Colour)
MOMENT = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)
SINGLE: dict[str, Any] = {
    "INT": 1 << 80,
    "DECIMAL": Decimal("1.50"),
    "DATETIME": MOMENT.replace(tzinfo=None),
    "DATE": date(2026, 12, 1),
    "TIME": time(9, 30),
    "TIMEDELTA": timedelta(1),
    "UUID_": uuid.UUID(int=1),
    "PATH": PurePosixPath("a/b"),
    "ENUM": Colour.RED,
}
SIZES = {
    "FORM": 1,
    "DATETIME": scalars._STAMP.size,
    "DATE": scalars._DATE.size,
    "TIME": scalars._TIME.size,
    "TIMEDELTA": scalars._DELTA.size,
    "UUID_": scalars._UUID_BYTES,
    "PATH": len("P"),
}


def test_the_codes_of_values() -> None:
    """Codes and names are those of the code, and each sample is written under its code."""
    rows = table(PAGE, "Values", "code")
    named = {row["name"]: int(row["code"]) for row in rows}
    assert named == {name: getattr(scalars, name) for name in named}
    assert set(named.values()) == {*scalars.DECODERS, scalars.FORM, scalars.ENUM}
    assert set(SINGLE) == set(named) - {"FORM"}
    for name, sample in SINGLE.items():
        found = msgpack.unpackb(values.encode(sample, TypeTable()))
        assert found.code == named[name]


def test_the_fixed_parts_of_values() -> None:
    """The sizes are those of the code; without a zone nothing follows the fixed part."""
    rows = {row["name"]: row["bytes"] for row in table(PAGE, "Values", "code")}
    assert {name: int(size) for name, size in rows.items() if size} == SIZES
    for name in ("DATETIME", "DATE", "TIME", "TIMEDELTA", "UUID_"):
        found = msgpack.unpackb(values.encode(SINGLE[name], TypeTable()))
        assert len(found.data) == SIZES[name]
    with_zone = msgpack.unpackb(values.encode(MOMENT, TypeTable()))
    assert with_zone.data[SIZES["DATETIME"] :] == b"O" + bytes(8)
    assert scalars._OFFSET.size == len(bytes(8))


def test_the_forms() -> None:
    """The marks are those of the code."""
    rows = table(PAGE, "Values", "form")
    assert {bytes([int(row["form"])]): row["name"] for row in rows} == {
        byte: form.name for byte, form in forms.FORMS.items()
    }


def test_the_limits_of_values() -> None:
    """The limits are those of the code."""
    assert numbers("Values", "limit", "value") == {
        "longest value": values.MAX_BYTES,
        "deepest nesting": values.MAX_NESTING,
        "deepest reading": values.MAX_READING,
    }


def test_the_file_of_a_record() -> None:
    """Offsets and sizes are those of the code, and the checksum is the end of the file."""
    rows = table(PAGE, "The file of a record", "offset")
    assert fixed(rows) == layout(record.HEADER)
    assert [int(row["offset"]) for row in rows[:7]] == [
        record.MAGIC_AT,
        record.VERSION_AT,
        record.CONTENT_AT,
        record.META_LENGTH_AT,
        record.BODY_LENGTH_AT,
        record.EVENTS_LENGTH_AT,
        record.META_AT,
    ]
    assert rows[-1]["field"] == "checksum"
    assert int(rows[-1]["size"]) == record.CHECKSUM.size
    assert f"`{record.MAGIC.decode()}`" in rows[0]["meaning"]
    assert int(rows[1]["meaning"]) == record.VERSION
    assert numbers("The file of a record", "content", "number") == {
        content.name.lower(): int(content) for content in record.Content
    }


def test_the_limit_of_clear_fields() -> None:
    """It is the one of the code."""
    assert numbers("The file of a record", "limit", "value") == {"longest meta": record.MAX_META}


def test_a_sealed_part() -> None:
    """Offsets, sizes and numbers of an envelope are those of the code."""
    rows = table(PAGE, "A sealed part", "offset")
    assert fixed(rows) == layout(envelope.HEADER)
    assert int(rows[6]["offset"]) == envelope.HEADER.size
    assert int(rows[7]["size"]) == envelope.TAG
    assert int(rows[1]["meaning"]) == envelope.VERSION
    assert f"is {envelope.OVERHEAD} bytes longer" in PAGE.read_text("utf-8")
    parts = table(PAGE, "A sealed part", "envelope")
    assert {row["envelope"]: int(row["part"]) for row in parts} == {
        part.name.lower(): int(part) for part in envelope.Part
    }


def test_the_sqlite_file() -> None:
    """The two numbers by which a file is known are those of the code."""
    assert numbers("The SQLite file", "pragma", "value") == {
        "application_id": schema.APPLICATION_ID,
        "user_version": schema.FORMAT,
    }


def test_the_format_of_the_page() -> None:
    """The page says the number of the format in words too."""
    text = PAGE.read_text(encoding="utf-8")
    assert f"The record format is number {codec.FORMAT}." in text
