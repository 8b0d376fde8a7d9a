"""The inbox of a session: anyone may append, equal ids meet in one request.

Theory of operation.  Requests are files numbered from 1 without a gap, each made by `link`.  A sender
first knows the ids of all requests that are there, then tries the next number.  If the number
is taken, it reads what took it and goes on.  So no id is ever written twice, and no number is
left out, whoever sends at the same time.

Requests are small and stay when they were consumed, for their ids must stay known; they go with the
session.
"""

import os
from collections import OrderedDict
from dataclasses import dataclass, field

from raf.clock import Clock
from raf.errors import SessionNotFoundError
from raf.failpoint import failpoint
from raf.store.file import names
from raf.store.file.folder import Folder
from raf.store.file.meta import pack_request
from raf.store.file.moment import Moment, VanishedError, read_request
from raf.store.file.place import Place
from raf.store.file.reader import TRIES, Reader
from raf.store.model import Request

_REMEMBERED = 1024


@dataclass(slots=True, kw_only=True)
class _Known:
    """The ids of the first `count` requests of one folder."""

    count: int = 0
    by_id: dict[str, int] = field(default_factory=dict)


class Inbox:
    """Appends to the inboxes of one store's sessions."""

    def __init__(self, place: Place, reader: Reader, clock: Clock) -> None:
        self._place = place
        self._reader = reader
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def request(self, session_id: str, request_id: str, kind: str, body: bytes) -> Request:
        """Append a request, or return the one of this id."""
        for _ in range(TRIES):
            moment = self._reader.look(session_id)
            if moment is None or moment.deleted:
                raise SessionNotFoundError(session_id)
            folder = moment.folder
            try:
                known = self._learn(moment)
                if (seq := known.by_id.get(request_id)) is not None:
                    # Whoever wrote it may not have come as far as syncing it.
                    folder.disk.sync_dir(folder.inbox)
                    return read_request(folder, moment.nonce, seq)
                request = Request(
                    seq=known.count + 1,
                    request_id=request_id,
                    kind=kind,
                    body=bytes(body),
                    created_at=self._clock.now(),
                )
                if self._put(moment, request):
                    known.count = request.seq
                    known.by_id[request_id] = request.seq
                    return request
            except (FileNotFoundError, VanishedError):
                continue  # swept by a new owner, or the session was deleted: look again
        raise self._place.restless(session_id)

    def _learn(self, moment: Moment) -> _Known:
        """Read the ids of all requests that are there."""
        folder = moment.folder
        known = self._known.get(folder.path)
        if known is None:
            # Its making may not be synced yet, by whoever is making it.
            folder.disk.sync_dir(self._place.home(folder))
            known = self._known[folder.path] = _Known()
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        for seq in moment.beside.requests[known.count :]:
            request = read_request(folder, moment.nonce, seq)
            known.by_id.setdefault(request.request_id, seq)
            known.count = seq
        return known

    def _put(self, moment: Moment, request: Request) -> bool:
        """Write a request under its number; False when the number is taken."""
        folder: Folder = moment.folder
        data = pack_request(folder.session_id, moment.nonce, request)
        failpoint("store.file.request.put.before")
        temp = folder.write_temp(folder.inbox, moment.head.epoch, data)
        try:
            folder.disk.link(temp, os.path.join(folder.inbox, names.request_name(request.seq)))
        except FileExistsError:
            return False
        finally:
            folder.discard([temp])
        folder.disk.sync_dir(folder.inbox)
        failpoint("store.file.request.put.after")
        return True
