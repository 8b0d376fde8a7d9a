"""Checks a session as it is stored: head, log, links, merged state, events, journal, inbox.

Rules of this file:
- A finding says which record and why.  Nothing is changed, and one finding does not hide the next:
  each record is looked at alone, and each chain is judged on its own.
- `examine` is pure: it judges what could be read of a session at one moment.  What only a store can
  get wrong (an index, a damaged frame on the way of a resume) is looked at by reading once more.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from raf.checkpoint import codec
from raf.checkpoint.codec import ops_digest
from raf.checkpoint.compare import full_agrees
from raf.checkpoint.delta import as_ops
from raf.checkpoint.model import Finding, Verified
from raf.checkpoint.restore import Restored, replay, stored_events
from raf.checkpoint.retention import chains
from raf.checkpoint.snapshot import Snapshot
from raf.errors import (
    CheckpointError,
    CorruptRecordError,
    MissingKeyError,
    SessionNotFoundError,
    UndecodableError,
)
from raf.events import Happening, Kind
from raf.store.audit import audit, name_of
from raf.store.model import Head, Reading, Record, Salvage, Select
from raf.store.model import Kind as RecordKind
from raf.store.port import Store
from raf.values.plain import decode_plain

FINISHED = ("completed", "cancelled")

Findings = Iterator[Finding]


async def verify_session(store: Store, session_id: str) -> Verified:
    """Check one session.

    Raises:
        SessionNotFoundError: There is no such session.
        StoreError: The store cannot be read at all.
    """
    try:
        salvage = await store.salvage(session_id)
    except CheckpointError as error:
        finding = _found("session", error)
        return Verified(
            session_id=session_id, checkpoints=0, fulls=0, events=0, findings=(finding,)
        )
    if salvage is None:
        raise SessionNotFoundError(session_id)
    session = salvage.session
    kept = [record.info for record in kept_records(session.log)]
    events = session.head.events - session.head.first_event + 1
    return Verified(
        session_id=session_id,
        checkpoints=len(kept),
        fulls=sum(info.full for info in kept),
        events=max(0, events),
        findings=_once([*examine(salvage), *await _as_read(store, session)]),
    )


def kept_records(log: Sequence[Record]) -> list[Record]:
    """The commits of a log that still have a checkpoint, or say so."""
    commits = (record for record in log if record.info.kind is RecordKind.COMMIT)
    return [record for record in commits if record.body or record.info.body_size]


def _once(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The first finding of each record."""
    first: dict[str, Finding] = {}
    for finding in findings:
        first.setdefault(finding.record, finding)
    return tuple(first.values())


def _found(record: str, error: CheckpointError | UndecodableError) -> Finding:
    """The reason alone, where the record is named beside it."""
    why = error.why if isinstance(error, CorruptRecordError) else str(error)
    return Finding(record=record, why=why, sealed=isinstance(error, MissingKeyError))


# -- what could be read --------------------------------------------------------------------------


def examine(salvage: Salvage) -> list[Finding]:
    """Every fault of a session, as far as it could be read."""
    session = salvage.session
    damaged = (Finding(record=error.record, why=error.why) for error in salvage.damaged)
    return [
        *damaged,
        *_checkpoints(session),
        *(finding for record in session.log for finding in _parts(session.head, record)),
        *(Finding(record=fault.record, why=fault.why) for fault in audit(session)),
    ]


def _checkpoints(session: Reading) -> Findings:
    """Replay every chain; compare its full with the chain before, where that reaches up to it."""
    head, records = session.head, {r.info.commit: r for r in kept_records(session.log)}
    before: Restored | None = None
    for links in chains(record.info for record in records.values()):
        reading = Reading(head=head, chain=tuple(records[info.commit] for info in links))
        broken = list(_links(reading))
        yield from broken
        if broken:
            before = None
            continue
        restored = replay(reading)
        yield from _full(restored, before)
        yield from _values(f"commit {restored.commit}", restored.snapshot)
        before = restored
    if head.commit >= 0 and head.commit not in records:
        yield Finding(record=f"commit {head.commit}", why="its checkpoint is missing")
    elif before is not None and before.commit == head.commit:
        yield from _summary(head, before.snapshot)


def _links(reading: Reading) -> Findings:
    """Every record of a chain that is damaged itself, or else the first that does not follow."""
    session_id, own = reading.head.session_id, False
    for record in reading.chain:
        name = name_of(record.info)
        try:
            part = codec.decode_checkpoint(record.body, session_id, name)
        except CheckpointError as error:
            own = True
            yield _found(name, error)
        else:
            if part.envelope.epoch != record.info.epoch:
                own = True
                why = f"it is of epoch {part.envelope.epoch}, not of {record.info.epoch}"
                yield Finding(record=name, why=why)
    if not own:
        try:
            replay(reading)
        except CheckpointError as error:
            last = name_of(reading.chain[-1].info)
            name = error.record if isinstance(error, CorruptRecordError) else last
            yield _found(name, error)


def _full(restored: Restored, before: Restored | None) -> Findings:
    """The full of a chain says what the chain before it makes."""
    full = restored.parts[0]
    name = f"commit {full.envelope.commit}"
    if before is not None and before.commit == full.envelope.commit - 1:
        if full.envelope.parent != before.parent:
            yield Finding(record=name, why="it names another parent")
        elif not full_agrees(before.snapshot, full):
            why = "the snapshot is not what the chain before it makes"
            yield Finding(record=name, why=why)
    if restored.full and ops_digest(as_ops(restored.snapshot)) != full.digest:
        yield Finding(record=name, why="its operations do not make what their digest says")


def _values(name: str, snapshot: Snapshot) -> Findings:
    """Every value of a snapshot can be read."""
    held = [*snapshot.pending.values(), *(s.message for s in snapshot.suspended.values())]
    slots = (slot for of_path in snapshot.barriers.values() for slot in of_path.values())
    payloads = chain(
        (op.value for op in snapshot.state.as_ops()),
        (payload for message in held for payload in message.payloads),
        (slot.payload for slot in slots),
        (parked.payload for parked in snapshot.parked.values()),
        (output.payload for output in snapshot.outputs),
    )
    try:
        for payload in payloads:
            decode_plain(payload)
    except UndecodableError as error:
        yield Finding(record=name, why=str(error))


def _summary(head: Head, snapshot: Snapshot) -> Findings:
    """What lists show of the session is what its last commit keeps."""
    told = head.summary
    says = (told.fingerprint, told.run_id, told.status)
    if says != (snapshot.fingerprint, snapshot.run.run_id, snapshot.run.status):
        yield Finding(record="the head", why="it tells of another run than the last commit")


def _parts(head: Head, record: Record) -> Findings:
    """The journal entry or the events of a record."""
    info = record.info
    try:
        if info.kind is RecordKind.JOURNAL:
            codec.decode_journal(record.body, head.session_id, name_of(info))
        elif record.events:
            events = stored_events(head, record)
            for event in events:
                if event.what.payload:
                    decode_plain(event.what.payload)
            if info.run_id != finished_run(event.what for event in events):
                why = f"commit {info.commit} tells the end of another run, or of none"
                yield Finding(record=f"run {info.run_id!r}", why=why)
    except (CheckpointError, UndecodableError) as error:
        name = (
            name_of(info) if info.kind is RecordKind.JOURNAL else f"events of commit {info.commit}"
        )
        yield _found(name, error)


def finished_run(events: Iterable[Happening]) -> str:
    """The run that a commit with these events finished, or the empty text."""
    last = next(reversed([*events]), None)
    if last is None or last.kind is not Kind.OUTCOME or last.data.get("status") not in FINISHED:
        return ""
    return str(last.data.get("run_id"))


# -- what a resume reads ---------------------------------------------------------------------------


async def _as_read(store: Store, session: Reading) -> list[Finding]:
    """What goes wrong when the session is read as a resume, and its runs as a repeat, read them."""
    session_id, findings = session.head.session_id, list[Finding]()
    try:
        reading = await store.read(
            session_id, Select(chain=True, journal=True, requests=True, kept=True)
        )
        if reading is not None and reading.head.commit >= 0:
            replay(reading)
            findings += [
                Finding(record=name_of(info), why="it is empty")
                for info in reading.kept
                if not info.body_size
            ]
    except CheckpointError as error:
        record = error.record if isinstance(error, CorruptRecordError) else "the last chain"
        findings.append(_found(record, error))
    runs = {record.info.run_id: record.info for record in session.log if record.info.run_id}
    for run_id, info in runs.items():
        try:
            found = await store.read(session_id, Select(run=run_id))
        except CheckpointError as error:
            findings.append(_found(f"run {run_id!r}", error))
            continue
        if found is not None and (found.run is None or found.run.info.commit < info.commit):
            why = f"it is not found, and commit {info.commit} finished it"
            findings.append(Finding(record=f"run {run_id!r}", why=why))
    return findings
