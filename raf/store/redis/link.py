"""The connections to the server, and how a script gets there in spite of restarts and lost links.

Rules of this file:
- What is sent again is known to its script by an id or a fence, so sending twice is doing once.
- A call is never cancelled midway (the store keeps it in a task of its own), so no connection goes
  back into the pool with half a reply on it.
- Waiting for a server takes real time, whatever clock the store was given.
"""

import ssl
from collections.abc import Sequence
from typing import Any

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from raf.clock import SystemClock
from raf.errors import ConfigurationError
from raf.store.redis.address import Address
from raf.store.redis.faults import is_lost_link, never_left, passes, translate
from raf.store.redis.scripts import Script

Argument = str | bytes | int | float

CONNECT_S = 5.0
REPLY_S = 10.0
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0


class Link:
    """A pool of connections to one server; made and used in one event loop."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._clock = SystemClock()
        tls: dict[str, Any] = {"connection_class": SSLConnection} if address.tls else {}
        if address.tls and address.ca:
            _check_ca(address.ca)
            tls["ssl_ca_certs"] = address.ca
        self._pool = BlockingConnectionPool(
            max_connections=address.pool,
            timeout=None,
            host=address.host,
            port=address.port,
            db=address.database,
            username=address.username,
            password=address.password,
            socket_connect_timeout=CONNECT_S,
            socket_timeout=REPLY_S,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),  # it is done here, where it is known what may be repeated
            protocol=2,
            driver_info=None,
            **({"connection_class": Connection} | tls),
        )
        # Its methods are partly untyped.
        self._client: Any = Redis(connection_pool=self._pool)

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()
        await self._pool.disconnect()

    async def command(self, *words: Argument) -> Any:
        """Run one command, once.

        Raises:
            RedisError: What the client raised, as it is.
        """
        return await self._client.execute_command(*words)

    async def run(
        self,
        script: Script,
        arguments: Sequence[Argument],
        *,
        again: Sequence[Argument] | None = None,
        session_id: str = "",
        patient: bool = True,
    ) -> list[Any]:
        """Run a script, sending it again while the server may come back.

        Args:
            script: What to run.
            arguments: Its `ARGV`.
            again: Its `ARGV` when it is sent another time.
            session_id: Whose operation it is, for errors.
            patient: Whether a server that cannot be reached is waited for.

        Raises:
            StoreUnavailableError: No answer in `retry_s`; whether it was done is open, unless it says
                that nothing was sent.
            StoreFullError: The server takes no more; nothing was done.
            CorruptRecordError: Keys of the session are not what was written.
        """
        start, pause, sent = self._clock.monotonic(), FIRST_PAUSE_S, False
        while True:
            try:
                return await self._once(script, arguments)
            except (RedisError, OSError) as error:
                waited = self._clock.monotonic() - start
                sent = sent or not never_left(error)
                hopeless = not passes(error) or (is_lost_link(error) and not patient)
                if hopeless or waited + pause > self._address.retry_s:
                    url = self._address.url
                    raise translate(
                        error, url, session_id=session_id, waited_s=waited, sent=sent
                    ) from error
            await self._clock.sleep(pause * (0.5 + self._clock.chance()))
            pause = min(2 * pause, LONGEST_PAUSE_S)
            arguments = arguments if again is None else again

    async def _once(self, script: Script, arguments: Sequence[Argument]) -> list[Any]:
        try:
            reply = await self.command("EVALSHA", script.sha, 0, *arguments)
        except NoScriptError:  # the server is new, or it restarted: it ran nothing
            reply = await self.command("EVAL", script.text, 0, *arguments)
        return list(reply)


def _check_ca(path: str) -> None:
    # The client would tell of it as of a server that is away, and without the name.
    try:
        ssl.create_default_context(cafile=path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"redis: the file ca={path} cannot be used: {why}") from error
