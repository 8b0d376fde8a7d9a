"""Writing a session that another store gave: all its files under a name that nobody looks at.

Theory of operation.  A record of this store tells more than a `Record` does: how the head stood after
it, and where the commit before it is.  Both are told from the log.  The newest record has the head
itself; of older ones only the numbers are looked at.

What pruning left is written as pruning leaves it here: commits without a body in packs, those of
which nothing is left in the marker.  In the open journal no position may be missing, nor may the
newest, so there a commit without a body has an empty record as well, and one of which nothing is left
too; pack and marker say that they do not count.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from raf.clock import Clock
from raf.errors import SessionExistsError
from raf.failpoint import failpoint
from raf.store.adopted import adopted_head, check_adoptable, emptied
from raf.store.file import names
from raf.store.file.folder import Folder
from raf.store.file.meta import (
    Entry,
    LeaseNote,
    Marker,
    Packed,
    pack_lease,
    pack_marker,
    pack_packed,
    pack_record,
    pack_request,
)
from raf.store.file.place import Place
from raf.store.file.reader import TRIES, Reader
from raf.store.model import Head, Kind, Reading, Record, RecordInfo
from raf.store.order import last_event
from raf.store.owner import unknown_holder

_PACK = 256  # commits in a pack


class Adopter:
    """Adopts sessions into one store."""

    def __init__(self, place: Place, reader: Reader, clock: Clock) -> None:
        self._place = place
        self._reader = reader
        self._clock = clock

    def adopt(self, session: Reading) -> None:
        """Write a session, unless there is one of its name."""
        session_id = session.head.session_id
        for _ in range(TRIES):
            moment = self._reader.look(session_id)
            if moment is not None and not moment.deleted:
                raise SessionExistsError(session_id)
            check_adoptable(session)
            if moment is not None:
                self._place.bury(moment.folder, moment.head.epoch, moment.head.position)
            found = self._place.find(session_id)
            if found.folder is not None:
                continue
            head = adopted_head(session.head, found.epoch)
            failpoint("store.file.adopt.before")
            build = partial(self._build, session, head)
            made = self._place.install(session_id, found.epoch + 1, build)
            failpoint("store.file.adopt.after")
            if made is not None:
                return
        raise self._place.restless(session_id)

    def _build(self, session: Reading, head: Head, new: Folder) -> None:
        entries = list(_entries(session, head, self._clock))
        disk = new.disk
        for name, data in _log_files(session, head, entries):
            disk.write_new(new.file(name), data)
        for request in session.inbox:
            data = pack_request(head.session_id, head.nonce, request)
            disk.write_new(os.path.join(new.inbox, names.request_name(request.seq)), data)
        # Nobody holds it: the lease of its epoch is one that was given back.
        note = LeaseNote(held=unknown_holder(head.epoch), nonce=head.nonce, released=True)
        lease = os.path.join(new.leases, names.lease_name(head.epoch))
        disk.write_new(lease, pack_lease(head.session_id, note))
        for path in (new.inbox, new.leases, new.path):
            disk.sync_dir(path)


def _entries(session: Reading, head: Head, clock: Clock) -> Iterator[tuple[Entry, Record]]:
    """The records in order, with those that stand for what is gone, and what each tells here."""
    known = {record.info.position: record for record in session.log}
    for position, number in emptied(session).items():
        known[position] = _stub(position, number, head)
    before = Entry(info=_stub(0, -1, head).info, head=_before(head), record_id="")
    for position in sorted(known):
        record = known[position]
        after = _after(before.head, record.info)
        entry = Entry(
            info=record.info,
            head=head if position == head.position else after,
            record_id=clock.new_id(),
            previous=before.head.commit_position,
            runs=before.newest_run,
            base=_base(head),
        )
        yield entry, record
        before = replace(entry, head=after)


def _base(head: Head) -> int:
    """A position below all that must be there, and so far below that the next claim makes nothing."""
    return head.journal_from if head.position > head.journal_from else head.journal_from - 1


def _stub(position: int, number: int, head: Head) -> Record:
    """What stands for a commit of which nothing is left."""
    info = RecordInfo(
        position=position,
        epoch=head.epoch,
        kind=Kind.COMMIT,
        created_at=head.updated_at,
        commit=number,
        step=head.summary.step,
        first_event=1,
    )
    return Record(info=info)


def _before(head: Head) -> Head:
    """How the session stood before its first record, as far as anybody looks at it."""
    return replace(head, position=0, commit=-1, commit_position=0, events=0, journal_from=0)


def _after(head: Head, info: RecordInfo) -> Head:
    if info.kind is not Kind.COMMIT:
        return replace(head, position=info.position, epoch=info.epoch)
    return replace(
        head,
        position=info.position,
        epoch=info.epoch,
        commit=info.commit,
        commit_position=info.position,
        events=max(head.events, last_event(info)),
    )


def _log_files(
    session: Reading, head: Head, entries: list[tuple[Entry, Record]]
) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the records, the packs and the marker."""
    infos = [record.info for record in session.log if record.info.kind is Kind.COMMIT]
    pruned = {info.position for info in infos if not info.body_size}
    for entry, record in entries:
        position = record.info.position
        if position not in pruned or position > _base(head):
            yield names.record_name(position), pack_record(entry, record.body, record.events)
    left = [
        Packed(info=entry.info, previous=entry.previous, runs=entry.runs, events=record.events)
        for entry, record in entries
        if record.info.position in pruned
    ]
    for start in range(0, len(left), _PACK):
        items = left[start : start + _PACK]
        name = names.pack_name(items[0].info.position, items[-1].info.position)
        yield name, pack_packed(head.session_id, head.nonce, items)
    gone = set(range(head.commit + 1)).difference(info.commit for info in infos)
    marker = replace(Marker().dropping(gone), first_event=head.first_event)
    if marker != Marker():
        yield names.marker_name(1), pack_marker(head.session_id, head.nonce, marker)
