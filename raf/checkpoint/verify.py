"""Checks a session as it is stored: records, links, merged state, event numbers.

A finding says which record and why.  Nothing is changed, and one finding does not hide the next:
each chain is judged on its own.
"""

from itertools import pairwise

from raf.checkpoint.codec import decode_journal
from raf.checkpoint.compare import full_agrees
from raf.checkpoint.model import Finding, Verified
from raf.checkpoint.restore import Restored, replay, stored_events
from raf.checkpoint.retention import chains
from raf.errors import (
    CheckpointError,
    CorruptRecordError,
    SessionNotFoundError,
    UndecodableError,
)
from raf.store.port import Head, Kind, RecordInfo, Select, Store
from raf.values.plain import decode_plain

PAGE = 64


async def verify_reading(store: Store, session_id: str) -> Verified:
    """Check one session.

    Raises:
        SessionNotFoundError: There is no such session.
        StoreError: The store cannot be read at all.
    """
    findings: list[Finding] = []
    try:
        reading = await store.read(session_id, Select(infos=True, kept=True, journal=True))
    except CheckpointError as error:
        return _only(session_id, error)
    if reading is None:
        raise SessionNotFoundError(session_id)
    kept = chains(reading.kept)
    before: Restored | None = None
    for chain in kept:
        before = await _verify_chain(store, session_id, chain, before, findings)
    _verify_numbers(reading.infos, findings)
    for record in reading.journal:
        if record.info.kind is Kind.JOURNAL:
            try:
                decode_journal(record.body, session_id, f"journal {record.info.position}")
            except CheckpointError as error:
                findings.append(Finding(record=f"journal {record.info.position}", why=str(error)))
    events = await _verify_events(store, reading.head, findings)
    if not kept or kept[-1][-1].commit != reading.head.commit:
        findings.append(Finding(record=f"commit {reading.head.commit}", why="it is missing"))
    return Verified(
        session_id=session_id,
        checkpoints=sum(len(chain) for chain in kept),
        fulls=sum(info.full for chain in kept for info in chain),
        events=events,
        findings=tuple(findings),
    )


def _only(session_id: str, error: CheckpointError) -> Verified:
    finding = Finding(record="session", why=str(error))
    return Verified(session_id=session_id, checkpoints=0, fulls=0, events=0, findings=(finding,))


async def _verify_chain(
    store: Store,
    session_id: str,
    chain: list[RecordInfo],
    before: Restored | None,
    findings: list[Finding],
) -> Restored | None:
    """Replay a chain; compare its full with the chain before, where that one reaches up to it."""
    last = chain[-1].commit
    try:
        reading = await store.read(session_id, Select(chain=True, at=last))
        if reading is None or not reading.chain:
            findings.append(Finding(record=f"commit {last}", why="its chain is incomplete"))
            return None
        restored = replay(reading)
        for op in restored.snapshot.state.as_ops():
            decode_plain(op.value)
    except (CheckpointError, UndecodableError) as error:
        record = error.record if isinstance(error, CorruptRecordError) else f"commit {last}"
        findings.append(Finding(record=record, why=str(error)))
        return None
    full = restored.parts[0]
    follows = before is not None and before.commit == full.envelope.commit - 1
    if before is not None and follows:
        name = f"commit {full.envelope.commit}"
        if full.envelope.parent != before.parent:
            findings.append(Finding(record=name, why="it names another parent"))
        elif not full_agrees(before.snapshot, full):
            why = "the snapshot is not what the chain before it makes"
            findings.append(Finding(record=name, why=why))
    return restored


def _verify_numbers(infos: tuple[RecordInfo, ...], findings: list[Finding]) -> None:
    for one, two in pairwise(infos):
        if two.commit != one.commit + 1:
            why = f"it follows commit {one.commit}"
            findings.append(Finding(record=f"commit {two.commit}", why=why))
        if two.epoch < one.epoch:
            why = "its epoch is below its predecessor's"
            findings.append(Finding(record=f"commit {two.commit}", why=why))


async def _verify_events(store: Store, head: Head, findings: list[Finding]) -> int:
    """Read all events that are left; their numbers must have no gap."""
    number = head.first_event - 1
    count = 0
    while True:
        select = Select(events_after=number, events_limit=PAGE)
        try:
            reading = await store.read(head.session_id, select)
        except CheckpointError as error:
            findings.append(Finding(record=f"events after {number}", why=str(error)))
            return count
        if reading is None or not reading.events:
            break
        for record in reading.events:
            name = f"events of commit {record.info.commit}"
            if record.info.first_event != number + 1:
                findings.append(Finding(record=name, why=f"they do not follow event {number}"))
            try:
                count += len(stored_events(head, record))
            except CheckpointError as error:
                findings.append(Finding(record=name, why=str(error)))
            number = record.info.first_event + record.info.event_count - 1
    if number < head.events:
        findings.append(Finding(record=f"event {number + 1}", why="it is missing"))
    return count
