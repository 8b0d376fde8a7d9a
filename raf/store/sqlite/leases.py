"""Who may run a session: claim, renew, release, each inside an open transaction.

Rules of this file: those of `writes`.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from raf.clock import Clock
from raf.errors import SessionBusyError, SessionNotFoundError
from raf.failpoint import failpoint
from raf.store.model import Claimed, Lease, Owner
from raf.store.order import new_head
from raf.store.owner import LeaseWatch
from raf.store.sqlite.reads import find_claimable
from raf.store.sqlite.rows import CLAIM, SessionRow, key_of, owner_text, plain_row, summary_text
from raf.store.sqlite.writes import INSERT, Write

# Over a deleted session's row it keeps the number; a missing number is the next one.
_CREATE = (
    "INSERT OR REPLACE INTO sessions"
    " VALUES (?, ?, ?, ?, 0, -1, 0, 0, 0, 1, 0, 0, 0, ?, ?, '', NULL, NULL, NULL, ?)"
)
_HOLD = (
    "UPDATE sessions SET epoch = ?, position = ?, owner = ?, expires_boot = ?, duration_s = ?"
    " WHERE number = ?"
)
_RENEW = (
    "UPDATE sessions SET expires_boot = ?, duration_s = ?"
    " WHERE id = ? AND nonce = ? AND epoch = ? AND owner IS NOT NULL"
)
_RELEASE = (
    "UPDATE sessions SET owner = NULL, expires_boot = NULL, duration_s = NULL"
    " WHERE id = ? AND nonce = ? AND epoch = ?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Who claims, and for how long."""

    owner: Owner
    lease_s: float
    clock: Clock

    def take(
        self, connection: sqlite3.Connection, session: SessionRow, *, created: bool = False
    ) -> Claimed:
        """Write the claim of a session that is free."""
        head = session.head
        took_over = head.held is not None
        lease = Lease(
            session_id=head.session_id,
            nonce=head.nonce,
            epoch=head.epoch + 1,
            owner=self.owner,
            duration_s=self.lease_s,
            expires_boot=self.clock.boot() + self.lease_s,
            position=head.position + 1,
        )
        key = key_of(session.number, lease.position)
        row = plain_row(key, CLAIM, lease.epoch, self.clock.now(), mark=took_over)
        connection.execute(INSERT, row)
        holder = (owner_text(self.owner), lease.expires_boot, lease.duration_s, session.number)
        connection.execute(_HOLD, (lease.epoch, lease.position, *holder))
        return Claimed(lease=lease, took_over=took_over, created=created)


class ClaimWrite(Write[Claimed]):
    """Take a session that is free."""

    def __init__(
        self,
        session_id: str,
        owner: Owner,
        *,
        lease_s: float,
        create: bool,
        clock: Clock,
        watch: LeaseWatch,
    ) -> None:
        super().__init__()
        self.session_id = session_id
        self.hold = Hold(owner=owner, lease_s=lease_s, clock=clock)
        self.create = create
        self.clock = clock
        self.watch = watch

    def run(self, connection: sqlite3.Connection) -> Claimed:
        session = find_claimable(connection, self.session_id)
        if session is None or session.deleted:
            if not self.create:
                raise SessionNotFoundError(self.session_id)
            made = self._create(connection, session)
            return self.hold.take(connection, made, created=True)
        held = session.head.held
        if held is not None and self.watch.binds(self.session_id, held):
            raise SessionBusyError(self.session_id, str(held.owner), self.watch.until(held))
        return self.hold.take(connection, session)

    def _create(self, connection: sqlite3.Connection, grave: SessionRow | None) -> SessionRow:
        now = self.clock.now()
        epoch = grave.head.epoch if grave else 0
        head = new_head(self.session_id, self.clock.new_id(), now, epoch=epoch)
        number = grave.number if grave else None
        values = (number, self.session_id, head.nonce, epoch, now, now, summary_text(head.summary))
        created = connection.execute(_CREATE, values)
        return SessionRow(number=created.lastrowid or 0, head=head, commit_id="")

    def points(self) -> Iterator[None]:
        failpoint("store.sqlite.claim.before")
        yield
        failpoint("store.sqlite.claim.after")


class RenewWrite(Write[list[float | None]]):
    """Extend leases; the answer is each one's new end, or None for one that was lost."""

    def __init__(self, leases: Sequence[Lease], clock: Clock) -> None:
        super().__init__()
        self.leases = tuple(leases)
        self.clock = clock

    def run(self, connection: sqlite3.Connection) -> list[float | None]:
        ends: list[float | None] = []
        for lease in self.leases:
            end = self.clock.boot() + lease.duration_s
            which = (lease.session_id, lease.nonce, lease.epoch)
            done = connection.execute(_RENEW, (end, lease.duration_s, *which))
            ends.append(end if done.rowcount else None)
        return ends

    def points(self) -> Iterator[None]:
        failpoint("store.sqlite.renew.before")
        yield
        failpoint("store.sqlite.renew.after")


class ReleaseWrite(Write[None]):
    """Give a session back; a lost lease is ignored."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self.lease = lease

    def run(self, connection: sqlite3.Connection) -> None:
        lease = self.lease
        connection.execute(_RELEASE, (lease.session_id, lease.nonce, lease.epoch))

    def points(self) -> Iterator[None]:
        failpoint("store.sqlite.release.before")
        yield
        failpoint("store.sqlite.release.after")


class ForgetClaimWrite(Write[None]):
    """Give back what a claim got that nobody waits for any more; comes after it in the queue."""

    def __init__(self, claim: Write[Any]) -> None:
        super().__init__()
        self.claim = claim

    def run(self, connection: sqlite3.Connection) -> None:
        # A claim that failed may have been rolled back: its epoch can be another owner's by now.
        got = self.claim.result
        if got is None or self.claim.error is not None:
            return
        for claimed in got if isinstance(got, list) else [got]:
            lease = claimed.lease
            connection.execute(_RELEASE, (lease.session_id, lease.nonce, lease.epoch))

    def points(self) -> Iterator[None]:
        failpoint("store.sqlite.release.before")
        yield
        failpoint("store.sqlite.release.after")
