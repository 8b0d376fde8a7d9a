"""Whether the parts of a session agree with each other: head, log and inbox; pure.

Rules of this file:
- Only clear fields are looked at, so it is true of sealed records too.
- One fault does not hide the next, and each names the record that it is of.
- What pruning may leave is no fault: a commit without its body, a gap of commits whose events are
  all below the head's `first_event`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from raf.store.model import Head, Kind, Reading, Record, RecordInfo
from raf.store.order import last_event


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What does not agree: which record, and why."""

    record: str
    why: str


def name_of(info: RecordInfo) -> str:
    """A record as people know it: a commit by its number, any other by its position."""
    if info.kind is Kind.COMMIT:
        return f"commit {info.commit}"
    return f"{info.kind.value} {info.position}"


def audit(session: Reading) -> list[Fault]:
    """Every fault of a session that was read with `log` and `inbox`; none: it is whole."""
    infos = [record.info for record in session.log]
    commits = [info for info in infos if info.kind is Kind.COMMIT]
    return [
        *_order(session.head, infos),
        *_commits(session.head, commits),
        *_newest(session.head, commits),
        *_open_journal(session.head, infos),
        *(fault for record in session.log for fault in _record(session.head, record)),
        *_inbox(session),
    ]


def _order(head: Head, infos: Sequence[RecordInfo]) -> Iterator[Fault]:
    """Positions rise, epochs never fall, and neither passes the head's."""
    for one, two in pairwise(infos):
        if two.position <= one.position:
            yield Fault(record=name_of(two), why=f"it stands at or before {name_of(one)}")
        if two.epoch < one.epoch:
            yield Fault(record=name_of(two), why="its epoch is below its predecessor's")
    for info in infos[-1:]:
        if info.position > head.position or info.epoch > head.epoch:
            yield Fault(record=name_of(info), why="it is newer than the session's head")


def _commits(head: Head, commits: Sequence[RecordInfo]) -> Iterator[Fault]:
    """Commit and event numbers go on without a gap, but for what was pruned whole."""
    before = RecordInfo(position=0, epoch=0, kind=Kind.COMMIT, created_at=0.0, first_event=1)
    for info in commits:
        gone, events = info.commit - before.commit - 1, info.first_event - last_event(before) - 1
        if gone < 0 or events < 0:
            yield Fault(record=name_of(info), why=f"it repeats numbers of commit {before.commit}")
        elif gone and info.first_event > head.first_event:
            number = before.commit + 1
            why = f"it is missing before {name_of(info)}, and it was not pruned"
            yield Fault(record=f"commit {number}", why=why)
        elif events and not gone:
            why = f"its events do not follow event {last_event(before)}"
            yield Fault(record=name_of(info), why=why)
        before = info


def _newest(head: Head, commits: Sequence[RecordInfo]) -> Iterator[Fault]:
    """The head says what its last commit says."""
    if not commits:
        if head.commit >= 0:
            yield Fault(record=f"commit {head.commit}", why="it is missing")
        return
    last = commits[-1]
    told = (head.commit, head.commit_position, head.events)
    if last.commit < head.commit:
        yield Fault(record=f"commit {head.commit}", why="it is missing")
    elif told != (last.commit, last.position, last_event(last)):
        why = f"the head says that it is commit {told[0]} and that event {told[2]} is its last"
        yield Fault(record=name_of(last), why=why)
    elif head.summary.step != last.step:
        why = f"the head says that it ends step {head.summary.step}, and it ends step {last.step}"
        yield Fault(record=name_of(last), why=why)


def _open_journal(head: Head, infos: Sequence[RecordInfo]) -> Iterator[Fault]:
    """It begins behind a commit, and no position of it is missing."""
    there = {info.position: info for info in infos}
    begins = there.get(head.journal_from)
    if begins is not None and begins.kind is not Kind.COMMIT:
        yield Fault(record=name_of(begins), why="the journal is said to begin behind it")
    if head.first_event > 1:
        return  # a commit may have been pruned whole
    first = min(there, default=head.position + 1)
    begins_at = max(head.journal_from, first) - 1
    inside = sorted(position for position in there if position > begins_at)
    for gap in _gaps([begins_at, *inside, head.position + 1]):
        yield Fault(record=f"position {gap}", why="it is missing in the open journal")


def _gaps(numbers: Sequence[int]) -> Iterator[str]:
    """What is missing between numbers that should follow each other, as text."""
    for one, two in pairwise(numbers):
        if two == one + 2:
            yield str(one + 1)
        elif two > one + 2:
            yield f"{one + 1} to {two - 1}"


def _record(head: Head, record: Record) -> Iterator[Fault]:
    """Its parts are there, and as long as it says."""
    info = record.info
    if (len(record.body), len(record.events)) != (info.body_size, info.events_size):
        yield Fault(record=name_of(info), why="its parts are not as long as it says")
    elif info.kind is Kind.JOURNAL and not record.body:
        yield Fault(record=name_of(info), why="it is empty")
    elif info.event_count and not record.events and last_event(info) >= head.first_event:
        yield Fault(record=f"events of commit {info.commit}", why="they are missing")


def _inbox(session: Reading) -> Iterator[Fault]:
    """Requests are numbered from 1 without a gap, each id once."""
    head, numbers = session.head, [request.seq for request in session.inbox]
    ids: set[str] = set()
    for request in session.inbox:
        if request.request_id in ids:
            yield Fault(record=f"request {request.seq}", why="its id is that of an earlier one")
        ids.add(request.request_id)
    count = max(head.requests, head.consumed)
    for gap in _gaps([0, *numbers, max(count, *numbers, 0) + 1]):
        yield Fault(record=f"request {gap}", why="it is missing")
    if numbers[count:] or numbers != sorted(set(numbers)):
        yield Fault(record=f"request {numbers[-1]}", why="it does not follow the one before")
    if head.consumed > head.requests:
        why = f"{head.consumed} are said to be consumed, and {head.requests} arrived"
        yield Fault(record="the inbox", why=why)
