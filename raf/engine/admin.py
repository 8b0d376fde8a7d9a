"""What can be done to sessions at rest: look, fork, edit, pin, prune, delete.

`edit` is one operation: claim, a pure change, a full commit with its reason and an event.  Whoever
changes a session claims it first, so a live owner makes it `SessionBusyError` and is not disturbed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Protocol

from raf.checkpoint.delta import as_ops
from raf.checkpoint.manager import CheckpointManager, describe
from raf.checkpoint.model import Checkpoint, CheckpointInfo, checkpoint_id
from raf.checkpoint.restore import Restored
from raf.checkpoint.writer import How
from raf.engine.editing import StateEditor
from raf.engine.forking import copied_step, finished_runs, plan_fork
from raf.engine.options import check_change, check_mapping, check_number, check_reason
from raf.engine.run import PIN, UNPIN
from raf.engine.session import Machine, OwnedSession
from raf.errors import (
    ConfigurationError,
    CorruptRecordError,
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
    StoreError,
)
from raf.events import Happening, Kind
from raf.store.model import Claimed, Head, Lease, Select, check_session_id
from raf.topology.workflow import Workflow
from raf.values.codec import decode

log = logging.getLogger("raf.engine")

FINISHED: Final = ("completed", "cancelled")


class HasSessionId(Protocol):
    """Anything that carries a session id, such as `AgentSession`."""

    @property
    def session_id(self) -> str:
        """The id."""


class SessionAdmin:
    """Looks after the sessions of one workflow; `WorkflowEngine` runs them too."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.draining = False
        self._unreleased: dict[str, Lease] = {}

    @property
    def workflow(self) -> Workflow:
        """The workflow that is run."""
        return self.machine.workflow

    @property
    def manager(self) -> CheckpointManager:
        """The checkpoint manager."""
        return self.machine.manager

    async def open(self) -> None:
        """Open the store."""
        raise NotImplementedError

    async def _open_kept(self) -> None:
        """Open the store for a call that needs what it keeps."""
        if not self.manager.config.enabled:
            raise ConfigurationError(
                "checkpoints are disabled: nothing is kept that could be resumed, read or changed"
            )
        await self.open()

    def _session_id(self, session: str | HasSessionId | None) -> str:
        if session is None:
            return self.machine.tools.clock.new_id()
        named: Any = session  # what is neither text nor has an id is refused by name
        return check_session_id(getattr(named, "session_id", named))

    # -- owning --------------------------------------------------------------------------------

    @asynccontextmanager
    async def _own(
        self, session_id: str, *, create: bool, wait_s: float = 0.0, checked: bool = True
    ) -> AsyncIterator[OwnedSession]:
        """Own a session for a while: claimed, and then as in `_hold`."""
        machine = self.machine
        if self.draining:
            raise ConfigurationError("the engine drains: start no new run on it")
        if not machine.manager.config.enabled:
            yield OwnedSession.in_memory(machine, session_id)
            return
        await self._release_again(session_id)
        claimed = await machine.manager.claim(
            session_id, machine.owner, lease_s=machine.lease_s, create=create, wait_s=wait_s
        )
        async with self._hold(claimed, create=create, checked=checked) as owned:
            yield owned

    @asynccontextmanager
    async def _hold(
        self, claimed: Claimed, *, create: bool = False, checked: bool = True
    ) -> AsyncIterator[OwnedSession]:
        """Own a session that was claimed: restored, its lease kept, and given back at the end."""
        machine, session_id = self.machine, claimed.lease.session_id
        watch = machine.keeper.watch(claimed.lease)
        watch.draining = self.draining  # it may have waited for another owner meanwhile
        try:
            restored = await self._restore_held(claimed.lease)
            if restored is None and not create:
                raise SessionNotFoundError(session_id)
            head = await self._head(session_id) if restored is None else restored.head
            owned = OwnedSession(machine, claimed, restored, head, watch)
            if checked:
                owned.check_graph()
            yield owned
        finally:
            try:
                await asyncio.shield(self._release(claimed.lease))
            finally:
                machine.keeper.forget(session_id, watch)

    async def _restore_held(self, lease: Lease) -> Restored | None:
        """The session that is held; a damaged one falls back, where the engine was told so."""
        manager, session_id = self.manager, lease.session_id
        try:
            return await manager.restore(session_id)
        except CorruptRecordError as error:
            if self.machine.on_corrupt != "last-intact":
                raise
            await manager.fall_back(lease, str(error))
            return await manager.restore(session_id)

    async def _head(self, session_id: str) -> Head:
        """The head of a session that was just claimed: it may have no commit yet."""
        reading = await self.manager.store.read(session_id, Select())
        if reading is None:
            raise SessionNotFoundError(session_id)
        return reading.head

    async def _release(self, lease: Lease) -> None:
        try:
            await self.machine.manager.store.release(lease)
        except StoreError as error:
            # The lease then runs out by itself; the run's own outcome must not be hidden.
            log.warning("session %r was not released: %s", lease.session_id, error)
            self._unreleased[lease.session_id] = lease

    async def _release_again(self, session_id: str) -> None:
        """Give back what could not be given back: an engine must not keep itself out."""
        if (lease := self._unreleased.pop(session_id, None)) is not None:
            await self._release(lease)

    async def give_back(self) -> None:
        """Give back every session that could not be given back while the store was away."""
        for session_id in list(self._unreleased):
            await self._release_again(session_id)

    # -- looking -------------------------------------------------------------------------------

    async def history(self, session_id: str | HasSessionId) -> list[CheckpointInfo]:
        """Every commit of a session, oldest first.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        await self._open_kept()
        return await self.manager.history(self._session_id(session_id))

    async def state(
        self, session_id: str | HasSessionId, checkpoint: str | int | None = None
    ) -> Checkpoint:
        """A session as it stands, or as it stood at a checkpoint.

        Raises:
            SessionNotFoundError, CheckpointNotFoundError: There is none.
            CorruptRecordError: A record of its chain cannot be trusted.
        """
        await self._open_kept()
        session = self._session_id(session_id)
        restored = await self._restored(session, checkpoint)
        return describe(session, restored, lambda data: decode(data, self.workflow.types))

    async def _restored(self, session_id: str, checkpoint: str | int | None) -> Restored:
        restored = await self.manager.restore(session_id, checkpoint)
        if restored is None:
            raise SessionNotFoundError(session_id)
        return restored

    # -- changing ------------------------------------------------------------------------------

    async def edit(
        self,
        session_id: str | HasSessionId,
        change: Callable[[StateEditor], None],
        *,
        reason: str,
    ) -> str:
        """Change the state of a session by hand.

        Args:
            session_id: The session; nobody may run it meanwhile.
            change: Gets an editor with `scope(name)` and `node(name)`, and writes through it.
            reason: Why; it is kept in the event.

        Returns:
            The id of the checkpoint that holds the change: a full one.

        Raises:
            SessionBusyError, SessionNotFoundError, NotSerializableError: Nothing was changed.

        Example:
            await engine.edit("s", lambda e: e.scope("chat").update("seen", {"a": 1}), reason="fix")
        """
        check_reason(reason)
        check_change("edit", change)
        await self._open_kept()
        session = self._session_id(session_id)
        async with self._own(session, create=False) as owned:
            nodes = frozenset(node.name for node in self.workflow.topology.nodes)
            editor = StateEditor(owned.snapshot.state, self.machine.book.rules, nodes)
            change(editor)
            ops = editor.ops()
            happening = Happening(Kind.EDITED, "", 0, {"reason": reason, "changes": len(ops)})
            return await owned.rewrite(ops, [happening])

    async def pin(
        self, session_id: str | HasSessionId, checkpoint: str | int, *, keep: bool = True
    ) -> None:
        """Keep a checkpoint (and its chain up to it) from retention; `keep=False` lets it go.

        A running session takes the request at its next step.

        Raises:
            SessionNotFoundError, CheckpointNotFoundError: There is no such checkpoint.
        """
        await self._open_kept()
        session = self._session_id(session_id)
        restored = await self._restored(session, checkpoint)
        store = self.manager.store
        kind = PIN if keep else UNPIN
        await store.request(session, store.clock.new_id(), kind, str(restored.commit).encode())
        if (watch := self.machine.keeper.of(session)) is not None:
            watch.heard()
            return
        try:
            async with self._own(session, create=False, checked=False) as owned:
                await owned.consume()
        except SessionBusyError:
            return  # its owner takes the request

    async def prune(
        self, session_id: str | HasSessionId, *, events_before: int | None = None
    ) -> int:
        """Drop the checkpoints that retention does not keep; returns how many went.

        Args:
            session_id: The session; nobody may run it meanwhile.
            events_before: Drop whole records of events below this number too.
        """
        if events_before is not None:
            check_number("events_before", events_before)
        await self._open_kept()
        async with self._own(self._session_id(session_id), create=False, checked=False) as owned:
            return await owned.prune(events_before=events_before)

    async def delete(self, session_id: str | HasSessionId) -> None:
        """Remove a session with all it holds; a late write cannot bring it back.

        Raises:
            SessionBusyError: A live owner runs it.
            SessionNotFoundError: There is none.
        """
        await self._open_kept()
        session = self._session_id(session_id)
        machine = self.machine
        await self._release_again(session)
        claimed = await machine.manager.claim(session, machine.owner, lease_s=machine.lease_s)
        await machine.manager.store.delete(claimed.lease)

    async def fork(
        self,
        session_id: str | HasSessionId,
        new_session_id: str | HasSessionId,
        checkpoint: str | int | None = None,
        *,
        allow_in_doubt: bool = False,
        mapping: Mapping[str, str] | None = None,
        drop: Collection[str] = (),
    ) -> str:
        """Begin a new session from a checkpoint of another; the origin is only read.

        The new session stands alone: pruning or deleting the origin does not touch it.  A fork of
        the head brings the open step's finished results and effects along; of an older checkpoint,
        none.  It runs under this engine's graph, if everything that is in flight has a place there.

        Args:
            session_id: The origin.
            new_session_id: The session to make.
            checkpoint: Where to fork; the head when None.
            allow_in_doubt: Fork although an effect of the open step is in doubt.
            mapping: Old names to new ones, as in `migrate`.
            drop: What may be lost where it has no place, as in `migrate`.

        Returns:
            The id of the new session's entry checkpoint.

        Raises:
            SessionNotFoundError, CheckpointNotFoundError: There is no such origin.
            SessionExistsError: The new id is taken.
            MigrationRefusedError: Something in flight has no place in this graph.
            EffectInDoubtError: The head's open step holds one.
        """
        await self._open_kept()
        origin, target = self._session_id(session_id), self._session_id(new_session_id)
        names = check_mapping(mapping, drop)
        restored = await self._restored(origin, checkpoint)
        step = copied_step(restored, allow_in_doubt=allow_in_doubt)
        fork = plan_fork(origin, restored, step, self.workflow, names, drop)
        runs = await finished_runs(self.manager, origin, restored.commit)
        await self._discard_unfinished_fork(target)
        machine = self.machine
        claimed = await machine.manager.claim(
            target, machine.owner, lease_s=machine.lease_s, create=True
        )
        try:
            if not claimed.created:
                raise SessionExistsError(target)
            head = await self._head(target)
            forked_from = checkpoint_id(origin, restored.commit)
            about = machine.about(replace(restored.head.summary, forked_from=forked_from))
            writer = machine.manager.writer(claimed, head, None, about)
            # An invocation in flight keeps the time of its message: its effects may hang on it.
            writer.snapshot.sent_at.update(fork.snapshot.sent_at)
            commits = machine.commits(target, writer)
            for entry in fork.entries:
                await commits.record(entry)
            begins = Happening(Kind.FORKED, "", 0, {"from": forked_from, "runs": runs})
            told = [begins, *fork.happenings]
            await commits.outcome([*as_ops(fork.snapshot)], told, How(ends_journal=False))
        finally:
            await asyncio.shield(self._release(claimed.lease))
        return checkpoint_id(target, 0)

    async def _discard_unfinished_fork(self, session_id: str) -> None:
        """Remove what a fork left that was killed before its entry was committed."""
        reading = await self.manager.store.read(session_id, Select())
        if reading is None:
            return
        if reading.head.commit >= 0:
            raise SessionExistsError(session_id)
        await self.delete(session_id)
