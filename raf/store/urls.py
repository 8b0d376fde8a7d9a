"""From a store's URL to the store.

Rules of this file: a backend is imported when its scheme is asked for, so a program loads only what
it uses; a URL with an unknown part is refused rather than half understood.
"""

from collections.abc import Callable
from functools import partial
from urllib.parse import parse_qsl

from raf.clock import Clock
from raf.errors import ConfigurationError
from raf.store.port import Store

_FORMS = "memory: | file:DIR | sqlite:PATH | postgresql://... | redis://..."


def open_store(url_or_store: str | Store, *, clock: Clock | None = None) -> Store:
    """Return the store that a URL names; it is made, not opened.

    Args:
        url_or_store: `memory:`, `file:DIR`, `sqlite:PATH` (with `?synchronous=normal` if a power
            cut may take the last commits), `postgresql://...` or `redis://...` (their classes tell
            the options), or a store, which is returned as it is.
        clock: The clock of a store that is made here; the machine's when None.

    Raises:
        ConfigurationError: The scheme is unknown, a part of the URL is wrong, or the backend needs
            an extra that is not installed.

    Example:
        >>> open_store("memory:").url
        'memory:'
    """
    if isinstance(url_or_store, Store):
        return url_or_store
    if not isinstance(url_or_store, str):
        raise ConfigurationError(f"a store is a URL or a Store, not {type(url_or_store).__name__}")
    scheme, colon, rest = url_or_store.partition(":")
    opener = _OPENERS.get(scheme.lower()) if colon else None
    if opener is None:
        # What stands behind the scheme is not repeated: it may hold a password.
        name = f"{scheme}:" if colon else url_or_store
        hint = "" if colon else f"; for a file of that name, write sqlite:{url_or_store}"
        raise ConfigurationError(f"{name!r} names no store: the forms are {_FORMS}{hint}")
    return opener(rest, clock)


def _memory(rest: str, clock: Clock | None) -> Store:
    from raf.store.memory import MemoryStore  # noqa: PLC0415 - each backend loads on first use

    if rest:
        raise ConfigurationError(f"memory: takes nothing behind the colon, not {rest!r}")
    return MemoryStore(clock=clock)


def _file(rest: str, clock: Clock | None) -> Store:
    folder, options = _parts("file", "DIR", rest)
    _refuse_unknown("file", options)
    from raf.store.file import FileStore  # noqa: PLC0415 - each backend loads on first use

    return FileStore(folder, clock=clock)


def _sqlite(rest: str, clock: Clock | None) -> Store:
    from raf.store.sqlite import SqliteStore  # noqa: PLC0415 - each backend loads on first use

    path, options = _parts("sqlite", "PATH", rest)
    synchronous = options.pop("synchronous", "full").lower()
    _refuse_unknown("sqlite", options)
    if synchronous == "normal":
        return SqliteStore(path, synchronous="normal", clock=clock)
    if synchronous == "full":
        return SqliteStore(path, clock=clock)
    raise ConfigurationError(f"sqlite: synchronous is full or normal, not {synchronous!r}")


def _redis(scheme: str, rest: str, clock: Clock | None) -> Store:
    try:
        from raf.store.redis import RedisStore  # noqa: PLC0415 - each backend loads on first use
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "redis":
            raise
        raise ConfigurationError(
            "the redis store needs `pip install 'raf-engine[redis]'`"
        ) from error
    return RedisStore(f"{scheme}:{rest}", clock=clock)


def _postgres(rest: str, clock: Clock | None) -> Store:
    try:
        from raf.store.postgres import PostgresStore  # noqa: PLC0415 - each loads on first use
    except ImportError as error:
        if error.name and not error.name.startswith("psycopg"):
            raise
        raise ConfigurationError(
            "the Postgres store needs `pip install 'raf-engine[postgres]'`"
        ) from error
    return PostgresStore(f"postgresql:{rest}", clock=clock)


def _parts(scheme: str, what: str, rest: str) -> tuple[str, dict[str, str]]:
    """The path and the options behind it."""
    path, _, query = rest.partition("?")
    if path.startswith("//"):
        # Others read three slashes as a relative path, or as an absolute one: do not guess.
        raise ConfigurationError(
            f"{scheme}:{path} is ambiguous: write {scheme}:{path.lstrip('/') or what} for a place "
            f"below the working folder, or {scheme}:/{path.lstrip('/') or what}"
        )
    if not path:
        raise ConfigurationError(f"{scheme}: needs a path: {scheme}:{what}")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise ConfigurationError(f"{scheme}: the options {query!r} do not read a=b&c=d") from error
    options = dict(pairs)
    if len(options) < len(pairs):
        raise ConfigurationError(f"{scheme}: an option is given twice in {query!r}")
    return path, options


def _refuse_unknown(scheme: str, options: dict[str, str]) -> None:
    if options:
        raise ConfigurationError(f"{scheme}: knows no option {', '.join(sorted(options))}")


_OPENERS: dict[str, Callable[[str, Clock | None], Store]] = {
    "memory": _memory,
    "file": _file,
    "sqlite": _sqlite,
    "postgres": _postgres,
    "postgresql": _postgres,
    "redis": partial(_redis, "redis"),
    "rediss": partial(_redis, "rediss"),
}
