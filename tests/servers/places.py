"""A fresh store on each backend, for tests of what must hold wherever a session is kept.

Rules of this file: a test asks for the fixture `place` and gets a URL; what it needs besides, it asks by
that URL, so it says nothing of its backend.  The embedded stores lie in a folder of the test's own; the
servers are the tests' own too, and their tables or keys are emptied between two tests.
"""

import atexit
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from raf.store.port import Store
from raf.store.urls import open_store
from raf.testing import ManualClock
from tests.servers import postgres, valkey

EMBEDDED: Final = ("memory", "file", "sqlite")
SERVERS: Final = ("postgres", "redis")
BACKENDS: Final = (*EMBEDDED, *SERVERS)
DURABLE: Final = BACKENDS[1:]

_SLOW: Final = tuple(pytest.param(name, marks=pytest.mark.slow) for name in SERVERS)
# Marks for tests that need another choice than all five.
SERVERS_ONLY: Final = pytest.mark.parametrize("place", SERVERS, indirect=True)
SLOW_ON_SERVERS: Final = pytest.mark.parametrize("place", [*EMBEDDED, *_SLOW], indirect=True)
OFTEN_ON_SQLITE: Final = pytest.mark.parametrize(
    "place",
    [
        "sqlite",
        *(pytest.param(name, marks=pytest.mark.slow) for name in BACKENDS if name != "sqlite"),
    ],
    indirect=True,
)


@cache
def shared_valkey() -> str:
    """The Valkey server that tests share: one in each test process, until its end."""
    if valkey.GIVEN:
        return valkey.GIVEN
    open_until_the_end = contextlib.ExitStack()
    atexit.register(open_until_the_end.close)
    return open_until_the_end.enter_context(valkey.running()).url


def schema() -> str:
    """The schema of this test process: emptied for each test, which is quicker than making another."""
    return f"places_{os.getpid()}"


def url_of(backend: str, folder: Path) -> str:
    """The URL of a store in this folder, or on a server with what the folder stands for."""
    match backend:
        case "memory":
            return "memory:"
        case "file":
            return f"file:{folder / 'runs'}"
        case "sqlite":
            return f"sqlite:{folder / 'runs.db'}?synchronous=normal"
        case "postgres":
            return postgres.with_options(postgres.shared_url(), schema=schema())
        case _:
            return f"{shared_valkey()}?prefix={valkey.prefix_of(folder)}"


def backend_of(place: str) -> str:
    """The name in `BACKENDS` of what a URL leads to."""
    scheme = place.partition(":")[0]
    return "postgres" if scheme == "postgresql" else scheme


def prefix(place: str) -> str:
    """The prefix of a Redis place's keys."""
    return place.partition("prefix=")[2].partition("&")[0]


@contextlib.contextmanager
def made(backend: str, folder: Path) -> Iterator[str]:
    """An empty store of this backend; its folder is made, and on a server nothing is left of it."""
    folder.mkdir(exist_ok=True)
    place = url_of(backend, folder)
    if backend == "postgres":
        postgres.empty(postgres.shared_url(), schema())
    yield place
    if backend == "redis":
        with valkey.client_of(shared_valkey()) as client:
            if names := list(client.scan_iter(match=f"{prefix(place)}:*", count=1000)):
                client.unlink(*names)


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store; an embedded one lies in `tmp_path / "place"`."""
    with made(request.param, tmp_path / "place") as url:
        yield url


def clocked(place: str, clock: ManualClock) -> tuple[Store, Callable[[float], Awaitable[None]]]:
    """A store whose leases and timers go by this clock, and what lets time pass for it."""
    store: Store
    if backend_of(place) == "postgres":
        store = postgres.ClockedPostgresStore(place, clock=clock)
    else:
        store = open_store(place, clock=clock)

    async def passes(seconds: float) -> None:
        clock.advance(seconds)
        if backend_of(place) == "redis":
            # Its server has its own clock: what is stored ends so much earlier instead.
            valkey.move_back(shared_valkey(), prefix(place), seconds)

    return store, passes
