"""From what the server holds of a session to all of it that can be read; pure.

Rules of this file: those of `rows`.  A value that is damaged is left out and named; of the head each
field is judged alone, and what cannot be read is as in a session that is new.
"""

from collections.abc import Sequence
from typing import Any, Final

from raf.errors import CorruptRecordError
from raf.store.model import Head, Reading, Salvage
from raf.store.redis.rows import Here, head_of, journal_of, parsed_head, record_of, request_of
from raf.store.salvage import agreeing, readable

_NEW: Final = {
    b"nonce": b"",
    b"epoch": b"1",
    b"position": b"%d" % ((1 << 32) - 1),
    b"commit": b"-1",
    b"commit_position": b"0",
    b"journal_from": b"0",
    b"events": b"0",
    b"first_event": b"1",
    b"consumed": b"0",
    b"requests": b"0",
    b"created_at": b"0",
    b"updated_at": b"0",
}


def salvage_of(session_id: str, parts: Sequence[Any], here: Here) -> Salvage:
    """What can be read, from the parts of the script `read` when log and inbox are asked for."""
    flat, _, _, journal, *_, log, inbox = parts
    damaged: list[CorruptRecordError] = []
    head = _head(session_id, flat, here, damaged)
    records = [
        *readable(log, record_of, session_id, damaged),
        *readable(journal, journal_of, session_id, damaged),
    ]
    ordered = tuple(sorted(records, key=lambda record: record.info.position))
    reading = Reading(
        head=agreeing(head, ordered, damaged),
        log=ordered,
        inbox=tuple(readable(inbox, request_of, session_id, damaged)),
    )
    return Salvage(session=reading, damaged=tuple(damaged))


def _head(
    session_id: str, flat: Sequence[bytes], here: Here, damaged: list[CorruptRecordError]
) -> Head:
    try:
        return head_of(session_id, flat, here)
    except CorruptRecordError as error:
        damaged.append(error)
    known = dict(_NEW)
    for field, value in zip(flat[::2], flat[1::2], strict=True):
        trial = known | {field: value}
        try:
            parsed_head(session_id, _flat(trial), here)
        except CorruptRecordError:
            continue
        known = trial
    return parsed_head(session_id, _flat(known), here)


def _flat(row: dict[bytes, bytes]) -> list[bytes]:
    return [part for item in row.items() for part in item]
