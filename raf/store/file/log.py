"""What owners write to the log: commits, journal records, the end of a session.

Rules of this file:
- Every function runs in one thread under the session's lock, from beginning to end.
- What is remembered between writes is a note of the last record; it is checked before each use and
  forgotten after each failure, so the next write looks at what is there.
- "My own retry" is told by the record's id and epoch, never by content.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from raf.clock import Clock
from raf.errors import (
    CorruptRecordError,
    LeaseLostError,
    StoreUnavailableError,
)
from raf.failpoint import failpoint
from raf.store.file import names
from raf.store.file.folder import Folder, OvertakenError, TakenError
from raf.store.file.meta import Entry, pack_record
from raf.store.file.moment import Moment
from raf.store.file.place import Place
from raf.store.file.reader import TRIES, Reader
from raf.store.model import Commit, Kind, Lease, RecordInfo
from raf.store.order import after_commit, check_follows, commit_info


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A session as its owner left it: the folder and the newest record."""

    folder: Folder
    entry: Entry


class Log:
    """Writes the logs of one store's sessions."""

    def __init__(self, place: Place, reader: Reader, clock: Clock) -> None:
        self._place = place
        self._reader = reader
        self._clock = clock
        self._standing: dict[str, Standing] = {}

    def remember(self, standing: Standing) -> None:
        """Note how an owner left its session."""
        self._standing[standing.entry.head.session_id] = standing

    def owned(self, lease: Lease) -> Standing:
        """The session of a lease that still counts.

        Raises:
            LeaseLostError: A later owner is there, or the session is gone.
        """
        known = self._standing.get(lease.session_id)
        if known is not None and self._unmoved(known, lease):
            return known
        self.forget(lease)
        moment = self._reader.look(lease.session_id)
        if (
            moment is None
            or moment.deleted
            or (moment.head.epoch, moment.nonce) != (lease.epoch, lease.nonce)
        ):
            raise LeaseLostError(lease.session_id, lease.epoch)
        standing = Standing(folder=moment.folder, entry=moment.newest)
        # What is read here may have been written by a call that failed before it was synced.
        standing.folder.disk.sync_dir(standing.folder.path)
        self._standing[lease.session_id] = standing
        return standing

    def _unmoved(self, known: Standing, lease: Lease) -> bool:
        """Whether nobody wrote since, as far as can be seen now."""
        head = known.entry.head
        if (head.epoch, head.nonce) != (lease.epoch, lease.nonce):
            return False
        # In this order: a claim that was pruned again has left its lease.
        if known.folder.has_record(head.position + 1):
            return False
        try:
            return known.folder.highest_lease() == lease.epoch
        except FileNotFoundError:
            return False

    def forget(self, lease: Lease) -> None:
        """Look at the disk before the next write."""
        self._standing.pop(lease.session_id, None)

    # -- records ----------------------------------------------------------------------------------

    def commit(self, lease: Lease, commit: Commit) -> None:
        """Write a commit, once."""
        for _ in range(TRIES):
            standing = self.owned(lease)
            before = standing.entry
            if before.commit_id == commit.commit_id:
                standing.folder.disk.sync_dir(standing.folder.path)
                return
            self._check_follows(standing, commit)
            head = after_commit(before.head, commit, before.info.position + 1)
            entry = Entry(
                info=commit_info(commit, head.position, head.epoch),
                head=head,
                record_id=commit.commit_id,
                commit_id=commit.commit_id,
                previous=before.head.commit_position,
                runs=before.newest_run,
                base=before.base,
            )
            data = pack_record(entry, commit.body, commit.events)
            failpoint("store.file.commit.put.before")
            if self._put(lease, standing, [(entry, data)]):
                failpoint("store.file.commit.put.after")
                return
        raise self._place.restless(lease.session_id)

    def _check_follows(self, standing: Standing, commit: Commit) -> None:
        head = standing.entry.head
        requests = head.consumed
        if commit.consumed > requests:
            found = map(names.request_seq, standing.folder.disk.listdir(standing.folder.inbox))
            requests = max([requests, *(seq for seq in found if seq is not None)])
        check_follows(
            head.session_id,
            commit,
            number=head.commit,
            events=head.events,
            consumed=head.consumed,
            requests=requests,
        )

    def append(self, lease: Lease, bodies: Sequence[bytes]) -> None:
        """Write journal records in order."""
        now = self._clock.now()
        ids = [self._clock.new_id() for _ in bodies]
        for _ in range(TRIES):
            standing = self.owned(lease)
            entry = standing.entry
            records: list[tuple[Entry, bytes]] = []
            for record_id, body in zip(ids, bodies, strict=True):
                info = RecordInfo(
                    position=entry.info.position + 1,
                    epoch=lease.epoch,
                    kind=Kind.JOURNAL,
                    created_at=now,
                    body_size=len(body),
                )
                head = replace(entry.head, position=info.position)
                entry = inherit(entry, Entry(info=info, head=head, record_id=record_id))
                records.append((entry, pack_record(entry, body)))
            failpoint("store.file.append.put.before")
            if not records or self._put(lease, standing, records):
                failpoint("store.file.append.put.after")
                return
        raise self._place.restless(lease.session_id)

    def _put(
        self, lease: Lease, standing: Standing, records: Sequence[tuple[Entry, bytes]]
    ) -> bool:
        """Add records of an owner; False when its notes were behind, so that it must look again.

        Raises:
            LeaseLostError: A later owner is there, or the session is gone.
        """
        files = [(names.record_name(entry.info.position), data) for entry, data in records]
        self.forget(lease)
        try:
            standing.folder.put(files, epoch=lease.epoch)
        except TakenError as error:
            if self.is_mine(standing.folder, error.name, records[-1][0]):
                return True
            if error.name != files[0][0]:  # some are written: whoever asked must look
                self.owned(lease)
                raise self._place.restless(lease.session_id) from error
            return False
        except OvertakenError as error:
            self.lost(lease, standing.folder)
            raise LeaseLostError(lease.session_id, lease.epoch) from error
        self._standing[lease.session_id] = replace(standing, entry=records[-1][0])
        return True

    def is_mine(self, folder: Folder, name: str, entry: Entry) -> bool:
        """Whether the file that has the name is this record: linked, and the answer was lost."""
        position = entry.info.position
        if name != names.record_name(position) or not folder.has_record(position):
            return False
        found = folder.record(position).entry
        mine = (entry.record_id, entry.info.epoch, entry.head.nonce)
        if (found.record_id, found.info.epoch, found.head.nonce) != mine:
            return False
        folder.disk.sync_dir(folder.path)
        return True

    def lost(self, lease: Lease, folder: Folder) -> None:
        """Return if a lease is lost; raise if it is the disk that is.

        Raises:
            StoreUnavailableError: The root is gone, or a file vanished that nobody may remove.
        """
        self.forget(lease)
        if not self._place.stands():
            raise StoreUnavailableError(self._place.url, "its root is gone")
        try:
            overtaken = folder.highest_lease() > lease.epoch
        except FileNotFoundError:
            return  # the session was deleted
        if not overtaken:
            raise StoreUnavailableError(
                self._place.url, f"a file vanished while it was being written in {folder.path}"
            )

    # -- the end ----------------------------------------------------------------------------------

    def delete(self, lease: Lease) -> None:
        """End a session and remove it."""
        try:
            moment = self._reader.look(lease.session_id)
        except CorruptRecordError:
            self._delete_damaged(lease)
            return
        if moment is None or moment.deleted:
            self._finish_delete(lease, moment)
            return
        for _ in range(TRIES):
            standing = self.owned(lease)
            before = standing.entry
            info = RecordInfo(
                position=before.info.position + 1,
                epoch=lease.epoch,
                kind=Kind.CLAIM,
                created_at=self._clock.now(),
            )
            head = replace(before.head, position=info.position)
            end = Entry(info=info, head=head, record_id=self._clock.new_id(), deleted=True)
            entry = inherit(before, end)
            failpoint("store.file.delete.put.before")
            if self._put(lease, standing, [(entry, pack_record(entry))]):
                failpoint("store.file.delete.put.after")
                self.forget(lease)
                self._place.bury(standing.folder, lease.epoch, info.position)
                return
        raise self._place.restless(lease.session_id)

    def _delete_damaged(self, lease: Lease) -> None:
        """Remove a session whose head cannot be read, unless it has come further since the claim."""
        self.forget(lease)
        folder = self._place.find(lease.session_id).folder
        if folder is not None:
            seen = folder.highest_seen()
            if seen.epoch > lease.epoch:
                raise LeaseLostError(lease.session_id, lease.epoch)
            self._place.bury(folder, lease.epoch, max(seen.position, lease.position))

    def _finish_delete(self, lease: Lease, moment: Moment | None) -> None:
        """Go on with a deletion of this lease that was begun; another's is a lost lease."""
        self.forget(lease)
        if moment is not None:
            epoch = moment.head.epoch
            if epoch == lease.epoch:
                self._place.bury(moment.folder, epoch, moment.head.position)
        else:
            epoch = self._place.find(lease.session_id).epoch
        if epoch != lease.epoch:
            raise LeaseLostError(lease.session_id, lease.epoch)


def inherit(before: Entry, entry: Entry) -> Entry:
    """A record that is no commit, with what it inherits from the one before."""
    return replace(
        entry,
        commit_id=before.commit_id,
        previous=before.head.commit_position,
        runs=before.newest_run,
        base=before.base,
    )
