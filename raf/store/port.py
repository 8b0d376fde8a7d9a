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

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Self

from raf.clock import Clock, SystemClock
from raf.errors import InvalidSessionIdError

MAX_SESSION_ID = 512


def check_session_id(session_id: str) -> str:
    """Return the id if it can name a session.

    Args:
        session_id: Any text of 1 to 512 characters without NUL and lone surrogates.

    Raises:
        InvalidSessionIdError: It is empty, too long, or cannot be stored as text.
    """
    if not isinstance(session_id, str):
        raise InvalidSessionIdError(repr(session_id), "it must be text")
    if not 1 <= len(session_id) <= MAX_SESSION_ID:
        raise InvalidSessionIdError(
            session_id[:40], f"it must have 1 to {MAX_SESSION_ID} characters"
        )
    if re.search("[\x00\ud800-\udfff]", session_id):
        raise InvalidSessionIdError(session_id, "it holds a NUL or a lone surrogate")
    return session_id


class Kind(Enum):
    """What a record of the log is."""

    CLAIM = "claim"
    COMMIT = "commit"
    JOURNAL = "journal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """An incarnation of a process (and of an engine in it) that may own sessions.

    Owners are equal only if they are the same incarnation: a reused pid has another start time.
    """

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    start_time: str
    token: str

    def __str__(self) -> str:
        """`host/pid`, as errors name it."""
        return f"{self.host}/pid {self.pid}"


@dataclass(slots=True, kw_only=True)
class Lease:
    """The right to write a session until another owner claims it; `position` is the store's note."""

    session_id: str
    nonce: str
    epoch: int
    owner: Owner
    duration_s: float
    expires_boot: float
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A lease as others see it: who holds the session and until when (seconds of that boot)."""

    owner: Owner
    epoch: int
    expires_boot: float
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a list of sessions shows without decoding anything; replaced by each commit."""

    workflow: str = ""
    fingerprint: str = ""
    run_id: str = ""
    status: str = "new"
    step: int = -1
    wake_at: float | None = None
    queue: str = "default"
    reason: str = ""
    forked_from: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A session as it stands: identity, the last commit, and who holds it.

    `commit` is -1 before the first commit; `events` counts all events so far, so the last event has
    that number; `first_event` is the oldest event not pruned (1 at first).  `consumed` is the last
    request that a commit consumed and `requests` the last that arrived (0: none).
    """

    session_id: str
    nonce: str
    epoch: int
    position: int
    commit: int
    commit_position: int
    journal_from: int
    events: int
    first_event: int
    consumed: int
    requests: int
    created_at: float
    updated_at: float
    summary: Summary
    held: Held | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordInfo:
    """The clear fields of a record.

    `commit`, `step`, `full` and the event numbers have a meaning for commits only.  `took_over`
    marks a claim over a lease that was not released.  `body_size` is 0 after the body was pruned.
    `run_id` names the run that this commit finished, or is empty.
    """

    position: int
    epoch: int
    kind: Kind
    created_at: float
    commit: int = -1
    step: int = -1
    full: bool = False
    first_event: int = 0
    event_count: int = 0
    run_id: str = ""
    took_over: bool = False
    body_size: int = 0
    events_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record with its bytes; `body` is the checkpoint or journal part, `events` the other."""

    info: RecordInfo
    body: bytes = b""
    events: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One atomic write of an owner: head, checkpoint, events, consumed requests, end of journal.

    Args:
        commit_id: Random id; a repeated commit with the id of the last one is a success, not a
            second record ("my own retry").
        commit: The new commit number, exactly one above the head's.
        consumed: All requests up to this one are consumed (not below the head's).
        ends_journal: Journal records so far are void (a step's or requests' commit); False keeps
            them open (an outcome `failed`, a drain in mid-step).
        first_event: Number of the first event in `events`, one above the head's count.
        run_id: Set when this commit finishes that run; `Select.run` finds it by this.
    """

    commit_id: str
    commit: int
    step: int
    full: bool
    body: bytes
    events: bytes
    first_event: int
    event_count: int
    consumed: int
    ends_journal: bool
    created_at: float
    summary: Summary
    run_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Something asked of a session: an answer, a signal, a cancel, a pin.  `seq` starts at 1."""

    seq: int
    request_id: str
    kind: str
    body: bytes
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The answer to a claim: the lease, whether a dead owner was replaced, whether it is new."""

    lease: Lease
    took_over: bool
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """What one read returns; all of it comes from one moment of the session.

    Args:
        chain: The full checkpoint and its deltas up to commit `at` (the head's when None).
        at: Commit number at which the chain ends.
        journal: Claim and journal records after the last commit that ended the journal.
        requests: Requests not yet consumed.
        events_after: At most `events_limit` commits that hold events above it, oldest first.
        infos: The clear fields of all commit records, oldest first.
        kept: Those of the commits that still have a checkpoint; it costs only what is kept.
        run: The commit that finished the run of this id.
    """

    chain: bool = False
    at: int | None = None
    journal: bool = False
    requests: bool = False
    events_after: int | None = None
    events_limit: int = 256
    infos: bool = False
    kept: bool = False
    run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What `Store.read` found; parts that were not selected are empty.

    `chain` is oldest first and begins with a full checkpoint; it is empty when the commit does not
    exist or its chain was pruned.  A store never returns a part of a chain.
    """

    head: Head
    chain: tuple[Record, ...] = ()
    journal: tuple[Record, ...] = ()
    requests: tuple[Request, ...] = ()
    events: tuple[Record, ...] = ()
    infos: tuple[RecordInfo, ...] = ()
    kept: tuple[RecordInfo, ...] = ()
    run: Record | None = None


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
