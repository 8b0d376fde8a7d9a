"""Whether a commit follows a head, what head it leaves, and whether a head fits its records; pure.

Rules of this file: numbers are public and without gaps, so a commit that does not continue them is
refused before anything is written.  The fence (epoch) and "my own retry" (commit id) come first.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from raf.errors import CommitOrderError, CorruptRecordError
from raf.store.model import Commit, Head, Kind, RecordInfo, Summary

Row = TypeVar("Row")


def check_follows(
    session_id: str, commit: Commit, *, number: int, events: int, consumed: int, requests: int
) -> None:
    """Return if the commit continues the head's numbers.

    Args:
        session_id: For the error.
        commit: What is to be written.
        number: The head's commit number, -1 before the first.
        events: The head's count of events.
        consumed: The last request that was consumed.
        requests: The last request that arrived.

    Raises:
        CommitOrderError: A number leaves a gap, repeats, or falls.
    """
    if commit.commit != number + 1:
        raise CommitOrderError(session_id, f"commit {commit.commit} does not follow {number}")
    if commit.first_event != events + 1:
        raise CommitOrderError(session_id, f"event {commit.first_event} does not follow {events}")
    if not consumed <= commit.consumed <= requests:
        raise CommitOrderError(
            session_id,
            f"it consumes requests up to {commit.consumed}; {consumed} were consumed before and "
            f"{requests} arrived",
        )


def after_commit(head: Head, commit: Commit, position: int) -> Head:
    """The head that this commit leaves; pure, shared by the backends.

    `renewed` leases are not touched: a commit does not extend the lease.
    """
    return Head(  # each step makes one, and `replace` takes three times as long
        session_id=head.session_id,
        nonce=head.nonce,
        epoch=head.epoch,
        position=position,
        commit=commit.commit,
        commit_position=position,
        journal_from=position if commit.ends_journal else head.journal_from,
        events=head.events + commit.event_count,
        first_event=head.first_event,
        consumed=max(head.consumed, commit.consumed),
        requests=head.requests,
        created_at=head.created_at,
        updated_at=commit.created_at,
        summary=commit.summary,
        held=head.held,
    )


def check_agrees(head: Head, newest: RecordInfo | None, journal_begins: int | None = None) -> None:
    """Return if a head is not older than its records: such a one would hide commits.

    That the head's own commit is gone is found by whoever needs it: pruning may leave nothing of it.

    Args:
        head: As the store keeps it beside the records.
        newest: The newest commit's record that is there; None when there is none.
        journal_begins: The position of the first record that is no commit, where it is known.

    Raises:
        CorruptRecordError: It ends with an earlier commit, or its journal begins too late.
    """
    if newest is not None and newest.position >= head.commit_position:
        said = (head.commit, head.commit_position, head.events)
        found = (newest.commit, newest.position, last_event(newest))
        if said != found:
            where = "commit {} at position {} and event {}"
            why = f"it ends with {where.format(*said)}, the records with {where.format(*found)}"
            raise CorruptRecordError(head.session_id, "of the session's head", why)
    if journal_begins is not None and journal_begins <= head.journal_from:
        why = f"its journal is said to begin after position {head.journal_from}, and has {journal_begins}"
        raise CorruptRecordError(head.session_id, "of the session's head", why)


def readable_info(
    rows: Iterable[Row], read: Callable[[Row, str], RecordInfo], session_id: str
) -> RecordInfo | None:
    """The clear fields of the first row; None without one, or where whoever needs it will tell."""
    for row in rows:
        with suppress(CorruptRecordError):
            return read(row, session_id)
        break
    return None


def last_event(info: RecordInfo) -> int:
    """The number of the last event up to this commit."""
    return info.first_event + info.event_count - 1


def commit_info(commit: Commit, position: int, epoch: int) -> RecordInfo:
    """The clear fields of a commit's record."""
    return RecordInfo(
        position=position,
        epoch=epoch,
        kind=Kind.COMMIT,
        created_at=commit.created_at,
        commit=commit.commit,
        step=commit.step,
        full=commit.full,
        first_event=commit.first_event,
        event_count=commit.event_count,
        run_id=commit.run_id,
        body_size=len(commit.body),
        events_size=len(commit.events),
    )


def new_head(session_id: str, nonce: str, now: float, *, epoch: int = 0) -> Head:
    """The head of a session that has no record yet."""
    return Head(
        session_id=session_id,
        nonce=nonce,
        epoch=epoch,
        position=0,
        commit=-1,
        commit_position=0,
        journal_from=0,
        events=0,
        first_event=1,
        consumed=0,
        requests=0,
        created_at=now,
        updated_at=now,
        summary=Summary(),
        held=None,
    )


def damaged_head(session_id: str, reason: str) -> Head:
    """What a list shows of a session whose head cannot be read."""
    summary = Summary(status="damaged", reason=reason)
    return replace(new_head(session_id, "", 0.0), summary=summary)
