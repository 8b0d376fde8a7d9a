"""Claims, renewals and releases on a database: what is asked, and what is made of the answer.

Rules of this file: each operation may be sent twice; the second time it finds what the first left.
"""

from collections.abc import Sequence

from raf.clock import Clock
from raf.errors import SessionNotFoundError
from raf.failpoint import failpoint
from raf.store.model import Claimed, Due, Lease, Owner
from raf.store.owner import provably_dead
from raf.store.postgres import leases
from raf.store.postgres.database import Database
from raf.store.postgres.rows import holder_of
from raf.store.postgres.schema import lock_key


class Owners:
    """Who runs which session of a database.

    Args:
        database: Where the sessions are.
        schema: Its schema, for the names of locks.
        clock: For time stamps and new ids; leases are on the database's clock.
    """

    def __init__(self, database: Database, schema: str, clock: Clock) -> None:
        self._database = database
        self._schema = schema
        self._clock = clock

    def _wish(self, owner: Owner, lease_s: float) -> leases.Wish:
        return leases.Wish(owner, lease_s, self._clock.new_id(), self._clock.now())

    async def claim(
        self, session_id: str, owner: Owner, *, lease_s: float, create: bool
    ) -> Claimed:
        """As `Store.claim`."""
        wish, nonce = self._wish(owner, lease_s), self._clock.new_id()
        dead: list[str] = []
        while True:
            boot = self._clock.boot()
            values = leases.claim_values(session_id, wish, nonce, create=create, dead=dead)
            failpoint("store.postgres.claim.before")
            rows = await self._database.ask(leases.CLAIM_ONE, values)
            failpoint("store.postgres.claim.after")
            if row := leases.got(rows):
                lease = leases.lease_of(session_id, row[1:4], wish, boot)
                return Claimed(lease=lease, took_over=row[4], created=lease.nonce == nonce)
            row = leases.found(rows)
            if row is None and not create:
                raise SessionNotFoundError(session_id)
            if row is None or row[5] is None or row[7]:
                continue  # made, freed, or claimed by an earlier try of this call meanwhile
            if row[5] in dead or not provably_dead(holder_of(row[5]), self._clock):
                raise leases.busy(session_id, row[5], row[6] or 0.0, self._clock.now())
            dead.append(row[5])

    async def claim_due(
        self, owner: Owner, due: Due, *, lease_s: float, limit: int
    ) -> list[Claimed]:
        """As `Store.claim_due`."""
        if limit <= 0 or not due.queues or not due.fingerprints:
            return []
        wish = self._wish(owner, lease_s)
        values = leases.due_values(wish, due, limit=limit, dead=await self._dead())
        keys = [lock_key("queue", self._schema, queue) for queue in leases.limited(due.queues)]
        # A try whose answer was lost may still be running: the next one waits for its end.
        keys.append(lock_key("claim", self._schema, wish.claim_id))
        steps = [(leases.LOCK, {"key": key}) for key in sorted(set(keys))]
        boot = self._clock.boot()
        failpoint("store.postgres.claim_due.before")
        *_, before, taken = await self._database.transact(
            *steps, (leases.CLAIMED_BEFORE, values), (leases.CLAIM_DUE, values)
        )
        failpoint("store.postgres.claim_due.after")
        return [leases.claimed_of(row, wish, boot) for row in (*before, *taken)]

    async def _dead(self) -> list[str]:
        """The texts of those owners of sessions that are dead for certain."""
        rows = await self._database.ask(leases.HOLDERS, {})
        return [text for (text,) in rows if provably_dead(holder_of(text), self._clock)]

    async def renew(self, held: Sequence[Lease]) -> list[bool]:
        """As `Store.renew`."""
        boot = self._clock.boot()
        failpoint("store.postgres.renew.before")
        rows = await self._database.ask(leases.RENEW, leases.renew_values(held))
        failpoint("store.postgres.renew.after")
        kept = {(session_id, epoch) for session_id, epoch in rows}
        answers = [(lease.session_id, lease.epoch) in kept for lease in held]
        for lease, mine in zip(held, answers, strict=True):
            if mine:
                lease.expires_boot = boot + lease.duration_s
        return answers

    async def release(self, lease: Lease) -> None:
        """As `Store.release`."""
        failpoint("store.postgres.release.before")
        await self._database.ask(leases.RELEASE, leases.lease_values(lease))
        failpoint("store.postgres.release.after")
