"""What SQLite's errors mean in `raf`'s words; pure.

Rules of this file: no error of `sqlite3` reaches a caller; the primary result code decides.
"""

import sqlite3

from raf.errors import (
    CorruptRecordError,
    RafError,
    StoreBusyError,
    StoreFullError,
    StoreUnavailableError,
)

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# After these the connection is not trusted any more: a failed sync is never repeated on it.
_BROKEN = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY} | _DAMAGED


def primary_code(error: sqlite3.Error) -> int:
    """The primary result code; 0 for an error that SQLite itself did not report."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds the file."""
    return primary_code(error) in _BUSY


def breaks_connection(error: Exception) -> bool:
    """Whether the connection must be opened anew after this error."""
    return isinstance(error, sqlite3.Error) and primary_code(error) in _BROKEN


def translate(error: sqlite3.Error, url: str, *, waited_s: float, session_id: str = "") -> RafError:
    """The error that a caller gets.

    Args:
        error: What SQLite raised.
        url: The store, for the message.
        waited_s: How long a lock was waited for.
        session_id: Whose operation failed; empty when it was nobody's.
    """
    code = primary_code(error)
    reason = f"{error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
    if code in _BUSY:
        return StoreBusyError(url, waited_s)
    if code in _FULL:
        return StoreFullError(url, reason)
    if code == sqlite3.SQLITE_CORRUPT and session_id:
        return CorruptRecordError(session_id, "of the database file", reason)
    if code in _DAMAGED:
        return StoreUnavailableError(
            url, f"the file is no SQLite database, or it is damaged; it was not touched: {reason}"
        )
    return StoreUnavailableError(url, reason)
