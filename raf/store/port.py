"""The store port: what every backend promises, and the values that cross it.

Theory of operation.  A session is a log of records.  Whoever owns the session's lease may write:
each record (claim, commit, journal) takes the next *position* of the log and is created
exclusively, so two owners can never both extend it.  Positions are private to the store; the public
numbers are the commit number and the event number, both without gaps.  The inbox (`request`) is a
second sequence that anyone may append to.

A store does not know what the bytes mean.  It copies the clear fields beside them (commit number,
step, event numbers) to find records; the bytes repeat them, and the reader compares.

Every write of an owner is fenced: a lease whose epoch is no longer the session's raises
`LeaseLostError` and leaves nothing.  Everything here is async and cancel-safe: a cancelled write
happened wholly or not at all, and the outcome can be read.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from raf.clock import Clock, SystemClock
from raf.store.model import (
    Claimed,
    Commit,
    Due,
    Head,
    Lease,
    Owner,
    Reading,
    Request,
    Salvage,
    Select,
)


class Store(ABC):
    """Keeps the sessions of many workflows; one instance serves one process.

    Use it as an async context manager, or call `open` and `close`.  Opening twice is allowed and
    counted, so several engines may share one instance.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL that opens this store, without secrets; errors name it."""

    @abstractmethod
    async def open(self) -> None:
        """Get ready: make what is missing, check versions.

        Raises:
            StoreUnavailableError: The place cannot be reached, read or written.
            FormatVersionError: It was written by a newer version.
        """

    @abstractmethod
    async def close(self) -> None:
        """Finish writes in flight and let go of files and connections.  Idempotent."""

    @abstractmethod
    async def claim(
        self, session_id: str, owner: Owner, *, lease_s: float, create: bool = False
    ) -> Claimed:
        """Take the session if it is free: never held, released, expired, or its owner is dead.

        Writes a claim record with the next epoch.  With `create` a missing (or deleted) session is
        made, with a new nonce and an epoch above any it ever had.

        Raises:
            SessionNotFoundError: There is none and `create` is False.
            SessionBusyError: A live owner holds it (also this process's other engine).
        """

    @abstractmethod
    async def claim_due(
        self, owner: Owner, due: Due, *, lease_s: float, limit: int
    ) -> list[Claimed]:
        """Claim at most `limit` sessions that `raf.store.due.is_due` finds due, longest due first.

        Each is claimed as `claim` does it: a claim record, the next epoch, `took_over` where a lease
        was not released.  What a live owner holds is passed over; an expired lease, and one of an
        owner that is provably dead, keeps nobody out.  A session that another worker takes meanwhile,
        and one whose head is damaged, is passed over, never waited for.

        Times are judged by `now()`.  The order is that of `raf.store.due.order`.  A limit below 1
        claims nothing.

        Guarantees: none is taken while as many sessions of its queue as the queue's limit are held,
        whoever holds them and however they were claimed; two calls never both take the last place.
        A lease that binds nobody (expired, of a dead owner) takes no place.  `claim` asks for no
        place, so it may hold more.  Cancelled or failed midway, what was claimed is given back.
        """

    @abstractmethod
    async def renew(self, leases: Sequence[Lease]) -> list[bool]:
        """Extend each lease by its duration from now; False for one that was lost.

        Guarantees: never revives a lost lease, never touches another owner's.
        """

    @abstractmethod
    async def release(self, lease: Lease) -> None:
        """Give the session back; a lost lease is ignored.  Idempotent."""

    @abstractmethod
    async def commit(self, lease: Lease, commit: Commit) -> None:
        """Write one commit.

        Guarantees:
            Atomic: a reader sees all of it or nothing.
            Durable: on return it survives what the store's docs say (by default a power cut).
            Fenced: with a lost lease nothing is written.

        Raises:
            LeaseLostError: Another owner claimed the session, or it was deleted.
            CommitOrderError: A number does not continue the head's; nothing was written.
            StoreFullError, StoreUnavailableError, StoreBusyError: Nothing was written, or (only
                StoreUnavailableError) the outcome is unknown: read before going on.
        """

    @abstractmethod
    async def append(self, lease: Lease, bodies: Sequence[bytes]) -> None:
        """Write journal records, in order, durable on return; fenced as `commit` is."""

    @abstractmethod
    async def read(self, session_id: str, select: Select) -> Reading | None:
        """Return what is selected, of one moment; None when there is no such session.

        Raises:
            CorruptRecordError: The store's own frame of a selected record is damaged.
        """

    @abstractmethod
    async def request(self, session_id: str, request_id: str, kind: str, body: bytes) -> Request:
        """Append to the inbox, durable on return; anyone may.

        A repeated `request_id` returns the request that is there (also when it was consumed).

        Raises:
            SessionNotFoundError: There is no such session.
        """

    @abstractmethod
    async def scan(self, *, after: str = "", limit: int = 1000) -> list[Head]:
        """Heads of sessions with an id above `after` in code point order, at most `limit`."""

    @abstractmethod
    async def prune(
        self, lease: Lease, bodies: Sequence[int], *, events_before: int | None = None
    ) -> None:
        """Drop the bodies of the commits at these positions, in this order; keep their events.

        Claim and journal records that no open journal needs go too.  With `events_before`, whole
        records whose events are all below that number lose their events, and the head's
        `first_event` says what is left.  Killed midway, what is left is a shorter, intact log:
        no chain loses its base before its deltas.
        """

    @abstractmethod
    async def delete(self, lease: Lease) -> None:
        """Remove the session with its inbox; only the highest epoch of the name is kept.

        Guarantees: a late write of any former owner is refused, also after a new session of the
        same name was made.
        """

    @abstractmethod
    async def adopt(self, session: Reading) -> None:
        """Write a session as another store's `read` with `log` and `inbox` gave it.

        Nonce, epoch, positions, numbers, times, bytes and inbox stay what they were, so that
        idempotency keys, hashes and `after=` still hold: a read with `log` and `inbox` gives equal
        ones, and an equal head.  Nobody holds it, whoever held it where it was read, and the next
        claim takes over nobody's lease.  Where a session of the name was deleted, the head's epoch
        is raised above the last of it (`raf.store.adopted.adopted_head`); records keep theirs.

        A commit of `body_size` 0 counts as one whose body was pruned: an empty body is no checkpoint.
        The id of the last commit is not carried, so no commit is "my own retry" of one before.

        Guarantees: atomic: a reader sees the whole session or none.  Of two that adopt, or of one
        that adopts and one that creates, one succeeds.

        Raises:
            SessionExistsError: There is one of that name (also one without a commit); nothing was
                written.
            ConfigurationError: Head, log and inbox do not fit together
                (`raf.store.adopted.check_adoptable`); nothing was written.
        """

    async def salvage(self, session_id: str) -> Salvage | None:
        """All of a session that can be read, for `verify` and `repair`; None when there is none.

        What is damaged is left out and named, so that it hides nothing else.  A store whose own
        frames cannot be damaged one by one has nothing to add to this.

        Raises:
            CorruptRecordError: Nothing of it can be read.
        """
        session = await self.read(session_id, Select(log=True, inbox=True))
        return None if session is None else Salvage(session=session)

    @property
    def beneath(self) -> "Store":
        """The store that keeps the bytes as they lie: itself, or what a store of stores writes to.

        Exports and imports go there, so what is sealed stays sealed.
        """
        return self

    def over(self, beneath: "Store") -> "Store":
        """Another store that keeps its bytes in `beneath` as this one keeps them in its own."""
        return beneath

    async def now(self) -> float:
        """The store's wall clock, UTC seconds since 1970; timers use it."""
        return self.clock.now()

    async def __aenter__(self) -> Self:
        """Open the store."""
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the store."""
        await self.close()
