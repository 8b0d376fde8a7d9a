"""The port on one SQLite file.

Theory of operation.  Writes go through the one writer thread (`writer`), reads through a small pool
of connections of their own, each read in one transaction, so all its parts are of one moment and no
write waits for it.  Other processes may use the file at the same time: a claim is decided in a
write transaction, and every write of an owner is checked against the session's epoch in its own.

A task that is cancelled in a write leaves the write to the thread; the next read of this instance
waits until it is done, so the outcome can be read.  A claim that nobody waits for any more is given
back.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, get_args

from raf.clock import Clock
from raf.errors import (
    ConfigurationError,
    StoreClosedError,
    StoreUnavailableError,
)
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
from raf.store.owner import LeaseWatch
from raf.store.port import Store
from raf.store.sqlite import reads
from raf.store.sqlite.adopting import AdoptWrite
from raf.store.sqlite.due import ClaimDueWrite
from raf.store.sqlite.faults import translate
from raf.store.sqlite.leases import ClaimWrite, ForgetClaimWrite, ReleaseWrite, RenewWrite
from raf.store.sqlite.salvage import salvage
from raf.store.sqlite.schema import (
    READER_TIMEOUT_S,
    Synchronous,
    open_for_reading,
    open_for_writing,
)
from raf.store.sqlite.writer import Writer
from raf.store.sqlite.writes import (
    AppendWrite,
    CommitWrite,
    DeleteWrite,
    FlushWrite,
    PruneWrite,
    RequestWrite,
    Write,
)

T = TypeVar("T")

READERS = 4


class SqliteStore(Store):
    """Keeps sessions in one SQLite file, beside which SQLite keeps its log (`-wal`, `-shm`).

    Args:
        path: The file; its folder must exist.  It is made when it is missing.
        synchronous: `full`: a commit survives a power cut.  `normal`: it survives a kill of the
            process, and a power cut may take the last commits.
        busy_timeout_s: How long a write waits while another process writes.
        clock: For lease times and time stamps.

    Guarantees: never writes to a file of another program or of a newer format.

    Example:
        >>> async with SqliteStore("runs.db") as store:  # doctest: +SKIP
        ...     await store.scan()
        []
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: Synchronous = "full",
        busy_timeout_s: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(clock=clock)
        if str(path) in ("", ".", ":memory:"):
            raise ConfigurationError(
                f"a SQLite store needs a file, not {str(path)!r}: for none, use memory:"
            )
        if synchronous not in get_args(Synchronous):
            raise ConfigurationError(f"synchronous is full or normal, not {synchronous!r}")
        self.path = Path(path).absolute()
        self._url = f"sqlite:{path}" + ("" if synchronous == "full" else "?synchronous=normal")
        self._synchronous: Synchronous = synchronous
        self._busy_timeout_s = busy_timeout_s
        self._watch = LeaseWatch(self.clock)
        self._gate = threading.Lock()  # held while opening and closing
        self._opened = 0
        self._process = 0
        self._writer: Writer | None = None
        self._readers: _Readers | None = None
        self._left = 0  # writes that lost whoever waited for them
        self._flushed = 0  # how many of those are known to be done

    @property
    def url(self) -> str:
        return self._url

    async def open(self) -> None:
        opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait([opening])
            if opening.exception() is None:
                await asyncio.to_thread(self._close)
            raise

    async def close(self) -> None:
        await asyncio.shield(asyncio.to_thread(self._close))

    def _open(self) -> None:
        with self._gate:
            if self._opened == 0:
                connection = self._connect(create=True)
                self._writer = Writer(
                    connection,
                    lambda: self._connect(create=False),
                    path=self.path,
                    url=self.url,
                    busy_timeout_s=self._busy_timeout_s,
                    clock=self.clock,
                )
                self._readers = _Readers(self.path, self.url)
                self._process = os.getpid()
            self._opened += 1

    def _close(self) -> None:
        with self._gate:
            self._opened = max(0, self._opened - 1)
            if self._opened or self._writer is None or self._readers is None:
                return
            writer, readers = self._writer, self._readers
            self._writer = self._readers = None
            readers.close()
            writer.close()

    def _connect(self, *, create: bool) -> sqlite3.Connection:
        try:
            return open_for_writing(self.path, self.url, self._synchronous, create=create)
        except sqlite3.Error as error:
            raise translate(error, self.url, waited_s=self._busy_timeout_s) from error

    def _check_process(self) -> None:
        # A forked child has neither the thread nor the right to use the parent's connections.
        if self._process != os.getpid():
            raise StoreUnavailableError(self.url, "it was opened before a fork: open it here")

    async def _write(self, write: Write[T]) -> T:
        if self._writer is None:
            raise StoreClosedError(self.url)
        self._check_process()
        self._writer.submit(write)
        try:
            return await write.future
        except asyncio.CancelledError:
            self._left += 1
            raise

    async def _read(self, act: Callable[[sqlite3.Connection], T], session_id: str = "") -> T:
        if self._left > self._flushed:
            left = self._left
            await self._write(FlushWrite())
            self._flushed = max(left, self._flushed)
        if self._readers is None:
            raise StoreClosedError(self.url)
        self._check_process()
        return await self._readers.run(act, session_id)

    async def claim(
        self, session_id: str, owner: Owner, *, lease_s: float, create: bool = False
    ) -> Claimed:
        write = ClaimWrite(
            check_session_id(session_id),
            owner,
            lease_s=lease_s,
            create=create,
            clock=self.clock,
            watch=self._watch,
        )
        return await self._claimed(write)

    async def claim_due(
        self, owner: Owner, due: Due, *, lease_s: float, limit: int
    ) -> list[Claimed]:
        write = ClaimDueWrite(
            owner, due, lease_s=lease_s, limit=limit, clock=self.clock, watch=self._watch
        )
        return await self._claimed(write)

    async def _claimed(self, write: Write[T]) -> T:
        """Wait for a claim; one that nobody waits for any more is given back."""
        try:
            return await self._write(write)
        except asyncio.CancelledError:
            if self._writer is not None:
                self._writer.submit(ForgetClaimWrite(write))
            raise

    async def renew(self, leases: Sequence[Lease]) -> list[bool]:
        write = RenewWrite(leases, self.clock)
        ends = await self._write(write)
        for lease, end in zip(write.leases, ends, strict=True):
            if end is not None:
                lease.expires_boot = end
        return [end is not None for end in ends]

    async def release(self, lease: Lease) -> None:
        await self._write(ReleaseWrite(lease))

    async def commit(self, lease: Lease, commit: Commit) -> None:
        await self._write(CommitWrite(lease, commit))

    async def append(self, lease: Lease, bodies: Sequence[bytes]) -> None:
        await self._write(AppendWrite(lease, bodies, self.clock))

    async def read(self, session_id: str, select: Select) -> Reading | None:
        check_session_id(session_id)
        return await self._read(lambda c: reads.read(c, session_id, select), session_id)

    async def salvage(self, session_id: str) -> Salvage | None:
        check_session_id(session_id)
        return await self._read(lambda c: salvage(c, session_id), session_id)

    async def request(self, session_id: str, request_id: str, kind: str, body: bytes) -> Request:
        check_session_id(session_id)
        return await self._write(RequestWrite(session_id, request_id, kind, body, self.clock))

    async def scan(self, *, after: str = "", limit: int = 1000) -> list[Head]:
        return await self._read(lambda c: reads.scan(c, after, limit))

    async def prune(
        self, lease: Lease, bodies: Sequence[int], *, events_before: int | None = None
    ) -> None:
        await self._write(PruneWrite(lease, bodies, events_before))

    async def delete(self, lease: Lease) -> None:
        await self._write(DeleteWrite(lease))

    async def adopt(self, session: Reading) -> None:
        check_session_id(session.head.session_id)
        await self._write(AdoptWrite(session))


class _Readers:
    """A pool of reading connections and the threads that use them."""

    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._url = url
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix=f"raf read {url}")
        self._idle: list[sqlite3.Connection] = []

    async def run(self, act: Callable[[sqlite3.Connection], T], session_id: str) -> T:
        try:
            waiting = asyncio.get_running_loop().run_in_executor(
                self._threads, self._one, act, session_id
            )
        except RuntimeError as error:  # closed between the check and here
            raise StoreClosedError(self._url) from error
        return await waiting

    def _one(self, act: Callable[[sqlite3.Connection], T], session_id: str) -> T:
        connection: sqlite3.Connection | None = None
        try:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = open_for_reading(self._path)
            connection.execute("BEGIN")
            result = act(connection)
            connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise translate(
                error, self._url, waited_s=READER_TIMEOUT_S, session_id=session_id
            ) from error
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        self._idle.append(connection)
        return result

    def close(self) -> None:
        self._threads.shutdown()
        while self._idle:
            self._idle.pop().close()
