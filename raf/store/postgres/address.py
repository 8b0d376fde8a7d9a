"""What a `postgresql://` URL says: what goes to the server, what is ours, and what may be shown.

Rules of this file: pure.  A secret may stand anywhere in a URL that was not escaped, so what cannot be
parsed with certainty is refused, and no error repeats a part of it; what is shown is put together from
parts that are known to be harmless, and never holds what stands before an @.
"""

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlencode

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from raf.errors import ConfigurationError

SCHEMA = "raf"
RETRY_S, LONGEST_RETRY_S = 20.0, 3600
CONNECTIONS = 4

_OURS = frozenset({"schema", "retry_s", "connections"})
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_URL = re.compile(r"(?i:postgres(?:ql)?)://([^/?]*)(?:/([^?]*))?(?:\?(.*))?")
_SPACE = re.compile(r"[\s\x00-\x1f\x7f]")
_PLAIN = re.compile(r"[\w.,:/+-]*")
_DATABASE = re.compile(r"[\w.-]*")
_PLACE = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.%-]*)(?::[0-9]*)?")
_HOST = re.compile(r"[0-9A-Fa-f:.]*|[A-Za-z0-9_./-]*")
# Options that are shown: they hold no secret, if they are plain.
_SHOWN = _OURS | {
    "host",
    "hostaddr",
    "port",
    "dbname",
    "application_name",
    "channel_binding",
    "connect_timeout",
    "gssencmode",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "load_balance_hosts",
    "passfile",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
}
_FORM = (
    "postgresql: the URL cannot be read; it reads "
    "postgresql://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE, special signs as %XX (@ as %40, "
    "/ as %2F), and takes the options of libpq besides schema, retry_s and connections"
)
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
        shown: The URL without user and secrets.
        schema: The Postgres schema that holds the tables.
        retry_s: How long an operation goes on trying while the server is away.
        connections: How many connections the store may hold at once.
    """

    conninfo: str = field(repr=False)
    shown: str
    schema: str
    retry_s: float
    connections: int


def address_of(url: str) -> Address:
    """Take a URL apart.

    Raises:
        ConfigurationError: A part of it is wrong; the message repeats no secret.
    """
    if "#" in url:
        raise ConfigurationError(
            "postgresql: the URL holds a #: write %23 where it is part of a name"
        )
    found = None if _SPACE.search(url) else _URL.fullmatch(url)
    if found is None:
        raise ConfigurationError("a Postgres store is named postgresql://USER@HOST:PORT/DATABASE")
    authority, path, query = (part or "" for part in found.groups())
    login, _, hosts = authority.rpartition("@")
    if "@" in login + path + query or not all(map(_PLACE.fullmatch, hosts.split(","))):
        raise ConfigurationError(_FORM)
    options = _options(query)
    database = _decoded(path)
    for host in (_decoded(hosts) if "%" in hosts else "", options.get("host", "")):
        _check_hosts(host)
    _check_hosts(options.get("hostaddr", ""))
    for name in (database, options.get("dbname", "")):
        if re.search("[=@]|://", name):  # a whole conninfo in the place of a name
            raise ConfigurationError(_FORM)
    schema, retry_s, connections = _ours(options)
    theirs = {name: value for name, value in options.items() if name not in _OURS}
    return Address(
        conninfo=_conninfo(authority, path, theirs),
        shown=_shown(hosts, database, options),
        schema=schema,
        retry_s=retry_s,
        connections=connections,
    )


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except ValueError:
        raise ConfigurationError(_FORM) from None


def _options(query: str) -> dict[str, str]:
    """The options; as for libpq, a + is a + and not a space."""
    options: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigurationError("postgresql: the options do not read a=b&c=d")
        if _decoded(name) in options:
            raise ConfigurationError(f"postgresql: the option {_decoded(name)!r} is given twice")
        options[_decoded(name)] = _decoded(value)
    if not re.fullmatch("[0-9,]*", options.get("port", "")):
        raise ConfigurationError("postgresql: port is a number")
    return options


def _check_hosts(hosts: str) -> None:
    # What fails to be looked up is repeated by libpq.
    if not all(map(_HOST.fullmatch, hosts.split(","))):
        raise ConfigurationError(_FORM)


def _ours(options: dict[str, str]) -> tuple[str, float, int]:
    schema = options.get("schema", SCHEMA)
    if not _NAME.fullmatch(schema) or schema.startswith("pg_") or schema == "information_schema":
        raise ConfigurationError(
            "postgresql: this schema cannot be used: take small letters, digits and _, and neither "
            "pg_... nor information_schema, which are the server's"
        )
    connections = options.get("connections", str(CONNECTIONS))
    if not re.fullmatch("[2-9]|[1-9][0-9]{1,2}|1000", connections):
        raise ConfigurationError("postgresql: connections is a whole number from 2 to 1000")
    return schema, _retry_s(options.get("retry_s", str(RETRY_S))), int(connections)


def _retry_s(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value <= LONGEST_RETRY_S:
        raise ConfigurationError("postgresql: retry_s is a number from 0 to 3600")
    return value


def _conninfo(authority: str, path: str, options: dict[str, str]) -> str:
    try:
        query = urlencode(options, quote_via=quote)
        given = conninfo_to_dict(
            f"postgresql://{authority}/{path}" + (f"?{query}" if query else "")
        )
    except (ProgrammingError, ValueError):
        # What libpq says may repeat a password.
        raise ConfigurationError(_FORM) from None
    # Text is UTF-8 on the wire, whatever the environment says.
    return make_conninfo("", **{**_DEFAULTS, **given, "client_encoding": "utf8"})


def _shown(hosts: str, database: str, options: dict[str, str]) -> str:
    path = f"/{quote(database)}" if database and _DATABASE.fullmatch(database) else ""
    plain = {
        name: value
        for name, value in options.items()
        if name in _SHOWN and (_DATABASE if name == "dbname" else _PLAIN).fullmatch(value)
    }
    query = urlencode(plain, quote_via=quote, safe="/")
    if query and not path:
        path = "/"
    return f"postgresql://{hosts}{path}" + (f"?{query}" if query else "")
