"""The durable stores of the campaigns: where a session lives on each, and how one looks at it.

An embedded store is looked at in a copy of its files, so that looking mends nothing: the next process
of the session finds the files as the killed one left them, a SQLite log that was not folded in and
temporary files included.  A server is asked: a question changes nothing there.

The servers are the tests' own; each test process has one of a kind, until its end.  A session's store is
a schema or a prefix on it.
"""

import atexit
import contextlib
import hashlib
import shutil
from functools import cache
from pathlib import Path
from typing import Final

from tests.servers import postgres, valkey

EMBEDDED: Final = ("file", "sqlite")
SERVERS: Final = ("postgres", "redis")
BACKENDS: Final = (*EMBEDDED, *SERVERS)

DATABASE: Final = "runs.db"
FOLDER: Final = "runs"


@cache
def _valkey_url() -> str:
    if valkey.GIVEN:
        return valkey.GIVEN
    open_until_the_end = contextlib.ExitStack()
    atexit.register(open_until_the_end.close)
    return open_until_the_end.enter_context(valkey.running()).url


def name_of(folder: Path) -> str:
    """A name on a server that only the session of this folder has."""
    return f"t{hashlib.sha256(str(folder).encode()).hexdigest()[:20]}"


def url_of(backend: str, folder: Path) -> str:
    """The URL of a store in a folder, or on a server for whom the folder stands."""
    match backend:
        case "postgres":
            return postgres.with_options(postgres.shared_url(), schema=name_of(folder))
        case "redis":
            return f"{_valkey_url()}?prefix={name_of(folder)}"
        case "sqlite":
            return f"sqlite:{folder / DATABASE}"
        case _:
            return f"file:{folder / FOLDER}"


def copy_store(backend: str, folder: Path, target: Path) -> str:
    """Copy an embedded store that nobody has open; returns the URL of what may be looked at."""
    if backend in SERVERS:
        return url_of(backend, folder)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    if backend == "file":
        if (folder / FOLDER).exists():
            shutil.copytree(folder / FOLDER, target / FOLDER)
    else:
        # The index of the log (-shm) is left out: it is made anew from the log.
        for name in (DATABASE, f"{DATABASE}-wal"):
            if (folder / name).exists():
                shutil.copyfile(folder / name, target / name)
    return url_of(backend, target)


def forget(backend: str, folder: Path) -> None:
    """Remove a session's store from its server."""
    if backend == "postgres":
        postgres.drop(postgres.shared_url(), name_of(folder))
    elif backend == "redis":
        with valkey.client_of(_valkey_url()) as client:
            if names := list(client.scan_iter(match=f"{name_of(folder)}:*", count=1000)):
                client.unlink(*names)
