"""Commits, restores, lists, compares and checks the checkpoints of sessions in one store."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from raf.checkpoint.compare import differences
from raf.checkpoint.config import CheckpointConfig
from raf.checkpoint.model import (
    Change,
    Checkpoint,
    CheckpointInfo,
    Repair,
    Verified,
    checkpoint_id,
    commit_of,
)
from raf.checkpoint.repair import plan_repair, repair_anew, repair_in_place
from raf.checkpoint.restore import Restored, StoredEvent, replay, stored_events
from raf.checkpoint.retention import ChainSize
from raf.checkpoint.snapshot import Snapshot
from raf.checkpoint.verify import verify_session
from raf.checkpoint.writer import About, Numbers, SessionWriter, Stand
from raf.errors import (
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptRecordError,
    EventsGoneError,
    RafError,
    SessionBusyError,
    SessionNotFoundError,
)
from raf.store.model import Claimed, Head, Lease, Owner, Select, check_session_id
from raf.store.owner import this_owner
from raf.store.port import Store
from raf.store.urls import open_store
from raf.values.plain import decode_plain

CLAIM_RETRY_S = 0.1
REPAIR_LEASE_S = 30.0


class CheckpointManager:
    """The way to the checkpoints of a store.

    Args:
        store: A store, or its URL.
        config: How often a full is written and how many checkpoints stay.

    Example:
        >>> import asyncio
        >>> async def main():
        ...     async with CheckpointManager("memory:") as manager:
        ...         return await manager.load_full_state("nobody")
        >>> asyncio.run(main()) is None
        True
    """

    def __init__(self, store: Store | str | Path, config: CheckpointConfig | None = None) -> None:
        self.store: Store = open_store(f"file:{store}" if isinstance(store, Path) else store)
        self.config = config or CheckpointConfig()

    @classmethod
    def with_default_config(cls, store: Store | str | Path) -> Self:
        """A manager with the default settings."""
        return cls(store)

    async def __aenter__(self) -> Self:
        """Open the store."""
        await self.store.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close the store."""
        await self.store.close()

    # -- owning ------------------------------------------------------------------------------

    async def claim(
        self,
        session_id: str,
        owner: Owner,
        *,
        lease_s: float,
        create: bool = False,
        wait_s: float = 0.0,
    ) -> Claimed:
        """Take a session, waiting up to `wait_s` seconds for a live owner to let go.

        Raises:
            SessionNotFoundError: There is none and `create` is False.
            SessionBusyError: It is still held after `wait_s`.
        """
        check_session_id(session_id)
        clock = self.store.clock
        until = clock.monotonic() + wait_s
        while True:
            try:
                return await self.store.claim(session_id, owner, lease_s=lease_s, create=create)
            except SessionBusyError:
                if clock.monotonic() >= until:
                    raise
            await asyncio.sleep(CLAIM_RETRY_S)

    def writer(
        self, claimed: Claimed, head: Head, restored: Restored | None, about: About
    ) -> SessionWriter:
        """The writer of a claimed session, standing at its last commit."""
        numbers = Numbers(commit=head.commit, events=head.events, consumed=head.consumed)
        stand = Stand(
            snapshot=Snapshot() if restored is None else restored.snapshot,
            numbers=numbers,
            chain=ChainSize() if restored is None else restored.chain,
            parent=b"" if restored is None else restored.parent,
        )
        return SessionWriter(self.store, self.config, claimed.lease, stand, about)

    # -- reading -----------------------------------------------------------------------------

    async def head(self, session_id: str) -> Head:
        """How a session stands.

        Raises:
            SessionNotFoundError: There is none, or it was never committed.
        """
        reading = await self.store.read(check_session_id(session_id), Select())
        if reading is None or reading.head.commit < 0:
            raise SessionNotFoundError(session_id)
        return reading.head

    async def restore(
        self, session_id: str, checkpoint: str | int | None = None
    ) -> Restored | None:
        """The session at a checkpoint (its last one when None); None when there is no session.

        Raises:
            CheckpointNotFoundError: The checkpoint was pruned, never made, or is another session's.
            CorruptRecordError, FormatVersionError: A record of its chain cannot be trusted.
        """
        at = None if checkpoint is None else commit_of(session_id, checkpoint)
        select = Select(chain=True, at=at, journal=True, requests=True)
        reading = await self.store.read(check_session_id(session_id), select)
        if reading is None or reading.head.commit < 0:
            return None
        if not reading.chain and at is not None:
            raise await self._why_no_chain(session_id, at)
        restored = replay(reading)
        wanted = reading.head.commit if at is None else at
        if restored.commit != wanted:
            why = f"the chain ends at commit {restored.commit}"
            raise CorruptRecordError(session_id, f"commit {wanted}", why)
        return restored

    async def _why_no_chain(self, session_id: str, at: int) -> RafError:
        """What to say of a checkpoint whose chain the store does not give: gone, or damaged."""
        reading = await self.store.read(session_id, Select(kept=True))
        if reading is not None and any(info.commit == at for info in reading.kept):
            why = "a checkpoint that it builds on is missing"
            return CorruptRecordError(session_id, f"commit {at}", why)
        return CheckpointNotFoundError(session_id, checkpoint_id(session_id, at))

    async def load_full_state(
        self, session_id: str, checkpoint: str | int | None = None
    ) -> tuple[Checkpoint, dict[str, dict[str, Any]]] | None:
        """The last checkpoint with its whole state merged; None when there is no session.

        Returns:
            The checkpoint, and its state: scope text -> key -> value.  Instances of classes that
            are not registered come as plain dicts.

        Raises:
            CheckpointNotFoundError, CorruptRecordError, FormatVersionError: As in `restore`.
        """
        restored = await self.restore(session_id, checkpoint)
        if restored is None:
            return None
        found = describe(session_id, restored)
        return found, found.state_data

    async def history(self, session_id: str) -> list[CheckpointInfo]:
        """Every commit of a session, oldest first."""
        await self.head(session_id)
        reading = await self.store.read(session_id, Select(infos=True))
        infos = () if reading is None else reading.infos
        return [CheckpointInfo.of(session_id, info) for info in infos]

    async def diff(self, session_id: str, before: str | int, after: str | int) -> list[Change]:
        """What changed between two checkpoints of a session."""
        first = await self.restore(session_id, before)
        second = await self.restore(session_id, after)
        if first is None or second is None:
            raise SessionNotFoundError(session_id)
        return differences(first.snapshot, second.snapshot, decode_plain)

    async def events(
        self, session_id: str, *, after: int = 0, limit: int = 256
    ) -> tuple[Head, list[StoredEvent]]:
        """Durable events with a number above `after`, in order; of at most `limit` commits.

        Raises:
            SessionNotFoundError: There is no such session.
            EventsGoneError: Events after that number were pruned.
            ConfigurationError: A number is none, or is negative.
        """
        for name, number in (("after", after), ("limit", limit)):
            if type(number) is not int or number < 0:
                what = "is a whole number of 0 or more"
                raise ConfigurationError(f"{name} {what}, not {number!r:.80}")
        select = Select(events_after=after, events_limit=limit)
        reading = await self.store.read(check_session_id(session_id), select)
        if reading is None:
            raise SessionNotFoundError(session_id)
        head = reading.head
        if after + 1 < head.first_event and head.events > after:
            raise EventsGoneError(session_id, after, head.first_event)
        found = [e for record in reading.events for e in stored_events(head, record, after=after)]
        return head, found

    async def run_record(self, session_id: str, run_id: str) -> StoredEvent | None:
        """The outcome that finished a run of the session; None when no finished run has that id."""
        if type(run_id) is not str:
            raise ConfigurationError(f"a run is named by text, not {run_id!r:.80}")
        reading = await self.store.read(check_session_id(session_id), Select(run=run_id))
        if reading is None or reading.run is None:
            return None
        found = stored_events(reading.head, reading.run)
        return found[-1] if found else None

    async def heads(self) -> AsyncIterator[Head]:
        """All sessions of the store that were ever committed, in the order of their ids."""
        after = ""
        while True:
            page = await self.store.scan(after=after)
            for head in page:
                if head.commit >= 0 or head.summary.status != "new":
                    yield head
            if not page:
                return
            after = page[-1].session_id

    async def verify(self, session_id: str) -> Verified:
        """Check every record, link, merged state and event number of a session.

        Guarantees: reads only.  What is found is returned, not raised.
        """
        return await verify_session(self.store, check_session_id(session_id))

    async def repair(
        self,
        session_id: str,
        *,
        apply: bool = False,
        reason: str = "",
        backup: str | Path | None = None,
        wait_s: float = 0.0,
    ) -> Repair:
        """Show what can be saved of a damaged session; with `apply`, fall back to it.

        The session falls back to its last intact commit, as a full checkpoint on top of what it has,
        with an event that tells the reason and what was lost.  Where the store has lost records,
        events or requests, the session is written anew (`Repair.anew`), by way of a backup file.
        A run whose record can be read stays finished; one of which steps are lost waits for a
        caller (status `failed`), since they run again.

        Args:
            session_id: The session; nobody may run it meanwhile.
            apply: Do it; else nothing is changed.
            reason: Why; it is kept in the event.  Needed to apply.
            backup: A file to make, for a session that is written anew: an export that holds the
                repaired session.  Given, the session is written anew in any case.
            wait_s: Seconds to wait for a live owner to let go.

        Returns:
            What is damaged and lost, and what was made of it.

        Guarantees: a session without a finding is left alone.  Killed in between, the session is
            as it was, or repaired, or (anew) in the backup file.

        Raises:
            SessionNotFoundError, SessionBusyError, ConfigurationError: Nothing was changed.
            CorruptRecordError: No checkpoint of it is intact; nothing was changed.
            FormatVersionError: A part of it is newer than this code: that is no damage.
        """
        found = await plan_repair(self.store, check_session_id(session_id))
        if not apply or not found.findings:
            return found
        if not reason.strip():
            raise ConfigurationError("a repair needs a reason: say why, in words")
        if found.commit is not None and found.anew and backup is None:
            raise ConfigurationError(
                f"session {session_id!r} must be written anew: name a backup file for it"
            )
        owner = this_owner(self.store.clock)
        claimed = await self.claim(session_id, owner, lease_s=REPAIR_LEASE_S, wait_s=wait_s)
        try:
            if backup is None:
                made = await repair_in_place(self.store, claimed.lease, reason)
            else:
                made = await repair_anew(self.store, claimed.lease, reason, backup)
        finally:
            await asyncio.shield(self.store.release(claimed.lease))
        left = await self.verify(session_id)
        return replace(found, checkpoint=made, left=left.findings)

    async def fall_back(self, lease: Lease, reason: str) -> str:
        """Put the last intact point on top of a session that is held; returns its checkpoint's id.

        Raises:
            CorruptRecordError: No checkpoint of it is intact; it is untouched.
        """
        return await repair_in_place(self.store, lease, reason, waits=False)


def describe(
    session_id: str, restored: Restored, decode: Callable[[bytes], Any] = decode_plain
) -> Checkpoint:
    """A restored session as a checkpoint for people; `decode` reads its values."""
    snapshot = restored.snapshot
    state: dict[str, dict[str, Any]] = {}
    for op in snapshot.state.as_ops():
        state.setdefault(op.scope, {})[op.key] = decode(op.value)
    barriers = {
        f"{barrier}{list(path) if path else ''}": {
            source: decode(slot.payload) for source, slot in sorted(slots.items())
        }
        for (barrier, path), slots in sorted(snapshot.barriers.items())
    }
    loops = {f"{loop}{list(path)}": n for (loop, path), n in sorted(snapshot.grants.items())}
    alone = restored.full or restored.commit == 0
    return Checkpoint(
        checkpoint_id=checkpoint_id(session_id, restored.commit),
        session_id=session_id,
        step_number=snapshot.step,
        graph_fingerprint=snapshot.fingerprint,
        state_data=state,
        edge_state_data={"barriers": barriers, "granted": loops},
        pending_messages=[
            {
                "number": message.number,
                "source": message.source,
                "target": message.target,
                "path": [list(item) for item in message.path],
                "payload": [decode(payload) for payload in message.payloads]
                if message.from_barrier
                else decode(message.payloads[0]),
            }
            for _, message in sorted(snapshot.pending.items())
        ],
        parent_checkpoint_id=None if alone else checkpoint_id(session_id, restored.commit - 1),
        is_full_snapshot=restored.full,
        created_at=restored.at,
        run_id=snapshot.run.run_id,
        status=snapshot.run.status,
    )
