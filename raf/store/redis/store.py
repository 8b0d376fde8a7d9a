"""The port on one Valkey or Redis server.

Theory of operation.  Each operation is one script (`lua/`) that the server runs as one moment: it
checks the epoch and writes, or it reads all that is selected.  Leases end by the server's clock.
The server answers a write when it is in its append-only file; with `appendfsync always`, when that
file is on disk.  Opening looks at those settings and warns of what they may lose.

A call runs in a task of its own.  A caller that is cancelled leaves it to its end; the next
operation of this instance waits for it, so the outcome can be read.  A claim that nobody waits for
any more is given back.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from raf.clock import Clock, utc_text
from raf.errors import (
    CommitOrderError,
    CorruptRecordError,
    LeaseLostError,
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
    StoreClosedError,
)
from raf.failpoint import failpoint
from raf.store.adopted import check_adoptable
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
    check_session_id,
)
from raf.store.order import check_follows, damaged_head
from raf.store.owner import provably_dead
from raf.store.port import Store
from raf.store.redis import rows, scripts
from raf.store.redis.address import parse
from raf.store.redis.calls import Calls, Reply
from raf.store.redis.link import Argument
from raf.store.redis.rows import name_bytes
from raf.store.redis.salvage import salvage_of


class RedisStore(Store):
    """Keeps sessions on one Valkey (7.2 or newer) or Redis (6.2 or newer) server, not in a cluster.

    Args:
        url: `redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS, with options:
            `prefix` (of all keys, default `raf`); `durability` (`check` warns when the server's
            settings may lose a commit, `strict` refuses such a server); `retry_s` (how long a
            server that restarts is waited for, default 20); `pool` (connections, default 8);
            `ca` (file of trusted certificates).
        clock: For time stamps and this machine's side of leases.

    Guarantees: a commit is on disk when it returns if the server runs with `appendonly yes` and
    `appendfsync always`; with less, opening warns of what may be lost.  A server that may evict
    keys, a replica, and a node of a cluster are refused.

    Example:
        >>> async with RedisStore("redis://localhost") as store:  # doctest: +SKIP
        ...     await store.scan()
        []
    """

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self._address = parse(url)
        self._open_calls: Calls | None = None
        self._gate = asyncio.Lock()
        self._opened = 0

    @property
    def url(self) -> str:
        return self._address.url

    async def open(self) -> None:
        async with self._free_gate():
            if self._open_calls is None:
                self._open_calls = await Calls.begin(self._address, self.clock)
            self._opened += 1

    async def close(self) -> None:
        async with self._free_gate():
            self._opened = max(0, self._opened - 1)
            if self._opened == 0 and self._open_calls is not None:
                calls, self._open_calls = self._open_calls, None
                await calls.end()

    def _free_gate(self) -> asyncio.Lock:
        # A lock once waited for belongs to its event loop; the next program may run in another.
        if not self._opened and not self._gate.locked():
            self._gate = asyncio.Lock()
        return self._gate

    @property
    def _calls(self) -> Calls:
        if self._open_calls is None:
            raise StoreClosedError(self.url)
        return self._open_calls

    async def now(self) -> float:
        reply = await self._calls.ask(scripts.NOW)
        return float(reply[1])

    # -- who may run a session -----------------------------------------------------------------

    async def claim(
        self, session_id: str, owner: Owner, *, lease_s: float, create: bool = False
    ) -> Claimed:
        check_session_id(session_id)
        last = (int(create), self.clock.new_id())
        failpoint("store.redis.claim.before")
        claimed = await self._claim(session_id, owner, lease_s, last, dead_epoch=b"")
        failpoint("store.redis.claim.after")
        return claimed

    async def _claim(
        self,
        session_id: str,
        owner: Owner,
        lease_s: float,
        last: tuple[int, str],
        *,
        dead_epoch: bytes,
    ) -> Claimed:
        sent = self.clock.boot()
        reply = await self._calls.ask(
            scripts.CLAIM,
            name_bytes(session_id),
            *self._bid(owner, lease_s, sent),
            *last,
            dead_epoch,
            session_id=session_id,
            unwanted=lambda reply: [reply[1]] if reply[0] == b"ok" else [],
        )
        if reply[0] == b"missing":
            raise SessionNotFoundError(session_id)
        if reply[0] == b"ok":
            return _claimed(reply[1], owner, lease_s, sent)
        holder, epoch, left = self._holder(session_id, reply[1]), reply[2], float(reply[3])
        if provably_dead(holder, self.clock) and epoch != dead_epoch:
            return await self._claim(session_id, owner, lease_s, last, dead_epoch=epoch)
        raise SessionBusyError(session_id, str(holder), utc_text(self.clock.now() + left))

    def _holder(self, session_id: str, text: bytes) -> Owner:
        try:
            return rows.owner_of(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise CorruptRecordError(session_id, "of the session's owner", str(error)) from error

    def _is_dead(self, text: bytes) -> bool:
        try:
            return provably_dead(self._holder("", text), self.clock)
        except CorruptRecordError:
            return False  # nobody knows who it is: its lease has to run out

    def _bid(self, owner: Owner, lease_s: float, sent: float) -> tuple[Argument, ...]:
        """What every claim says: by whom, for how long, when, and a token that knows it again."""
        times = (lease_s, sent + lease_s, self.clock.now())
        return (rows.owner_text(owner), *(repr(time) for time in times), self.clock.new_id())

    async def claim_due(
        self, owner: Owner, due: Due, *, lease_s: float, limit: int
    ) -> list[Claimed]:
        owners = (await self._ask_due(owner, due, (), lease_s, 0, 0.0))[2]
        dead = [text for text in owners if self._is_dead(text)]
        sent = self.clock.boot()
        failpoint("store.redis.claim_due.before")
        reply = await self._ask_due(owner, due, dead, lease_s, max(0, limit), sent)
        failpoint("store.redis.claim_due.after")
        return [_claimed(row, owner, lease_s, sent) for row in reply[1]]

    async def _ask_due(
        self,
        owner: Owner,
        due: Due,
        dead: Sequence[bytes],
        lease_s: float,
        limit: int,
        sent: float,
    ) -> Reply:
        lists: list[Argument] = [len(dead), *dead]
        for names in (due.fingerprints, due.skip):
            lists += [len(names), *(name_bytes(name) for name in sorted(names))]
        lists.append(len(due.queues))
        for queue, most in due.queues.items():
            lists += [name_bytes(queue), "" if most is None else most]
        return await self._calls.ask(
            scripts.CLAIM_DUE,
            *self._bid(owner, lease_s, sent),
            limit,
            *lists,
            unwanted=lambda reply: reply[1] if reply[0] == b"ok" else [],
        )

    async def renew(self, leases: Sequence[Lease]) -> list[bool]:
        sent = self.clock.boot()
        arguments: list[Argument] = []
        for lease in leases:
            times = (lease.duration_s, sent + lease.duration_s)
            arguments += [*_fence(lease), *(repr(time) for time in times)]
        failpoint("store.redis.renew.before")
        reply = await self._calls.ask(scripts.RENEW, *arguments)
        failpoint("store.redis.renew.after")
        answers = [answer == b"1" for answer in reply[1]]
        for lease, held in zip(leases, answers, strict=True):
            if held:
                lease.expires_boot = sent + lease.duration_s
        return answers

    async def release(self, lease: Lease) -> None:
        failpoint("store.redis.release.before")
        await self._calls.ask(scripts.RELEASE, *_fence(lease), session_id=lease.session_id)
        failpoint("store.redis.release.after")

    # -- writes of an owner --------------------------------------------------------------------

    async def commit(self, lease: Lease, commit: Commit) -> None:
        queue, fingerprint, since, wish = rows.due_fields(commit.summary, commit.created_at)
        arguments: tuple[Argument, ...] = (
            *(commit.commit_id, commit.commit, commit.first_event, commit.event_count),
            *(commit.consumed, int(commit.ends_journal), repr(commit.created_at)),
            *(rows.commit_line(commit, lease.epoch), commit.body, commit.events),
            *(rows.summary_text(commit.summary), queue, fingerprint, repr(since), wish),
            name_bytes(commit.run_id),
        )
        failpoint("store.redis.commit.before")
        reply = await self._owned(lease, scripts.COMMIT, *arguments)
        failpoint("store.redis.commit.after")
        if reply[0] == b"order":
            number, events, consumed, requests = (int(value) for value in reply[1:5])
            check_follows(
                lease.session_id,
                commit,
                number=number,
                events=events,
                consumed=consumed,
                requests=requests,
            )
            raise CommitOrderError(lease.session_id, "the server says it does not follow")

    async def append(self, lease: Lease, bodies: Sequence[bytes]) -> None:
        first = (repr(self.clock.now()), self.clock.new_id())
        again = (*_fence(lease), *first, 1, *bodies)
        failpoint("store.redis.append.before")
        await self._owned(lease, scripts.APPEND, *first, 0, *bodies, again=again)
        failpoint("store.redis.append.after")

    async def prune(
        self, lease: Lease, bodies: Sequence[int], *, events_before: int | None = None
    ) -> None:
        before = "" if events_before is None else events_before
        failpoint("store.redis.prune.before")
        await self._owned(lease, scripts.PRUNE, before, *bodies)
        failpoint("store.redis.prune.after")

    async def delete(self, lease: Lease) -> None:
        failpoint("store.redis.delete.before")
        await self._owned(lease, scripts.DELETE)
        failpoint("store.redis.delete.after")

    async def _owned(
        self,
        lease: Lease,
        script: scripts.Script,
        *arguments: Argument,
        again: Sequence[Argument] | None = None,
    ) -> Reply:
        """Run a write of an owner.

        Raises:
            LeaseLostError: The session is another's, or gone; nothing was written.
        """
        reply = await self._calls.ask(
            script, *_fence(lease), *arguments, again=again, session_id=lease.session_id
        )
        if reply[0] == b"lost":
            raise LeaseLostError(lease.session_id, lease.epoch)
        return reply

    # -- what anyone may do --------------------------------------------------------------------

    async def request(self, session_id: str, request_id: str, kind: str, body: bytes) -> Request:
        check_session_id(session_id)
        name = name_bytes(request_id)
        item = rows.request_item(request_id, kind, self.clock.now(), body)
        failpoint("store.redis.request.before")
        reply = await self._calls.ask(
            scripts.REQUEST, name_bytes(session_id), name, item, session_id=session_id
        )
        failpoint("store.redis.request.after")
        if reply[0] == b"missing":
            raise SessionNotFoundError(session_id)
        return rows.request_of(reply[1], session_id)

    async def read(self, session_id: str, select: Select) -> Reading | None:
        reply = await self._read(session_id, select)
        if reply is None:
            return None
        return rows.reading_of(session_id, reply, select, self._calls.here)

    async def salvage(self, session_id: str) -> Salvage | None:
        reply = await self._read(session_id, Select(log=True, inbox=True))
        return None if reply is None else salvage_of(session_id, reply, self._calls.here)

    async def _read(self, session_id: str, select: Select) -> Sequence[Any] | None:
        """The parts that the script `read` answers; None when there is no such session."""
        check_session_id(session_id)
        after = select.events_after
        reply = await self._calls.ask(
            scripts.READ,
            name_bytes(session_id),
            *(int(select.chain), "" if select.at is None else select.at),
            *(int(select.journal), int(select.requests)),
            *("" if after is None else after, max(0, select.events_limit)),
            *(int(select.infos), int(select.kept)),
            *(int(bool(select.run)), name_bytes(select.run or "")),
            *(int(select.log), int(select.inbox)),
            session_id=session_id,
        )
        return None if reply[0] == b"missing" else reply[1:]

    async def scan(self, *, after: str = "", limit: int = 1000) -> list[Head]:
        reply = await self._calls.ask(scripts.SCAN, name_bytes(after), max(0, limit))
        heads: list[Head] = []
        for name, flat in reply[1]:
            session_id = name.decode("utf-8", "replace")
            try:
                heads.append(rows.head_of(session_id, flat, self._calls.here))
            except CorruptRecordError as error:
                heads.append(damaged_head(session_id, str(error)))
        return heads

    async def adopt(self, session: Reading) -> None:
        head, calls = session.head, self._calls
        check_adoptable(session)
        arguments = rows.adoption(session)
        failpoint("store.redis.adopt.before")
        reply = await calls.ask(
            scripts.ADOPT,
            name_bytes(head.session_id),
            head.epoch,
            self.clock.new_id(),
            *arguments,
            session_id=head.session_id,
        )
        failpoint("store.redis.adopt.after")
        if reply[0] == b"exists":
            raise SessionExistsError(head.session_id)


def _fence(lease: Lease) -> tuple[Argument, ...]:
    return (name_bytes(lease.session_id), lease.nonce, lease.epoch)


def _claimed(row: list[bytes], owner: Owner, lease_s: float, sent: float) -> Claimed:
    session_id, nonce, epoch, position, took_over, created = row
    lease = Lease(
        session_id=session_id.decode("utf-8"),
        nonce=nonce.decode("ascii"),
        epoch=int(epoch),
        owner=owner,
        duration_s=lease_s,
        expires_boot=sent + lease_s,
        position=int(position),
    )
    return Claimed(lease=lease, took_over=took_over == b"1", created=created == b"1")
