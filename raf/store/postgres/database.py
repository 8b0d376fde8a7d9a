"""The connections to the server, and how an operation outlives a server that goes away.

Rules of this file:
- A connection is borrowed for one round trip or one short transaction and nothing is kept on it: no
  prepared statement, no setting, no lock; so a pooler may stand between.
- A task of a caller never runs inside psycopg: a cancelled caller leaves its operation to finish.

Theory of operation.  What breaks while the server is away is tried again, with growing pauses, for
`retry_s`.  That is safe since each operation of this room may be sent twice: it finds what its first
try left.  After that time it is `StoreUnavailableError`, and a write's outcome may be unknown.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from psycopg import AsyncConnection, Error, OperationalError
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from raf.clock import SystemClock
from raf.errors import StoreClosedError, StoreUnavailableError
from raf.failpoint import failpoint
from raf.store.postgres.address import Address
from raf.store.postgres.faults import is_passing, is_starting, translate
from raf.store.postgres.rows import Row
from raf.store.postgres.schema import make_ready
from raf.store.postgres.statement import Statements

log = logging.getLogger(__name__)

T = TypeVar("T")
Values: TypeAlias = dict[str, Any]
Act: TypeAlias = Callable[[AsyncConnection], Awaitable[T]]

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
# The least that an operation waits for a connection, however short `retry_s` is.
LEAST_WAIT_S = 1.0
_KEPT_AS_IT_IS: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}


class Database:
    """A database that several operations use at once.

    Args:
        address: Where it is.
        statements: The statements of its schema.
    """

    def __init__(self, address: Address, statements: Statements) -> None:
        self._address = address
        self._statements = statements
        self._pool: AsyncConnectionPool | None = None
        self._clock = SystemClock()  # a server is away in real time, whatever clock a test drives

    async def open(self) -> None:
        """Make the schema ready and get ready to work.

        Raises:
            StoreUnavailableError: The server cannot be reached or used.
            FormatVersionError: A newer version wrote the schema.
        """
        await self._patiently(self._prepare, opening=True)
        self._pool = AsyncConnectionPool(
            self._address.conninfo,
            kwargs=_KEPT_AS_IT_IS,
            min_size=0,
            max_size=self._address.connections,
            name=f"raf {self._address.schema}",
            open=False,
            reconnect_timeout=max(self._address.retry_s, LEAST_WAIT_S),
        )
        await self._pool.open()

    async def close(self) -> None:
        """Close the connections; those in use are given back first by their operations."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _prepare(self, left_s: float) -> None:
        del left_s  # libpq has a limit of its own (connect_timeout)
        async with await self._connect() as connection:
            await make_ready(connection, self._statements, self._address.shown)

    async def _connect(self) -> AsyncConnection:
        return await AsyncConnection.connect(
            self._address.conninfo, autocommit=True, prepare_threshold=None
        )

    async def ask(self, statement: str, values: Values) -> list[Row]:
        """Send one statement, in one round trip and a transaction of its own."""
        return await self.run(lambda connection: self._ask(connection, statement, values))

    async def transact(self, *steps: tuple[str, Values]) -> list[list[Row]]:
        """Send several statements in one round trip, as one transaction.

        Each sees what was committed before it began, so what follows a statement that waited for a
        lock sees what the lock's last holder wrote.

        Returns:
            The rows of each statement.
        """
        return await self.run(lambda connection: self._transact(connection, steps))

    async def run(self, act: Act[T]) -> T:
        """Do something with a connection, again and again while the server is away.

        Raises:
            StoreClosedError: The store is not open.
            StoreFullError, StoreBusyError: The server said so; nothing was written.
            StoreUnavailableError: The server said no, or was away for too long: then a write's
                outcome is unknown.
        """
        return await self._patiently(lambda left_s: self._with_connection(act, left_s))

    async def _patiently(self, act: Callable[[float], Awaitable[T]], *, opening: bool = False) -> T:
        """Try, and try again what may pass; `act` is told how many seconds are left."""
        began, pause = self._clock.monotonic(), SHORTEST_PAUSE_S
        while True:
            try:
                return await act(self._address.retry_s - (self._clock.monotonic() - began))
            except Error as error:
                waited = self._clock.monotonic() - began
                again = is_starting(error) if opening else is_passing(error)
                if not again or waited >= self._address.retry_s:
                    raise await self._told(error, waited) from error
                log.info("store %s: trying again: %s", self._address.shown, error)
            await self._clock.sleep(pause * (0.5 + self._clock.chance()))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _with_connection(self, act: Act[T], wait_s: float) -> T:
        if self._pool is None:
            raise StoreClosedError(self._address.shown)
        try:
            async with self._pool.connection(timeout=max(wait_s, LEAST_WAIT_S)) as connection:
                return await act(connection)
        except PoolClosed as error:
            raise StoreClosedError(self._address.shown) from error

    async def _told(self, error: Error, waited_s: float) -> Exception:
        """The error that a caller gets; a pool that has no connection does not say why."""
        if isinstance(error, PoolTimeout):
            try:
                async with await self._connect():
                    pass
            except OperationalError as reason:
                error = reason
            else:
                return StoreUnavailableError(
                    self._address.shown,
                    f"all {self._address.connections} connections were in use for {waited_s:.0f} s",
                )
        return translate(error, self._address.shown, waited_s=waited_s)

    async def _ask(self, connection: AsyncConnection, statement: str, values: Values) -> list[Row]:
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(self._statements[statement], values)
            return await cursor.fetchall() if cursor.description else []

    async def _transact(
        self, connection: AsyncConnection, steps: Sequence[tuple[str, Values]]
    ) -> list[list[Row]]:
        cursors = [connection.cursor(binary=True) for _ in steps]
        async with connection.pipeline():
            # A transaction of psycopg would wait for the server's answer at each of its ends.
            await connection.execute("BEGIN")
            for cursor, (statement, values) in zip(cursors, steps, strict=True):
                await cursor.execute(self._statements[statement], values)
            failpoint("store.postgres.transaction.before")
            await connection.execute("COMMIT")
        failpoint("store.postgres.transaction.after")
        return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]
