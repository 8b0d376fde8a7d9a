"""From a chain of records to the snapshot they keep; pure.

Rules of this file:
- A chain begins with a full and each delta names the hash of its parent, so a missing, swapped or
  foreign record is found.  The clear fields that a store keeps beside a record must agree with it.
- What does not fit is a `CorruptRecordError` naming the record.  Nothing older is used in its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raf.checkpoint import codec
from raf.checkpoint.codec import CheckpointPart
from raf.checkpoint.delta import merge
from raf.checkpoint.retention import ChainSize
from raf.checkpoint.snapshot import Snapshot
from raf.errors import CorruptRecordError
from raf.events import Happening, steps_of
from raf.store.model import Head, Reading, Record, Request
from raf.store.model import Kind as RecordKind

KEPT: Final = 0  # the position of journal entries that stand in the checkpoint itself


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One record of the step in flight: a claim (no entry), or what a node left."""

    position: int
    took_over: bool = False
    entry: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A session as its store knows it.

    `parent` is the hash that the next delta names; `digest` is of the snapshot's operations when
    the last record is a full.
    """

    head: Head
    snapshot: Snapshot
    manifest: dict[str, Any]
    chain: ChainSize
    parent: bytes
    at: float
    commit: int
    full: bool
    journal: tuple[JournalEntry, ...] = ()
    requests: tuple[Request, ...] = ()
    parts: tuple[CheckpointPart, ...] = field(default=(), repr=False)


def replay(reading: Reading) -> Restored:
    """The snapshot at the end of a reading's chain, with its journal and requests.

    Raises:
        CorruptRecordError: A record is damaged, or does not follow from the one before.
        FormatVersionError: A record is newer than this code.
    """
    head = reading.head
    snapshot, chain, parent = Snapshot(), ChainSize(), b""
    manifest: dict[str, Any] = {}
    parts: list[CheckpointPart] = []
    for record in reading.chain:
        name = f"commit {record.info.commit}"
        part = codec.decode_checkpoint(record.body, head.session_id, name)
        _check_place(head, record, part, parts, parent)
        if part.full:
            manifest = dict(part.envelope.manifest)
        try:
            merge(snapshot, part.ops, part.envelope.at)
        except (KeyError, TypeError, ValueError) as error:
            why = f"its operations do not fit its parent ({error!r})"
            raise CorruptRecordError(head.session_id, name, why) from error
        if part.full:
            snapshot.sent_at = dict(part.envelope.sent_at)
        chain.add(len(record.body), full=part.full)
        parent = codec.part_hash(record.body)
        parts.append(part)
    if not parts:
        raise CorruptRecordError(head.session_id, f"commit {head.commit}", "its chain is gone")
    return Restored(
        head=head,
        snapshot=snapshot,
        manifest=manifest,
        chain=chain,
        parent=parent,
        at=parts[-1].envelope.at,
        commit=parts[-1].envelope.commit,
        full=parts[-1].full,
        journal=(
            *_kept_entries(head, snapshot),
            *(_journal_entry(head, record) for record in reading.journal),
        ),
        requests=reading.requests,
        parts=tuple(parts),
    )


def _check_place(
    head: Head,
    record: Record,
    part: CheckpointPart,
    before: Sequence[CheckpointPart],
    parent: bytes,
) -> None:
    envelope, info = part.envelope, record.info
    if (envelope.commit, envelope.step, part.full) != (info.commit, info.step, info.full):
        why = "it is another checkpoint than the store says"
    elif part.full:
        why = _fault_of_full(head, part, before)
    else:
        why = _fault_of_delta(part, before, parent)
    if why:
        raise CorruptRecordError(head.session_id, f"commit {info.commit}", why)


def _fault_of_full(head: Head, part: CheckpointPart, before: Sequence[CheckpointPart]) -> str:
    envelope = part.envelope
    if (envelope.session_id, envelope.nonce) != (head.session_id, head.nonce):
        return f"it belongs to session {envelope.session_id!r}"
    return "a full snapshot stands inside a chain" if before else ""


def _fault_of_delta(part: CheckpointPart, before: Sequence[CheckpointPart], parent: bytes) -> str:
    if not before:
        return "its chain has no full snapshot to begin with"
    last, envelope = before[-1].envelope, part.envelope
    if envelope.parent != parent or envelope.commit != last.commit + 1:
        return "its parent is missing or is another record"
    return "its epoch is below its parent's" if envelope.epoch < last.epoch else ""


def _kept_entries(head: Head, snapshot: Snapshot) -> list[JournalEntry]:
    """What a change of the graph carried over of the journal: it is older than all of it."""
    return [
        JournalEntry(
            position=KEPT, entry=tuple(codec.decode_journal(record, head.session_id, name))
        )
        for number, records in sorted(snapshot.kept.items())
        for name in [f"journal kept for message {number}"]
        for record in records
    ]


def _journal_entry(head: Head, record: Record) -> JournalEntry:
    info = record.info
    if info.kind is RecordKind.CLAIM:
        return JournalEntry(position=info.position, took_over=info.took_over)
    entry = codec.decode_journal(record.body, head.session_id, f"journal {info.position}")
    return JournalEntry(position=info.position, entry=tuple(entry))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """One durable event with its number, not yet decoded for a reader."""

    number: int
    commit: int
    run_id: str
    step: int
    at: float
    what: Happening


def stored_events(head: Head, record: Record, *, after: int = 0) -> list[StoredEvent]:
    """The events of a commit with a number above `after`.

    Raises:
        CorruptRecordError: The part is damaged or holds another count than the store says.
    """
    info = record.info
    if info.event_count == 0 or info.first_event + info.event_count - 1 <= after:
        return []
    name = f"events of commit {info.commit}"
    part = codec.decode_events(record.events, head.session_id, name)
    if part.commit != info.commit or len(part.events) != info.event_count:
        raise CorruptRecordError(head.session_id, name, "they are others than the store says")
    steps = steps_of(part.events, part.step)
    return [
        StoredEvent(
            number=info.first_event + place,
            commit=part.commit,
            run_id=part.run_id,
            step=step,
            at=part.at,
            what=event,
        )
        for place, (event, step) in enumerate(zip(part.events, steps, strict=True))
        if info.first_event + place > after
    ]
