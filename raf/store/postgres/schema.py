"""The tables of the Postgres store, and how a schema is made ready.

Rules of this file: a schema that is not ours is never written to, and one of a newer format neither.
What a schema is, is decided by reading; it is made, and brought to this version, in one transaction
under an advisory transaction lock, so that of several openers one does it.

Theory of operation.  The session's row is the head; a step rewrites it in place (room is left on its
page, and no index holds a column that a step changes) and adds one row to `commits`, where the
payloads are.  `journal` holds the claims and journal records of the open journal only.  A body that
is NULL was pruned; below the commit `kept_from` none has a body.  A deleted session keeps its row,
with an empty nonce, so that its epoch goes on.  Names that users choose are bytes: any text fits; an
index holds their digest, since an index takes no long values.  `claim_id` and `append_id` name the
last claim and the last append, so that a write whose answer was lost is known again.
"""

import hashlib
import logging
from collections.abc import Sequence

from psycopg import AsyncConnection, errors

from raf.errors import FormatVersionError, StoreUnavailableError
from raf.failpoint import failpoint
from raf.store.postgres.statement import Statements

log = logging.getLogger(__name__)

APPLICATION = "raf"
FORMAT = 1
OLDEST_SERVER = 13

TABLES: tuple[str, ...] = (
    """
    CREATE TABLE $S.sessions (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id text COLLATE "C" NOT NULL UNIQUE,
        nonce text NOT NULL,
        epoch bigint NOT NULL,
        position bigint NOT NULL,
        commit_number bigint NOT NULL,
        commit_position bigint NOT NULL,
        journal_from bigint NOT NULL,
        events bigint NOT NULL,
        first_event bigint NOT NULL,
        kept_from bigint NOT NULL,
        consumed bigint NOT NULL,
        requests bigint NOT NULL,
        created_at float8 NOT NULL,
        updated_at float8 NOT NULL,
        commit_id text NOT NULL,
        append_id text NOT NULL,
        claim_id text NOT NULL,
        owner text,
        lease_until float8,
        duration_s float8,
        status text NOT NULL,
        wake_at float8,
        fingerprint bytea NOT NULL,
        queue bytea NOT NULL,
        summary text NOT NULL
    ) WITH (
        fillfactor = 50,
        autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_threshold = 200,
        autovacuum_analyze_scale_factor = 0.1,
        autovacuum_vacuum_cost_delay = 0
    )
    """,
    # Who wants to run now: it runs, was submitted, or was asked something.
    """
    CREATE INDEX sessions_ready ON $S.sessions (sha256(queue)) WHERE owner IS NULL AND nonce <> ''
    AND (status = 'running' OR (status = 'submitted' AND wake_at IS NULL)
         OR (requests > consumed AND status NOT IN ('completed', 'cancelled')))
    """,
    # Who wants to run at its time.
    """
    CREATE INDEX sessions_timed ON $S.sessions (sha256(queue), wake_at) WHERE owner IS NULL
    AND nonce <> '' AND wake_at IS NOT NULL AND status IN ('submitted', 'sleeping', 'waiting')
    """,
    "CREATE INDEX sessions_held ON $S.sessions (sha256(queue)) WHERE owner IS NOT NULL",
    """
    CREATE TABLE $S.commits (
        session bigint NOT NULL,
        commit_number bigint NOT NULL,
        position bigint NOT NULL,
        epoch bigint NOT NULL,
        created_at float8 NOT NULL,
        is_full boolean NOT NULL,
        step bigint NOT NULL,
        first_event bigint NOT NULL,
        event_count bigint NOT NULL,
        run_id bytea,
        events bytea,
        body bytea,
        PRIMARY KEY (session, commit_number)
    )
    """,
    "CREATE INDEX commits_of_runs ON $S.commits (session, sha256(run_id)) WHERE run_id IS NOT NULL",
    # What is written is compressed already.
    "ALTER TABLE $S.commits ALTER events SET STORAGE EXTERNAL, ALTER body SET STORAGE EXTERNAL",
    """
    CREATE TABLE $S.journal (
        session bigint NOT NULL,
        position bigint NOT NULL,
        kind smallint NOT NULL,
        epoch bigint NOT NULL,
        created_at float8 NOT NULL,
        took_over boolean NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (session, position)
    ) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)
    """,
    "ALTER TABLE $S.journal ALTER body SET STORAGE EXTERNAL",
    """
    CREATE TABLE $S.requests (
        session bigint NOT NULL,
        seq bigint NOT NULL,
        request_id bytea NOT NULL,
        kind bytea NOT NULL,
        created_at float8 NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (session, seq)
    )
    """,
    "CREATE UNIQUE INDEX requests_by_id ON $S.requests (session, sha256(request_id))",
)
VERSION_TABLE = """
    CREATE TABLE $S.format (
        application text NOT NULL,
        version integer NOT NULL,
        only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one)
    )
"""
# What brings a schema of a version to the next one; the first version has none before it.
MIGRATIONS: dict[int, Sequence[str]] = {}

_VERSION = "SELECT application, version FROM $S.format"
_RELATIONS = (
    "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = %(schema)s"
)
_SERVER = (
    "SELECT pg_is_in_recovery(), current_setting('server_encoding'), current_setting('fsync'),"
    " current_setting('synchronous_commit'), current_setting('full_page_writes'),"
    " current_setting('server_version_num')::integer"
)


def lock_key(*names: str) -> int:
    """The key of an advisory lock: 64 bits of the digest of names."""
    digest = hashlib.blake2b("\0".join(names).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)


async def make_ready(connection: AsyncConnection, statements: Statements, url: str) -> None:
    """Check the server, and make or migrate the schema where that is needed.

    Raises:
        StoreUnavailableError: The server cannot keep a store, or the schema is another program's.
        FormatVersionError: A newer version wrote it.
        psycopg.Error: Anything else that the server reports.
    """
    await _check_server(connection, url)
    if await _version(connection, statements, url) == FORMAT:
        return
    async with connection.transaction():
        key = lock_key("schema", statements.schema)
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
        found = await _version(connection, statements, url)
        await _bring_up(connection, statements, found)
        failpoint("store.postgres.open.before")
    failpoint("store.postgres.open.after")


async def _check_server(connection: AsyncConnection, url: str) -> None:
    row = await (await connection.execute(_SERVER)).fetchone()
    standby, encoding, fsync, synchronous, pages, version = row or (False, "", "", "", "", 0)
    if standby:
        raise StoreUnavailableError(
            url, "the server is a standby, which may not be written: name the primary"
        )
    if version < OLDEST_SERVER * 10_000:
        raise StoreUnavailableError(url, f"the server is older than Postgres {OLDEST_SERVER}")
    if encoding != "UTF8":
        raise StoreUnavailableError(
            url, f"the database keeps text as {encoding}: make one with ENCODING 'UTF8'"
        )
    for name, value in (
        ("fsync", fsync),
        ("synchronous_commit", synchronous),
        ("full_page_writes", pages),
    ):
        if value == "off":
            log.warning("store %s: %s is off: a crash of the server may take commits", url, name)


async def _version(connection: AsyncConnection, statements: Statements, url: str) -> int:
    """The version of the schema; 0 where there is none yet."""
    cursor = await connection.execute(_RELATIONS, {"schema": statements.schema})
    relations = ((await cursor.fetchone()) or (0,))[0]
    if not relations:
        return 0
    row: tuple[object, ...] | None = None
    try:
        async with connection.transaction():
            row = await (await connection.execute(statements[_VERSION])).fetchone()
    except (errors.UndefinedTable, errors.UndefinedColumn):
        pass
    if row is None or row[0] != APPLICATION or not isinstance(row[1], int) or row[1] < 1:
        raise StoreUnavailableError(
            url,
            f"the schema {statements.schema} holds tables of another program; it was not touched: "
            "name another one with ?schema=NAME",
        )
    if row[1] > FORMAT:
        raise FormatVersionError(row[1], FORMAT)
    return row[1]


async def _bring_up(connection: AsyncConnection, statements: Statements, found: int) -> None:
    if found == 0:
        # Who owns the schema needs no right to make one.
        cursor = await connection.execute("SELECT to_regnamespace(%s)", (statements.schema,))
        if await cursor.fetchone() == (None,):
            await connection.execute(statements["CREATE SCHEMA $S"])
        for table in (*TABLES, VERSION_TABLE):
            await connection.execute(statements[table])
        values = (APPLICATION, FORMAT)
        await connection.execute(statements["INSERT INTO $S.format VALUES (%s, %s)"], values)
        return
    for version in range(found, FORMAT):
        for change in MIGRATIONS[version]:
            await connection.execute(statements[change])
    await connection.execute(statements["UPDATE $S.format SET version = %s"], (FORMAT,))
