"""Every decoder of stored bytes as a function of bytes, with samples of what it reads.

A decoder answers with a value or raises a `RafError`; whatever else it raises is a fault.  Most frames
have a checksum, which random bytes never fit: those decoders put a right frame around what they get.
"""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgpack
import xxhash
from pydantic import BaseModel

from raf.checkpoint import codec
from raf.checkpoint.codec import Envelope, EventsPart
from raf.checkpoint.delta import as_ops, merge
from raf.checkpoint.opcodes import ops_to_wire
from raf.checkpoint.restore import JournalEntry, replay, stored_events
from raf.checkpoint.snapshot import Snapshot
from raf.engine.journal import read_journal
from raf.engine.result import Failure, Result, Sent, result_to_wire
from raf.errors import RafError
from raf.events import Happening, Kind
from raf.state.cell import Cell
from raf.state.ops import Write
from raf.store.file import meta
from raf.store.model import Head, Reading, Record, RecordInfo, Request, Summary
from raf.store.model import Kind as RecordKind
from raf.store.order import new_head
from raf.store.record import CHECKSUM, HEADER, MAGIC, VERSION, Content, unpack
from raf.store.sealed import KeyRing, envelope, parts
from raf.store.sealed.cipher import Cipher
from raf.store.sealed.envelope import Part
from raf.topology.saved import saved_workflow
from raf.values.codec import decode, decode_shared, encode
from raf.values.plain import decode_plain
from raf.values.registry import TypeTable
from raf.values.spans import split_array, split_map
from tests.house.test_format import OPERATIONS, SINGLE

NONCE: Final = "ab" * 16
HEAD: Final = replace(new_head("s", NONCE, 1.0), epoch=1, commit=0, events=1)


@dataclass(frozen=True)
class Note:
    """A dataclass that the table knows."""

    text: str
    more: Any = None


class Pair(NamedTuple):
    """A named tuple that the table knows."""

    left: Any
    right: Any = 0


class Model(BaseModel):
    """A model that the table knows."""

    name: str
    parts: list[Any] = []


TYPES: Final = TypeTable.of(Note, Pair, Model)
CIPHER: Final = Cipher(KeyRing({"k": b"\x07" * 32}, current="k"))


@dataclass(frozen=True)
class Decoder:
    """A decoder, and bytes that it reads."""

    read: Callable[[bytes], object]
    samples: tuple[bytes, ...]


# -- checkpoints, events, journal ----------------------------------------------------------------------


def framed(kind: int, flags: int = 0) -> Callable[[bytes], bytes]:
    """Puts a right frame around a body."""
    return lambda body: codec.seal(kind, body, flags)


def read_checkpoint(part: bytes) -> object:
    """A checkpoint as restore reads it, and its state written again."""
    found = codec.decode_checkpoint(part, "s", "r")
    info = RecordInfo(
        position=1,
        epoch=1,
        kind=RecordKind.COMMIT,
        created_at=1.0,
        commit=found.envelope.commit,
        step=found.envelope.step,
        full=found.full,
    )
    head = replace(HEAD, session_id=found.envelope.session_id, nonce=found.envelope.nonce)
    restored = replay(Reading(head=head, chain=(Record(info=info, body=part),)))
    saved = saved_workflow(restored.manifest) if restored.manifest else None
    values = [decode_plain(op.value) for op in restored.snapshot.state.as_ops()]
    return codec.ops_digest(as_ops(restored.snapshot)), values, saved


def read_delta(part: bytes) -> object:
    """A delta, merged into a session that has something of everything."""
    snapshot = Snapshot()
    found = codec.decode_checkpoint(part, "s", "r")
    try:
        merge(snapshot, OPERATIONS[:1])
        merge(snapshot, found.ops, found.envelope.at)
    except (KeyError, TypeError, ValueError):
        return None  # what `replay` says of a chain that does not fit
    return codec.ops_digest(as_ops(snapshot))


def read_events(part: bytes) -> object:
    """Events as a stream reads them."""
    found = codec.decode_events(part, "s", "r")
    info = RecordInfo(
        position=1,
        epoch=1,
        kind=RecordKind.COMMIT,
        created_at=1.0,
        commit=found.commit,
        first_event=1,
        event_count=len(found.events),
    )
    return stored_events(HEAD, Record(info=info, events=part))


def read_step(part: bytes) -> object:
    """A journal record as a resumed step reads it."""
    entry = tuple(codec.decode_journal(part, "s", "r"))
    return read_journal([JournalEntry(position=1, entry=entry)])


def inside(
    body: Callable[[bytes], object], frame: Callable[[bytes], bytes]
) -> Callable[[bytes], object]:
    """A decoder of what a right frame holds."""
    return lambda data: body(frame(data))


def packed(values: Iterable[Any]) -> bytes:
    """Msgpack values, one behind the other."""
    return b"".join(msgpack.packb(value, unicode_errors="surrogatepass") for value in values)


ENVELOPE: Final = Envelope(
    commit=0,
    step=-1,
    at=1.5,
    epoch=1,
    session_id="s",
    nonce=NONCE,
    manifest={"topology": {"name": "w", "start": "a", "nodes": {}, "edges": [], "state": []}},
    sent_at={1: 1.0},
)
DELTA: Final = codec.encode_checkpoint(ENVELOPE, OPERATIONS)
FULL: Final = codec.encode_checkpoint(ENVELOPE, [], whole=list(as_ops(Snapshot())))
HAPPENING: Final = Happening(Kind.OUTPUT, "a", 1, {"d": [1, {"e": None}]}, b"\xc0")
EVENTS: Final = codec.encode_events(
    EventsPart(commit=0, run_id="main", step=0, at=2.5, events=(HAPPENING, HAPPENING))
)
RESULT: Final = Result(
    number=1,
    sends=(Sent(b"\xc0", "b", output=True), Sent(b"\x01")),
    outputs=(b"\xc0",),
    writes=(Write("a", "k", "update", pairs=((b"\xa1k", b"\x01"),)),),
    events=(HAPPENING,),
    failure=Failure("ValueError", "no"),
    effects=(("key", b"d", b"\xc0"),),
)
ENTRIES: Final = (
    result_to_wire(RESULT),
    ["failure", 1, 2, 3.5, "ValueError", "no", ""],
    ["effect", 1, "k", b"d", b"\xc0"],
    ["intent", 1, "k", b""],
    ["void", 1, 2],
    ["reset"],
)
JOURNAL: Final = tuple(map(codec.encode_journal, ENTRIES))


def body_of(part: bytes, kind: int) -> bytes:
    """What a frame holds."""
    return codec.unseal(part, kind, "s", "r")[0]


# -- files ------------------------------------------------------------------------------------------


def file_frame(content: Content) -> Callable[[bytes], bytes]:
    """Puts a right frame around clear fields; the first two bytes say where the body begins."""

    def frame(data: bytes) -> bytes:
        at = int.from_bytes(data[:2]) if len(data) > 2 else 0
        clear, body = data[2 : 2 + at], data[2 + at :]
        header = HEADER.pack(MAGIC, VERSION, content, len(clear), 0, len(body))
        return summed(header + clear + body)

    return frame


def summed(data: bytes) -> bytes:
    """Bytes with the checksum that fits them."""
    return data + CHECKSUM.pack(xxhash.xxh3_64_intdigest(data))


def fields_of(file: bytes, content: Content) -> bytes:
    """What `file_frame` makes the file of, its body left out."""
    frame = unpack(file, content, "s", "f")
    clear = packed([frame.meta])
    return len(clear).to_bytes(2) + clear + frame.events


INFO: Final = RecordInfo(
    position=1, epoch=1, kind=RecordKind.COMMIT, created_at=1.0, commit=0, run_id="main"
)
ENTRY: Final = meta.Entry(
    info=INFO, head=replace(HEAD, summary=Summary(wake_at=1.0)), record_id="i"
)
RECORD_FILE: Final = meta.pack_record(ENTRY, b"body", b"events")
PACK_FILE: Final = meta.pack_packed(
    "s", NONCE, [meta.Packed(info=INFO, previous=0, runs=0, events=b"events")]
)
MARKER_FILE: Final = meta.pack_marker("s", NONCE, meta.Marker(first_event=3, dropped=((1, 2),)))
REQUEST: Final = Request(seq=1, request_id="r", kind="pin", body=b"0", created_at=1.0)
REQUEST_FILE: Final = meta.pack_request("s", NONCE, REQUEST)


def read_file(data: bytes) -> object:
    """A file of any content, from its first byte on."""
    content = Content(data[5]) if len(data) > 5 and data[5] in list(Content) else Content.RECORD
    return unpack(data, content, "s", "f")


# -- sealed parts --------------------------------------------------------------------------------------


def read_envelope(data: bytes) -> object:
    """An envelope from its first byte on."""
    return CIPHER.open(data, Part.CHECKPOINT, b"[]", "s", "r")


def read_sealed_request(data: bytes) -> object:
    """What a request's envelope holds, rightly sealed."""
    place = envelope.request_place("s", "r")
    sealed = CIPHER.seal(Part.REQUEST, place, data)
    return parts.open_request(CIPHER, "s", NONCE, replace(REQUEST, kind=parts.SEALED, body=sealed))


def read_sealed_head(data: bytes) -> object:
    """A head whose reason is any text."""
    reason = parts.REASON + data.decode("utf-8", "surrogateescape")
    head: Head = replace(HEAD, summary=Summary(reason=reason))
    return parts.open_head(CIPHER, head), list(parts.parts_of(head, (), ()))


SEALED: Final = CIPHER.seal(Part.CHECKPOINT, b"[]", b"body", 3)
SEALED_REQUEST: Final = struct.pack(">H", 32) + NONCE.encode() + struct.pack(">I", 3) + b"pin0"

# -- values ------------------------------------------------------------------------------------------

VALUES: Final = tuple(
    encode(value, TYPES)
    for value in (
        *SINGLE.values(),
        [None, True, 1.5, "text", b"bytes", {"k": [1]}, (1, 2), {3}, frozenset([4])],
        {1: Note("a", more=Pair([], {})), "m": Model(name="n", parts=[1])},
    )
)


def read_value(data: bytes) -> object:
    """A value, in each of the ways that it is read."""
    answers = []
    for read in (_typed, _readonly, _shared, decode_plain, _cell):
        try:
            answers.append(read(data))
        except RafError as error:
            answers.append(error)
    return answers


def _typed(data: bytes) -> object:
    return decode(data, TYPES)


def _readonly(data: bytes) -> object:
    return decode(data, TYPES, readonly=True)


def _shared(data: bytes) -> object:
    return decode_shared(data, TYPES)


def _cell(data: bytes) -> object:
    cell = Cell(data)
    if cell.is_list:
        cell.extend([b"\x01"])
    if cell.is_map:
        cell.update([(b"\xa1k", b"\x01")])
    return cell.read(TYPES)


def read_spans(data: bytes) -> object:
    """A list or a dict, cut apart."""
    try:
        return split_array(data)
    except RafError:
        return split_map(data)


DECODERS: Final[dict[str, Decoder]] = {
    "part": Decoder(read_checkpoint, (FULL,)),
    "events part": Decoder(read_events, (EVENTS,)),
    "journal part": Decoder(read_step, JOURNAL),
    "full": Decoder(
        inside(read_checkpoint, framed(codec.CHECKPOINT, codec.FLAG_FULL)),
        (body_of(FULL, codec.CHECKPOINT),),
    ),
    "delta": Decoder(
        inside(read_delta, framed(codec.CHECKPOINT)),
        (
            body_of(DELTA, codec.CHECKPOINT),
            *(packed([[0, 0, 1.0, 1, b""], ops_to_wire([op])]) for op in OPERATIONS),
        ),
    ),
    "events": Decoder(inside(read_events, framed(codec.EVENTS)), (body_of(EVENTS, codec.EVENTS),)),
    "journal": Decoder(
        inside(read_step, framed(codec.JOURNAL)), tuple(packed([entry]) for entry in ENTRIES)
    ),
    "file": Decoder(read_file, (RECORD_FILE, PACK_FILE, MARKER_FILE, REQUEST_FILE)),
    "record file": Decoder(
        inside(lambda d: meta.unpack_record(d, "s", "f", 1), file_frame(Content.RECORD)),
        (fields_of(RECORD_FILE, Content.RECORD),),
    ),
    "pack file": Decoder(
        inside(lambda d: meta.unpack_packed(d, "s", "f", NONCE), file_frame(Content.PACK)),
        (fields_of(PACK_FILE, Content.PACK),),
    ),
    "marker file": Decoder(
        inside(lambda d: meta.unpack_marker(d, "s", "f", NONCE), file_frame(Content.MARKER)),
        (fields_of(MARKER_FILE, Content.MARKER),),
    ),
    "request file": Decoder(
        inside(lambda d: meta.unpack_request(d, "s", "f", NONCE, 1), file_frame(Content.REQUEST)),
        (fields_of(REQUEST_FILE, Content.REQUEST),),
    ),
    "envelope": Decoder(read_envelope, (SEALED,)),
    "sealed request": Decoder(read_sealed_request, (SEALED_REQUEST,)),
    "sealed reason": Decoder(read_sealed_head, (b"UkFGUw==",)),
    "value": Decoder(read_value, VALUES),
    "spans": Decoder(read_spans, VALUES[-2:]),
}
