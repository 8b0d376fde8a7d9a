"""The folder of one session, and the one way by which an owner adds a file to it.

Theory of operation.  A record's name is its position and is made by `link`, which fails when the
name is taken: of two writers at one position one wins.  A claim is a record too, so an owner that
was replaced finds its next position taken.

That alone is not enough, for pruning frees the positions of old records, and an owner that slept
long may then find its position free again.  So three steps guard each write:

    1. write a temporary file whose name holds the writer's epoch;
    2. look whether a lease file of a higher epoch is there; if so, give up;
    3. link the temporary file to its final name.

A claimer of epoch e links its claim, writes `lease-e`, and then removes all temporary files of lower
epochs; nothing is pruned before that.  If step 1 came before this sweep, the temporary file is
gone and step 3 fails.  If it came later, step 2 sees `lease-e`.  There is no third case, so a file
is linked only while no later owner has finished its claim; until then nothing was pruned, and the
name itself decides.  A lease file is written in the same three steps, with `rename` as the third.  A
claimer writes its claim under the epoch it has seen, so that a rival who wins sweeps it.

What a cached path can do after the session was deleted: nothing.  Each new session of a name has a
folder of its own, the old one is renamed away before it is removed, and a path into it ends in
ENOENT.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from raf.clock import Clock
from raf.errors import CorruptRecordError, FormatVersionError
from raf.store.file import names
from raf.store.file.disk import Disk
from raf.store.file.meta import (
    LeaseNote,
    Stored,
    pack_lease,
    unpack_lease,
    unpack_record,
)


class OvertakenError(Exception):
    """A later owner is there and nothing was linked, or the folder is gone with all in it."""


class TakenError(Exception):
    """The name is taken by another file."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is taken")
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The files of a session by kind, in order; `marker` is 0 when there is none."""

    positions: tuple[int, ...]
    packs: tuple[tuple[int, int], ...]
    marker: int
    old_markers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How far a session has come."""

    epoch: int
    position: int


class Folder:
    """One session's folder; `path` is of this session alone and never used again."""

    def __init__(self, disk: Disk, clock: Clock, path: str, session_id: str) -> None:
        self.disk = disk
        self.path = path
        self.session_id = session_id
        self.leases = os.path.join(path, names.LEASES)
        self.inbox = os.path.join(path, names.INBOX)
        self._clock = clock

    def file(self, name: str) -> str:
        """The path of a file in the folder."""
        return os.path.join(self.path, name)

    def listing(self) -> Listing:
        """What is in the folder; temporary and foreign files are not."""
        positions: list[int] = []
        packs: list[tuple[int, int]] = []
        markers: list[int] = []
        for name in self.disk.listdir(self.path):
            if (position := names.record_position(name)) is not None:
                positions.append(position)
            elif (span := names.pack_range(name)) is not None:
                packs.append(span)
            elif (number := names.marker_number(name)) is not None:
                markers.append(number)
        markers.sort()
        return Listing(
            positions=tuple(sorted(positions)),
            packs=tuple(sorted(packs)),
            marker=markers[-1] if markers else 0,
            old_markers=tuple(markers[:-1]),
        )

    def record(self, position: int) -> Stored:
        """The record at a position; FileNotFoundError when there is none."""
        name = names.record_name(position)
        return unpack_record(self.disk.read(self.file(name)), self.session_id, name, position)

    def highest_seen(self) -> Seen:
        """The highest epoch and position that the session ever had, as far as it can be read."""
        epochs = [names.generation_epoch(os.path.basename(self.path)) or 0, *self.lease_epochs()]
        positions = self.listing().positions
        for position in reversed(positions):
            try:
                epochs.append(self.record(position).entry.head.epoch)
            except (CorruptRecordError, FormatVersionError, FileNotFoundError):
                continue
            break  # epochs never fall along the positions
        return Seen(epoch=max(epochs), position=max(positions, default=0))

    def has_record(self, position: int) -> bool:
        """Whether a position is taken."""
        return self.disk.exists(self.file(names.record_name(position)))

    # -- writing ----------------------------------------------------------------------------------

    def put(self, files: Sequence[tuple[str, bytes]], *, epoch: int) -> None:
        """Add files in order, each under a name that nobody has; durable on return.

        Args:
            files: Names and bytes.
            epoch: The writer's; a claimer gives the epoch that it has seen.

        Raises:
            OvertakenError: An owner of a higher epoch is there, or the folder is gone.
            TakenError: A name is taken; the files before it are there.
            OSError: The disk failed; whether the files are there is unknown.
        """
        temps: list[str] = []
        try:
            for _, data in files:
                temps.append(self.write_temp(self.path, epoch, data))
            self._check_fence(epoch)
            for temp, (name, _) in zip(temps, files, strict=True):
                self._link(temp, name)
            self.discard(temps)
            temps.clear()
            self.disk.sync_dir(self.path)
        except FileNotFoundError as error:
            raise OvertakenError from error
        finally:
            self.discard(temps)

    def _check_fence(self, epoch: int) -> None:
        if self.highest_lease() > epoch:
            raise OvertakenError

    def _link(self, temp: str, name: str) -> None:
        try:
            self.disk.link(temp, self.file(name))
        except FileExistsError as error:
            raise TakenError(name) from error

    def discard(self, temps: Sequence[str]) -> None:
        for temp in temps:
            try:
                self.disk.remove(temp)
            except OSError:
                continue  # swept by the next claim; what was linked does not need it

    def write_temp(self, folder: str, epoch: int, data: bytes) -> str:
        """Write and sync a file that is to get its name later; returns its path."""
        while True:
            path = os.path.join(folder, names.temp_name(epoch, self._clock.new_id()))
            try:
                self.disk.write_new(path, data)
            except FileExistsError:
                continue  # another writer's, who draws the same ids: a seeded clock does
            except OSError:
                self.discard([path])
                raise
            return path

    # -- leases -----------------------------------------------------------------------------------

    def lease_epochs(self) -> list[int]:
        """The epochs that have a lease file, in order."""
        found = (names.lease_epoch(name) for name in self.disk.listdir(self.leases))
        return sorted(epoch for epoch in found if epoch is not None)

    def highest_lease(self) -> int:
        """The highest epoch that has a lease file, 0 for none."""
        return max(self.lease_epochs(), default=0)

    def lease(self, epoch: int) -> LeaseNote | None:
        """The lease file of an epoch; None when it is missing or damaged."""
        name = names.lease_name(epoch)
        try:
            data = self.disk.read(os.path.join(self.leases, name))
            note = unpack_lease(data, self.session_id, name)
        except (FileNotFoundError, CorruptRecordError, FormatVersionError):
            return None
        return note if note.held.epoch == epoch else None

    def write_lease(self, note: LeaseNote) -> None:
        """Write the lease file of its epoch; durable on return.

        Raises:
            OvertakenError: An owner of a higher epoch is there, or the folder is gone.
        """
        epoch = note.held.epoch
        temps: list[str] = []
        try:
            temps.append(self.write_temp(self.leases, epoch, pack_lease(self.session_id, note)))
            self._check_fence(epoch)
            self.disk.rename(temps[0], os.path.join(self.leases, names.lease_name(epoch)))
            temps.clear()
            self.disk.sync_dir(self.leases)
        except FileNotFoundError as error:
            raise OvertakenError from error
        finally:
            self.discard(temps)

    def sweep(self, epoch: int) -> None:
        """Remove what owners of lower epochs left behind: temporary files, then their leases."""
        for folder in (self.path, self.leases, self.inbox):
            for name in self.disk.listdir(folder):
                begun = names.temp_epoch(name)
                if begun is not None and begun < epoch:
                    self._remove(os.path.join(folder, name))
        for lower in self.lease_epochs():
            if lower < epoch:
                self._remove(os.path.join(self.leases, names.lease_name(lower)))

    def _remove(self, path: str) -> None:
        try:
            self.disk.remove(path)
        except FileNotFoundError:
            return  # another sweeper was faster

    def remove(self, files: Sequence[str]) -> None:
        """Remove files of the folder, in order; those that are gone already are fine."""
        for name in files:
            self._remove(self.file(name))
