"""What a `postgresql://` URL says: what goes to the server, what is ours, and what may be shown.

Rules of this file: pure; no password stands in an error or in the URL that is shown.
"""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from raf.errors import ConfigurationError

SCHEMA = "raf"
RETRY_S = 20.0
CONNECTIONS = 4

_SECRETS = frozenset({"password", "sslpassword"})
_OURS = frozenset({"schema", "retry_s", "connections"})
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
# A server that vanished without a word is noticed in about half a minute; a URL may say otherwise.
_DEFAULTS: dict[str, Any] = {
    "application_name": "raf",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A database, and how it is used.

    Args:
        conninfo: How libpq connects; it holds the password.
        shown: The URL without secrets.
        schema: The Postgres schema that holds the tables.
        retry_s: How long an operation goes on trying while the server is away.
        connections: How many connections the store may hold at once.
    """

    conninfo: str
    shown: str
    schema: str
    retry_s: float
    connections: int


def address_of(url: str) -> Address:
    """Take a URL apart.

    Raises:
        ConfigurationError: A part of it is wrong; the message repeats no secret.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres") or not url.startswith(f"{parts.scheme}://"):
        raise ConfigurationError("a Postgres store is named postgresql://USER@HOST:PORT/DATABASE")
    if parts.fragment:
        raise ConfigurationError(
            "postgresql: the URL holds a #: write %23 where it is part of a name"
        )
    try:
        options = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
    except ValueError as error:
        raise ConfigurationError("postgresql: the options do not read a=b&c=d") from error
    schema, retry_s, connections = _ours(options)
    theirs = {name: value for name, value in options.items() if name not in _OURS}
    return Address(
        conninfo=_conninfo(parts.netloc, parts.path, theirs),
        shown=_shown(parts.netloc, parts.path, options),
        schema=schema,
        retry_s=retry_s,
        connections=connections,
    )


def _ours(options: dict[str, str]) -> tuple[str, float, int]:
    schema = options.get("schema", SCHEMA)
    if not _NAME.fullmatch(schema) or schema.startswith("pg_") or schema == "information_schema":
        raise ConfigurationError(
            f"postgresql: schema {schema!r} cannot be used: take small letters, digits and _"
        )
    retry_s = _number("retry_s", options.get("retry_s", str(RETRY_S)), low=0, high=3600)
    connections = _number(
        "connections", options.get("connections", str(CONNECTIONS)), low=2, high=1000
    )
    return schema, retry_s, int(connections)


def _number(name: str, text: str, *, low: int, high: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise ConfigurationError(
            f"postgresql: {name} is a number from {low} to {high}, not {text!r}"
        )
    return value


def _conninfo(place: str, database: str, options: dict[str, str]) -> str:
    query = urlencode(options, quote_via=quote)
    try:
        given = conninfo_to_dict(f"postgresql://{place}{database}" + (f"?{query}" if query else ""))
    except ProgrammingError:
        # What libpq says may repeat a password.
        raise ConfigurationError(
            "postgresql: the URL cannot be read; it reads "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE, special signs as %XX, and "
            "takes the options of libpq besides schema, retry_s and connections"
        ) from None
    # Text is UTF-8 on the wire, whatever the environment says.
    return make_conninfo("", **{**_DEFAULTS, **given, "client_encoding": "utf8"})


def _shown(place: str, database: str, options: dict[str, str]) -> str:
    login, at, hosts = place.rpartition("@")
    query = urlencode(
        {k: v for k, v in options.items() if k not in _SECRETS}, quote_via=quote, safe="/"
    )
    user = login.partition(":")[0]
    return f"postgresql://{user}{at}{hosts}{database}" + (f"?{query}" if query else "")
