"""Whether a session that another store gave can be adopted, and how it stands then; pure.

Rules of this file: what does not fit together is refused before anything is written.  The bytes are
not looked at: whoever exports or imports has compared them.

Theory of operation.  Pruning leaves gaps in the log: commits of which neither body nor events are
left.  Below the open journal a gap cannot be told from a void record; in the open journal each
missing position is such a commit, since claims and journal records there are never pruned.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from raf.errors import ConfigurationError
from raf.store.model import Head, Kind, Reading, Record, Request, check_session_id
from raf.store.order import last_event

_POSITIONS = 2**32
_NUMBERS = 2**53


def check_adoptable(session: Reading) -> None:
    """Return if head, log and inbox of a reading fit together.

    Raises:
        ConfigurationError: They do not, or a field is not of its kind.
        InvalidSessionIdError: The id cannot name a session.
    """
    name = check_session_id(session.head.session_id)
    try:
        why = next(_wrongs(session), None)
    except (TypeError, AttributeError) as error:
        why = f"a field is not of its kind: {error}"
    if why is not None:
        raise ConfigurationError(f"session {name!r} cannot be adopted, nothing was written: {why}")


def adopted_head(head: Head, buried: int) -> Head:
    """The head with which an adopted session begins.

    Args:
        head: As it was read.
        buried: The last epoch of deleted sessions of that name here, 0 for none.
    """
    return replace(head, epoch=max(head.epoch, buried + 1), held=None)


def emptied(session: Reading) -> dict[int, int]:
    """Positions of the open journal at which stood a commit that left nothing, with its number.

    When the newest record ended the journal, it is looked at too.
    """
    head = session.head
    there = {record.info.position: record.info for record in session.log}
    found: dict[int, int] = {}
    number = head.commit
    for position in range(head.position, min(head.journal_from, head.position - 1), -1):
        info = there.get(position)
        if info is None:
            found[position] = number
        if info is None or info.kind is Kind.COMMIT:
            number -= 1
    return found


def _wrongs(session: Reading) -> Iterator[str]:
    head = session.head
    yield from _told(_of_head(head))
    for record in session.log:
        where = f"the record at position {record.info.position} "
        yield from _told((fits, where + why) for fits, why in _of_record(record, head))
    yield from _of_order(session)
    yield from _of_journal(session)
    yield from _told(_of_inbox(session.inbox, head))


def _told(checks: Iterable[tuple[bool, str]]) -> Iterator[str]:
    return (why for fits, why in checks if not fits)


def _of_head(head: Head) -> Iterator[tuple[bool, str]]:
    ended = head.position == head.journal_from
    yield bool(head.nonce) and head.nonce.isascii(), "its nonce is no plain text"
    yield 1 <= head.epoch < _NUMBERS, f"there is no epoch {head.epoch}"
    yield 1 <= head.position < _POSITIONS, f"there is no position {head.position}"
    yield 0 <= head.journal_from <= head.position, "its journal begins after its log"
    yield -1 <= head.commit < head.position, f"commit {head.commit} has no place in its log"
    yield 0 <= head.commit_position <= head.position, "its last commit stands after its log"
    yield (head.commit < 0) == (head.commit_position == 0), "its last commit has no position"
    yield not ended or head.commit_position == head.position, "its journal ends without a commit"
    yield 0 <= head.events < _NUMBERS, f"it has {head.events} events"
    yield 1 <= head.first_event <= head.events + 1, f"its first event is {head.first_event}"
    yield 0 <= head.consumed <= head.requests, f"it consumed {head.consumed} requests"


def _of_record(record: Record, head: Head) -> Iterator[tuple[bool, str]]:
    info = record.info
    yield 1 <= info.position <= head.position, f"stands after the log's end, {head.position}"
    yield 1 <= info.epoch <= head.epoch, f"is of epoch {info.epoch}, the session of {head.epoch}"
    yield info.body_size == len(record.body), "has another body than it tells"
    yield info.events_size == len(record.events), "has other events than it tells"
    if info.kind is not Kind.COMMIT:
        yield info.kind in (Kind.CLAIM, Kind.JOURNAL), f"is of kind {info.kind!r}"
        yield info.position > head.journal_from, "is no commit and stands before the open journal"
        yield not record.events, "is no commit and has events"
        return
    there = last_event(info) >= head.first_event
    yield 0 <= info.commit <= head.commit, f"is commit {info.commit} after {head.commit}"
    yield 0 <= info.event_count < _NUMBERS, f"has {info.event_count} events"
    yield not (there and info.event_count) or bool(record.events), "lacks its events"
    yield there or not record.events or not info.event_count, "has events that were pruned"
    yield (
        (info.commit == head.commit) == (info.position == head.commit_position),
        (f"is commit {info.commit}; the last is {head.commit}, at {head.commit_position}"),
    )


def _of_order(session: Reading) -> Iterator[str]:
    """Positions and epochs grow, numbers too; what is left out was pruned."""
    head, position, epoch, commit, events = session.head, 0, 0, -1, 0
    for info in (record.info for record in session.log):
        if info.position <= position or info.epoch < epoch:
            yield f"position {info.position} of epoch {info.epoch} comes after {position}, {epoch}"
        position, epoch = info.position, info.epoch
        if info.kind is Kind.COMMIT:
            if not _follows(head, (commit, events), info.commit, info.first_event):
                yield f"commit {info.commit} does not follow commit {commit}"
            commit, events = info.commit, last_event(info)
    if not _follows(head, (commit, events), head.commit + 1, head.events + 1):
        yield f"its last commits are missing: the log ends with commit {commit}"


def _follows(head: Head, before: tuple[int, int], commit: int, first_event: int) -> bool:
    """Whether a commit comes next, or after some of which pruning left nothing."""
    number, events = before
    if commit <= number:
        return False
    if commit == number + 1:
        return first_event == events + 1
    return events < first_event <= max(events + 1, head.first_event)


def _of_journal(session: Reading) -> Iterator[str]:
    """In the open journal nothing is missing but commits."""
    head = session.head
    infos = [record.info for record in session.log if record.info.position > head.journal_from]
    commits = [info.commit for info in infos if info.kind is Kind.COMMIT]
    lost = head.position - head.journal_from - len(infos)
    below = [
        record.info.commit for record in session.log if record.info.position <= head.journal_from
    ]
    most = head.commit - max(below, default=-1) - len(commits)
    if lost > most:
        yield "records of its open journal are missing"
        return
    numbers = sorted([*emptied(session).values(), *commits])
    if numbers != list(range(head.commit + 1 - len(numbers), head.commit + 1)):
        yield "the commits of its open journal do not fit their positions"


def _of_inbox(inbox: tuple[Request, ...], head: Head) -> Iterator[tuple[bool, str]]:
    numbers = [request.seq for request in inbox]
    yield numbers == list(range(1, head.requests + 1)), "requests of its inbox are missing"
    ids = {request.request_id for request in inbox}
    yield len(ids) == len(inbox), "two requests of its inbox have one id"
