"""Runs without a caller who waits: submitted, claimed by a worker, recovered.

Rules of this file:
- What is submitted is durable before the caller hears of it; nothing of it runs in that call.
- Whoever takes up a session that nobody runs first consumes what was asked of it, and goes on only
  if it then still wants to run (`raf.store.due`): a failed or limited run waits for a caller.
"""

import asyncio
import hashlib
import logging
from datetime import datetime
from typing import Any, Final

from raf.engine.admin import HasSessionId, SessionAdmin
from raf.engine.admission import Entry, admit, check_run_id
from raf.engine.options import check_call, check_count, check_queue, moment
from raf.engine.outcome import RunResult, Submitted
from raf.engine.recorded import recorded_result
from raf.engine.session import OwnedSession
from raf.errors import (
    RafError,
    RunFailedError,
    SessionBusyError,
    SessionNotFoundError,
    WorkflowMismatchError,
)
from raf.store.due import wants_to_run
from raf.store.model import Claimed, Head
from raf.values.codec import encode

log = logging.getLogger("raf.engine")

MOMENT_S: Final = 2.0  # longer than it takes to leave a run, however busy the store


class Background(SessionAdmin):
    """Takes runs for later, and takes up what nobody runs."""

    max_steps: int

    async def submit(
        self,
        input: Any,  # noqa: A002 - the word of the field
        session_id: str | HasSessionId | None = None,
        *,
        run_id: str = "main",
        at: float | datetime | None = None,
        queue: str = "default",
        max_steps: int | None = None,
    ) -> Submitted:
        """Leave a run to a worker: its input becomes durable, and nothing of it runs here.

        The same call again changes nothing and tells how the run stands.  `run`, `resume` and
        `stream` with an input run a submitted session at once, whatever its time.

        Args:
            input: What the start node gets.
            session_id: The durable identity; a new one when None.
            run_id: Names the run within the session.
            at: Before this time no worker takes it: UTC seconds since 1970 on the store's clock,
                or a datetime with a time zone.
            queue: Which workers take it: those that serve this queue; 1 to 100 characters.
            max_steps: Overrides the engine's.

        Returns:
            The names of the session and the run, and how the run stands.

        Guarantees:
            Durable: on return the input is on disk, and the session is found by workers.

        Raises:
            RunInputMismatchError: A run of this id has another input.
            RunUnfinishedError: Another run of the session is unfinished; it names that run.
            SessionBusyError: A live owner holds the session for something else.
            WorkflowMismatchError, TopologyChangedError, CommitError: As in `run`.
        """
        session = self._session_id(session_id)
        check_call(max_steps=max_steps)
        check_queue(queue)
        entry = self._entry(input, run_id, max_steps, queue=queue, submitted=True, at=moment(at))
        await self._open_kept()
        known = await self._known(session, entry)
        if known is not None:
            return known
        try:
            # Whoever holds it may be the same call elsewhere: its run is there in a moment.
            async with self._own(session, create=True, checked=False, wait_s=MOMENT_S) as owned:
                if owned.restored is not None:
                    known = await self._known(session, entry)
                if known is not None:
                    return known
                owned.check_graph()
                await owned.begin(entry)
        except SessionBusyError:
            known = await self._known(session, entry)
            if known is None:
                raise
            return known
        return Submitted(session_id=session, run_id=run_id, status="submitted")

    async def _known(self, session_id: str, entry: Entry) -> Submitted | None:
        """How this run stands, if the session has it already."""
        run_id = entry.run_id
        result = await recorded_result(self.machine, session_id, run_id, entry.digest)
        if result is not None:
            return Submitted(session_id=session_id, run_id=run_id, status=result.status)
        restored = await self.manager.restore(session_id)
        if restored is None:
            return None
        if restored.head.summary.workflow != self.workflow.name:
            saved = restored.head.summary.workflow
            raise WorkflowMismatchError(session_id, saved, self.workflow.name)
        if admit(session_id, restored.snapshot, run_id, entry.digest) == "start":
            return None
        status = restored.snapshot.run.status
        return Submitted(session_id=session_id, run_id=run_id, status=status)

    async def run_claimed(self, claimed: Claimed, *, check: bool = False) -> RunResult:
        """Go on with a session that the caller claimed, and give it back; what a worker calls.

        What was asked of it is consumed; it runs if it then wants to.  It never waits in process
        for a time to come.

        Args:
            claimed: What `Store.claim_due` gave; the session must be of this workflow.
            check: Raise `RunFailedError` when the run fails.

        Raises:
            WorkflowMismatchError, TopologyChangedError, CorruptRecordError: Nothing ran.
            LeaseLostError, CommitError: The session stands at its last commit.
        """
        await self._open_kept()
        async with self._hold(claimed, checked=False) as owned:
            return await self._take_up(owned, check=check)

    async def _take_up(self, owned: OwnedSession, *, check: bool) -> RunResult:
        """Consume what was asked of a session, then run it if it wants to."""
        stands = await owned.consume()
        if not wants_to_run(owned.summary(), await self.manager.store.now()):
            return stands
        owned.check_graph()
        await owned.resume()
        return self._checked(await owned.drive(None, wait=False), owned, check=check)

    async def recover(self, *, limit: int = 8, check: bool = False) -> list[RunResult]:
        """Adopt the sessions of this workflow that nobody runs although they could go on.

        These are running ones whose owner is gone, and submitted and sleeping ones whose time has
        come.  One that cannot be continued (its graph changed, a record is damaged) does not keep
        others back.

        Args:
            limit: Sessions that are continued at once.
            check: Raise the first error, once all are done; by default failed runs are returned and
                other errors are logged.
        """
        check_count("limit", limit)
        await self._open_kept()
        slots = asyncio.Semaphore(limit)

        async def adopt(head: Head) -> RunResult | None:
            async with slots:
                try:
                    async with self._own(head.session_id, create=False, checked=False) as owned:
                        if wants_to_run(owned.summary(), now):
                            return await self._take_up(owned, check=check)
                except (SessionBusyError, SessionNotFoundError):
                    pass
                return None  # somebody else was first

        now = await self.manager.store.now()
        found = [
            head
            async for head in self.manager.heads()
            if head.summary.workflow == self.workflow.name and wants_to_run(head.summary, now)
        ]
        results = await asyncio.gather(*(adopt(head) for head in found), return_exceptions=True)
        for head, result in zip(found, results, strict=True):
            if isinstance(result, BaseException):
                if check or not isinstance(result, RafError):
                    raise result
                log.error("session %r was not recovered: %s", head.session_id, result)
        return [result for result in results if isinstance(result, RunResult)]

    def _entry(self, value: Any, run_id: str, max_steps: int | None, **options: Any) -> Entry:
        """What is to be run; its input is encoded as the start node takes it."""
        workflow = self.workflow
        shape = workflow.nodes[workflow.topology.start].payload
        payload = encode(shape.fit(value, "input"), workflow.types, where="input")
        digest = hashlib.sha256(payload).digest()[:16]
        steps = max_steps or self.max_steps
        return Entry(check_run_id(run_id), payload, digest, steps, **options)

    def _checked(self, result: RunResult, owned: OwnedSession, *, check: bool) -> RunResult:
        if result.status == "failed" and check:
            raise RunFailedError(
                result.session_id, result.run_id, owned.step + 1, result.reason, result
            ) from owned.error
        return result
