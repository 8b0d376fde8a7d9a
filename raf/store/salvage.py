"""What the backends share in reading all of a damaged session that can be read; pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from raf.errors import CorruptRecordError
from raf.store.model import Head, Kind, Record, RecordInfo
from raf.store.order import check_agrees, last_event

Raw = TypeVar("Raw")
Value = TypeVar("Value")


def readable(
    raws: Iterable[Raw],
    read: Callable[[Raw, str], Value],
    session_id: str,
    damaged: list[CorruptRecordError],
) -> list[Value]:
    """The values that can be read; what cannot is left out, and its error goes to `damaged`."""
    found: list[Value] = []
    for raw in raws:
        try:
            found.append(read(raw, session_id))
        except CorruptRecordError as error:
            damaged.append(error)
    return found


def agreeing(head: Head, log: Sequence[Record], damaged: list[CorruptRecordError]) -> Head:
    """The head, as far as it agrees with the records that can be read; else as they tell it.

    Args:
        head: As the store keeps it, or what can be read of it.
        log: All records that can be read, in the order of their positions.
        damaged: What is wrong with the head is added to it.
    """
    infos = [record.info for record in log]
    commits = [info for info in infos if info.kind is Kind.COMMIT]
    begins = min((info.position for info in infos if info.kind is not Kind.COMMIT), default=None)
    newest = commits[-1] if commits else None
    position = max((info.position for info in infos), default=0)
    epoch = max((info.epoch for info in infos), default=0)
    shown = _first_event(head, log)
    wrong = _disagreement(head, newest, begins)
    if wrong is None and (head.position < position or head.epoch < epoch):
        wrong = _of_head(head, "the records show a later position or epoch")
    if wrong is None and head.first_event != shown:
        wrong = _of_head(head, f"its first event is {head.first_event}, the records show {shown}")
    if wrong is None:
        return head
    damaged.append(wrong)
    found = replace(
        head,
        position=max(head.position, position),
        epoch=max(head.epoch, epoch),
        journal_from=head.journal_from if begins is None else min(head.journal_from, begins - 1),
        first_event=shown,
    )
    if newest is None or newest.commit < head.commit:
        return found  # its newest record cannot be read: what it was is only known by the head
    return replace(
        found, commit=newest.commit, commit_position=newest.position, events=last_event(newest)
    )


def _disagreement(
    head: Head, newest: RecordInfo | None, begins: int | None
) -> CorruptRecordError | None:
    try:
        check_agrees(head, newest, begins)
    except CorruptRecordError as error:
        return error
    return None


def _of_head(head: Head, why: str) -> CorruptRecordError:
    return CorruptRecordError(head.session_id, "of the session's head", why)


def _first_event(head: Head, log: Sequence[Record]) -> int:
    """The first event that is there.  What is lost below it is not pruned: the head says where."""
    kept = [record.info.first_event for record in log if record.info.event_count and record.events]
    return max(1, min(head.first_event, kept[0] if kept else head.events + 1))
