"""Pruning: what goes and what stays is written down first, then files are removed.

Theory of operation.  One prune is

    1. a marker: events below a number, and commits of which nothing is left, are gone;
    2. a pack with the events and clear fields of the other commits whose bodies go;
    3. removing files that say nothing any more.

After each step a reader sees a whole session: a commit in a pack has no body, even if its record is
still there; what the marker names is not shown, even if it is still there.  So a kill in between costs
room, and the next prune of the kind removes the rest.  Steps 1 and 2 are fenced like every write of an owner;
step 3 needs no fence, since what is void stays void.

Nothing from the beginning of the open journal on is removed, nor the record of the last commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from raf.errors import LeaseLostError
from raf.failpoint import failpoint
from raf.store.file import names
from raf.store.file.folder import OvertakenError, TakenError
from raf.store.file.log import Log
from raf.store.file.meta import Marker, Packed, pack_marker, pack_packed
from raf.store.file.moment import Moment, VanishedError
from raf.store.file.place import Place
from raf.store.file.reader import TRIES, Reader
from raf.store.model import Kind, Lease, Record
from raf.store.order import last_event


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a prune leaves."""

    packed: list[Packed]
    marker: Marker


class Pruner:
    """Prunes the sessions of one store."""

    def __init__(self, place: Place, reader: Reader, log: Log) -> None:
        self._place = place
        self._reader = reader
        self._log = log

    def prune(self, lease: Lease, bodies: Sequence[int], events_before: int | None) -> None:
        """Drop bodies and events of a session that the lease holds."""
        for _ in range(TRIES):
            self._log.owned(lease)
            try:
                moment = self._reader.look(lease.session_id)
                if moment is None or moment.nonce != lease.nonce:
                    raise LeaseLostError(lease.session_id, lease.epoch)
                plan = _plan(moment, set(bodies), events_before or 0)
                self._write(lease, moment, plan)
                self._clean(lease, bodies, events=events_before is not None)
            except (TakenError, VanishedError, FileNotFoundError):
                continue  # another pruner of the same lease was here, or the session was deleted
            return
        raise self._place.restless(lease.session_id)

    def _write(self, lease: Lease, moment: Moment, plan: Plan) -> None:
        folder, nonce = moment.folder, moment.nonce
        try:
            if plan.marker != moment.marker:
                name = names.marker_name(moment.listing.marker + 1)
                data = pack_marker(folder.session_id, nonce, plan.marker)
                failpoint("store.file.prune.marker.before")
                folder.put([(name, data)], epoch=lease.epoch)
                failpoint("store.file.prune.marker.after")
            if plan.packed:
                span = plan.packed[0].info.position, plan.packed[-1].info.position
                data = pack_packed(folder.session_id, nonce, plan.packed)
                failpoint("store.file.prune.pack.before")
                folder.put([(names.pack_name(*span), data)], epoch=lease.epoch)
                failpoint("store.file.prune.pack.after")
        except OvertakenError as error:
            self._log.lost(lease, folder)
            raise LeaseLostError(lease.session_id, lease.epoch) from error

    def _clean(self, lease: Lease, bodies: Sequence[int], *, events: bool) -> None:
        """Remove the files that say nothing any more."""
        moment = self._reader.look(lease.session_id)
        if moment is None or moment.nonce != lease.nonce:
            raise LeaseLostError(lease.session_id, lease.epoch)
        files = _void_files(moment, bodies, events=events)
        if files:
            failpoint("store.file.prune.clean.before")
            moment.folder.remove(files)
            moment.folder.disk.sync_dir(moment.folder.path)
            failpoint("store.file.prune.clean.after")


def _plan(moment: Moment, bodies: set[int], before: int) -> Plan:
    """What is left of the commits when bodies at these positions and events below a number go."""
    first = moment.head.first_event
    packed: list[Packed] = []
    dropped: set[int] = set()
    # Without a number of an event only the commits that were named matter.
    records = moment.commits() if before > 0 else moment.commits_among(bodies)
    for record in records:
        info = record.info
        is_packed = moment.packed(info.position) is not None
        no_events = last_event(info) < before
        if no_events:
            first = max(first, last_event(info) + 1)
        if not is_packed and info.position not in bodies:
            continue
        if no_events and not info.run_id:
            dropped.add(info.commit)
        elif not is_packed:
            packed.append(_left(moment, record, no_events=no_events))
    marker = replace(moment.marker.dropping(dropped), first_event=first)
    return Plan(packed=packed, marker=marker)


def _left(moment: Moment, record: Record, *, no_events: bool) -> Packed:
    """What a pack keeps of a commit."""
    previous, runs = moment.links(record.info.position)
    return Packed(
        info=replace(record.info, body_size=0, events_size=0 if no_events else len(record.events)),
        previous=previous,
        runs=runs,
        events=b"" if no_events else record.events,
    )


def _void_files(moment: Moment, bodies: Sequence[int], *, events: bool) -> list[str]:
    """Files that no reader needs: records as ordered, then others newest first, packs, markers.

    Packs get void when events go, and all are read to tell: else they are not looked at.
    """
    head = moment.head
    ordered = {position: turn for turn, position in enumerate(bodies)}
    void = [
        position
        for position in moment.listing.positions
        if position < head.journal_from and _is_void(moment, position)
    ]
    void.sort(key=lambda position: (ordered.get(position, len(ordered)), -position))
    packs = [
        span
        for span in (moment.listing.packs if events else ())
        if all(moment.marker.has_dropped(item.info.commit) for item in moment.pack(span))
    ]
    return [
        *map(names.record_name, void),
        *(names.pack_name(*span) for span in packs),
        *map(names.marker_name, moment.listing.old_markers),
    ]


def _is_void(moment: Moment, position: int) -> bool:
    if moment.packed(position):
        return True
    info = moment.info(position)
    return info.kind is not Kind.COMMIT or moment.marker.has_dropped(info.commit)
