"""Who may write: claims, renewals, releases.

Rules of this file:
- A claim counts from the moment its record has its name; its lease file and the sweep of what
  earlier owners left come after it and before it is answered.
- A lease is renewed and released only while no later claim is there, by its own epoch's file.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from raf.clock import Clock
from raf.errors import (
    CorruptRecordError,
    LeaseLostError,
    SessionBusyError,
    SessionNotFoundError,
)
from raf.failpoint import failpoint
from raf.store.file import names
from raf.store.file.folder import Folder, OvertakenError, TakenError
from raf.store.file.log import Log, Standing, inherit
from raf.store.file.meta import Entry, LeaseNote, pack_record
from raf.store.file.moment import Moment
from raf.store.file.place import Place
from raf.store.file.reader import TRIES, Reader
from raf.store.model import Claimed, Head, Held, Kind, Lease, Owner, RecordInfo
from raf.store.order import new_head
from raf.store.owner import LeaseWatch


class Claims:
    """Gives and extends the leases of one store's sessions."""

    def __init__(self, place: Place, reader: Reader, log: Log, clock: Clock) -> None:
        self._place = place
        self._reader = reader
        self._log = log
        self._clock = clock
        self._watch = LeaseWatch(clock)

    def claim(self, session_id: str, owner: Owner, lease_s: float, *, create: bool) -> Claimed:
        """Take a session that is free, or make it."""
        for _ in range(TRIES):
            try:
                moment = self._reader.look(session_id)
            except CorruptRecordError as error:
                return self._claim_damaged(session_id, owner, lease_s, error)
            if moment is None or moment.deleted:
                if not create:
                    raise SessionNotFoundError(session_id)
                if moment is not None:
                    self._place.bury(moment.folder, moment.head.epoch, moment.head.position)
                claimed = self._create(session_id, owner, lease_s)
            else:
                held = moment.head.held
                if held is not None and self._watch.binds(session_id, held):
                    raise SessionBusyError(session_id, str(held.owner), self._watch.until(held))
                claimed = self._take(moment, owner, lease_s)
            if claimed is not None:
                return claimed
        raise self._place.restless(session_id)

    def _claim_damaged(
        self, session_id: str, owner: Owner, lease_s: float, why: CorruptRecordError
    ) -> Claimed:
        """A lease with which a session whose head cannot be read can be deleted, and nothing else.

        It is written nowhere: where it would stand, nobody could read how the session stands.
        """
        folder = self._place.find(session_id).folder
        if folder is None:
            raise why
        seen = folder.highest_seen()
        note = folder.lease(seen.epoch)
        if note is not None and not note.released and self._watch.binds(session_id, note.held):
            until = self._watch.until(note.held)
            held = f"{why.why} (and {note.held.owner} holds the session until {until} or longer)"
            raise CorruptRecordError(session_id, why.record, held)
        lease = Lease(
            session_id=session_id,
            nonce="" if note is None else note.nonce,
            epoch=seen.epoch + 1,
            owner=owner,
            duration_s=lease_s,
            expires_boot=self._clock.boot() + lease_s,
            position=seen.position + 1,
        )
        return Claimed(lease=lease, took_over=False, created=False)

    def binds(self, head: Head) -> bool:
        """Whether somebody holds the session."""
        return self._watch.binds(head.session_id, head.held)

    def claim_if(
        self, session_id: str, owner: Owner, lease_s: float, wanted: Callable[[Head], bool]
    ) -> Claimed | None:
        """Take a session that is free and that is wanted as it stands now; else None."""
        for _ in range(TRIES):
            moment = self._reader.look(session_id)
            if moment is None or moment.deleted:
                return None
            if self.binds(moment.head) or not wanted(moment.head):
                return None
            if (claimed := self._take(moment, owner, lease_s)) is not None:
                return claimed
        raise self._place.restless(session_id)

    def _lease(self, head: Head, owner: Owner, lease_s: float) -> Lease:
        return Lease(
            session_id=head.session_id,
            nonce=head.nonce,
            epoch=head.epoch,
            owner=owner,
            duration_s=lease_s,
            expires_boot=self._clock.boot() + lease_s,
            position=head.position,
        )

    def _create(self, session_id: str, owner: Owner, lease_s: float) -> Claimed | None:
        found = self._place.find(session_id)
        if found.folder is not None:
            return None
        now = self._clock.now()
        head = replace(
            new_head(session_id, self._clock.new_id(), now, epoch=found.epoch + 1),
            position=found.position + 1,
            journal_from=found.position,
        )
        lease = self._lease(head, owner, lease_s)
        entry = replace(self._claim(head, _held(lease), now), base=found.position)
        failpoint("store.file.claim.create.before")
        made = self._place.create(entry, _note(lease))
        failpoint("store.file.claim.create.after")
        return None if made is None else self._claimed(lease, Standing(folder=made, entry=entry))

    def _take(self, moment: Moment, owner: Owner, lease_s: float) -> Claimed | None:
        before, folder = moment.newest, moment.folder
        head = replace(before.head, epoch=before.head.epoch + 1, position=before.info.position + 1)
        lease = self._lease(head, owner, lease_s)
        took_over = moment.head.held is not None
        claim = self._claim(head, _held(lease), self._clock.now(), took_over=took_over)
        entry = inherit(before, claim)
        record = (names.record_name(head.position), pack_record(entry))
        failpoint("store.file.claim.put.before")
        try:
            folder.put([record], epoch=before.head.epoch)
        except OvertakenError:
            return None
        except TakenError as error:
            if not self._log.is_mine(folder, error.name, entry):
                return None
        failpoint("store.file.claim.put.after")
        try:
            folder.write_lease(_note(lease))
            folder.sweep(lease.epoch)
        except (OvertakenError, FileNotFoundError):
            return None  # others took and deleted the session while this claim stood still
        self._place.disk.sync_dir(self._place.home(folder))
        return self._claimed(lease, Standing(folder=folder, entry=entry))

    def _claim(self, head: Head, held: Held, now: float, *, took_over: bool = False) -> Entry:
        info = RecordInfo(
            position=head.position,
            epoch=head.epoch,
            kind=Kind.CLAIM,
            created_at=now,
            took_over=took_over,
        )
        return Entry(info=info, head=head, record_id=self._clock.new_id(), held=held)

    def _claimed(self, lease: Lease, standing: Standing) -> Claimed:
        with suppress(OSError):  # leftovers are in nobody's way; the next claim tries again
            self._place.tidy(lease.session_id)
        self._log.remember(standing)
        entry = standing.entry
        created = entry.info.position == entry.base + 1
        return Claimed(lease=lease, took_over=entry.info.took_over, created=created)

    def renew(self, lease: Lease) -> bool:
        """Extend a lease that still counts and was not released."""
        try:
            folder = self._log.owned(lease).folder
            note = folder.lease(lease.epoch)
            if note is not None and note.released:
                return False
            until = self._clock.boot() + lease.duration_s
            renewed = replace(_held(lease), expires_boot=until)
            failpoint("store.file.renew.before")
            self._write(lease, folder, LeaseNote(held=renewed, nonce=lease.nonce, released=False))
            failpoint("store.file.renew.after")
            self._log.owned(lease)  # a claim that came in between counts
        except LeaseLostError:
            return False
        lease.expires_boot = until
        return True

    def release(self, lease: Lease) -> None:
        """Mark a lease as given back, if it still counts."""
        try:
            folder = self._log.owned(lease).folder
            note = folder.lease(lease.epoch)
            if note is None or not note.released:
                failpoint("store.file.release.before")
                self._write(lease, folder, replace(_note(lease), released=True))
                failpoint("store.file.release.after")
        except (LeaseLostError, CorruptRecordError):
            return  # of a session whose head cannot be read no lease is written
        finally:
            self._log.forget(lease)

    def _write(self, lease: Lease, folder: Folder, note: LeaseNote) -> None:
        try:
            folder.write_lease(note)
        except OvertakenError as error:
            self._log.lost(lease, folder)
            raise LeaseLostError(lease.session_id, lease.epoch) from error


def _held(lease: Lease) -> Held:
    return Held(
        owner=lease.owner,
        epoch=lease.epoch,
        expires_boot=lease.expires_boot,
        duration_s=lease.duration_s,
    )


def _note(lease: Lease) -> LeaseNote:
    return LeaseNote(held=_held(lease), nonce=lease.nonce, released=False)
