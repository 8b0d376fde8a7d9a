"""The tables of the SQLite store, and how a file is opened.

Rules of this file: a file that is not ours is never written to, and one of a newer format neither.
What a file is, is decided by reading; only then is it made ready.

Theory of operation.  A record's key is one integer, `session number << 32 | position`: a session's
records lie together, a new one goes to the end of its range, and no second index is kept.  The
session's row is the head: a step rewrites it and adds one record row.  A body that is NULL was
pruned; an empty one is an empty blob.  Below the position `kept_from` no commit has a body; only a
prune moves it.  A deleted session keeps its row, with an empty nonce, so that its epoch goes on.
Names that users choose (runs, requests) are blobs: any text fits.

Two indices say what workers look for, so that a finished session costs them nothing.  SQLite keeps
both in step with the rows, also for a writer that does not know them, so they are no part of the
format and a file that lacks them gets them when it is opened.  `sessions_due` holds what may be due,
by queue and `DUE`: below zero for a submitted session, in the order of its last commit; zero for one
that wants to run at once; else the time it waits for.  It may name a session that is not due (what
is due, `raf.store.due` decides), but leaves out none.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from raf.errors import FormatVersionError, StoreUnavailableError
from raf.failpoint import failpoint
from raf.store.due import FINISHED, TIMED
from raf.store.sqlite.faults import is_busy

Synchronous = Literal["full", "normal"]
T = TypeVar("T")

APPLICATION_ID = int.from_bytes(b"RAF1", "big")
FORMAT = 1
READER_TIMEOUT_S = 10.0
PATIENCE = 1_000  # tries, 10 ms apart, to make a new file ready beside other processes
# The write-ahead log is cut back to this after a burst.
LOG_BYTES = 64 * 1024 * 1024

TABLES = (
    """
    CREATE TABLE sessions (
        number INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given again: records hang on it
        id TEXT NOT NULL UNIQUE,
        nonce TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        position INTEGER NOT NULL,
        commit_number INTEGER NOT NULL,
        commit_position INTEGER NOT NULL,
        journal_from INTEGER NOT NULL,
        events INTEGER NOT NULL,
        first_event INTEGER NOT NULL,
        kept_from INTEGER NOT NULL,
        consumed INTEGER NOT NULL,
        requests INTEGER NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        commit_id TEXT NOT NULL,
        owner TEXT,
        expires_boot REAL,
        duration_s REAL,
        summary TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE records (
        key INTEGER PRIMARY KEY,
        kind INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        created_at REAL NOT NULL,
        mark INTEGER NOT NULL,
        commit_number INTEGER,
        step INTEGER,
        first_event INTEGER,
        event_count INTEGER,
        run_id BLOB,
        events BLOB,
        body BLOB
    )
    """,
    """
    CREATE TABLE runs (
        session INTEGER NOT NULL,
        run_id BLOB NOT NULL,
        position INTEGER NOT NULL,
        PRIMARY KEY (session, run_id)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE requests (
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        request_id BLOB NOT NULL,
        kind BLOB NOT NULL,
        created_at REAL NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (session, seq)
    ) WITHOUT ROWID
    """,
    "CREATE UNIQUE INDEX requests_by_id ON requests (session, request_id)",
)

_STATUS, _WAKE_AT = "json_extract(summary, '$[3]')", "json_extract(summary, '$[5]')"
# JSON of Python has numbers that SQLite's has not: what SQLite cannot read is of no queue.
QUEUE = "CASE WHEN json_valid(summary) THEN ifnull(json_extract(summary, '$[6]'), 'default') END"
SUBMITTED_BEFORE = 1e11  # above every time
DUE = f"""
    CASE
        WHEN nonce = '' OR commit_number < 0 THEN NULL
        WHEN NOT json_valid(summary) THEN 0.0
        WHEN {_STATUS} IN {FINISHED} THEN NULL
        WHEN requests > consumed OR {_STATUS} = 'running' THEN 0.0
        WHEN {_STATUS} = 'submitted' AND {_WAKE_AT} IS NULL THEN updated_at - {SUBMITTED_BEFORE}
        WHEN {_STATUS} IN {TIMED} THEN max({_WAKE_AT}, 0.0)
    END
"""
INDICES = {
    "sessions_due": f"({QUEUE}, {DUE}, id) WHERE {DUE} IS NOT NULL",
    "sessions_held": "(id) WHERE owner IS NOT NULL",
}


def check_place(path: Path, url: str) -> None:
    """Return if a database file can stand at this path.

    Raises:
        StoreUnavailableError: The folder is missing, or the path is a folder.
    """
    if not path.parent.is_dir():
        raise StoreUnavailableError(url, f"the folder {path.parent} does not exist: make it first")
    if path.is_dir():
        raise StoreUnavailableError(url, f"{path} is a folder, not a file")


def _check_writable(path: Path, url: str) -> None:
    # SQLite opens what it may not write for reading, without a word.
    effective = os.access in os.supports_effective_ids
    if not os.access(path, os.W_OK, effective_ids=effective):
        raise StoreUnavailableError(url, f"{path} may not be written")


def open_for_writing(
    path: Path, url: str, synchronous: Synchronous, *, create: bool
) -> sqlite3.Connection:
    """Open the file, make it ready if it is new, and check that it can be written.

    Without `create` the file must be there: a store in use is never replaced by an empty one.
    Waits for locks are the caller's: statements of this connection never wait.

    Raises:
        StoreUnavailableError: It is another program's file, or cannot be read or written.
        FormatVersionError: A newer version wrote it.
        sqlite3.Error: Anything else that SQLite reports.
    """
    check_place(path, url)
    connection = _connect(path, timeout_s=0, mode="rwc" if create else "rw")
    try:
        new = _patiently(lambda: _check_format(connection, url))
        _check_writable(path, url)
        _use_write_ahead_log(connection, url)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        if new:
            _make_ready(connection, url)
        if _lacks_index(connection):
            _make_indices(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open another connection to a file that is ready; it neither makes a file nor writes."""
    connection = _connect(path, timeout_s=READER_TIMEOUT_S, mode="rw")
    connection.execute("PRAGMA query_only = 1")
    return connection


def _connect(path: Path, *, timeout_s: float, mode: str) -> sqlite3.Connection:
    # Transactions are begun and ended by name; a connection is used by one thread at a time.
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.text_factory = _text  # damaged text is for `rows` to judge, as every column is
    return connection


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _check_format(connection: sqlite3.Connection, url: str) -> bool:
    """Whether the file is new; raises when it is not ours."""
    application = _number(connection, "PRAGMA application_id")
    version = _number(connection, "PRAGMA user_version")
    if application == APPLICATION_ID:
        if version > FORMAT:
            raise FormatVersionError(version, FORMAT)
        return False
    tables = _number(connection, "SELECT count(*) FROM sqlite_master")
    if application or version or tables:
        raise StoreUnavailableError(
            url, "the file is a SQLite database of another program; it was not touched"
        )
    return True


def _number(connection: sqlite3.Connection, statement: str) -> int:
    return int(connection.execute(statement).fetchone()[0])


def _use_write_ahead_log(connection: sqlite3.Connection, url: str) -> None:
    mode = _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
    if mode != "wal":
        raise StoreUnavailableError(
            url, f"its file system cannot keep a write-ahead log (journal mode is {mode})"
        )


def _make_ready(connection: sqlite3.Connection, url: str) -> None:
    """Create the tables, unless another process was first."""
    _patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
    if not _check_format(connection, url):
        connection.execute("ROLLBACK")
        return
    for table in TABLES:
        connection.execute(table)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    failpoint("store.sqlite.open.before")
    connection.execute("COMMIT")
    failpoint("store.sqlite.open.after")


def _lacks_index(connection: sqlite3.Connection) -> bool:
    there = "SELECT count(*) FROM sqlite_master WHERE type = 'index' AND name IN (?, ?)"
    return _patiently(lambda: int(connection.execute(there, tuple(INDICES)).fetchone()[0])) < len(
        INDICES
    )


def _make_indices(connection: sqlite3.Connection) -> None:
    _patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
    for name, what in INDICES.items():
        connection.execute(f"CREATE INDEX IF NOT EXISTS {name} ON sessions {what}")
    failpoint("store.sqlite.index.before")
    connection.execute("COMMIT")
    failpoint("store.sqlite.index.after")


def _patiently(act: Callable[[], T]) -> T:
    # SQLite does not wait while another process switches a new file to the write-ahead log.
    for _ in range(PATIENCE):
        try:
            return act()
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        time.sleep(0.01)
    return act()
