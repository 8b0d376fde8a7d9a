"""The few calls by which the file store touches the disk, and what their errors mean.

Rules of this file:
- Every call that changes something for good stands between two failpoints.
- A failed sync is never repeated on its descriptor: the kernel may have dropped the dirty pages and
  would answer success.  The file is given up, the error goes to the caller.
- Nothing is renamed or linked here that was not written and synced whole.

A test replaces `Disk` by one that fails, or that loses power, at its n-th call.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from raf.errors import RafError, StoreFullError, StoreUnavailableError
from raf.failpoint import failpoint

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: through the drive's cache


class Disk:
    """Blocking file calls; every one raises OSError as the system does."""

    def read(self, path: str) -> bytes:
        """The bytes of a file."""
        with open(path, "rb", buffering=0) as file:
            return file.read()

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, in no order."""
        return os.listdir(path)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder; only its absence is False, errors are raised."""
        try:
            os.stat(path)
        except FileNotFoundError:
            return False
        return True

    def write_new(self, path: str, data: bytes) -> None:
        """Create a file that was not there, write it whole and sync it."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            failpoint("store.file.write.before")
            _sync(descriptor)
            failpoint("store.file.write.after")
        finally:
            os.close(descriptor)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, unless that name is taken (FileExistsError)."""
        failpoint("store.file.link.before")
        os.link(source, target)
        failpoint("store.file.link.after")

    def rename(self, source: str, target: str) -> None:
        """Give a file or folder another name; a file there is replaced, a full folder is not."""
        failpoint("store.file.rename.before")
        os.rename(source, target)
        failpoint("store.file.rename.after")

    def remove(self, path: str) -> None:
        """Remove a file."""
        failpoint("store.file.remove.before")
        os.unlink(path)
        failpoint("store.file.remove.after")

    def mkdir(self, path: str) -> None:
        """Make a folder that was not there."""
        failpoint("store.file.mkdir.before")
        os.mkdir(path)
        failpoint("store.file.mkdir.after")

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder last."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            failpoint("store.file.sync_dir.before")
            _sync(descriptor)
            failpoint("store.file.sync_dir.after")
        finally:
            os.close(descriptor)

    @contextmanager
    def locked(self, path: str) -> Iterator[bool]:
        """Lock a file, made when it is missing, for this caller alone; False when another has it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)  # this unlocks it, and so does the end of the process

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it; another process may be at it too."""
        failpoint("store.file.remove_tree.before")
        shutil.rmtree(path, ignore_errors=True)
        failpoint("store.file.remove_tree.after")


def _sync(descriptor: int) -> None:
    """Have the descriptor's data on the platter; called between the caller's failpoints."""
    failpoint("store.file.fsync.before")
    if _FULL_SYNC is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    failpoint("store.file.fsync.after")


def translate(error: OSError, url: str) -> RafError:
    """The error that a caller gets.

    Args:
        error: What a call of the disk raised.
        url: The store, for the message.
    """
    name = errno.errorcode.get(error.errno or 0, type(error).__name__)
    reason = f"{error} ({name})"
    if error.errno in _FULL:
        return StoreFullError(url, reason)
    return StoreUnavailableError(url, reason)
