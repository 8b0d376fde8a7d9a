"""The one who writes a session: keeps its snapshot, its chain and its numbers in step with the store.

A writer exists while its engine owns the lease.  It decides full or delta (`retention`), encodes
(`codec`), commits (`store`), and merges the same operations into its snapshot.  After a failed
commit a writer is spent: what is in memory may be ahead of the store, so the session is loaded anew.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from raf.checkpoint import codec
from raf.checkpoint.config import CheckpointConfig
from raf.checkpoint.delta import Op, as_ops, merge
from raf.checkpoint.retention import ChainSize, full_is_due, to_prune
from raf.checkpoint.snapshot import Snapshot
from raf.errors import CommitError, CorruptRecordError, LeaseLostError, StoreError
from raf.events import Happening
from raf.store.model import Commit, Lease, Select, Summary
from raf.store.port import Store

log = logging.getLogger("raf.checkpoint")


@dataclass(slots=True, kw_only=True)
class Numbers:
    """The public numbers as the last commit left them."""

    commit: int
    events: int
    consumed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One commit for those who show it: its number, what happened, the number of the first event."""

    commit: int
    step: int
    at: float
    run_id: str
    first_event: int
    happenings: tuple[Happening, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What a commit does besides keeping its operations and events.

    Args:
        consumed: Requests up to this one are consumed with it.
        ends_journal: False keeps the journal of the step in flight.
        finished: The run is over with it: the commit is the run's record.
        full: Write a full checkpoint whether it is due or not.
    """

    consumed: int | None = None
    ends_journal: bool = True
    finished: bool = False
    full: bool = False


PLAINLY: Final = How()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit that is encoded and not yet written."""

    record: Commit | None
    committed: Committed


def _events_part(committed: Committed) -> codec.EventsPart:
    return codec.EventsPart(
        commit=committed.commit,
        run_id=committed.run_id,
        step=committed.step,
        at=committed.at,
        events=committed.happenings,
    )


class Writer(Protocol):
    """What a run needs of the one who keeps it."""

    snapshot: Snapshot

    def merge(self, ops: Sequence[Op], at: float) -> None:
        """Change the snapshot by operations that a later commit will hold."""

    def prepare(
        self, ops: Sequence[Op], happenings: Sequence[Happening], at: float, how: How
    ) -> Prepared:
        """Encode the next commit of operations that are merged already."""

    async def write(self, prepared: Prepared) -> Committed:
        """Make a prepared commit durable."""

    async def append(self, entries: Sequence[Sequence[Any]]) -> None:
        """Make journal entries durable."""


class MemoryWriter:
    """Keeps a run in memory only: nothing is stored and nothing can be resumed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._commit, self._events = -1, 0

    def merge(self, ops: Sequence[Op], at: float) -> None:
        """Change the snapshot."""
        merge(self.snapshot, ops, at)

    def prepare(
        self, ops: Sequence[Op], happenings: Sequence[Happening], at: float, how: How
    ) -> Prepared:
        """Number the commit; nothing is encoded."""
        del ops, how
        self._commit += 1
        committed = Committed(
            commit=self._commit,
            step=self.snapshot.step,
            at=at,
            run_id=self.snapshot.run.run_id,
            first_event=self._events + 1,
            happenings=tuple(happenings),
        )
        self._events += len(committed.happenings)
        return Prepared(None, committed)

    async def write(self, prepared: Prepared) -> Committed:
        """Nothing to do."""
        return prepared.committed

    async def append(self, entries: Sequence[Sequence[Any]]) -> None:
        """Nothing to do."""


@dataclass(slots=True, kw_only=True)
class Stand:
    """Where a writer begins: the session at its last commit, and the chain behind it."""

    snapshot: Snapshot
    numbers: Numbers
    chain: ChainSize
    parent: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What each commit repeats: the workflow, its manifest, where the session came from.

    `queue` is where the run was submitted, and `not_before` the time for which (UTC seconds).
    """

    workflow: str
    manifest: Mapping[str, Any]
    forked_from: str = ""
    queue: str = "default"
    not_before: float | None = None


class SessionWriter:
    """Commits for one owned session."""

    def __init__(
        self,
        store: Store,
        config: CheckpointConfig,
        lease: Lease,
        stand: Stand,
        about: About,
    ) -> None:
        self.store = store
        self.config = config
        self.lease = lease
        self.snapshot = stand.snapshot
        self.about = about
        self.numbers = stand.numbers
        self._chain = stand.chain
        self._parent = stand.parent

    @property
    def session_id(self) -> str:
        """The session that is written."""
        return self.lease.session_id

    def merge(self, ops: Sequence[Op], at: float) -> None:
        """Change the snapshot by operations that a later commit will hold."""
        merge(self.snapshot, ops, at)

    def prepare(
        self, ops: Sequence[Op], happenings: Sequence[Happening], at: float, how: How
    ) -> Prepared:
        """Encode the next commit; its operations are merged into the snapshot already.

        Args:
            ops: What changed since the last commit.
            happenings: What happened, in order.
            at: Time of the commit, UTC seconds of the store.
            how: What else it does.
        """
        numbers = self.numbers
        full = how.full or full_is_due(self._chain, self.config)
        envelope = codec.Envelope(
            commit=numbers.commit + 1,
            step=self.snapshot.step,
            at=at,
            epoch=self.lease.epoch,
            parent=self._parent,
            session_id=self.session_id,
            nonce=self.lease.nonce,
            manifest=self.about.manifest,
            sent_at=self.snapshot.sent_at,
        )
        body = codec.encode_checkpoint(envelope, ops, whole=as_ops(self.snapshot) if full else None)
        committed = Committed(
            commit=envelope.commit,
            step=envelope.step,
            at=at,
            run_id=self.snapshot.run.run_id,
            first_event=numbers.events + 1,
            happenings=tuple(happenings),
        )
        record = Commit(
            commit_id=self.store.clock.new_id(),
            commit=envelope.commit,
            step=envelope.step,
            full=full,
            body=body,
            events=codec.encode_events(_events_part(committed)),
            first_event=committed.first_event,
            event_count=len(committed.happenings),
            consumed=numbers.consumed if how.consumed is None else how.consumed,
            ends_journal=how.ends_journal,
            created_at=at,
            summary=self.summary(),
            run_id=committed.run_id if how.finished else "",
        )
        self._chain.add(len(body), full=full)
        self._parent = codec.part_hash(body)
        numbers.commit, numbers.consumed = record.commit, record.consumed
        numbers.events += record.event_count
        return Prepared(record, committed)

    async def write(self, prepared: Prepared) -> Committed:
        """Write a prepared commit, then drop what retention no longer keeps.

        Raises:
            LeaseLostError: Another owner took the session; nothing was written.
            CommitError: The store failed; the session stands at its last commit.
        """
        await self._write(prepared.record)
        if prepared.record is not None and prepared.record.full:
            await self._retain()
        return prepared.committed

    async def _write(self, record: Commit | None) -> None:
        if record is None:
            return
        try:
            await self.store.commit(self.lease, record)
        except LeaseLostError:
            raise
        except StoreError as error:
            raise CommitError(self.session_id, record.step, str(error)) from error

    def summary(self) -> Summary:
        """The session as a list of sessions shows it."""
        run, wake_at = self.snapshot.run, None
        if run.status == "submitted":
            wake_at = self.about.not_before
        elif run.status == "sleeping":
            wake_at = min((s.wake_at for s in self.snapshot.suspended.values()), default=None)
        return Summary(
            workflow=self.about.workflow,
            fingerprint=self.snapshot.fingerprint,
            run_id=run.run_id,
            status=run.status,
            step=self.snapshot.step,
            wake_at=wake_at,
            queue=self.about.queue,
            reason=run.reason[:500],
            forked_from=self.about.forked_from,
        )

    async def append(self, entries: Sequence[Sequence[Any]]) -> None:
        """Write journal entries, durable on return; errors as in `commit`."""
        try:
            await self.store.append(self.lease, [codec.encode_journal(entry) for entry in entries])
        except LeaseLostError:
            raise
        except StoreError as error:
            raise CommitError(self.session_id, self.snapshot.step, str(error)) from error

    async def _retain(self) -> None:
        """Drop what retention no longer keeps; a failure here only delays it."""
        try:
            await self.prune()
        except LeaseLostError:
            raise
        except (StoreError, CorruptRecordError) as error:
            log.warning("session %r: pruning is put off: %s", self.session_id, error)

    async def prune(self, *, events_before: int | None = None) -> int:
        """Drop what retention does not keep; returns how many checkpoints went."""
        reading = await self.store.read(self.session_id, Select(kept=True))
        kept = () if reading is None else reading.kept
        positions = to_prune(kept, self.snapshot.pins, self.config)
        if positions or events_before is not None:
            await self.store.prune(self.lease, positions, events_before=events_before)
        return len(positions)
