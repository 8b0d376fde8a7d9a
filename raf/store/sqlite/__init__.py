"""The store on one SQLite file: the embedded default, for one process or several of one machine."""

from raf.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
