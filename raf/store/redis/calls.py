"""The calls of one open store: each in a task of its own, so that no cancellation cuts one in two.

Rules of this file: whoever is cancelled leaves its call to its end, and the next call of this store
begins when that is over, so the outcome can be read.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Self

from raf.clock import Clock
from raf.errors import RafError, StoreReplacedError, StoreUnavailableError
from raf.store.redis.address import Address
from raf.store.redis.greeting import Greeting, greet
from raf.store.redis.link import Argument, Link
from raf.store.redis.rows import Here
from raf.store.redis.scripts import RELEASE, Script

log = logging.getLogger(__name__)

Reply = list[Any]
# The leases in a reply that are given back when nobody waits for it any more: id, nonce, epoch first.
Unwanted = Callable[[Reply], Sequence[Sequence[Argument]]]


class Calls:
    """Sends scripts to the server that was greeted; belongs to one event loop of one process."""

    def __init__(self, address: Address, link: Link, greeting: Greeting) -> None:
        self._url = address.url
        self._prefix = address.prefix
        self._link = link
        self._identity = greeting.identity
        self.here: Here = greeting.here
        self._process = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._left: set[asyncio.Task[None]] = set()

    @classmethod
    async def begin(cls, address: Address, clock: Clock) -> Self:
        """Connect and greet the server."""
        link = Link(address)
        try:
            return cls(address, link, await greet(link, address, clock))
        except BaseException:
            await link.close()
            raise

    async def end(self) -> None:
        """Wait for what was left and close the connections."""
        await self._settle()
        await self._link.close()

    async def _settle(self) -> None:
        while self._left:
            await asyncio.wait(self._left)

    async def ask(
        self,
        script: Script,
        *arguments: Argument,
        session_id: str = "",
        again: Sequence[Argument] | None = None,
        unwanted: Unwanted | None = None,
    ) -> Reply:
        """Run a script for this store and return its reply.

        Args:
            script: What to run.
            arguments: Its own arguments.
            session_id: Whose operation it is, for errors.
            again: Its own arguments when it is sent another time.
            unwanted: Finds the leases to give back when the caller was cancelled meanwhile.

        Raises:
            StoreUnavailableError: As `Link.run`.
            StoreReplacedError: The server has lost this store's mark.
        """
        self._check_place()
        await self._settle()
        mark = (self._prefix, self._identity)
        call = asyncio.create_task(
            self._link.run(
                script,
                [*mark, *arguments],
                again=None if again is None else [*mark, *again],
                session_id=session_id,
            )
        )
        try:
            reply = await asyncio.shield(call)
        except asyncio.CancelledError:
            self._leave(call, unwanted)
            raise
        if reply[0] == b"swapped":
            raise StoreReplacedError(
                self._url,
                "the server came back without this store's data, or another took its place: "
                "nothing was read or written; restore its data, or open the store anew",
            )
        return reply

    def _leave(self, call: "asyncio.Task[Reply]", unwanted: Unwanted | None) -> None:
        async def end() -> None:
            try:
                reply = await call
                for lease in unwanted(reply) if unwanted else ():
                    await self._link.run(RELEASE, [self._prefix, self._identity, *lease[:3]])
            except RafError as error:
                log.warning("store %s: a call that was cancelled failed: %s", self._url, error)

        task = asyncio.create_task(end())
        self._left.add(task)
        task.add_done_callback(self._left.discard)

    def _check_place(self) -> None:
        # A connection belongs to the process and to the event loop that opened it.
        if self._process != os.getpid():
            raise StoreUnavailableError(self._url, "it was opened before a fork: open it here")
        if self._loop is not asyncio.get_running_loop():
            raise StoreUnavailableError(
                self._url, "it was opened in another event loop: open a store of its own here"
            )
