"""The root of a file store: which sessions there are, and how they begin and end.

Theory of operation.

    ROOT/.format                        what wrote it
    ROOT/.queue                         locked by whoever looks for sessions that are due
    ROOT/<name>/s00000001/              the session: its folder is named by the first epoch free
    ROOT/<name>/gone-00000007-000000000123   tombstone: highest epoch and position it had
    ROOT/<name>/.new-… .trash-…         being made, being removed

A new session is made whole in a `.new-` folder and renamed into place; of two makers one wins,
since a folder cannot be renamed onto one that is not empty.  All makers, those of an adopted session
too, take the epoch after the highest tombstone for its name.

The end of a session is a record like any other, so only its owner can write it, and it is the
moment from which the session is gone.  Whoever comes by finishes the rest, in this order: the
tombstone, then the folder is renamed away, then it is removed.  A session's folder counts only if
the epoch in its name is above every tombstone's; so a maker or a remover that slept through
another's work changes nothing: it names an epoch, and that epoch is spent.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from raf.clock import Clock
from raf.errors import (
    CorruptRecordError,
    FormatVersionError,
    StoreBusyError,
    StoreUnavailableError,
)
from raf.store.file import names
from raf.store.file.disk import Disk
from raf.store.file.folder import Folder
from raf.store.file.meta import Entry, LeaseNote, pack_lease, pack_record
from raf.store.record import Content, unpack

FORMAT = 1
_FORMAT_TEXT = "raf file store, format "
_PATIENCE, _PAUSE_S = 1_000, 0.01  # tries to lock, and the time between two
_TAKEN = {errno.ENOTEMPTY, errno.EEXIST}


@dataclass(frozen=True, slots=True, kw_only=True)
class Generations:
    """What a name has: the folder of its session, if any, and its highest tombstone."""

    folder: Folder | None
    epoch: int = 0
    position: int = 0


class Place:
    """A store's root folder."""

    def __init__(self, disk: Disk, clock: Clock, root: str, url: str) -> None:
        self.disk = disk
        self.root = root
        self.url = url
        self._clock = clock

    # -- the root ---------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the root, or check who wrote it."""
        self._make_root(self.root)
        path = os.path.join(self.root, names.FORMAT_FILE)
        if not self.disk.exists(path):
            temp = os.path.join(self.root, names.temp_name(0, self._clock.new_id()))
            self.disk.write_new(temp, f"{_FORMAT_TEXT}{FORMAT}\n".encode())
            with suppress(FileExistsError):  # another process made it
                self.disk.link(temp, path)
            self.disk.remove(temp)
            self.disk.sync_dir(self.root)
        text = self.disk.read(path).decode("utf-8", errors="replace").strip()
        number = text.removeprefix(_FORMAT_TEXT)
        if number == text or not number.isdecimal():
            raise StoreUnavailableError(self.url, f"{path} is not that of a file store: {text!r}")
        if int(number) > FORMAT:
            raise FormatVersionError(int(number), FORMAT)

    def _make_root(self, path: str) -> None:
        if self.disk.exists(path):
            return
        parent = os.path.dirname(path)
        self._make_root(parent)
        try:
            self.disk.mkdir(path)
        except FileExistsError:
            return
        self.disk.sync_dir(parent)

    def stands(self) -> bool:
        """Whether the root is there at all, so that what is missing in it is missing for good."""
        return self.disk.exists(os.path.join(self.root, names.FORMAT_FILE))

    def names(self) -> list[tuple[str, str]]:
        """Session ids with their folder names, in no order; also of deleted sessions."""
        found: list[tuple[str, str]] = []
        for name in self.disk.listdir(self.root):
            session_id = names.session_id_of(name)
            if session_id is None and names.is_shortened(name):
                session_id = self._spelled_out(name)
            if session_id is not None:
                found.append((session_id, name))
        return found

    def _spelled_out(self, name: str) -> str | None:
        """The id of a shortened name: any intact record of it says so."""
        folder = self._generations(name, name).folder
        if folder is None:
            return None
        for position in reversed(folder.listing().positions):
            file = names.record_name(position)
            try:
                meta = unpack(self.disk.read(folder.file(file)), Content.RECORD, name, file).meta
            except (CorruptRecordError, FileNotFoundError, FormatVersionError):
                continue
            session_id = meta.get("session")
            if isinstance(session_id, str) and names.folder_name(session_id) == name:
                return session_id
        return name  # all is damaged: listed by the name of its folder

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Keep out all others who ask for this, in every process.

        Raises:
            StoreBusyError: Somebody did not let go for ten seconds.
        """
        path = os.path.join(self.root, names.QUEUE_LOCK)
        for _ in range(_PATIENCE):
            with self.disk.locked(path) as mine:
                if mine:
                    yield
                    return
            time.sleep(_PAUSE_S)
        raise StoreBusyError(self.url, _PATIENCE * _PAUSE_S)

    # -- one name ---------------------------------------------------------------------------------

    def find(self, session_id: str) -> Generations:
        """The session of a name as it is now."""
        return self._generations(names.folder_name(session_id), session_id)

    def _generations(self, name: str, session_id: str) -> Generations:
        home = os.path.join(self.root, name)
        try:
            found = self.disk.listdir(home)
        except (FileNotFoundError, NotADirectoryError):
            return Generations(folder=None)
        marks = [mark for entry in found if (mark := names.gone_mark(entry)) is not None]
        epoch, position = max(marks, default=(0, 0))
        epochs = [e for entry in found if (e := names.generation_epoch(entry)) is not None]
        live = [e for e in epochs if e > epoch]
        folder = None
        if live:
            path = os.path.join(home, names.generation_name(max(live)))
            folder = Folder(self.disk, self._clock, path, session_id)
        return Generations(folder=folder, epoch=epoch, position=position)

    def home(self, folder: Folder) -> str:
        """The folder of a name, in which its sessions' folders lie."""
        return os.path.dirname(folder.path)

    def create(self, entry: Entry, note: LeaseNote) -> Folder | None:
        """Make a session with its first record and lease; None if another was faster.

        Args:
            entry: The claim; its epoch and position are above every tombstone's.
            note: The lease of that claim.
        """
        return self.install(
            entry.head.session_id,
            entry.info.epoch,
            lambda new: self._build(new, entry, note),
        )

    def install(
        self, session_id: str, epoch: int, build: Callable[[Folder], None]
    ) -> Folder | None:
        """Make a session's folder and give it its name; None if another was faster.

        Args:
            session_id: Whose it is.
            epoch: The one after the highest tombstone's.
            build: Puts everything in, synced; the folder and the two in it are there.
        """
        home = os.path.join(self.root, names.folder_name(session_id))
        with suppress(FileExistsError):
            self.disk.mkdir(home)
        # Synced also when it was there: whoever made it may not have come so far.
        self.disk.sync_dir(self.root)
        draft = os.path.join(home, names.NEW + self._clock.new_id())
        final = os.path.join(home, names.generation_name(epoch))
        try:
            new = Folder(self.disk, self._clock, draft, session_id)
            for path in (new.path, new.leases, new.inbox):
                self.disk.mkdir(path)
            build(new)
            self.disk.rename(draft, final)
        except FileNotFoundError:
            if not self.stands():
                raise
            return None  # swept by a faster one
        except OSError as error:
            self._throw_away(draft)
            if error.errno not in _TAKEN:
                raise
            return None
        self.disk.sync_dir(home)
        # An epoch that was spent meanwhile does not count; then nobody sees this folder.
        if self.find(session_id).epoch >= epoch:
            return None
        return Folder(self.disk, self._clock, final, session_id)

    def _build(self, new: Folder, entry: Entry, note: LeaseNote) -> None:
        """Write the first record and its lease, synced."""
        record = names.record_name(entry.info.position)
        self.disk.write_new(new.file(record), pack_record(entry))
        lease = os.path.join(new.leases, names.lease_name(note.held.epoch))
        self.disk.write_new(lease, pack_lease(new.session_id, note))
        self.disk.sync_dir(new.leases)
        self.disk.sync_dir(new.path)

    def bury(self, folder: Folder, epoch: int, position: int) -> None:
        """Finish the end of a session whose last record says that it is deleted; repeatable."""
        home = self.home(folder)
        with suppress(FileExistsError):  # begun before, by this or another process
            self.disk.write_new(os.path.join(home, names.gone_name(epoch, position)), b"")
        self.disk.sync_dir(home)
        self._throw_away(folder.path)

    def _throw_away(self, path: str) -> None:
        """Rename a folder out of everybody's way, then remove it."""
        trash = os.path.join(os.path.dirname(path), names.TRASH + self._clock.new_id())
        try:
            self.disk.rename(path, trash)
        except FileNotFoundError:
            return  # another process was faster
        self.disk.sync_dir(os.path.dirname(path))
        self.disk.remove_tree(trash)

    def tidy(self, session_id: str) -> None:
        """Remove what killed makers and removers left beside a session, and old tombstones."""
        home = os.path.join(self.root, names.folder_name(session_id))
        found = self.disk.listdir(home)
        marks = sorted(mark for entry in found if (mark := names.gone_mark(entry)) is not None)
        for entry in found:
            path = os.path.join(home, entry)
            epoch = names.generation_epoch(entry)
            if entry.startswith(names.TRASH):
                self.disk.remove_tree(path)
            elif entry.startswith(names.NEW) or (epoch and marks and epoch <= marks[-1][0]):
                self._throw_away(path)
        for mark in marks[:-1]:
            with suppress(FileNotFoundError):
                self.disk.remove(os.path.join(home, names.gone_name(*mark)))

    def restless(self, session_id: str) -> StoreUnavailableError:
        """What to raise when others kept coming in between."""
        return StoreUnavailableError(
            self.url, f"session {session_id!r} changed at every try; try again"
        )
