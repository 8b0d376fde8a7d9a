"""Claiming what is due: one at a time looks at all heads and takes.

Theory of operation.  A file in the root, locked for as long as a call looks and takes (and gives
back, when nobody waits for it any more), makes the callers of all processes take turns, so that no two
take the last place of a queue.  A claim of one
session does not ask for it; so what is taken is looked at once more, and what somebody else took
meanwhile is passed over.
"""

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from raf.clock import Clock
from raf.errors import CheckpointError
from raf.store.due import Places, choose, is_due
from raf.store.file.claims import Claims
from raf.store.file.place import Place
from raf.store.file.reader import Reader
from raf.store.model import Claimed, Due, Head, Owner


class DueClaims:
    """Claims due sessions of one store."""

    def __init__(
        self,
        place: Place,
        reader: Reader,
        claims: Claims,
        clock: Clock,
        lock_of: Callable[[str], threading.Lock],
    ) -> None:
        self._place = place
        self._reader = reader
        self._claims = claims
        self._clock = clock
        self._lock_of = lock_of

    def turn(self) -> AbstractContextManager[None]:
        """Keep out all others that look for due sessions."""
        return self._place.one_at_a_time()

    def claim(
        self, claimed: list[Claimed], owner: Owner, due: Due, *, lease_s: float, limit: int
    ) -> None:
        """Take sessions that are due, in one's turn.

        Args:
            claimed: Gets what is taken; after an error it holds what was taken before.
            owner: Who takes.
            due: What it asks for.
            lease_s: For how long, seconds.
            limit: At most so many.
        """
        now = self._clock.now()

        def wanted(head: Head) -> bool:
            return is_due(head, due, now)

        free, places = self._look(due)
        for head in choose(free, due, now, places):
            if len(claimed) >= limit:
                return
            if not places.free(head.summary.queue):
                continue
            taken = self._take(head.session_id, owner, lease_s, wanted)
            if taken is not None:
                places.take(head.summary.queue)
                claimed.append(taken)

    def _look(self, due: Due) -> tuple[list[Head], Places]:
        """The sessions that nobody holds, and the places that are left."""
        free: list[Head] = []
        held: list[str] = []
        for head in self._reader.scan("", sys.maxsize):
            if self._claims.binds(head):
                held.append(head.summary.queue)
            else:
                free.append(head)
        return free, Places(due, held)

    def _take(
        self, session_id: str, owner: Owner, lease_s: float, wanted: Callable[[Head], bool]
    ) -> Claimed | None:
        try:
            with self._lock_of(session_id):
                return self._claims.claim_if(session_id, owner, lease_s, wanted)
        except CheckpointError:  # damaged since it was looked at
            return None
