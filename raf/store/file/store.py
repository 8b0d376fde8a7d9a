"""The file store: each operation is one function in one thread.

Rules of this file: the event loop touches no file.  A hop that has begun goes on when its caller is
cancelled, so what it does is done wholly, and the next call waits for it; a hop that has not begun does
nothing.  A claim that nobody waits for any more is given back.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from raf.clock import Clock
from raf.errors import LeaseLostError, RafError, StoreClosedError
from raf.store.file.adopting import Adopter
from raf.store.file.claims import Claims
from raf.store.file.disk import Disk, translate
from raf.store.file.due import DueClaims
from raf.store.file.inbox import Inbox
from raf.store.file.log import Log
from raf.store.file.place import Place
from raf.store.file.pruning import Pruner
from raf.store.file.reader import Reader
from raf.store.file.salvage import salvage
from raf.store.model import (
    Claimed,
    Commit,
    Due,
    Head,
    Lease,
    Owner,
    Reading,
    Request,
    Salvage,
    Select,
    check_session_id,
)
from raf.store.port import Store

Answer = TypeVar("Answer")

_THREADS = 8
_LOCKS = 64


class FileStore(Store):
    """Keeps sessions in a folder of a local file system; its URL is `file:DIR`.

    Args:
        root: The folder; it is made when it is missing.
        clock: Where time and ids come from.
        disk: The calls that touch the disk; tests replace it.

    Several processes of one machine may use one folder at the same time.  The file system must have
    hard links and an atomic rename, as every local one on Linux and macOS has.  What a call has
    returned survives a power cut, as far as the drive keeps what it says it has synced.  A reader in
    another process may see a commit a moment before its writer has synced it.

    A renewal and a claim of an expired lease may cross: then the claim counts, and the former owner
    learns it from its next renewal or write, which is refused.

    Example:
        >>> import asyncio, tempfile
        >>> async def sessions(folder: str) -> int:
        ...     async with FileStore(folder) as store:
        ...         return len(await store.scan())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     asyncio.run(sessions(folder))
        0
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        super().__init__(clock=clock)
        self._root = os.path.abspath(os.fspath(root))
        self._place = Place(disk or Disk(), self.clock, self._root, self.url)
        self._reader = Reader(self._place)
        self._log = Log(self._place, self._reader, self.clock)
        self._claims = Claims(self._place, self._reader, self._log, self.clock)
        self._inbox = Inbox(self._place, self._reader, self.clock)
        self._pruner = Pruner(self._place, self._reader, self._log)
        self._adopter = Adopter(self._place, self._reader, self.clock)
        self._due = DueClaims(self._place, self._reader, self._claims, self.clock, self._lock)
        # Operations of one session take turns; a few locks do for any number of sessions.
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._opened = 0
        self._threads: ThreadPoolExecutor | None = None
        self._left: set[Future[Any]] = set()  # hops that lost whoever waited for them

    @property
    def url(self) -> str:
        return f"file:{self._root}"

    async def open(self) -> None:
        await asyncio.to_thread(self._guarded, self._place.prepare)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="raf-file")
        self._opened += 1

    async def close(self) -> None:
        self._opened = max(0, self._opened - 1)
        if self._opened or self._threads is None:
            return
        threads, self._threads = self._threads, None
        await asyncio.to_thread(threads.shutdown)

    def _guarded(self, work: Callable[[], Answer]) -> Answer:
        try:
            return work()
        except OSError as error:
            raise translate(error, self.url) from error

    async def _hop(self, work: Callable[[], Answer]) -> Answer:
        """Do something in a thread, once what lost its caller here is done.

        So the outcome of a cancelled write can be read, and no later write overtakes it.
        """
        while left := tuple(self._left):
            # A wait that is cancelled would cancel what it waits for.
            await asyncio.shield(asyncio.wait([asyncio.wrap_future(hop) for hop in left]))
        if self._threads is None:
            raise StoreClosedError(self.url)
        hop = self._threads.submit(self._guarded, work)
        try:
            return await asyncio.wrap_future(hop)
        except asyncio.CancelledError:
            if not hop.done():
                self._left.add(hop)
                hop.add_done_callback(self._left.discard)
            raise

    def _lock(self, session_id: str) -> threading.Lock:
        return self._locks[hash(session_id) % _LOCKS]

    async def _alone(self, session_id: str, work: Callable[[], Answer]) -> Answer:
        """Do a write of one session while no other of it is done here."""

        def locked() -> Answer:
            with self._lock(session_id):
                return work()

        return await self._hop(locked)

    async def _as_owner(self, lease: Lease, work: Callable[[], Answer]) -> Answer:
        """Do an owner's write; what vanished under it was deleted by a later owner, or is missed."""
        return await self._alone(lease.session_id, lambda: self._checked(lease, work))

    def _checked(self, lease: Lease, work: Callable[[], Answer]) -> Answer:
        try:
            return work()
        except FileNotFoundError:
            self._log.forget(lease)
            self._log.owned(lease)
            raise

    async def claim(
        self, session_id: str, owner: Owner, *, lease_s: float, create: bool = False
    ) -> Claimed:
        name = check_session_id(session_id)
        grant = _Grant()

        def take() -> Claimed:
            claimed = self._claims.claim(name, owner, lease_s, create=create)
            if not grant.offer([claimed.lease]):
                self._give_back(claimed.lease)
            return claimed

        return await self._granted(grant, self._alone(name, take))

    async def claim_due(
        self, owner: Owner, due: Due, *, lease_s: float, limit: int
    ) -> list[Claimed]:
        grant = _Grant()

        def take() -> list[Claimed]:
            claimed: list[Claimed] = []
            with self._due.turn():
                try:
                    self._due.claim(claimed, owner, due, lease_s=lease_s, limit=limit)
                except BaseException:
                    self._give_back_alone([one.lease for one in claimed])
                    raise
                leases = [one.lease for one in claimed]
                if not grant.offer(leases):
                    self._give_back_alone(leases)
            return claimed

        return await self._granted(grant, self._hop(take))

    async def _granted(self, grant: "_Grant", claim: Coroutine[Any, Any, Answer]) -> Answer:
        """Wait for a claim; what nobody waits for any more is given back."""
        try:
            return await claim
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.to_thread(self._give_back_alone, grant.give_up()))
            raise

    def _give_back(self, lease: Lease) -> None:
        """Release a lease that nobody got; one that cannot be released ends by its time."""
        with suppress(OSError, RafError):
            self._checked(lease, partial(self._claims.release, lease))

    def _give_back_alone(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            with self._lock(lease.session_id):
                self._give_back(lease)

    async def renew(self, leases: Sequence[Lease]) -> list[bool]:
        return await self._hop(lambda: self._renew(leases))

    def _renew(self, leases: Sequence[Lease]) -> list[bool]:
        answers: list[bool] = []
        failed: OSError | RafError | None = None
        for lease in leases:
            try:
                with self._lock(lease.session_id):
                    answers.append(self._checked(lease, partial(self._claims.renew, lease)))
            except LeaseLostError:
                answers.append(False)
            except (OSError, RafError) as error:
                failed = failed or error  # one session's fault costs no other its lease
        if failed is not None:
            raise failed
        return answers

    async def release(self, lease: Lease) -> None:
        await self._as_owner(lease, lambda: self._claims.release(lease))

    async def commit(self, lease: Lease, commit: Commit) -> None:
        await self._as_owner(lease, lambda: self._log.commit(lease, commit))

    async def append(self, lease: Lease, bodies: Sequence[bytes]) -> None:
        await self._as_owner(lease, lambda: self._log.append(lease, bodies))

    async def read(self, session_id: str, select: Select) -> Reading | None:
        name = check_session_id(session_id)
        return await self._hop(lambda: self._reader.read(name, select))

    async def salvage(self, session_id: str) -> Salvage | None:
        name = check_session_id(session_id)
        return await self._hop(lambda: salvage(self._place, self._reader, name))

    async def request(self, session_id: str, request_id: str, kind: str, body: bytes) -> Request:
        name = check_session_id(session_id)
        return await self._alone(name, lambda: self._inbox.request(name, request_id, kind, body))

    async def scan(self, *, after: str = "", limit: int = 1000) -> list[Head]:
        return await self._hop(lambda: self._reader.scan(after, limit))

    async def prune(
        self, lease: Lease, bodies: Sequence[int], *, events_before: int | None = None
    ) -> None:
        await self._as_owner(lease, lambda: self._pruner.prune(lease, bodies, events_before))

    async def delete(self, lease: Lease) -> None:
        await self._as_owner(lease, lambda: self._log.delete(lease))

    async def adopt(self, session: Reading) -> None:
        name = check_session_id(session.head.session_id)
        await self._alone(name, lambda: self._adopter.adopt(session))


class _Grant:
    """A claim's leases between the thread that takes them and the task that waits for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: Sequence[Lease] = ()
        self._given_up = False

    def offer(self, leases: Sequence[Lease]) -> bool:
        """Lay the leases down; False when nobody waits, so that the thread gives them back."""
        with self._lock:
            self._leases = leases
            return not self._given_up

    def give_up(self) -> Sequence[Lease]:
        """Stop waiting; the leases that lie there already, so that the task gives them back."""
        with self._lock:
            self._given_up = True
            return self._leases
