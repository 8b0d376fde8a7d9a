"""The one thread that writes a database file for this process.

Rules of this file: only this thread uses the writing connection; every write waits in its queue.

Theory of operation.  The thread takes all that waits, runs it in one `BEGIN IMMEDIATE` transaction,
commits once, and wakes each event loop once: sessions that commit at the same time share one sync
of the disk.  A write that its own checks refuse fails alone.  A write that breaks off in the middle
(no room for its body) rolls the group back; then each of the others runs alone, since what broke
one may break more.  When the commit fails, the whole group fails, and after an error of input or
output the connection is opened anew before the next group.  Right before each commit the thread looks
whether the path still names the file that it opened at first: if not, nothing is committed until
that file is back or the store was closed and opened again.

A write goes on when the task that waits for it is cancelled.  The thread is a daemon: a process that
never closes its store ends all the same, at worst inside a transaction that then never was.
"""

import logging
import os
import queue
import sqlite3
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from raf.clock import Clock
from raf.errors import CorruptRecordError, RafError, StoreClosedError, StoreUnavailableError
from raf.failpoint import failpoint
from raf.store.sqlite.faults import breaks_connection, is_busy, translate
from raf.store.sqlite.writes import Write

log = logging.getLogger(__name__)

AnyWrite = Write[Any]
# Waits for another process's lock, short at first; what is left is chance, so that none starves.
SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.0005, 0.01


class Writer:
    """Runs writes in groups, in the order in which they came.

    Args:
        connect: Opens the writing connection; called in the thread again when one broke.
        connection: The connection to begin with.
        path: The file; it must be there.
        url: The store, for errors.
        busy_timeout_s: How long to wait while another process writes.
        clock: For the chance in waiting.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        connect: Callable[[], sqlite3.Connection],
        *,
        path: Path,
        url: str,
        busy_timeout_s: float,
        clock: Clock,
    ) -> None:
        self._connection: sqlite3.Connection | None = connection
        self._connect = connect
        self._path = path
        self._file = _identity(path)
        self._url = url
        self._busy_timeout_s = busy_timeout_s
        self._clock = clock
        self._queue: queue.SimpleQueue[AnyWrite | None] = queue.SimpleQueue()
        self._closing = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name=f"raf {url}", daemon=True)
        self._thread.start()

    def submit(self, write: AnyWrite) -> None:
        """Queue a write; its future tells how it went.

        Raises:
            StoreClosedError: The writer is closing.
        """
        with self._lock:
            if self._closing:
                raise StoreClosedError(self._url)
            self._queue.put(write)

    def close(self) -> None:
        """Finish what is queued, close the connection and end the thread; blocks until then."""
        with self._lock:
            if not self._closing:
                self._closing = True
                self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while self._take_group():
            pass
        if self._connection is not None:
            self._connection.close()

    def _take_group(self) -> bool:
        """Write all that waits; False once the writer is closing and nothing is left."""
        group = [self._queue.get()]
        while not self._queue.empty():
            group.append(self._queue.get())
        writes = [write for write in group if write is not None]
        if writes:
            self._write(writes)
            _wake(writes)
        return len(writes) == len(group)

    def _write(self, group: Sequence[AnyWrite]) -> None:
        culprit = self._attempt(group)
        if culprit is None:
            return
        for write in group:
            if write is not culprit:
                write.result = write.error = None
                self._attempt([write])

    def _attempt(self, group: Sequence[AnyWrite]) -> AnyWrite | None:
        """Write a group in one transaction; returns the write that broke off in the middle."""
        try:
            connection = self._begin()
        except (sqlite3.Error, RafError) as error:
            self._fail(group, error)
            return None
        for write in group:
            try:
                write.result = write.run(connection)
            except CorruptRecordError as error:
                self._fail([write], error)
                return write
            except RafError as error:
                write.error = error
            except Exception as error:  # noqa: BLE001 - it belongs to whoever asked for this write
                self._fail([write], error)
                return write
        try:
            self._commit(connection, group)
        except Exception as error:  # noqa: BLE001 - the same; a failpoint may raise anything
            self._fail(group, error)
        return None

    def _begin(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        waited, wait = 0.0, SHORTEST_WAIT_S
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or waited >= self._busy_timeout_s:
                    raise
            else:
                return self._connection
            pause = wait * (0.5 + self._clock.chance())
            time.sleep(pause)
            waited += pause
            wait = min(2 * wait, LONGEST_WAIT_S)

    def _commit(self, connection: sqlite3.Connection, group: Sequence[AnyWrite]) -> None:
        points = [write.points() for write in group if write.error is None]
        for point in points:
            next(point, None)
        failpoint("store.sqlite.group.before")
        self._check_file()
        connection.execute("COMMIT")
        failpoint("store.sqlite.group.after")
        for point in points:
            next(point, None)

    def _check_file(self) -> None:
        """Return if the path still names the file that was opened.

        SQLite would go on without a word in a file that no other process, and no next start, finds.
        """
        if self._file is None or _identity(self._path) != self._file:
            raise StoreUnavailableError(
                self._url, f"the file {self._path} was removed or replaced while it was in use"
            )

    def _fail(self, group: Sequence[AnyWrite], error: Exception) -> None:
        """Roll back, and give the error to each write that has none of its own."""
        for write in group:
            if write.error is None:
                write.error = self._told(error, write.session_id)
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error as failure:
            log.warning("store %s: rolling back failed: %s", self._url, failure)
            error = failure
        if breaks_connection(error) or connection.in_transaction:
            connection.close()
            self._connection = None

    def _told(self, error: Exception, session_id: str) -> Exception:
        if isinstance(error, sqlite3.Error):
            told = translate(error, self._url, waited_s=self._busy_timeout_s, session_id=session_id)
            told.__cause__ = error
            return told
        return error


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _wake(group: Sequence[AnyWrite]) -> None:
    """Wake each loop once, for all its writes of the group."""
    by_loop: dict[AbstractEventLoop, list[AnyWrite]] = {}
    for write in group:
        by_loop.setdefault(write.loop, []).append(write)
    for loop, writes in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, writes)
        except RuntimeError:
            # The loop was closed meanwhile: nobody waits, and what was written stands.
            log.debug("%d writes ended after their event loop", len(writes))


def _settle(writes: Sequence[AnyWrite]) -> None:
    for write in writes:
        write.settle()
