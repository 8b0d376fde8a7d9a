"""A session that this engine owns: how a run begins in it, goes on, and is driven."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from raf.checkpoint.delta import Op
from raf.checkpoint.manager import CheckpointManager
from raf.checkpoint.model import checkpoint_id
from raf.checkpoint.restore import Restored
from raf.checkpoint.snapshot import Snapshot
from raf.checkpoint.writer import About, Committed, How, MemoryWriter, SessionWriter, Writer
from raf.engine.admission import Entry, admit, go_on, start_run
from raf.engine.apply import Rulebook
from raf.engine.commits import Commits, Durability
from raf.engine.executor import Executor, Place, Tools
from raf.engine.hub import Hub
from raf.engine.inbox import Inbox
from raf.engine.journal import OpenStep, read_journal
from raf.engine.keeper import Keeper, Watch
from raf.engine.logs import about
from raf.engine.migration import (
    Migration,
    is_compatible,
    migrated,
    plan_migration,
    saved_graph,
)
from raf.engine.options import OnChange, OnCorrupt
from raf.engine.outcome import RunResult
from raf.engine.plan import Invocation
from raf.engine.result import RESET
from raf.engine.run import RunLoop
from raf.engine.stored import retyped
from raf.errors import (
    NothingToResumeError,
    TopologyChangedError,
    UndecodableError,
    WorkflowMismatchError,
)
from raf.events import Event, Happening, Kind
from raf.store.model import Claimed, Head, Owner, Request, Summary
from raf.store.order import new_head
from raf.topology.fingerprint import changed_code, differences
from raf.topology.workflow import Workflow
from raf.values.codec import decode

log = logging.getLogger("raf.engine")


@dataclass(slots=True)
class Machine:
    """What an engine is made of; its sessions share it."""

    workflow: Workflow
    book: Rulebook
    manager: CheckpointManager
    hub: Hub
    keeper: Keeper
    tools: Tools
    owner: Owner
    lease_s: float
    durability: Durability
    on_change: OnChange = "refuse"
    on_corrupt: OnCorrupt = "refuse"

    def about(self, summary: Summary) -> About:
        """What each commit of a session of this workflow repeats; the rest is as it was."""
        return About(
            workflow=self.workflow.name,
            manifest=self.workflow.manifest,
            forked_from=summary.forked_from,
            queue=summary.queue,
            not_before=summary.wake_at if summary.status == "submitted" else None,
        )

    def commits(self, session_id: str, writer: Writer, durability: Durability = "sync") -> Commits:
        """The way to the store for one session; what is committed is shown here."""

        def show(committed: Committed) -> None:
            self.hub.show(session_id, committed)

        return Commits(writer, durability, show, self.manager.store.now)


class OwnedSession:
    """One claimed session; `drive` runs it once `begin_or_continue` or `resume` was called."""

    def __init__(
        self,
        machine: Machine,
        claimed: Claimed | None,
        restored: Restored | None,
        head: Head,
        watch: Watch,
    ) -> None:
        self.error: Exception | None = None
        self.session_id = head.session_id
        self.restored = restored
        self.watch = watch
        self._machine = machine
        self._claimed = claimed
        self._requests: tuple[Request, ...] = () if restored is None else restored.requests
        self._journal = OpenStep() if restored is None else read_journal(restored.journal)
        self._resumed_from: str | None = None
        self._switches = False
        self.writer: Writer
        if claimed is None:
            self.writer = MemoryWriter(Snapshot())
        else:
            about = machine.about(head.summary)
            if restored and restored.snapshot.fingerprint != machine.workflow.fingerprint:
                # An engine of another graph looks after it: it stays its own workflow's.
                name, manifest = head.summary.workflow, restored.manifest
                about = replace(about, workflow=name, manifest=manifest)
            self.writer = machine.manager.writer(claimed, head, restored, about)

    @classmethod
    def in_memory(cls, machine: Machine, session_id: str) -> Self:
        """A session that nothing keeps."""
        head = new_head(session_id, machine.tools.clock.new_id(), machine.tools.clock.now())
        return cls(machine, None, None, head, Watch(None, None))

    @property
    def snapshot(self) -> Snapshot:
        """The session as it stands."""
        return self.writer.snapshot

    @property
    def step(self) -> int:
        """The last committed step."""
        return self.snapshot.step

    def summary(self) -> Summary:
        """How the session stands, as its store knows it."""
        if isinstance(self.writer, SessionWriter):
            return self.writer.summary()
        return Summary(status=self.snapshot.run.status)

    def check_graph(self) -> None:
        """Refuse a session of another workflow, or of a graph that may not be gone on with.

        A compatible change that is allowed is recorded by the first commit that needs it.

        Raises:
            WorkflowMismatchError, TopologyChangedError: With what differs.
            UndecodableError: A class changed the types of its fields, and what is held has others.
        """
        restored, workflow = self.restored, self._machine.workflow
        if restored is None:
            return
        self.check_workflow()
        if lost := retyped(workflow, restored.snapshot, restored.manifest):
            raise UndecodableError("; ".join(lost))
        if restored.snapshot.fingerprint == workflow.fingerprint:
            return
        fits = is_compatible(restored, workflow)
        self._switches = fits and self._machine.on_change == "compatible"
        if not self._switches:
            found = differences(restored.manifest, dict(workflow.manifest))
            graphs = (restored.snapshot.fingerprint, workflow.fingerprint)
            raise TopologyChangedError(self.session_id, *graphs, found, fits)

    def check_workflow(self) -> None:
        """Refuse a session of another workflow.

        Raises:
            WorkflowMismatchError: It names both.
        """
        saved = "" if self.restored is None else self.restored.head.summary.workflow
        if saved not in ("", self._machine.workflow.name):
            raise WorkflowMismatchError(self.session_id, saved, self._machine.workflow.name)

    # -- beginning and going on ----------------------------------------------------------------

    def _commits(self, durability: Durability) -> Commits:
        return self._machine.commits(self.session_id, self.writer, durability)

    async def rewrite(self, ops: Sequence[Op], happenings: Sequence[Happening]) -> str:
        """Commit a change that is no step as a full checkpoint; returns its id."""
        await self._switch()
        return await self._write_full(ops, happenings, How(full=True, ends_journal=False))

    async def _write_full(
        self, ops: Sequence[Op], happenings: Sequence[Happening], how: How
    ) -> str:
        await self._commits("sync").outcome(ops, happenings, how)
        assert isinstance(self.writer, SessionWriter)  # noqa: S101 - what is rewritten is kept
        return checkpoint_id(self.session_id, self.writer.numbers.commit)

    async def move(
        self, migration: Migration, ops: Sequence[Op], happenings: Sequence[Happening]
    ) -> str:
        """Commit a migration, and operations behind it, as a full checkpoint of this graph.

        Returns:
            The id of the checkpoint.
        """
        workflow = self._machine.workflow
        if isinstance(self.writer, SessionWriter):
            # Only now: what is written before still belongs to the graph that it was saved under.
            self.writer.about = replace(self.writer.about, manifest=workflow.manifest)
        how = How(full=True, ends_journal=migration.carried)
        told = (*happenings, *migration.happenings)
        return await self._write_full((*migration.ops, *ops), told, how)

    async def _switch(self) -> None:
        """Record a compatible change of the graph, if there is one that is allowed."""
        restored, workflow = self.restored, self._machine.workflow
        if not self._switches or restored is None:
            return
        self._switches = False
        saved = saved_graph(restored, workflow)
        migration = plan_migration(saved, workflow, self.snapshot, self._journal)
        changes = differences(restored.manifest, dict(workflow.manifest))
        told = migrated(self.snapshot.fingerprint, workflow, changes, reason="a compatible change")
        await self.move(migration, (), [told])

    async def begin_or_continue(self, entry: Entry) -> None:
        """Commit the entry of a run, or take the open one up again."""
        if not await self.begin(entry):
            await self._go_on(grants=False)

    async def begin(self, entry: Entry) -> bool:
        """Commit the entry of a run; False when it is open already.

        Raises:
            RunInputMismatchError, RunUnfinishedError: Another input, or another run, is.
        """
        known = None if self.restored is None else self.snapshot
        if admit(self.session_id, known, entry.run_id, entry.digest) == "continue":
            return False
        await self._switch()
        if isinstance(self.writer, SessionWriter):
            about = replace(self.writer.about, queue=entry.queue, not_before=entry.at)
            self.writer.about = about
        first = self.restored is None
        change = start_run(self._machine.workflow, self.snapshot, entry, first=first)
        await self._commits("sync").outcome(change.ops, change.happenings)
        self._journal = OpenStep()
        return True

    async def resume(self, *, max_steps: int | None = None) -> None:
        """Take the unfinished run up again, granting more to a limited one.

        Raises:
            NothingToResumeError: It is finished.
        """
        run = self.snapshot.run
        if self.snapshot.finished or run.status == "new":
            raise NothingToResumeError(self.session_id, run.run_id, run.status)
        await self._go_on(grants=True, max_steps=max_steps)

    async def _go_on(self, *, grants: bool, max_steps: int | None = None) -> None:
        restored, run = self.restored, self.snapshot.run
        log.info(
            "session %r run %r is taken up again (%s) from step %d",
            self.session_id,
            run.run_id,
            run.status,
            self.step,
            extra=about(self.session_id, run.run_id, self.step, epoch=self.watch.epoch),
        )
        if restored is None or (run.status == "limited" and not grants):
            return
        await self._switch()
        self._resumed_from = checkpoint_id(self.session_id, restored.commit)
        commits = self._commits("sync")
        if run.status == "failed":
            await commits.record([RESET])
            restored_now = await self._reread()
            self._journal = read_journal(restored_now.journal)
        workflow = self._machine.workflow
        change = go_on(
            self._machine.book,
            self.snapshot,
            max_steps=max_steps,
            took_over=self._claimed is not None and self._claimed.took_over,
            changed_code=changed_code(restored.manifest, dict(workflow.manifest)),
            grants=grants,
        )
        await commits.outcome(change.ops, change.happenings, How(ends_journal=False))

    async def _reread(self) -> Restored:
        """The session once more, after a reset was journaled."""
        found = await self._machine.manager.restore(self.session_id)
        assert found is not None  # noqa: S101 - it is owned, so it exists
        return found

    # -- driving -------------------------------------------------------------------------------

    async def drive(self, durability: Durability | None, *, wait: bool) -> RunResult:
        """Run until the run pauses, ends or is drained."""
        loop = self._loop(durability or self._machine.durability, wait=wait)
        try:
            await loop.drive()
        except BaseException:
            loop.commits.abandon(self.session_id)
            raise
        self.error = loop.error
        return self._result(loop)

    @property
    def head_commit(self) -> int:
        """The commit that this engine found when it took the session."""
        return -1 if self.restored is None else self.restored.commit

    async def prune(self, *, events_before: int | None) -> int:
        """Drop what retention does not keep; returns how many checkpoints went."""
        if not isinstance(self.writer, SessionWriter):
            return 0
        return await self.writer.prune(events_before=events_before)

    async def consume(self) -> RunResult:
        """Consume the inbox without running anything; returns how the session then stands."""
        loop = self._loop("sync", wait=False)
        await loop.consume_requests()
        self._requests = ()
        return self._result(loop)

    def _loop(self, durability: Durability, *, wait: bool) -> RunLoop:
        machine = self._machine
        self.watch.run_id = self.snapshot.run.run_id
        commits = self._commits(durability)
        nonce = self._claimed.lease.nonce if self._claimed else machine.tools.clock.new_id()
        executor = Executor(
            machine.book,
            commits,
            self.watch,
            machine.tools,
            Place(self.session_id, nonce, self._show_live),
            self._journal,
        )
        store = None if self._claimed is None else machine.manager.store
        inbox = Inbox(store, self.session_id, self.watch, self._requests)
        return RunLoop(machine.book, executor, commits, self.watch, inbox, wait=wait)

    def _show_live(self, kind: Kind, invocation: Invocation, attempt: int, value: Any) -> None:
        if self._machine.hub.watched(self.session_id):
            event = Event(
                session_id=self.session_id,
                run_id=self.snapshot.run.run_id,
                number=None,
                kind=kind.text,
                step=self.snapshot.step + 1,
                node=invocation.node,
                message=invocation.number,
                data={"attempt": attempt},
                value=value,
                at=self._machine.tools.clock.now(),
            )
            self._machine.hub.show_live(event)

    def _result(self, loop: RunLoop) -> RunResult:
        snapshot, types = self.snapshot, self._machine.workflow.types
        pending = sorted(snapshot.pending.items())
        wakes = [s.wake_at for s in snapshot.suspended.values()]
        status: Any = "drained" if loop.drained else snapshot.run.status
        return RunResult(
            status=status,
            outputs=[decode(output.payload, types) for output in loop.outputs],
            session_id=self.session_id,
            run_id=snapshot.run.run_id,
            steps=loop.steps,
            pending=tuple((message.target, number) for number, message in pending),
            resumed_from=self._resumed_from,
            reason=snapshot.run.reason,
            wake_at=min(wakes) if wakes else self.summary().wake_at,
        )
