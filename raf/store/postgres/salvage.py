"""From the answer to a read to all of a session that can be read; pure.

Rules of this file: those of `rows`.  A row that is damaged is left out and named; of the session's own
row each text and time is judged alone, and what cannot be read is as in a session that is new.  Where
the columns that workers search by disagree with the summary, the summary is believed.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

from raf.errors import CorruptRecordError
from raf.store.model import Head, Reading, Salvage, Select, Summary
from raf.store.postgres.reads import INBOX, LOG, parts_of
from raf.store.postgres.rows import (
    HeadRow,
    Row,
    head_of,
    owner_of,
    record_of,
    request_of,
    searched_by,
    summary_of,
    summary_text,
)
from raf.store.salvage import agreeing, readable

ALL = Select(log=True, inbox=True)


def salvage_of(rows: Sequence[Row], boot: float) -> Salvage | None:
    """What can be read, from the answer to a statement that selects `ALL`; None without a session.

    Args:
        rows: The answer.
        boot: The boot clock when it was asked.
    """
    if not rows:
        return None
    row, parts = parts_of(rows)
    damaged: list[CorruptRecordError] = []
    head = _head(row, boot, damaged)
    log = tuple(readable(parts.get(LOG, ()), record_of, head.session_id, damaged))
    reading = Reading(
        head=agreeing(head, log, damaged),
        log=log,
        inbox=tuple(readable(parts.get(INBOX, ()), request_of, head.session_id, damaged)),
    )
    return Salvage(session=reading, damaged=tuple(damaged))


def _head(row: HeadRow, boot: float, damaged: list[CorruptRecordError]) -> Head:
    try:
        return head_of(row, boot)
    except CorruptRecordError as error:
        damaged.append(error)
    times = [time if time is None or isfinite(time) else 0.0 for time in row.times]
    session_id, nonce, summary, owner, *_ = row.texts
    known = _summary(summary or "")
    wake_at, searched = searched_by(known)
    texts = [session_id, nonce, summary_text(known), _owner(owner), *searched]
    return head_of(replace(row, times=[*times[:-1], wake_at], texts=texts), boot)


def _summary(text: str) -> Summary:
    try:
        return summary_of(text)
    except ValueError:
        return Summary()


def _owner(text: str | None) -> str | None:
    try:
        if text is not None:
            owner_of(text)
    except ValueError:
        return None
    return text
