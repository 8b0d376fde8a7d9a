"""Keeps the leases of an engine's sessions and listens to their inboxes.

Rules of this file:
- One task per engine renews every lease at a third of its duration, in one batch, and looks for
  new requests once a poll period; requests made through this engine are heard at once.
- A run whose lease was lost, or that is to be cancelled, is interrupted in mid-step.
- An owner whose lease has run out by its own clock starts nothing until a renewal succeeds.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from raf.errors import LeaseLostError, RafError
from raf.store.model import Lease, Request, Select
from raf.store.port import Store

log = logging.getLogger("raf.engine")

POLL_S: Final = 0.5
CANCEL: Final = "cancel"

Why: TypeAlias = Literal["cancel", "drain", "lost"]


class Interrupted(Exception):  # noqa: N818 - no error: a run is told to stop in mid-step
    """A step is to stop now; `why` says for what."""

    def __init__(self, why: Why) -> None:
        super().__init__(why)
        self.why = why


@dataclass(slots=True)
class Watch:
    """What one run and the keeper share."""

    store: Store | None
    lease: Lease | None
    run_id: str = ""
    draining: bool = False
    requests_wait: bool = False
    _stop: asyncio.Future[None] | None = None
    _why: Why | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def epoch(self) -> int:
        """The epoch of the lease; 0 when nothing is stored."""
        return 0 if self.lease is None else self.lease.epoch

    def interrupts(self, step: asyncio.Future[None] | None) -> None:
        """Let an interruption end this step; None when it is over."""
        self._stop = step
        if step is not None and self._why is not None and not step.done():
            step.set_exception(Interrupted(self._why))

    def interrupt(self, why: Why) -> None:
        """Stop the step in flight, and any that begins later."""
        self._why = self._why or why
        self._changed.set()
        if self._stop is not None and not self._stop.done():
            self._stop.set_exception(Interrupted(why))

    def heard(self) -> None:
        """There are requests in the inbox."""
        self.requests_wait = True
        self._changed.set()

    def drain(self) -> None:
        """Stop at the next end of a step."""
        self.draining = True
        self._changed.set()

    def is_cancelled_by(self, request: Request) -> bool:
        """Whether this request cancels the run in hand; one that came too late means another."""
        return request.kind == CANCEL and request.body == self.run_id.encode()

    async def sleep(self, seconds: float) -> None:
        """Wait so long, or until something happened to the run."""
        self._changed.clear()
        if self.draining or self.requests_wait or self._why or self.store is None:
            return
        waits = [
            asyncio.ensure_future(self._changed.wait()),
            asyncio.ensure_future(self.store.clock.sleep(seconds)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def check(self) -> None:
        """Raise `Interrupted` if the run was told to stop."""
        if self._why is not None:
            raise Interrupted(self._why)

    async def hold_lease(self) -> None:
        """Return when the lease holds by this process's clock.

        Raises:
            LeaseLostError: Another owner has taken the session.
        """
        if self.store is None or self.lease is None:
            return
        if self.store.clock.boot() < self.lease.expires_boot:
            return
        if not (await self.store.renew([self.lease]))[0]:
            raise LeaseLostError(self.lease.session_id, self.lease.epoch)


class Keeper:
    """The engine's one background task."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watches: dict[str, Watch] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, lease: Lease) -> Watch:
        """Keep this lease and listen for its session until `forget`."""
        watch = Watch(self._store, lease)
        self._watches[lease.session_id] = watch
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        return watch

    def forget(self, session_id: str, watch: Watch) -> None:
        """Stop keeping this lease of a session; a later one of it is kept on."""
        if self._watches.get(session_id) is watch:
            del self._watches[session_id]

    def of(self, session_id: str) -> Watch | None:
        """The watch of a session that this engine runs."""
        return self._watches.get(session_id)

    def keeps_any(self) -> bool:
        """Whether any session is owned at this moment."""
        return bool(self._watches)

    def drain(self) -> list[Watch]:
        """Tell every run to stop at the next end of a step."""
        for watch in self._watches.values():
            watch.drain()
        return list(self._watches.values())

    async def close(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while self._watches:
            await asyncio.sleep(POLL_S)
            trouble: RafError | None = None
            try:
                await self._renew()
            except RafError as error:
                trouble = error
            for session_id, watch in list(self._watches.items()):
                try:
                    await self._listen(session_id, watch)
                except RafError as error:  # of one session: the others are heard all the same
                    trouble = error
            if trouble is not None:
                # Not fatal: an expired lease stops the run itself, and the store may come back.
                log.warning("keeping leases: %s", trouble)

    async def _renew(self) -> None:
        now = self._store.clock.boot()
        due = [
            watch
            for watch in self._watches.values()
            if watch.lease and watch.lease.expires_boot - now < watch.lease.duration_s * 2 / 3
        ]
        leases = [watch.lease for watch in due if watch.lease]
        if not leases:
            return
        for watch, kept in zip(due, await self._store.renew(leases), strict=True):
            if not kept:
                watch.interrupt("lost")

    async def _listen(self, session_id: str, watch: Watch) -> None:
        reading = await self._store.read(session_id, Select(requests=True))
        if reading is None:
            watch.interrupt("lost")
        elif reading.requests:
            watch.heard()
            if any(watch.is_cancelled_by(request) for request in reading.requests):
                watch.interrupt("cancel")
