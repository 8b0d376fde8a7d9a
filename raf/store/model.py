"""The values that cross the store port: leases, commits, records, and what a read selects."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from raf.errors import CorruptRecordError, InvalidSessionIdError

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
        log: What an export carries, oldest first: all commits as pruning left them (also those
            without a body, of `body_size` 0, and without events), and the claim and journal records
            of the open journal.  Claims and journal records before it are void: they are left out,
            whether or not the store still has them.
        inbox: Every request, also the consumed ones, in their order.
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
    log: bool = False
    inbox: bool = False


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
    log: tuple[Record, ...] = ()
    inbox: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """What can be read of a session, damaged or not; see `Store.salvage`.

    Args:
        session: As a read with `log` and `inbox` gives it, without what cannot be read.  Where the
            head cannot be, it is that of the newest record that can.
        damaged: What cannot be read, each with its name and reason.
    """

    session: Reading
    damaged: tuple[CorruptRecordError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Which sessions a worker asks for: those that want to run and that nobody runs.

    Args:
        fingerprints: Graphs that the worker runs; sessions of others are left alone.
        queues: Queues that it serves, each with how many of its sessions may be held at once by all
            workers of the store together; None: any number, 0: none.  A session is of the queue
            that its head names, and before its first commit of `default`.
        skip: Sessions that it does not want now, whatever they want; they still count for a limit.
    """

    fingerprints: frozenset[str]
    queues: Mapping[str, int | None] = field(default_factory=lambda: {"default": None})
    skip: frozenset[str] = frozenset()
