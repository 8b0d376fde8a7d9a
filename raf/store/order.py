"""Whether a commit follows a head, and what head it leaves; pure, shared by the backends.

Rules of this file: numbers are public and without gaps, so a commit that does not continue them is
refused before anything is written.  The fence (epoch) and "my own retry" (commit id) come first.
"""

from dataclasses import replace

from raf.errors import CommitOrderError
from raf.store.model import Commit, Head, Kind, RecordInfo, Summary


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
