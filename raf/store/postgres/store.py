"""The port on a Postgres database.

Theory of operation.  Commits and journal records go through `groups`, so that sessions that write at
the same time share a statement and a sync of the disk; everything else is one statement, or a few as
one short transaction, always in one round trip.  No connection is held while a node runs and no
transaction is open across a round trip.  Leases live on the database's clock.

An operation runs in a task of its own: a caller that is cancelled leaves it to finish, and the next
operation of this instance on that session waits for it first, so its outcome can be read.  A claim
that nobody waits for any more is given back.
"""

import asyncio
import os
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from raf.clock import Clock
from raf.errors import (
    LeaseLostError,
    RafError,
    SessionExistsError,
    SessionNotFoundError,
    StoreClosedError,
    StoreUnavailableError,
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
from raf.store.port import Store
from raf.store.postgres import reads, upkeep, writes
from raf.store.postgres.address import address_of
from raf.store.postgres.database import Database
from raf.store.postgres.groups import Groups
from raf.store.postgres.leases import lease_values
from raf.store.postgres.owners import Owners
from raf.store.postgres.rows import Row, request_of
from raf.store.postgres.salvage import ALL, salvage_of
from raf.store.postgres.statement import Statements

T = TypeVar("T")


class PostgresStore(Store):
    """Keeps sessions in a schema of a Postgres database; made for many processes and machines.

    Args:
        url: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE` with the options of libpq, and
            `schema` (default `raf`; it is made when it is missing), `retry_s` (seconds that an
            operation goes on trying while the server is away, 0 to 3600, default 20) and
            `connections` (how many at once, 2 to 1000, default 4).
        clock: For time stamps; leases and timers are on the database's clock.

    Guarantees: a commit survives what the server's `synchronous_commit` and `fsync` say, by default a
    power cut; opening warns when they are off.  Never writes to a schema of another program or of a
    newer format.

    Raises:
        ConfigurationError: The URL is wrong.

    Example:
        >>> async with PostgresStore("postgresql://localhost/app") as store:  # doctest: +SKIP
        ...     await store.scan()
        []
    """

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self._address = address_of(url)
        self._statements = self._make_statements()
        self._database = Database(self._address, self._statements)
        self._owners = Owners(self._database, self._address.schema, self.clock)
        self._commits: Groups[writes.CommitWrite] = Groups(self._send_commits)
        self._appends: Groups[writes.AppendWrite] = Groups(self._send_appends)
        self._left: dict[asyncio.Future[Any], str] = {}  # what goes on without a caller
        self._opened = 0
        self._opening: asyncio.Task[None] | None = None
        self._shutting: asyncio.Task[None] | None = None
        self._place: tuple[int, asyncio.AbstractEventLoop] | None = None

    def _make_statements(self) -> Statements:
        return Statements(self._address.schema)

    @property
    def url(self) -> str:
        return self._address.shown

    async def open(self) -> None:
        while self._shutting is not None:
            await asyncio.wait([self._shutting])
        if self._opened == 0:
            self._place = (os.getpid(), asyncio.get_running_loop())
            self._opening = asyncio.create_task(self._database.open())
        self._check_place()
        self._opened += 1
        opening = self._opening
        assert opening is not None  # noqa: S101 - set where the count leaves zero
        try:
            await asyncio.shield(opening)
        except BaseException:
            await asyncio.shield(asyncio.create_task(self.close()))
            raise

    async def close(self) -> None:
        self._opened = max(0, self._opened - 1)
        opening = self._opening
        if self._opened or opening is None:
            return
        self._opening = None
        self._shutting = asyncio.create_task(self._shut(opening))
        await asyncio.shield(self._shutting)

    async def _shut(self, opening: asyncio.Task[None]) -> None:
        try:
            await asyncio.wait([opening])
            await self._wait_for_left(None)
            await self._commits.finish()
            await self._appends.finish()
            await self._database.close()
        finally:
            self._shutting = None

    def _check_place(self) -> None:
        if self._place != (os.getpid(), asyncio.get_running_loop()):
            raise StoreUnavailableError(
                self.url, "it was opened in another event loop or before a fork: open it here"
            )

    async def _ready(self, session_ids: Iterable[str] | None) -> None:
        """Return when an operation may begin: the store is open, and nothing is left undone."""
        if self._opened == 0:
            raise StoreClosedError(self.url)
        self._check_place()
        if self._left:
            await self._wait_for_left(None if session_ids is None else frozenset(session_ids))

    async def _wait_for_left(self, session_ids: frozenset[str] | None) -> None:
        left = [
            waiting
            for waiting, session_id in self._left.items()
            if session_ids is None or session_id in session_ids
        ]
        if left:
            await asyncio.wait(left)

    async def _finished(self, doing: asyncio.Future[T], session_id: str) -> T:
        """Wait for an operation; cancelled, leave it to finish."""
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            self._leave(doing, session_id)
            raise

    def _leave(self, doing: asyncio.Future[Any], session_id: str) -> None:
        if not doing.done():
            self._left[doing] = session_id
            doing.add_done_callback(self._no_longer_left)

    def _no_longer_left(self, doing: asyncio.Future[Any]) -> None:
        self._left.pop(doing, None)
        if not doing.cancelled():
            doing.exception()  # nobody waits for it any more

    async def _do(self, operation: Coroutine[Any, Any, T], session_id: str = "") -> T:
        return await self._finished(asyncio.create_task(operation), session_id)

    async def claim(
        self, session_id: str, owner: Owner, *, lease_s: float, create: bool = False
    ) -> Claimed:
        check_session_id(session_id)
        await self._ready([session_id])
        claiming = self._claim(session_id, owner, lease_s=lease_s, create=create)
        (claimed,) = await self._claimed(claiming, session_id)
        return claimed

    async def _claim(
        self, session_id: str, owner: Owner, *, lease_s: float, create: bool
    ) -> list[Claimed]:
        return [await self._owners.claim(session_id, owner, lease_s=lease_s, create=create)]

    async def claim_due(
        self, owner: Owner, due: Due, *, lease_s: float, limit: int
    ) -> list[Claimed]:
        await self._ready(None)
        claiming = self._owners.claim_due(owner, due, lease_s=lease_s, limit=limit)
        return await self._claimed(claiming, "")

    async def _claimed(
        self, claiming: Coroutine[Any, Any, list[Claimed]], session_id: str
    ) -> list[Claimed]:
        """What was claimed; given back when nobody waits for it any more."""
        task = asyncio.create_task(claiming)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._leave(asyncio.create_task(self._give_back(task)), session_id)
            raise

    async def _give_back(self, claiming: asyncio.Task[list[Claimed]]) -> None:
        try:
            for claimed in await claiming:
                await self._owners.release(claimed.lease)
        except RafError:
            pass  # nothing was claimed, or it runs out

    async def renew(self, leases: Sequence[Lease]) -> list[bool]:
        held = tuple(leases)
        await self._ready([lease.session_id for lease in held])
        return await self._do(self._owners.renew(held)) if held else []

    async def release(self, lease: Lease) -> None:
        await self._ready([lease.session_id])
        await self._do(self._owners.release(lease), lease.session_id)

    async def commit(self, lease: Lease, commit: Commit) -> None:
        await self._ready([lease.session_id])
        write = writes.CommitWrite(lease, commit)
        await self._finished(self._commits.submit(write), lease.session_id)

    async def append(self, lease: Lease, bodies: Sequence[bytes]) -> None:
        await self._ready([lease.session_id])
        clock = self.clock
        write = writes.AppendWrite(lease, bodies, clock.new_id(), clock.now())
        await self._finished(self._appends.submit(write), lease.session_id)

    async def _send_commits(self, group: Sequence[writes.CommitWrite]) -> None:
        failpoint("store.postgres.commit.before")
        rows = await self._database.ask(writes.COMMITS, writes.commit_values(group))
        failpoint("store.postgres.commit.after")
        found = writes.found_in(rows)
        for write in group:
            try:
                write.judge(found.get(write.session_id))
            except RafError as error:
                write.settle(error)
            else:
                write.settle()

    async def _send_appends(self, group: Sequence[writes.AppendWrite]) -> None:
        failpoint("store.postgres.append.before")
        rows = await self._database.ask(writes.APPENDS, writes.append_values(group))
        failpoint("store.postgres.append.after")
        found, again = writes.found_in(rows), []
        for write in group:
            try:
                if write.judge(found.get(write.session_id)):
                    write.settle()
                else:
                    again.append(write)
            except RafError as error:
                write.settle(error)
        if again:
            await self._send_appends(again)

    async def read(self, session_id: str, select: Select) -> Reading | None:
        check_session_id(session_id)
        await self._ready([session_id])
        rows, boot = await self._read(session_id, select)
        return reads.reading_of(rows, select, boot)

    async def salvage(self, session_id: str) -> Salvage | None:
        check_session_id(session_id)
        await self._ready([session_id])
        return salvage_of(*await self._read(session_id, ALL))

    async def _read(self, session_id: str, select: Select) -> tuple[list[Row], float]:
        """The server's answer, and the boot clock when it was asked."""
        statement, values = reads.statement(session_id, select)
        boot = self.clock.boot()
        return await self._do(self._database.ask(statement, values)), boot

    async def request(self, session_id: str, request_id: str, kind: str, body: bytes) -> Request:
        check_session_id(session_id)
        await self._ready([session_id])
        return await self._do(self._request(session_id, request_id, kind, body), session_id)

    async def _request(self, session_id: str, request_id: str, kind: str, body: bytes) -> Request:
        steps = upkeep.request_steps(session_id, request_id, kind, body, self.clock.now())
        failpoint("store.postgres.request.before")
        rows = (await self._database.transact(*steps))[-1]
        failpoint("store.postgres.request.after")
        if not rows:
            raise SessionNotFoundError(session_id)
        return request_of(rows[0], session_id)

    async def scan(self, *, after: str = "", limit: int = 1000) -> list[Head]:
        await self._ready(None)
        boot = self.clock.boot()
        values = {"least": reads.least_after(after), "limit": max(0, limit)}
        return reads.heads_of(await self._do(self._database.ask(reads.SCAN, values)), boot)

    async def prune(
        self, lease: Lease, bodies: Sequence[int], *, events_before: int | None = None
    ) -> None:
        await self._ready([lease.session_id])
        await self._do(self._prune(lease, tuple(bodies), events_before), lease.session_id)

    async def _prune(self, lease: Lease, bodies: Sequence[int], events_before: int | None) -> None:
        steps = upkeep.prune_steps(lease_values(lease), bodies, events_before)
        failpoint("store.postgres.prune.before")
        owned, *_ = await self._database.transact(*steps)
        failpoint("store.postgres.prune.after")
        if not owned:
            raise LeaseLostError(lease.session_id, lease.epoch)

    async def delete(self, lease: Lease) -> None:
        await self._ready([lease.session_id])
        await self._do(self._delete(lease), lease.session_id)

    async def _delete(self, lease: Lease) -> None:
        failpoint("store.postgres.delete.before")
        *_, gone = await self._database.transact(*upkeep.delete_steps(lease_values(lease)))
        failpoint("store.postgres.delete.after")
        if not gone:
            raise LeaseLostError(lease.session_id, lease.epoch)

    async def adopt(self, session: Reading) -> None:
        session_id = check_session_id(session.head.session_id)
        await self._ready([session_id])
        check_adoptable(session)
        await self._do(self._adopt(session), session_id)

    async def _adopt(self, session: Reading) -> None:
        failpoint("store.postgres.adopt.before")
        *_, adopted = await self._database.transact(
            *upkeep.adopt_steps(session, self.clock.new_id())
        )
        failpoint("store.postgres.adopt.after")
        if not adopted:
            raise SessionExistsError(session.head.session_id)

    async def now(self) -> float:
        await self._ready([])
        return float((await self._do(self._database.ask("SELECT $NOW", {})))[0][0])
