"""A store of plain files: one folder a session, one file a record, nothing ever rewritten."""

from raf.store.file.store import FileStore

__all__ = ["FileStore"]
