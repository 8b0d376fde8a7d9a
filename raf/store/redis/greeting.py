"""What happens at opening: who the server is, what it promises, and the store's mark on it.

Theory of operation.  The store keeps a random identity beside its sessions.  Each script compares
it, so a server that came back empty, or another database behind the same address, is noticed before
anything is read or written.
"""

import logging
import socket
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError, ResponseError

from raf.clock import Clock
from raf.errors import FormatVersionError, StoreUnavailableError
from raf.store.redis.address import Address
from raf.store.redis.faults import passes, translate
from raf.store.redis.link import Link
from raf.store.redis.rows import Here
from raf.store.redis.scripts import IDENTIFY
from raf.store.redis.server import SETTINGS, Server, check

log = logging.getLogger(__name__)

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What was learned: the store's identity, and this machine's clock beside the server's."""

    identity: bytes
    here: Here


async def greet(link: Link, address: Address, clock: Clock) -> Greeting:
    """Look at the server, warn of what it may lose, and find or make the store's mark.

    Raises:
        StoreUnavailableError: It cannot be reached, or it cannot be this store.
        FormatVersionError: A newer version of `raf` keeps its sessions there.
    """
    boot = clock.boot()
    await link.run(IDENTIFY, [address.prefix, ""], patient=False)  # waits while it loads its data
    server = await _look(link, address)
    if warning := check(server, address.durability, address.url):
        log.warning("store %s: %s", address.url, warning)
    boot = clock.boot()
    found, identity, time = await link.run(IDENTIFY, [address.prefix, clock.new_id()])
    if not found.isdigit() or not identity:
        raise StoreUnavailableError(
            address.url, f"the key {address.prefix}:store is not what this store writes"
        )
    if int(found) > FORMAT:
        raise FormatVersionError(int(found), FORMAT)
    here = Here(host=socket.gethostname(), boot_id=clock.boot_id, ahead=boot - float(time))
    return Greeting(identity=identity, here=here)


async def _look(link: Link, address: Address) -> Server:
    try:
        info = _texts(await _allowed(link, "INFO"))
        config: dict[str, str] = {}
        for name in SETTINGS:
            config |= _texts(await _allowed(link, "CONFIG GET", name))
    except (RedisError, OSError) as error:
        raise translate(error, address.url) from error
    return Server(info=info, config=config)


async def _allowed(link: Link, *words: str) -> dict[Any, Any]:
    """What a command answers, or nothing where a managed server does not allow it."""
    try:
        answer: dict[Any, Any] = await link.command(*words)
    except ResponseError as error:
        if passes(error):
            raise
        return {}
    return answer


def _texts(answer: dict[Any, Any]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in answer.items()}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
