"""Reading all of a session that can be read, file by file.

Rules of this file: a file that is damaged is left out and named, so that it hides no other; only what
is of a newer format is no damage.  How the session stands is told by the newest record that can be
read.  Others may write meanwhile: then the session was not damaged there, and the next look tells.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from raf.errors import CheckpointError, CorruptRecordError
from raf.store.file import names
from raf.store.file.folder import Folder
from raf.store.file.meta import (
    Marker,
    Packed,
    Stored,
    unpack_marker,
    unpack_packed,
    unpack_record,
    unpack_request,
)
from raf.store.file.place import Place
from raf.store.file.reader import Reader
from raf.store.model import Head, Kind, Reading, Record, Request, Salvage, Select

Value = TypeVar("Value")


def salvage(place: Place, reader: Reader, session_id: str) -> Salvage | None:
    """What can be read of a session; None when there is none.

    Raises:
        CorruptRecordError: Nothing of it can be read.
        FormatVersionError: A part of it is newer than this code.
    """
    try:
        session = reader.read(session_id, Select(log=True, inbox=True))
    except CheckpointError as error:
        folder = place.find(session_id).folder
        if folder is None:
            return None
        return _Pieces(folder).salvage(error)
    return None if session is None else Salvage(session=session)


@dataclass(slots=True)
class _Pieces:
    """The files of one session, read one by one."""

    folder: Folder
    nonce: str = ""
    damaged: list[CorruptRecordError] = field(default_factory=list)

    def salvage(self, why: CheckpointError) -> Salvage | None:
        """All that can be read; `why` the session cannot be read as a whole."""
        records = self._records()
        if not records:
            raise why
        newest = records[-1].entry
        if newest.deleted:
            return None
        marker = self._marker()
        head = replace(newest.head, first_event=max(newest.head.first_event, marker.first_event))
        inbox = self._inbox()
        session = Reading(
            head=replace(head, requests=max([head.consumed, *(r.seq for r in inbox)])),
            log=tuple(_log(head, records, self._packs(), marker)),
            inbox=tuple(inbox),
        )
        if not self.damaged and isinstance(why, CorruptRecordError):
            self.damaged.append(why)  # something is missing, and nothing is damaged
        return Salvage(session=session, damaged=tuple(self.damaged))

    def _records(self) -> list[Stored]:
        """Records in order; those of another session of this name are left out."""
        found: list[Stored] = []
        for position in self.folder.listing().positions:
            name = names.record_name(position)
            unpack = partial(
                unpack_record, session_id=self.folder.session_id, name=name, position=position
            )
            stored = self._read(self.folder.file(name), unpack)
            if stored is not None:
                found.append(stored)
        self.nonce = found[-1].entry.head.nonce if found else ""
        for stored in found:
            if stored.entry.head.nonce != self.nonce:
                name = names.record_name(stored.entry.info.position)
                why = "it is of another session of this name"
                self.damaged.append(CorruptRecordError(self.folder.session_id, name, why))
        return [stored for stored in found if stored.entry.head.nonce == self.nonce]

    def _packs(self) -> dict[int, Packed]:
        found: dict[int, Packed] = {}
        for span in self.folder.listing().packs:
            name = names.pack_name(*span)
            unpack = partial(
                unpack_packed, session_id=self.folder.session_id, name=name, nonce=self.nonce
            )
            items = self._read(self.folder.file(name), unpack)
            found |= {item.info.position: item for item in items or ()}
        return found

    def _marker(self) -> Marker:
        number = self.folder.listing().marker
        if not number:
            return Marker()
        name = names.marker_name(number)
        unpack = partial(
            unpack_marker, session_id=self.folder.session_id, name=name, nonce=self.nonce
        )
        return self._read(self.folder.file(name), unpack) or Marker()

    def _inbox(self) -> list[Request]:
        found: list[Request] = []
        listed: list[str] = []
        with suppress(FileNotFoundError):
            listed = self.folder.disk.listdir(self.folder.inbox)
        for seq in sorted(seq for name in listed if (seq := names.request_seq(name)) is not None):
            name = names.request_name(seq)
            unpack = partial(
                unpack_request,
                session_id=self.folder.session_id,
                name=name,
                nonce=self.nonce,
                seq=seq,
            )
            request = self._read(f"{self.folder.inbox}/{name}", unpack)
            if request is not None:
                found.append(request)
        return found

    def _read(self, path: str, unpack: Callable[[bytes], Value]) -> Value | None:
        """What a file holds; None when it is damaged, or gone."""
        try:
            data = self.folder.disk.read(path)
        except FileNotFoundError:
            return None
        try:
            return unpack(data)
        except CorruptRecordError as error:
            self.damaged.append(error)
        return None


def _log(
    head: Head, records: list[Stored], packs: dict[int, Packed], marker: Marker
) -> list[Record]:
    """Commits as pruning left them, and the open journal between them."""
    found = {at: Record(info=item.info, events=item.events) for at, item in packs.items()}
    for stored in records:
        info = stored.entry.info
        is_open = info.kind is Kind.COMMIT or info.position > head.journal_from
        if is_open and info.position not in found:
            found[info.position] = Record(info=info, body=stored.body, events=stored.events)
    return [
        _trimmed(head, found[position])
        for position in sorted(found)
        if found[position].info.kind is not Kind.COMMIT
        or not marker.has_dropped(found[position].info.commit)
    ]


def _trimmed(head: Head, record: Record) -> Record:
    """The record without events that were pruned."""
    info = record.info
    pruned = info.first_event + info.event_count - 1 < head.first_event
    if info.kind is not Kind.COMMIT or not pruned:
        return record
    return replace(record, info=replace(info, events_size=0), events=b"")
