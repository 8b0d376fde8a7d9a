"""What the URL of this store says; pure.

Rules of this file: user and password go to the server and nowhere else; no error repeats the URL.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from raf.errors import ConfigurationError

Durability = Literal["check", "strict"]
PORT = 6379
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FORM = "redis://[user:password@]host[:port][/database][?prefix=raf&durability=check]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server is, and how the store uses it."""

    host: str
    port: int = PORT
    database: int = 0
    tls: bool = False
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    prefix: str = "raf"
    durability: Durability = "check"
    retry_s: float = 20.0
    pool: int = 8
    ca: str = ""

    @property
    def url(self) -> str:
        """The URL without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        given = {
            "prefix": self.prefix if self.prefix != "raf" else "",
            "durability": self.durability if self.durability != "check" else "",
        }
        options = "&".join(f"{name}={value}" for name, value in given.items() if value)
        scheme = "rediss" if self.tls else "redis"
        place = f"{scheme}://{host}:{self.port}/{self.database}"
        return f"{place}?{options}" if options else place


def parse(url: str) -> Address:
    """Take a URL apart.

    Args:
        url: `redis://` or `rediss://` (TLS), as in the docs of `RedisStore`.

    Raises:
        ConfigurationError: A part of it is missing, unknown or out of its range.
    """
    try:
        parts = urlsplit(url)
        port = PORT if parts.port is None else parts.port
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        options = dict(pairs)
    except ValueError:
        raise ConfigurationError(f"redis: the URL does not read {_FORM}") from None
    if len(options) < len(pairs):
        raise ConfigurationError("redis: an option is given twice")
    database = parts.path.strip("/") or "0"
    if parts.scheme not in ("redis", "rediss") or not parts.hostname or parts.fragment:
        raise ConfigurationError(f"redis: the URL does not read {_FORM}")
    if port == 0:
        raise ConfigurationError("redis: port is a number from 1 to 65535")
    if "@" in parts.path + parts.query:  # it may end a password with a sign that was not escaped
        raise ConfigurationError(f"redis: the URL does not read {_FORM}")
    if not (database.isascii() and database.isdigit()):
        raise ConfigurationError("redis: the database behind the host is a number, as in /0")
    address = Address(
        host=parts.hostname,
        port=port,
        database=int(database),
        tls=parts.scheme == "rediss",
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        prefix=_prefix(options.pop("prefix", "raf")),
        durability=_durability(options.pop("durability", "check")),
        retry_s=_number("retry_s", options.pop("retry_s", "20"), 0, 3600),
        pool=_pool(options.pop("pool", "8")),
        ca=options.pop("ca", ""),
    )
    if options:
        raise ConfigurationError(f"redis: knows no option {', '.join(sorted(options))}")
    return address


def _prefix(text: str) -> str:
    # Without a colon, so that the keys of two prefixes never fall together.
    if _PREFIX.fullmatch(text):
        return text
    raise ConfigurationError("redis: prefix is 1 to 64 letters, digits and the signs _ . -")


def _durability(text: str) -> Durability:
    for name in get_args(Durability):
        if text == name:
            return name  # type: ignore[no-any-return]
    raise ConfigurationError("redis: durability is check or strict")


def _pool(text: str) -> int:
    if re.fullmatch("[1-9][0-9]{0,2}|1000", text):
        return int(text)
    raise ConfigurationError("redis: pool is a whole number from 1 to 1000")


def _number(name: str, text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = least - 1
    if least <= value <= most:
        return value
    raise ConfigurationError(f"redis: {name} is a number from {least:g} to {most:g}")
