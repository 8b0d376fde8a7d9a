"""A store in this process's memory: for tests, for scripts that need no recovery, as a reference.

Rules of this file: it keeps every rule of the port except that it outlives nothing; what the
conformance suite says of a backend is true of it.

Theory of operation.  No operation awaits, so none can be cut in two by a cancellation; a lock keeps
threads apart.  Bytes are immutable and so are the values that hold them: handing them out shares
nothing that can change.  Closing keeps the sessions, so engines may come and go on one instance.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from raf.clock import Clock
from raf.errors import (
    LeaseLostError,
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
    StoreClosedError,
)
from raf.store.adopted import adopted_head, check_adoptable
from raf.store.due import Places, choose
from raf.store.model import (
    Claimed,
    Commit,
    Due,
    Head,
    Held,
    Kind,
    Lease,
    Owner,
    Reading,
    Record,
    RecordInfo,
    Request,
    Select,
    check_session_id,
)
from raf.store.order import after_commit, check_follows, commit_info, new_head
from raf.store.owner import LeaseWatch
from raf.store.port import Store


@dataclass(slots=True, kw_only=True)
class _Session:
    """One session; `kept` holds, by position, the commits that still have their body."""

    head: Head
    commit_id: str = ""
    commits: list[Record] = field(default_factory=list)
    kept: dict[int, Record] = field(default_factory=dict)
    journal: list[Record] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    by_request_id: dict[str, Request] = field(default_factory=dict)

    def add(self, kind: Kind, now: float, body: bytes = b"", *, took_over: bool = False) -> None:
        """Write a claim or journal record at the next position."""
        position = self.head.position + 1
        info = RecordInfo(
            position=position,
            epoch=self.head.epoch,
            kind=kind,
            created_at=now,
            took_over=took_over,
            body_size=len(body),
        )
        self.journal.append(Record(info=info, body=body))
        self.head = replace(self.head, position=position)

    def chain(self, at: int | None) -> tuple[Record, ...]:
        """The chain that ends at this commit, or nothing."""
        number = self.head.commit if at is None else at
        end = bisect_left(self.commits, number, key=_number)
        links: list[Record] = []
        for record in reversed(self.commits[: end + 1]):
            if record.info.commit != number or record.info.position not in self.kept:
                return ()
            links.append(record)
            if record.info.full:
                return tuple(reversed(links))
            number -= 1
        return ()

    def events(self, after: int, limit: int) -> tuple[Record, ...]:
        """Commits that hold events above a number."""
        start = bisect_right(self.commits, after, key=_last_event)
        found = [r for r in self.commits[start:] if r.info.event_count and self.has_events(r)]
        return tuple(found[: max(0, limit)])

    def has_events(self, record: Record) -> bool:
        """Whether the events were not pruned."""
        return _last_event(record) >= self.head.first_event

    def drop_bodies(self, positions: Iterable[int]) -> None:
        """Empty the bodies of the commits at these positions."""
        for position in self.kept.keys() & positions:
            record = self.kept.pop(position)
            place = bisect_left(self.commits, position, key=_position)
            info = replace(record.info, body_size=0)
            self.commits[place] = Record(info=info, events=record.events)

    def drop_events(self, before: int) -> None:
        """Empty events below a number; a commit of which nothing is left and that ended no run goes."""
        end = bisect_left(self.commits, before, key=_last_event)
        if end == 0:
            return
        first = max(self.head.first_event, _last_event(self.commits[end - 1]) + 1)
        self.head = replace(self.head, first_event=first)
        left = [
            Record(info=replace(record.info, events_size=0), body=record.body)
            for record in self.commits[:end]
            if record.info.run_id or record.info.position in self.kept
        ]
        self.commits[:end] = left
        self.kept.update((r.info.position, r) for r in left if r.info.position in self.kept)

    def log(self) -> tuple[Record, ...]:
        """All commits, and the open journal between them."""
        return tuple(sorted([*self.commits, *self.journal], key=_position))

    def run(self, run_id: str) -> Record | None:
        """The newest commit that finished this run."""
        finished = (r for r in reversed(self.commits) if r.info.run_id == run_id)
        return next(finished, None) if run_id else None


def _number(record: Record) -> int:
    return record.info.commit


def _position(record: Record) -> int:
    return record.info.position


def _last_event(record: Record) -> int:
    return record.info.first_event + record.info.event_count - 1


class MemoryStore(Store):
    """Keeps sessions in dicts; its URL is `memory:`.

    Several engines of one process may share an instance; another instance is another place.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self._sessions: dict[str, _Session] = {}
        self._last_epochs: dict[str, int] = {}  # of deleted sessions
        self._watch = LeaseWatch(self.clock)
        self._lock = threading.RLock()
        self._opened = 0

    @property
    def url(self) -> str:
        return "memory:"

    async def open(self) -> None:
        with self._lock:
            self._opened += 1

    async def close(self) -> None:
        with self._lock:
            self._opened = max(0, self._opened - 1)

    def _check_open(self) -> None:
        if not self._opened:
            raise StoreClosedError(self.url)

    def _find(self, session_id: str) -> _Session | None:
        self._check_open()
        return self._sessions.get(check_session_id(session_id))

    def _owned(self, lease: Lease) -> _Session:
        self._check_open()
        session = self._sessions.get(lease.session_id)
        if session is None or (session.head.epoch, session.head.nonce) != (
            lease.epoch,
            lease.nonce,
        ):
            raise LeaseLostError(lease.session_id, lease.epoch)
        return session

    async def claim(
        self, session_id: str, owner: Owner, *, lease_s: float, create: bool = False
    ) -> Claimed:
        with self._lock:
            session = self._find(session_id)
            now = self.clock.now()
            if created := session is None:
                if not create:
                    raise SessionNotFoundError(session_id)
                epoch = self._last_epochs.get(session_id, 0)
                head = new_head(session_id, self.clock.new_id(), now, epoch=epoch)
                session = self._sessions[session_id] = _Session(head=head)
            held = session.head.held
            if held is not None and self._watch.binds(session_id, held):
                raise SessionBusyError(session_id, str(held.owner), self._watch.until(held))
            return self._take(session, owner, lease_s, created=created)

    def _take(
        self, session: _Session, owner: Owner, lease_s: float, *, created: bool = False
    ) -> Claimed:
        head = session.head
        lease = Lease(
            session_id=head.session_id,
            nonce=head.nonce,
            epoch=head.epoch + 1,
            owner=owner,
            duration_s=lease_s,
            expires_boot=self.clock.boot() + lease_s,
            position=head.position + 1,
        )
        took_over = head.held is not None
        session.head = replace(head, epoch=lease.epoch, held=_held(lease))
        session.add(Kind.CLAIM, self.clock.now(), took_over=took_over)
        return Claimed(lease=lease, took_over=took_over, created=created)

    async def claim_due(
        self, owner: Owner, due: Due, *, lease_s: float, limit: int
    ) -> list[Claimed]:
        with self._lock:
            self._check_open()
            free: list[Head] = []
            held: list[str] = []
            for head in (session.head for session in self._sessions.values()):
                if self._watch.binds(head.session_id, head.held):
                    held.append(head.summary.queue)
                else:
                    free.append(head)
            places = Places(due, held)
            claimed: list[Claimed] = []
            for head in choose(free, due, self.clock.now(), places):
                if len(claimed) >= limit:
                    break
                if places.free(head.summary.queue):
                    places.take(head.summary.queue)
                    session = self._sessions[head.session_id]
                    claimed.append(self._take(session, owner, lease_s))
            return claimed

    async def renew(self, leases: Sequence[Lease]) -> list[bool]:
        with self._lock:
            self._check_open()
            return [self._renew(lease) for lease in leases]

    def _renew(self, lease: Lease) -> bool:
        try:
            session = self._owned(lease)
        except LeaseLostError:
            return False
        if session.head.held is None:
            return False
        lease.expires_boot = self.clock.boot() + lease.duration_s
        session.head = replace(session.head, held=_held(lease))
        return True

    async def release(self, lease: Lease) -> None:
        with self._lock:
            try:
                session = self._owned(lease)
            except LeaseLostError:
                return
            session.head = replace(session.head, held=None)

    async def commit(self, lease: Lease, commit: Commit) -> None:
        with self._lock:
            session = self._owned(lease)
            if session.commit_id == commit.commit_id:
                return
            head = session.head
            check_follows(
                lease.session_id,
                commit,
                number=head.commit,
                events=head.events,
                consumed=head.consumed,
                requests=head.requests,
            )
            position = head.position + 1
            info = commit_info(commit, position, head.epoch)
            record = Record(info=info, body=bytes(commit.body), events=bytes(commit.events))
            session.commits.append(record)
            session.kept[position] = record
            session.head = after_commit(head, commit, position)
            session.commit_id = commit.commit_id
            if commit.ends_journal:
                session.journal.clear()

    async def append(self, lease: Lease, bodies: Sequence[bytes]) -> None:
        with self._lock:
            session = self._owned(lease)
            now = self.clock.now()
            for body in bodies:
                session.add(Kind.JOURNAL, now, bytes(body))

    async def read(self, session_id: str, select: Select) -> Reading | None:
        with self._lock:
            session = self._find(session_id)
            if session is None:
                return None
            head = session.head
            after = select.events_after
            return Reading(
                head=head,
                chain=session.chain(select.at) if select.chain else (),
                journal=tuple(session.journal) if select.journal else (),
                requests=tuple(session.requests[head.consumed :]) if select.requests else (),
                events=() if after is None else session.events(after, select.events_limit),
                infos=tuple(r.info for r in session.commits) if select.infos else (),
                kept=tuple(r.info for r in session.kept.values()) if select.kept else (),
                run=None if select.run is None else session.run(select.run),
                log=session.log() if select.log else (),
                inbox=tuple(session.requests) if select.inbox else (),
            )

    async def request(self, session_id: str, request_id: str, kind: str, body: bytes) -> Request:
        with self._lock:
            session = self._find(session_id)
            if session is None:
                raise SessionNotFoundError(session_id)
            if known := session.by_request_id.get(request_id):
                return known
            request = Request(
                seq=session.head.requests + 1,
                request_id=request_id,
                kind=kind,
                body=bytes(body),
                created_at=self.clock.now(),
            )
            session.requests.append(request)
            session.by_request_id[request_id] = request
            session.head = replace(session.head, requests=request.seq)
            return request

    async def scan(self, *, after: str = "", limit: int = 1000) -> list[Head]:
        with self._lock:
            self._check_open()
            names = sorted(name for name in self._sessions if name > after)
            return [self._sessions[name].head for name in names[: max(0, limit)]]

    async def prune(
        self, lease: Lease, bodies: Sequence[int], *, events_before: int | None = None
    ) -> None:
        with self._lock:
            session = self._owned(lease)
            session.drop_bodies(bodies)
            if events_before is not None:
                session.drop_events(events_before)

    async def delete(self, lease: Lease) -> None:
        with self._lock:
            session = self._find(lease.session_id)
            if session is None and self._last_epochs.get(lease.session_id) == lease.epoch:
                return  # my own retry
            self._owned(lease)
            self._last_epochs[lease.session_id] = lease.epoch
            del self._sessions[lease.session_id]

    async def adopt(self, session: Reading) -> None:
        with self._lock:
            name = session.head.session_id
            if self._find(name) is not None:
                raise SessionExistsError(name)
            check_adoptable(session)
            commits = [record for record in session.log if record.info.kind is Kind.COMMIT]
            self._sessions[name] = _Session(
                head=adopted_head(session.head, self._last_epochs.get(name, 0)),
                commits=commits,
                kept={r.info.position: r for r in commits if r.info.body_size},
                journal=[record for record in session.log if record.info.kind is not Kind.COMMIT],
                requests=list(session.inbox),
                by_request_id={request.request_id: request for request in session.inbox},
            )


def _held(lease: Lease) -> Held:
    return Held(
        owner=lease.owner,
        epoch=lease.epoch,
        expires_boot=lease.expires_boot,
        duration_s=lease.duration_s,
    )
