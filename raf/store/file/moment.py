"""A session at one moment, read from a folder that others write to.

Theory of operation.  Files are never changed once they have their name: they appear and they are
removed.  So a listing is a moment, if all that it names can still be read.  When something has
vanished, or something is missing that may have appeared behind the listing's back, the reader lists
again; what is missing in two equal listings is missing for good, and that is damage.

The head comes from the record with the highest position.  Between the last commit that ended the
journal and the newest record no position may be missing: nothing there is ever pruned.  Below it a
commit is in its record, in a pack (then the pack counts, whatever else is there), or among those that
the marker names as dropped; one that is nowhere was lost.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from raf.errors import CorruptRecordError
from raf.store.file import names
from raf.store.file.folder import Folder, Listing
from raf.store.file.meta import (
    Entry,
    Marker,
    Packed,
    Stored,
    unpack_marker,
    unpack_packed,
    unpack_request,
)
from raf.store.model import Head, Held, Kind, Reading, Record, RecordInfo, Request, Select
from raf.store.order import last_event
from raf.store.owner import unknown_holder


class VanishedError(Exception):
    """A listed file is gone, or the log grew: list again."""


class MissingError(Exception):
    """Something is missing; damage if it is missing in the next listing too."""

    def __init__(self, path: str, error: CorruptRecordError) -> None:
        super().__init__(str(error))
        self.signature = (path, error.record)
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What lies beside the log: the lease, and the numbers of the inbox."""

    held: Held | None
    requests: tuple[int, ...]


class Moment:
    """A session as one listing shows it; reads the files that a question needs.

    Args:
        folder: The session's.
        calm: Refuse a log that grew while lease and inbox were looked at.
    """

    def __init__(self, folder: Folder, *, calm: bool = True) -> None:
        self.folder = folder
        self.nonce = ""
        self._entries: dict[int, Entry] = {}
        self._packs: dict[tuple[int, int], dict[int, Packed]] = {}
        self.listing: Listing = folder.listing()
        # How far the packs up to each one reach: most positions are looked for in none of them.
        self._reach = tuple(accumulate((last for _, last in self.listing.packs), max))
        if not self.listing.positions:
            raise self.missing("of the newest position", "the folder holds no record")
        self.newest: Entry = self._entry(self.listing.positions[-1])
        self.nonce = self.newest.head.nonce
        self._check_newest()
        self.marker = self._marker()
        self.beside = self._beside(calm=calm)
        self.head = self._head()

    # -- the head ---------------------------------------------------------------------------------

    @property
    def deleted(self) -> bool:
        """Whether the session has ended."""
        return self.newest.deleted

    def missing(self, record: str, why: str) -> MissingError:
        """What to raise when something is not there."""
        error = CorruptRecordError(self.folder.session_id, record, why)
        return MissingError(self.folder.path, error)

    def _check_newest(self) -> None:
        """No gap from the journal's beginning to the newest record."""
        head = self.newest.head
        first = max(head.journal_from, self.newest.base + 1)
        at = bisect_left(self.listing.positions, first)
        found = self.listing.positions[at:]
        if len(found) != head.position - first + 1:
            lost = min(set(range(first, head.position + 1)) - set(found))
            raise self.missing(names.record_name(lost), "it is missing among the newest records")

    def _marker(self) -> Marker:
        if not self.listing.marker:
            return Marker()
        name = names.marker_name(self.listing.marker)
        try:
            data = self.folder.disk.read(self.folder.file(name))
        except FileNotFoundError as error:
            raise VanishedError from error
        return unpack_marker(data, self.folder.session_id, name, self.nonce)

    def _beside(self, *, calm: bool) -> Beside:
        try:
            beside = Beside(held=self._held(), requests=self._request_numbers())
        except FileNotFoundError as error:
            raise self.missing("of leases and inbox", "a folder of the two is missing") from error
        if calm and self.folder.has_record(self.newest.info.position + 1):
            raise VanishedError
        return beside

    def _held(self) -> Held | None:
        head = self.newest.head
        epoch = self.folder.highest_lease()
        if epoch > head.epoch:
            raise self.missing(f"of the claim of epoch {epoch}", "its lease is there and it is not")
        note = self.folder.lease(head.epoch) if epoch == head.epoch else None
        if note is not None and note.nonce == self.nonce:
            return None if note.released else note.held
        return self.newest.held or unknown_holder(head.epoch)

    def _request_numbers(self) -> tuple[int, ...]:
        found = (names.request_seq(name) for name in self.folder.disk.listdir(self.folder.inbox))
        numbers = tuple(sorted(seq for seq in found if seq is not None))
        consumed = self.newest.head.consumed
        if numbers != tuple(range(1, len(numbers) + 1)) or len(numbers) < consumed:
            lost = min(set(range(1, max(consumed, *numbers, 0) + 1)) - set(numbers))
            raise self.missing(names.request_name(lost), "it is missing in the inbox")
        return numbers

    def _head(self) -> Head:
        head = self.newest.head
        return replace(
            head,
            first_event=max(head.first_event, self.marker.first_event),
            requests=len(self.beside.requests),
            held=self.beside.held,
        )

    # -- records ----------------------------------------------------------------------------------

    def _read(self, position: int) -> Stored:
        """A listed record."""
        try:
            stored = self.folder.record(position)
        except FileNotFoundError as error:
            raise VanishedError from error
        if self.nonce and stored.entry.head.nonce != self.nonce:
            raise CorruptRecordError(
                self.folder.session_id,
                names.record_name(position),
                "it is of another session of this name",
            )
        self._entries[position] = stored.entry
        return stored

    def _entry(self, position: int) -> Entry:
        """The clear side of a listed record."""
        return self._entries.get(position) or self._read(position).entry

    def _listed(self, position: int) -> bool:
        positions = self.listing.positions
        at = bisect_left(positions, position)
        return at < len(positions) and positions[at] == position

    def _pack(self, span: tuple[int, int]) -> dict[int, Packed]:
        known = self._packs.get(span)
        if known is not None:
            return known
        name = names.pack_name(*span)
        try:
            data = self.folder.disk.read(self.folder.file(name))
        except FileNotFoundError as error:
            raise VanishedError from error
        items = unpack_packed(data, self.folder.session_id, name, self.nonce)
        self._packs[span] = {item.info.position: item for item in items}
        return self._packs[span]

    def pack(self, span: tuple[int, int]) -> list[Packed]:
        """All that a pack holds."""
        return list(self._pack(span).values())

    def info(self, position: int) -> RecordInfo:
        """The clear fields of a listed record, as they were written."""
        return self._entry(position).info

    def links(self, position: int) -> tuple[int, int]:
        """Positions of the commit, and of the run's end, before a commit."""
        if item := self.packed(position):
            return item.previous, item.runs
        entry = self._entry(position)
        return entry.previous, entry.runs

    def packed(self, position: int) -> Packed | None:
        """What a pack holds of a position."""
        packs = self.listing.packs
        at = bisect_right(packs, position, key=_first)
        while at and self._reach[at - 1] >= position:
            at -= 1
            if packs[at][1] >= position and (item := self._pack(packs[at]).get(position)):
                return item
        return None

    def packs_above(self, position: int) -> list[Packed]:
        """All packed commits above a position."""
        spans = [span for span in self.listing.packs if span[1] > position]
        return [item for span in spans for at, item in self._pack(span).items() if at > position]

    def commit_at(self, position: int, number: int | None = None) -> Record | None:
        """The commit at a position as pruning left it; None when nothing is left of it."""
        if item := self.packed(position):
            return self._trimmed(Record(info=item.info, events=item.events))
        if self._listed(position):
            stored = self._read(position)
            info = stored.entry.info
            if info.kind is not Kind.COMMIT or self.marker.has_dropped(info.commit):
                return None
            return self._trimmed(Record(info=info, body=stored.body, events=stored.events))
        if number is not None and self.marker.has_dropped(number):
            return None
        raise self.missing(names.record_name(position), "it is missing, and it was not pruned")

    def _trimmed(self, record: Record) -> Record:
        """The record without events that were pruned."""
        if last_event(record.info) >= self.head.first_event:
            return record
        return replace(record, info=replace(record.info, events_size=0), events=b"")

    def commits(self, floor: int = 0) -> Iterator[Record]:
        """Commits above a position, oldest first, as pruning left them."""
        at = bisect_right(self.listing.positions, floor)
        positions = {item.info.position for item in self.packs_above(floor)}
        for position in sorted(positions.union(self.listing.positions[at:])):
            record = self.commit_at(position)
            if record is not None and not self.marker.has_dropped(record.info.commit):
                yield record

    def commits_among(self, positions: set[int]) -> Iterator[Record]:
        """Commits that have a record at one of these positions, oldest first."""
        for position in sorted(positions.intersection(self.listing.positions)):
            record = self.commit_at(position)
            if record is not None:
                yield record

    # -- questions --------------------------------------------------------------------------------

    def reading(self, select: Select) -> Reading:
        """All that is selected."""
        after, limit = select.events_after, select.events_limit
        return Reading(
            head=self.head,
            chain=self._chain(select.at) if select.chain else (),
            journal=self._journal() if select.journal else (),
            requests=self._requests(self.head.consumed) if select.requests else (),
            events=() if after is None else self._events(after, limit),
            infos=self._infos() if select.infos else (),
            kept=tuple(record.info for record in self._kept()) if select.kept else (),
            run=self._run(select.run) if select.run else None,
            log=self._log() if select.log else (),
            inbox=self._requests(0) if select.inbox else (),
        )

    def _position_of(self, number: int) -> int | None:
        """Where a commit's record is; None when its body was pruned."""
        positions = self.listing.positions
        at = bisect_left(positions, number, key=lambda p: self._entry(p).head.commit)
        if at < len(positions):
            info = self._entry(positions[at]).info
            if info.kind is Kind.COMMIT and info.commit == number:
                return info.position
        floor = positions[at - 1] if at else 0
        left = {item.info.commit for item in self.packs_above(floor)}
        if number not in left and not self.marker.has_dropped(number):
            raise self.missing(f"of commit {number}", "it is missing, and it was not pruned")
        return None

    def _chain(self, at: int | None) -> tuple[Record, ...]:
        head = self.head
        number = head.commit if at is None else at
        if not 0 <= number <= head.commit:
            return ()
        position = head.commit_position if number == head.commit else self._position_of(number)
        links: list[Record] = []
        while position:
            if self.packed(position) or self.marker.has_dropped(number):
                return ()
            record = self.commit_at(position, number)
            if record is None or record.info.commit != number:
                raise CorruptRecordError(
                    head.session_id, names.record_name(position), f"it is not commit {number}"
                )
            links.append(record)
            if record.info.full:
                return tuple(reversed(links))
            position, number = self._entry(position).previous, number - 1
        return ()

    def _journal(self) -> tuple[Record, ...]:
        at = bisect_right(self.listing.positions, self.head.journal_from)
        open_ = (self._read(position) for position in self.listing.positions[at:])
        return tuple(
            Record(info=stored.entry.info, body=stored.body)
            for stored in open_
            if stored.entry.info.kind is not Kind.COMMIT
        )

    def _requests(self, after: int) -> tuple[Request, ...]:
        return tuple(
            read_request(self.folder, self.nonce, seq)
            for seq in self.beside.requests
            if seq > after
        )

    def _log(self) -> tuple[Record, ...]:
        """All commits, and the open journal between them."""
        records = [*self._all_commits(), *self._journal()]
        return tuple(sorted(records, key=lambda record: record.info.position))

    def _events(self, after: int, limit: int) -> tuple[Record, ...]:
        """Commits with events above a number; without a gap between them."""
        after = max(after, self.head.first_event - 1)
        if after >= self.head.events or limit <= 0:
            return ()
        positions = self.listing.positions
        at = bisect_right(positions, after, key=lambda p: self._entry(p).head.events)
        found: list[Record] = []
        for record in self.commits(positions[at - 1] if at else 0):
            if not record.info.event_count or last_event(record.info) <= after:
                continue
            if record.info.first_event > after + 1:
                break
            found.append(record)
            after = last_event(record.info)
            if len(found) == limit:
                return tuple(found)
        if after < self.head.events:
            raise self.missing(f"of event {after + 1}", "it is missing, and it was not pruned")
        return tuple(found)

    def _infos(self) -> tuple[RecordInfo, ...]:
        return self._whole(tuple(record.info for record in self.commits()))

    def _all_commits(self) -> tuple[Record, ...]:
        records = tuple(self.commits())
        self._whole(tuple(record.info for record in records))
        return records

    def _whole(self, infos: tuple[RecordInfo, ...]) -> tuple[RecordInfo, ...]:
        """The same, if none is missing that was not pruned."""
        there = {info.commit for info in infos}
        for number in range(self.head.commit + 1):
            if number not in there and not self.marker.has_dropped(number):
                raise self.missing(f"of commit {number}", "it is missing, and it was not pruned")
        return infos

    def _kept(self) -> Iterator[Record]:
        """Commits that still have their record; one that was lost is told of by `_infos`."""
        for position in self.listing.positions:
            if not self.packed(position) and (record := self.commit_at(position)):
                yield record

    def _run(self, run_id: str) -> Record | None:
        """The newest commit that finished a run: each names the one before it."""
        position = self.newest.newest_run
        while position:
            record = self.commit_at(position)
            if record is None:
                return None
            if record.info.run_id == run_id:
                return record
            _, position = self.links(position)
        return None


def _first(span: tuple[int, int]) -> int:
    return span[0]


def read_request(folder: Folder, nonce: str, seq: int) -> Request:
    """A request of the inbox that is listed."""
    name = names.request_name(seq)
    try:
        data = folder.disk.read(f"{folder.inbox}/{name}")
    except FileNotFoundError as error:
        raise VanishedError from error
    return unpack_request(data, folder.session_id, name, nonce, seq)
