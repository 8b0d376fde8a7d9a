"""Claiming what is due: the index tells what may be, `raf.store.due` decides.

Rules of this file: those of `writes`.  Rows come one by one in the order of the index, so a call
costs what it takes, what is held, and what it passes over; not what else the file keeps.
"""

import heapq
import json
import logging
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from itertools import takewhile

from raf.clock import Clock
from raf.errors import CorruptRecordError
from raf.failpoint import failpoint
from raf.store.due import Places, is_due, order
from raf.store.model import Claimed, Due, Head, Owner
from raf.store.owner import LeaseWatch
from raf.store.sqlite.leases import Hold
from raf.store.sqlite.rows import HEAD, SessionRow, session_row
from raf.store.sqlite.schema import DUE, QUEUE
from raf.store.sqlite.writes import Write

Sessions = Generator[SessionRow, None, None]

log = logging.getLogger(__name__)

_FROM = f"SELECT {HEAD} FROM sessions INDEXED BY"  # noqa: S608 - literal columns
_DUE = f"{_FROM} sessions_due WHERE {DUE} IS NOT NULL AND {QUEUE}"
_UNREADABLE = f"{_DUE} IS NULL"
_OF_QUEUE = f"{_DUE} = json_extract(?, '$[0]') AND {DUE}"
_SUBMITTED = f"{_OF_QUEUE} < 0 ORDER BY {DUE}, id"
_AT_ONCE = f"{_OF_QUEUE} = 0"
# Its numbers may differ from Python's in the last digit, so it is asked for a little more.
_TIMED = f"{_OF_QUEUE} > 0 AND {DUE} <= ? + 1 ORDER BY {DUE}, id"
_HELD = f"{_FROM} sessions_held WHERE owner IS NOT NULL"


class ClaimDueWrite(Write[list[Claimed]]):
    """Take sessions that are due, within the limits of their queues."""

    def __init__(
        self,
        owner: Owner,
        due: Due,
        *,
        lease_s: float,
        limit: int,
        clock: Clock,
        watch: LeaseWatch,
    ) -> None:
        super().__init__()
        self.hold = Hold(owner=owner, lease_s=lease_s, clock=clock)
        self.due = due
        self.limit = limit
        self.clock = clock
        self.watch = watch

    def run(self, connection: sqlite3.Connection) -> list[Claimed]:
        chosen = self._chosen(connection) if self.limit > 0 else []
        return [self.hold.take(connection, session) for session in chosen]

    def _chosen(self, connection: sqlite3.Connection) -> list[SessionRow]:
        now = self.clock.now()
        limited = any(limit is not None for limit in self.due.queues.values())
        places = Places(self.due, self._held(connection) if limited else ())
        chosen: list[SessionRow] = []
        with ExitStack() as open_:
            streams = [_sorted(connection, _UNREADABLE)]
            for queue in filter(places.free, self.due.queues):
                streams += _streams(connection, queue, now, places)
            for stream in streams:
                open_.enter_context(closing(stream))
            for session in heapq.merge(*streams, key=_order):
                queue = session.head.summary.queue
                if not self._is_free(session.head, now) or not places.free(queue):
                    continue
                places.take(queue)
                chosen.append(session)
                if len(chosen) == self.limit or not any(map(places.free, self.due.queues)):
                    break
        return chosen

    def _is_free(self, head: Head, now: float) -> bool:
        wanted = is_due(head, self.due, now)
        return wanted and not self.watch.binds(head.session_id, head.held)

    def _held(self, connection: sqlite3.Connection) -> Iterator[str]:
        """The queue of each session that is held; one whose row is damaged is of none."""
        for session in _sessions(connection, _HELD):
            if self.watch.binds(session.head.session_id, session.head.held):
                yield session.head.summary.queue

    def points(self) -> Iterator[None]:
        failpoint("store.sqlite.claim_due.before")
        yield
        failpoint("store.sqlite.claim_due.after")


def _order(session: SessionRow) -> tuple[float, str]:
    return order(session.head)


def _streams(
    connection: sqlite3.Connection, queue: str, now: float, places: Places
) -> Iterator[Sessions]:
    """What may be due of a queue, in rows that each begin with the longest due."""
    name = json.dumps([queue])

    def while_free(statement: str, *values: object) -> Sessions:
        with closing(_sessions(connection, statement, name, *values)) as sessions:
            yield from takewhile(lambda _: places.free(queue), sessions)

    yield while_free(_SUBMITTED)
    yield _sorted(connection, _AT_ONCE, name)
    yield while_free(_TIMED, now)


def _sorted(connection: sqlite3.Connection, statement: str, *values: object) -> Sessions:
    yield from sorted(_sessions(connection, statement, *values), key=_order)


def _sessions(connection: sqlite3.Connection, statement: str, *values: object) -> Sessions:
    """The sessions of a statement's rows; a damaged one is passed over."""
    with closing(connection.execute(statement, values)) as rows:
        for row in rows:
            try:
                yield session_row(row)
            except CorruptRecordError as error:
                log.debug("passed over: %s", error)
