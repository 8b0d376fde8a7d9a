"""Disks that fail, for the file store: `FileStore(root, disk=CrashingDisk(n, vault=...))`.

Theory of operation.  They work on a real folder and count the calls that the store makes.

`FailingDisk` answers its n-th call with an error of the system; the store goes on, or not, and is
looked at afterwards.

`CrashingDisk` loses power at its n-th change.  Until a folder is synced it remembers how to undo
each change of the names in it; at the crash the chosen part of what was not synced is undone, newest
first, and a file that was being written keeps half of its bytes.  From then on every call raises
`PowerLossError`.  What is then in the folder is what a machine may find after the power is back.

`FreezingDisk` lets the caller stand still before its n-th call while others work.
"""

import asyncio
import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raf.store.file.disk import Disk
from raf.testing.lost import Change, lost_changes


class PowerLossError(Exception):
    """The machine is off; no part of raf's error tree, so nothing in the store handles it."""


class CrashingDisk(Disk):
    """A disk that loses power at its n-th change.

    Args:
        n: The change at which the power goes, from 1; 0 for never.
        vault: A folder for what may have to be brought back; on the same file system, not in the
            store.
        kept: Which part of the changes of a folder that were not synced reached the platter, from
            0.0 (none) to 1.0 (all); the oldest first, as a journaling file system orders them.
        chance: With it a disk that keeps no order: each change is kept with the likelihood `kept`,
            whatever happened to others, unless an earlier one of the same names is lost.

    Example:
        >>> import asyncio, tempfile
        >>> from raf.store.file import FileStore
        >>> async def crash(place: str) -> bool:
        ...     disk = CrashingDisk(3, vault=f"{place}/vault")
        ...     store = FileStore(f"{place}/store", disk=disk)
        ...     try:
        ...         await store.open()
        ...     except PowerLossError:
        ...         return disk.crashed
        ...     return False
        >>> with tempfile.TemporaryDirectory() as place:
        ...     asyncio.run(crash(place))
        True
    """

    def __init__(
        self,
        n: int,
        *,
        vault: str | os.PathLike[str],
        kept: float = 0.0,
        chance: random.Random | None = None,
    ) -> None:
        self.calls = 0
        self.crashed = False
        self._n = n
        self._vault = Path(vault)
        self._vault.mkdir(parents=True, exist_ok=True)
        self._kept = kept
        self._chance = chance
        self._changes: list[Change] = []
        self._saved = 0
        self._lock = threading.RLock()

    # -- the crash --------------------------------------------------------------------------------

    def _change(self, before: Callable[[], None] | None = None) -> None:
        """Count a change; at the n-th the power goes, perhaps in the middle of it."""
        self._check_power()
        self.calls += 1
        if self.calls == self._n:
            if before is not None:
                before()
            self._lose_power()

    def _check_power(self) -> None:
        if self.crashed:
            raise PowerLossError

    def _lose_power(self) -> None:
        self.crashed = True
        self._changes = lost_changes(self._changes, self._kept, self._chance)
        while self._changes:
            change = self._changes.pop()
            change.undo(change.folder)
        raise PowerLossError

    def _remember(self, path: str, undo: Callable[[Path], None], *others: str) -> None:
        names = frozenset({Path(path).name, *others})
        self._changes.append(Change(folder=Path(path).parent, names=names, undo=undo))

    def _appeared(self, path: str) -> None:
        name = Path(path).name
        self._remember(path, lambda folder: (folder / name).unlink(missing_ok=True))

    def _save(self, path: str) -> Path:
        """Keep what a name stands for, so that it can be brought back."""
        self._saved += 1
        saved = self._vault / str(self._saved)
        if Path(path).is_dir():
            shutil.copytree(path, saved)
        else:
            saved.hardlink_to(path)
        return saved

    def _move(self, source: Path, target: Path) -> None:
        source.rename(target)
        for change in self._changes:
            change.moved(source, target)

    # -- changes ----------------------------------------------------------------------------------

    def write_new(self, path: str, data: bytes) -> None:
        with self._lock:

            def torn() -> None:
                Path(path).write_bytes(data[: len(data) // 2])
                self._appeared(path)

            if not Path(path).exists():
                self._change(torn)
            super().write_new(path, data)
            self._appeared(path)

    def link(self, source: str, target: str) -> None:
        with self._lock:
            self._change()
            super().link(source, target)
            self._appeared(target)

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            self._change()
            replaced = self._save(target) if Path(target).is_file() else None
            super().rename(source, target)
            old, new = Path(source), Path(target)
            for change in self._changes:
                change.moved(old, new)

            def undo(folder: Path) -> None:
                self._move(folder / new.name, folder / old.name)
                if replaced is not None:
                    replaced.rename(folder / new.name)

            self._remember(target, undo, old.name)

    def remove(self, path: str) -> None:
        with self._lock:
            self._change()
            saved = self._save(path) if Path(path).exists() else None
            super().remove(path)
            if saved is not None:
                self._remember(path, lambda folder: _restore(saved, folder / Path(path).name))

    def mkdir(self, path: str) -> None:
        with self._lock:
            self._change()
            super().mkdir(path)
            self._remember(path, lambda folder: shutil.rmtree(folder / Path(path).name))

    def sync_dir(self, path: str) -> None:
        with self._lock:
            self._change()
            super().sync_dir(path)
            self._changes = [c for c in self._changes if c.folder != Path(path)]

    def remove_tree(self, path: str) -> None:
        with self._lock:
            self._change()
            saved = self._save(path)
            self._changes = [c for c in self._changes if not c.folder.is_relative_to(path)]
            super().remove_tree(path)
            self._remember(path, lambda folder: _restore(saved, folder / Path(path).name))

    # -- looking ----------------------------------------------------------------------------------

    def read(self, path: str) -> bytes:
        with self._lock:
            self._check_power()
            return super().read(path)

    def listdir(self, path: str) -> list[str]:
        with self._lock:
            self._check_power()
            return super().listdir(path)

    def exists(self, path: str) -> bool:
        with self._lock:
            self._check_power()
            return super().exists(path)


class FailingDisk(Disk):
    """A disk whose n-th call fails.

    Args:
        n: Which call fails, from 1; 0 for none.
        code: The error, such as `errno.EIO`.
        late: The call does its work before it fails, as when only the answer is lost.
        forever: Every call from the n-th on fails.

    `failed` is the name of the call that failed first, empty while none did.
    """

    def __init__(self, n: int, code: int, *, late: bool = False, forever: bool = False) -> None:
        self.calls = 0
        self.failed = ""
        self._n = n
        self._code = code
        self._late = late
        self._forever = forever
        self._lock = threading.Lock()

    def heal(self) -> None:
        """Fail no more."""
        self._n = 0
        self._forever = False

    def _fails(self, name: str) -> bool:
        with self._lock:
            self.calls += 1
            fails = self.calls == self._n or (self._forever and 0 < self._n <= self.calls)
            if fails:
                self.failed = self.failed or name
            return fails

    def _error(self, path: str) -> OSError:
        return OSError(self._code, os.strerror(self._code), path)

    def _guard(self, name: str, path: str, work: Callable[[], None]) -> None:
        fails = self._fails(name)
        if self._late or not fails:
            work()
        if fails:
            raise self._error(path)

    def write_new(self, path: str, data: bytes) -> None:
        fails = self._fails("write_new")
        if fails and not self._late:
            Path(path).write_bytes(data[: len(data) // 2])  # the disk took a part of it
            raise self._error(path)
        super().write_new(path, data)
        if fails:
            raise self._error(path)

    def link(self, source: str, target: str) -> None:
        self._guard("link", target, lambda: Disk.link(self, source, target))

    def rename(self, source: str, target: str) -> None:
        self._guard("rename", target, lambda: Disk.rename(self, source, target))

    def remove(self, path: str) -> None:
        self._guard("remove", path, lambda: Disk.remove(self, path))

    def mkdir(self, path: str) -> None:
        self._guard("mkdir", path, lambda: Disk.mkdir(self, path))

    def sync_dir(self, path: str) -> None:
        self._guard("sync_dir", path, lambda: Disk.sync_dir(self, path))

    def remove_tree(self, path: str) -> None:
        if not self._fails("remove_tree"):
            super().remove_tree(path)  # what it cannot remove is left, without an error

    def read(self, path: str) -> bytes:
        if self._fails("read"):
            raise self._error(path)
        return super().read(path)

    def listdir(self, path: str) -> list[str]:
        if self._fails("listdir"):
            raise self._error(path)
        return super().listdir(path)

    def exists(self, path: str) -> bool:
        if self._fails("exists"):
            raise self._error(path)
        return super().exists(path)


class FreezingDisk(Disk):
    """A disk whose user stands still before its n-th call, as a stopped process does.

    Args:
        n: Before which call, from 1; 0 for none.  Calls are counted from `arm` on.

    The thread waits in the call: meet it with `await disk.frozen(task)`, let it go with `thaw`.
    """

    def __init__(self, n: int = 0) -> None:
        self._left = n
        self._reached = threading.Event()
        self._go = threading.Event()
        self._lock = threading.Lock()

    def arm(self, n: int) -> None:
        """Freeze before the n-th call from now on."""
        self._left = n
        self._reached.clear()
        self._go.clear()

    def thaw(self) -> None:
        """Let the frozen thread go on."""
        self._left = 0
        self._go.set()

    async def frozen(self, task: "asyncio.Future[Any]") -> bool:
        """Wait until the thread stands still or the task is done; whether it stands still."""
        task.add_done_callback(lambda _: self._reached.set())
        await asyncio.to_thread(self._reached.wait)
        return not task.done()

    def _tick(self) -> None:
        with self._lock:
            self._left -= 1
            freeze = self._left == 0
        if freeze:
            self._reached.set()
            self._go.wait()

    def write_new(self, path: str, data: bytes) -> None:
        self._tick()
        super().write_new(path, data)

    def link(self, source: str, target: str) -> None:
        self._tick()
        super().link(source, target)

    def rename(self, source: str, target: str) -> None:
        self._tick()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._tick()
        super().remove(path)

    def mkdir(self, path: str) -> None:
        self._tick()
        super().mkdir(path)

    def sync_dir(self, path: str) -> None:
        self._tick()
        super().sync_dir(path)

    def remove_tree(self, path: str) -> None:
        self._tick()
        super().remove_tree(path)

    def read(self, path: str) -> bytes:
        self._tick()
        return super().read(path)

    def listdir(self, path: str) -> list[str]:
        self._tick()
        return super().listdir(path)

    def exists(self, path: str) -> bool:
        self._tick()
        return super().exists(path)


def _restore(saved: Path, path: Path) -> None:
    saved.rename(path)
