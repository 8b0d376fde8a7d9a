"""The envelope of a sealed part: its bytes, and what it is bound to; pure.

Theory of operation.  An envelope is

    magic   version  part  key id    number  nonce     sealed bytes and their tag
    4 bytes 1        1     24        8       24        as many as the part, and 16

with the number big-endian and the key id filled up with NULs.  `number` counts what an owner writes
under one epoch; it is 0 where nothing is counted.  All of the header is authenticated, and so is the
*place*: whatever the store keeps in clear beside the part and must not be changed, as a JSON list.

Rules of this file: every envelope has the same overhead, so the size of a part is known without
its key; nothing here needs a key.
"""

import json
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from raf.store.model import RecordInfo

MAGIC: Final = b"RAFS"
VERSION: Final = 1
MAX_KEY_ID: Final = 24
NONCE: Final = 24
TAG: Final = 16
HEADER: Final = struct.Struct(f">4sBB{MAX_KEY_ID}sQ{NONCE}s")
OVERHEAD: Final = HEADER.size + TAG


class Part(IntEnum):
    """What an envelope holds; a part never opens as another."""

    CHECKPOINT = 1
    EVENTS = 2
    JOURNAL = 3
    REQUEST = 4
    REASON = 5


@dataclass(frozen=True, slots=True)
class Envelope:
    """An envelope taken apart; nothing of it is proved yet."""

    version: int
    part: int
    key_id: str
    number: int
    nonce: bytes
    header: bytes
    sealed: bytes


def header(part: Part, key_id: str, number: int, nonce: bytes) -> bytes:
    """The bytes before the sealed ones."""
    return HEADER.pack(MAGIC, VERSION, part, key_id.encode("ascii"), number, nonce)


def is_envelope(data: bytes) -> bool:
    """Whether these bytes begin as an envelope does."""
    return data[: len(MAGIC)] == MAGIC


def key_id_of(data: bytes) -> str:
    """The key id that an envelope's header names; escaped where it is none of ours."""
    field = data[len(MAGIC) + 2 : len(MAGIC) + 2 + MAX_KEY_ID].rstrip(b"\0")
    return field.decode("ascii", "backslashreplace")


def parse(data: bytes) -> Envelope | None:
    """Take an envelope apart; None when the bytes are none, or too few."""
    if len(data) < OVERHEAD or not is_envelope(data):
        return None
    _, version, part, _, number, nonce = HEADER.unpack_from(data)
    return Envelope(
        version=version,
        part=part,
        key_id=key_id_of(data),
        number=number,
        nonce=nonce,
        header=data[: HEADER.size],
        sealed=data[HEADER.size :],
    )


def size_inside(size: int) -> int:
    """How long a part is whose envelope has this size; a part that was pruned has none."""
    return max(0, size - OVERHEAD)


# -- places ----------------------------------------------------------------------------------------


def commit_place(session_id: str, nonce: str, info: RecordInfo) -> bytes:
    """Where the checkpoint and the events of a commit stand."""
    return _place(
        *(session_id, nonce, info.epoch, info.commit, info.step, info.full),
        *(info.first_event, info.event_count, info.run_id),
    )


def journal_place(session_id: str, nonce: str, epoch: int) -> bytes:
    """Where a journal record stands; its number in the epoch is in the header."""
    return _place(session_id, nonce, epoch)


def request_place(session_id: str, request_id: str) -> bytes:
    """Where a request stands; the session's nonce is inside, for a sender does not hold it fast."""
    return _place(session_id, request_id)


def reason_place(session_id: str, nonce: str, commit: int) -> bytes:
    """Where the reason of a summary stands."""
    return _place(session_id, nonce, commit)


def _place(*parts: str | int) -> bytes:
    # Whole numbers and booleans in one spelling, whatever a database made of them.
    told = [part if isinstance(part, str) else int(part) for part in parts]
    return json.dumps(told, separators=(",", ":")).encode("ascii")
