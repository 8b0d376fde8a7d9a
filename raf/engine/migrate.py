"""Sessions move to the graph of this engine: one by one, or planned for a whole store.

Rules of this file:
- Moving is what `edit` is: claim, a pure change (`raf.engine.migration`), one full commit with its
  reason and an event.  Killed before that commit the session is the old one, after it the new one.
- A session that has this graph already is left alone: the same call again changes nothing.
- A plan only reads.  It runs the very change on a copy, and plans the next step of it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from raf.checkpoint.delta import Op, merge
from raf.checkpoint.model import checkpoint_id
from raf.checkpoint.restore import Restored
from raf.checkpoint.snapshot import Snapshot
from raf.engine.admin import HasSessionId, SessionAdmin
from raf.engine.editing import StateEditor
from raf.engine.journal import read_journal
from raf.engine.migration import (
    Migration,
    is_compatible,
    migrated,
    plan_migration,
    preview,
    saved_graph,
)
from raf.engine.options import check_change, check_mapping, check_reason
from raf.engine.plan import plan
from raf.engine.stored import unreadable
from raf.errors import MigrationRefusedError, RafError, WorkflowMismatchError
from raf.events import Happening, Kind
from raf.topology.fingerprint import changed_code, differences

Verdict: TypeAlias = Literal["equal", "compatible", "moves", "finished", "refused"]
Change: TypeAlias = Callable[[StateEditor], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan:
    """What would happen to one session.

    Args:
        status: How the session stands, such as `running` or `completed`.
        verdict: "equal": it has this graph, nothing to do.  "compatible": nothing that it holds can
            meet the change, so it also goes on by itself where that is allowed.  "moves": all that
            it holds has a place.  "finished": its run is over, so only its state moves.  "refused".
        differences: What differs between the graphs.
        refusals: What has no place, or why else it cannot move.
        moves: What gets another name.
        dropped: Messages that become dead letters.
        next: Nodes that the next step would run under this graph, with their message numbers.
    """

    session_id: str
    status: str
    verdict: Verdict
    differences: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    dropped: int = 0
    next: tuple[tuple[str, int], ...] = ()


class Migrating(SessionAdmin):
    """Moves sessions to the graph of its workflow."""

    async def migrate(
        self,
        session_id: str | HasSessionId,
        mapping: Mapping[str, str] | None = None,
        *,
        state: Change | None = None,
        drop: Collection[str] = (),
        reason: str,
    ) -> str:
        """Move a session at rest to this engine's graph, with all that it holds.

        Everything keeps its message number, so recorded results, effects and idempotency keys stay
        valid.  A session that has this graph already is left as it is.

        Args:
            session_id: The session; nobody may run it meanwhile.
            mapping: Old names to new ones: nodes, or ids of loops and barriers.  What is not named
                keeps its name; without a mapping, everything does.
            state: Changes the state behind the move, as in `edit`.
            drop: Old names of nodes, loops and barriers whose things may be lost if they have no
                place: their messages become dead letters.
            reason: Why; it is kept in the event.

        Returns:
            The id of the checkpoint that holds the change: a full one.

        Raises:
            MigrationRefusedError: Something has no place; it names each such thing.
            SessionBusyError, SessionNotFoundError, WorkflowMismatchError: Nothing was changed.
            CommitError: Saving failed; the session stands at its last commit.

        Example:
            await engine.migrate("order-7", {"price": "quote"}, reason="renamed in release 12")
        """
        check_reason(reason)
        names = check_mapping(mapping, drop)
        if state is not None:
            check_change("state", state)
        await self._open_kept()
        async with self._own(self._session_id(session_id), create=False, checked=False) as owned:
            owned.check_workflow()
            restored = owned.restored
            assert restored is not None  # noqa: S101 - it was not created by this call
            graph = restored.snapshot.fingerprint
            if graph == self.workflow.fingerprint:
                return checkpoint_id(owned.session_id, restored.commit)
            migration = self._migration(restored, names, drop)
            if migration.refusals:
                current = self.workflow.fingerprint
                refused = migration.refusals
                raise MigrationRefusedError(owned.session_id, graph, current, refused)
            _, ops = self._behind(restored, migration, state)
            return await owned.move(migration, ops, self._told(restored, names, drop, reason))

    async def plan_migration(
        self,
        session_id: str | HasSessionId | None = None,
        mapping: Mapping[str, str] | None = None,
        *,
        state: Change | None = None,
        drop: Collection[str] = (),
    ) -> list[MigrationPlan]:
        """What `migrate` would do to a session, or to every session of this workflow in the store.

        Only reads.  A session that somebody runs is judged as it stands now.

        Args:
            session_id: The session; every one of this workflow when None, in the order of ids.
            mapping: As in `migrate`.
            state: As in `migrate`; it is called with a copy.
            drop: As in `migrate`.

        Raises:
            SessionNotFoundError, WorkflowMismatchError: With a session id.
        """
        names = check_mapping(mapping, drop)
        if state is not None:
            check_change("state", state)
        await self._open_kept()
        name = self.workflow.name
        if session_id is not None:
            session = self._session_id(session_id)
            saved = (await self.manager.head(session)).summary.workflow
            if saved != name:
                raise WorkflowMismatchError(session, saved, name)
            return [await self._judge(session, names, state, drop)]
        heads = [h async for h in self.manager.heads() if h.summary.workflow == name]
        return [await self._judge(head.session_id, names, state, drop) for head in heads]

    # -- parts ---------------------------------------------------------------------------------

    def _migration(
        self, restored: Restored, mapping: Mapping[str, str], drop: Collection[str]
    ) -> Migration:
        workflow, snapshot = self.workflow, restored.snapshot
        saved, step = saved_graph(restored, workflow), read_journal(restored.journal)
        migration = plan_migration(saved, workflow, snapshot, step, mapping, drop)
        if not migration.ops:  # the mapping itself is at fault
            return migration
        lost = unreadable(workflow, preview(snapshot, migration), restored.manifest)
        return replace(migration, refusals=(*migration.refusals, *lost))

    def _behind(
        self, restored: Restored, migration: Migration, state: Change | None
    ) -> tuple[Snapshot, list[Op]]:
        """The session behind its move, and the operations of the change of its state."""
        moved = preview(restored.snapshot, migration)
        if state is None:
            return moved, []
        nodes = frozenset(node.name for node in self.workflow.topology.nodes)
        editor = StateEditor(moved.state, self.machine.book.rules, nodes)
        state(editor)
        ops = editor.ops()
        merge(moved, ops)
        return moved, ops

    def _told(
        self, restored: Restored, mapping: Mapping[str, str], drop: Collection[str], reason: str
    ) -> list[Happening]:
        """The events of a move: other code under old names is told as when a run goes on."""
        now = dict(self.workflow.manifest)
        changes = differences(restored.manifest, now)
        told = {"mapping": dict(mapping), "drop": sorted(drop)}
        graph = restored.snapshot.fingerprint
        events = [migrated(graph, self.workflow, changes, reason=reason, **told)]
        if names := changed_code(restored.manifest, now):
            events.append(Happening(Kind.CODE_CHANGED, "", 0, {"names": list(names)}))
        return events

    async def _judge(
        self,
        session_id: str,
        mapping: Mapping[str, str],
        state: Change | None,
        drop: Collection[str],
    ) -> MigrationPlan:
        try:
            restored = await self._restored(session_id, None)
        except RafError as error:  # it is one of many: what is damaged is told, and hides no other
            refused = (str(error),)
            return MigrationPlan(
                session_id=session_id, status="", verdict="refused", refusals=refused
            )
        status = restored.snapshot.run.status
        found = MigrationPlan(session_id=session_id, status=status, verdict="equal")
        if restored.snapshot.fingerprint == self.workflow.fingerprint:
            return found
        changes = differences(restored.manifest, dict(self.workflow.manifest))
        found = replace(found, differences=changes, verdict="refused")
        try:
            migration = self._migration(restored, mapping, drop)
            moved, _ = self._behind(restored, migration, state)
        except Exception as error:  # noqa: BLE001 - the change of the state is the user's code
            why = str(error) if isinstance(error, RafError) else f"{type(error).__name__}: {error}"
            return replace(found, refusals=(why,))
        if migration.refusals:
            return replace(found, refusals=migration.refusals)
        invocations = plan(moved, self.machine.book.edges.place)
        verdict: Verdict = "moves"
        if restored.snapshot.finished:
            verdict, invocations = "finished", []
        elif not mapping and is_compatible(restored, self.workflow):
            verdict = "compatible"
        return replace(
            found,
            verdict=verdict,
            moves=migration.moves,
            dropped=len(migration.happenings),
            next=tuple((invocation.node, invocation.number) for invocation in invocations),
        )
