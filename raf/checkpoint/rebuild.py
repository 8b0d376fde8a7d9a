"""From what can be read of a damaged session to a whole one, and what is lost on the way; pure.

Rules of this file:
- The last intact point is the newest commit whose chain replays from its full without a fault.
  Where it finished a run whose result cannot be read, it is the one before, so that the run goes on.
- A run whose record can be read is over (`raf.checkpoint.standing`), wherever that point is.
- Numbers stay what they were: a commit that cannot be read keeps its number, and each event that
  cannot be read is an event `lost` of the same number, so what readers have seen keeps its place.
- What is not intact is given up wholly and by name: bodies after the last intact point, the journal
  of a step after it, a damaged entry of the journal, a damaged request.
- A record of a newer format is no damage: it is refused, and nothing is given up.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from raf.checkpoint import codec
from raf.checkpoint.codec import EventsPart
from raf.checkpoint.model import Finding, Lost
from raf.checkpoint.restore import Restored, replay, stored_events
from raf.checkpoint.retention import chains
from raf.checkpoint.standing import Standing, after_record, without_record
from raf.checkpoint.verify import examine, finished_run, kept_records
from raf.errors import CorruptRecordError
from raf.events import Happening, Kind
from raf.store.audit import audit, name_of
from raf.store.model import Head, Reading, Record, RecordInfo, Request, Salvage
from raf.store.model import Kind as RecordKind
from raf.store.order import last_event

LOST_REQUEST = "lost"
# A gap that is longer than this was not left by records that were lost: a number is damaged.
MOST_LOST = 10_000
# Among so many records before it, the one that a record follows is looked for.
LOOK_BACK = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A session that was made whole, but for the full snapshot that a repair puts on top.

    Args:
        session: What another store can adopt.
        point: The last intact point; None when no chain of it can be read.
        forks: The last intact commit of each chain, oldest first: where the session can be forked.
        findings: What was found damaged.
        lost: What is given up.
        spoilt: Positions in the store of commits whose bodies are of no use, in the order in which
            they can be pruned.
        journal: The bodies of the entries that stay, in order.
        stands: How the session stands on top of the last intact point; None when there is none.
        filled: Whether `session` holds records that the store does not have: only adopting it
            brings them there.
    """

    session: Reading
    point: Restored | None
    forks: tuple[int, ...]
    findings: tuple[Finding, ...]
    lost: Lost
    spoilt: tuple[int, ...]
    journal: tuple[bytes, ...]
    stands: Standing | None
    filled: bool

    @property
    def at_head(self) -> bool:
        """Whether the last commit itself is intact, so that no step is lost."""
        return self.point is not None and self.point.commit == self.session.head.commit


def rebuild(salvage: Salvage) -> Rebuilt:
    """Make a session whole of what can be read of it.

    Raises:
        FormatVersionError: A part of it is newer than this code.
    """
    head, log = salvage.session.head, salvage.session.log
    records = _trusted(head.session_id, log)
    readable = [_with_events(head, record) for record in records]
    results = {r.info.run_id for r in records} - {r.info.run_id for r in readable}
    prefixes = list(_prefixes(head, records))
    point = _last_point(head, prefixes, results)
    last = -1 if point is None else point.commit
    intact = {r.info.commit for prefix in prefixes for r in prefix if r.info.commit <= last}
    commits = _filled(head, [_with_body(record, intact) for record in readable])
    at_head = point is not None and last == commits[-1].info.commit
    journal, broken = _journal(head, log, keep=at_head)
    inbox, missing = _inbox(head, salvage.session.inbox)
    lost = Lost(
        events=tuple(_lost_events(records, commits)),
        journal=broken,
        requests=missing,
        results=tuple(sorted(results)),
    )
    lost = _after(lost, last, commits)
    unsure = bool(lost.commits or lost.journal or salvage.damaged)
    return Rebuilt(
        session=_session(head, commits, journal, inbox),
        point=point,
        forks=tuple(prefix[-1].info.commit for prefix in prefixes),
        findings=tuple(examine(salvage)),
        lost=lost,
        spoilt=tuple(_spoilt(records, intact)),
        journal=tuple(r.body for r in journal if r.info.kind is RecordKind.JOURNAL),
        stands=None if point is None else _stands(point, lost, commits, unsure=unsure),
        filled=bool(missing or salvage.damaged or audit(salvage.session)) or _differ(log, commits),
    )


# -- commits ---------------------------------------------------------------------------------------


def _trusted(session_id: str, log: Sequence[Record]) -> list[Record]:
    """The commits whose numbers fit their bytes and each other, as many as can be kept.

    Of all choices, the one that keeps most and leaves the fewest gaps.
    """
    records = [r for r in log if r.info.kind is RecordKind.COMMIT and _agrees(session_id, r)]
    best: list[
        tuple[int, int]
    ] = []  # of the choice that ends with this record: score, the one before
    for place, record in enumerate(records):
        starts = record.info.commit >= 0 and record.info.first_event >= 1
        near = range(max(0, place - LOOK_BACK), place)
        fits = ((earlier, _fit(records[earlier].info, record.info)) for earlier in near)
        after = [(best[earlier][0] + fit, earlier) for earlier, fit in fits if fit]
        best.append(max([(1 if starts else 0, -1), *after]))
    found: list[Record] = []
    at = max(range(len(best)), key=lambda place: (best[place][0], place), default=-1)
    while at >= 0 and best[at][0]:
        found.append(records[at])
        at = best[at][1]
    return found[::-1]


def _agrees(session_id: str, record: Record) -> bool:
    """Whether a part of the record that can be read says its number, or no part can be read."""
    said: list[bool] = []
    with suppress(CorruptRecordError):
        body = codec.decode_checkpoint(record.body, session_id, name_of(record.info))
        said.append(body.envelope.commit == record.info.commit)
        said.append(body.envelope.epoch == record.info.epoch)
    with suppress(CorruptRecordError):
        events = codec.decode_events(record.events, session_id, name_of(record.info))
        said.append(events.commit == record.info.commit)
        said.append(len(events.events) == record.info.event_count)
    return not said or all(said)


def _fit(one: RecordInfo, two: RecordInfo) -> int:
    """How well a commit follows another: 0 not at all, 1 with a gap, 2 at once."""
    commits, events = two.commit - one.commit, two.first_event - last_event(one)
    grows = one.position < two.position and one.epoch <= two.epoch and min(commits, events) >= 1
    bounded = max(commits, events, two.event_count) <= MOST_LOST and two.event_count >= 0
    if not (grows and bounded):
        return 0
    return 2 if (commits, events) == (1, 1) else 1


def _prefixes(head: Head, records: Sequence[Record]) -> Iterator[list[Record]]:
    """Of each chain the part that replays, if any."""
    kept = {record.info.position: record for record in kept_records(records)}
    for infos in chains(record.info for record in kept.values()):
        links = [kept[info.position] for info in infos]
        while links:
            try:
                replay(Reading(head=head, chain=tuple(links)))
            except CorruptRecordError as error:
                names = [name_of(record.info) for record in links]
                links = links[: names.index(error.record)]
            else:
                yield links
                break


def _last_point(
    head: Head, prefixes: Sequence[Sequence[Record]], lost: set[str]
) -> Restored | None:
    """The newest commit that replays, and whose run, if it is finished, has its result."""
    for prefix in reversed(prefixes):
        for end in range(len(prefix), 0, -1):
            point = replay(Reading(head=head, chain=tuple(prefix[:end])))
            if not (point.snapshot.finished and point.snapshot.run.run_id in lost):
                return point
    return None


def _spoilt(records: Sequence[Record], intact: set[int]) -> Iterator[int]:
    """From the newest to the oldest that has a body, or says so; an emptied one says nothing."""
    kept = [record.info.position for record in kept_records(records)]
    for record in reversed(records):
        if kept and record.info.position >= kept[0] and record.info.commit not in intact:
            yield record.info.position


def _with_body(record: Record, intact: set[int]) -> Record:
    """A commit without a body that is of no use."""
    body = record.body if record.info.commit in intact else b""
    return replace(record, info=replace(record.info, body_size=len(body)), body=body)


def _with_events(head: Head, record: Record) -> Record:
    """A commit with events that can be read, and with the run that they say it finished."""
    info = record.info
    if not info.event_count or last_event(info) < head.first_event:
        return replace(record, info=replace(info, events_size=0), events=b"")
    try:
        run_id = finished_run(event.what for event in stored_events(head, record))
    except CorruptRecordError:
        events = _lost(info)
        return Record(
            info=replace(info, run_id="", events_size=len(events)), body=record.body, events=events
        )
    return replace(record, info=replace(info, run_id=run_id))


def _lost(info: RecordInfo) -> bytes:
    """Events that stand for those that cannot be read."""
    events = tuple(Happening(Kind.LOST) for _ in range(info.event_count))
    at = info.created_at
    part = EventsPart(commit=info.commit, run_id=info.run_id, step=info.step, at=at, events=events)
    return codec.encode_events(part)


def _filled(head: Head, records: Sequence[Record]) -> list[Record]:
    """Commits without a gap: what is missing, and was not pruned, stands in without a body."""
    found: list[Record] = []
    before = RecordInfo(position=0, epoch=1, kind=RecordKind.COMMIT, created_at=0.0, first_event=1)
    for record in records:
        if record.info.first_event > head.first_event:
            found += _missing(before, record.info)
        found.append(record)
        before = record.info
    told = replace(
        before,
        position=before.position + 1,
        commit=head.commit + 1,
        step=max(before.step, head.summary.step),
        first_event=head.events + 1,
        event_count=0,
    )
    if found and _fit(before, told):
        found += _missing(before, told)
    return found


def _missing(before: RecordInfo, after: RecordInfo) -> Iterator[Record]:
    """Commits between two; the first of them holds all events that are missing.

    Each step has its commit, so they hold the steps between; which commit held which is a guess.
    """
    first = last_event(before) + 1
    for number in range(before.commit + 1, after.commit):
        info = replace(
            before,
            commit=number,
            step=min(before.step + number - before.commit, after.step),
            full=False,
            run_id="",
            body_size=0,
            first_event=first,
            event_count=after.first_event - first,
        )
        first = after.first_event
        part = _lost(info)
        yield Record(info=replace(info, events_size=len(part)), events=part)


# -- what is lost ------------------------------------------------------------------------------------


def _after(lost: Lost, point: int, commits: Sequence[Record]) -> Lost:
    """What the commits after the last intact point held, too; a run with a record is not lost."""
    gone = [record for record in commits if record.info.commit > point]
    over = {record.info.run_id for record in commits}
    parts = [part for part in _parts(gone) if not part.run_id or part.run_id not in over]
    events = [event for part in parts for event in part.events]
    begun = (event.data.get("run_id") for event in events if event.kind is Kind.RUN_STARTED)
    return replace(
        lost,
        commits=tuple(record.info.commit for record in gone),
        steps=tuple(sorted({record.info.step for record in gone if record.info.step >= 0})),
        outputs=sum(event.kind is Kind.OUTPUT for event in events),
        runs=tuple(map(str, begun)),
    )


def _parts(records: Sequence[Record]) -> list[EventsPart]:
    return [codec.decode_events(r.events, "", name_of(r.info)) for r in records if r.events]


def _stands(point: Restored, lost: Lost, commits: Sequence[Record], *, unsure: bool) -> Standing:
    """How the session stands; nothing of it changes where no step can have been lost."""
    gone = [record for record in commits if record.info.commit > point.commit]
    ended = next((record for record in reversed(gone) if record.info.run_id), None)
    if ended is not None:
        [part] = _parts([ended])
        return after_record(point.snapshot, point.commit, part.events[-1].data)
    if unsure:
        return without_record(point.snapshot, lost, _parts(gone))
    return Standing(status=point.snapshot.run.status, finished=point.snapshot.finished)


def _lost_events(before: Sequence[Record], after: Sequence[Record]) -> Iterator[tuple[int, int]]:
    """Numbers of events that others stand for now."""
    known = {record.info.commit: record.events for record in before}
    for record in after:
        info = record.info
        if info.event_count and record.events and known.get(info.commit) != record.events:
            yield info.first_event, last_event(info)


def _differ(log: Sequence[Record], commits: Sequence[Record]) -> bool:
    """Whether the commits are others than those of the log but for their bodies."""
    there = [record for record in log if record.info.kind is RecordKind.COMMIT]
    return [(r.info.commit, r.info.run_id, r.events) for r in there] != [
        (r.info.commit, r.info.run_id, r.events) for r in commits
    ]


# -- journal, inbox, head --------------------------------------------------------------------------


def _journal(head: Head, log: Sequence[Record], *, keep: bool) -> tuple[list[Record], int]:
    """Claims and entries of the open journal that can be read; and how many are given up."""
    found: list[Record] = []
    since = [record for record in log if record.info.position > head.journal_from]
    lost = head.position - head.journal_from - len(since)
    if not 0 <= lost <= MOST_LOST:
        lost = 0  # where the journal begins or ends is not known
    for record in since:
        if record.info.kind is RecordKind.COMMIT:
            continue
        try:
            if record.info.kind is RecordKind.JOURNAL:
                codec.decode_journal(record.body, head.session_id, name_of(record.info))
        except CorruptRecordError:
            lost += 1
        else:
            found.append(record)
    if keep:
        return found, lost
    return [], lost + sum(record.info.kind is RecordKind.JOURNAL for record in found)


def _inbox(head: Head, inbox: Sequence[Request]) -> tuple[list[Request], tuple[int, ...]]:
    """Requests without a gap; one that cannot be read asks for nothing.  And their numbers."""
    known = {request.seq: request for request in inbox}
    count = max([0, *known])
    if head.requests - count <= MOST_LOST:
        count = max(count, head.requests)
    missing = tuple(seq for seq in range(1, count + 1) if seq not in known)
    for seq in missing:
        known[seq] = Request(
            seq=seq,
            request_id=f"lost request {seq} of {head.nonce}",
            kind=LOST_REQUEST,
            body=b"",
            created_at=head.created_at,
        )
    return [known[seq] for seq in range(1, count + 1)], missing


def _session(
    head: Head, commits: Sequence[Record], journal: Sequence[Record], inbox: Sequence[Request]
) -> Reading:
    """The parts as one session; its positions are counted anew."""
    log = sorted([*commits, *journal], key=lambda record: record.info.position)
    placed = [
        replace(record, info=replace(record.info, position=position))
        for position, record in enumerate(log, 1)
    ]
    epoch = max([1, head.epoch, *(record.info.epoch for record in placed)])
    last = next((r.info for r in reversed(placed) if r.info.kind is RecordKind.COMMIT), None)
    if last is None:
        return Reading(head=replace(head, epoch=epoch, commit=-1), inbox=tuple(inbox))
    begun = sum(record.info.position <= head.journal_from for record in commits)
    standing = replace(
        head,
        epoch=epoch,
        position=len(placed),
        commit=last.commit,
        commit_position=last.position,
        journal_from=begun if journal else last.position,
        events=last_event(last),
        first_event=min(head.first_event, last_event(last) + 1),
        consumed=min(head.consumed, len(inbox)),
        requests=len(inbox),
        summary=replace(head.summary, step=last.step),
        held=None,
    )
    return Reading(head=standing, log=tuple(placed), inbox=tuple(inbox))
