"""The bytes of a session as a server keeps them, for tests that damage them behind the store's back.

A piece is a column of a row in Postgres, a field or an item in Redis.
"""

from functools import cache
from typing import Any, Protocol, TypeAlias

import psycopg

from raf.store.postgres import rows
from tests.servers import places, postgres, valkey

Piece: TypeAlias = tuple[Any, ...]
# Columns of bytes, and what names a row of the session.
COLUMNS = {
    "commits": ("commit_number", ("body", "events", "run_id")),
    "journal": ("position", ("body",)),
    "requests": ("seq", ("request_id", "kind", "body")),
}


class Pieces(Protocol):
    """What a test can do to the pieces of a store."""

    def of(self, session: str) -> list[Piece]:
        """Every piece of a session that is not empty."""
        ...

    def read(self, piece: Piece) -> bytes: ...

    def write(self, piece: Piece, data: bytes) -> None: ...

    def lose(self, piece: Piece) -> None:
        """Remove the row, the field or the item that holds it."""
        ...

    def set_head(self, session: str, field: str, value: Any) -> None:
        """Write a column or field of the session's head; an expression in Postgres."""
        ...

    def call_it_a_commit(self, session: str) -> None:
        """Say of the first record of the session's journal that it is a commit."""
        ...


@cache
def _admin() -> psycopg.Connection:
    return psycopg.connect(postgres.shared_url(), autocommit=True)


class Columns:
    """The pieces of a Postgres place."""

    def _do(self, statement: str, *values: object) -> list[Piece]:
        full = statement.replace("$S", f'"{places.schema()}"').encode()
        cursor = _admin().execute(full, values)
        return cursor.fetchall() if cursor.description else []

    def of(self, session: str) -> list[Piece]:
        [[number]] = self._do("SELECT number FROM $S.sessions WHERE id = %s", session)
        found: list[Piece] = []
        for table, (key, columns) in COLUMNS.items():
            for column in columns:
                rows = self._do(
                    f"SELECT {key} FROM $S.{table} WHERE session = %s AND length({column}) > 0"
                    f" ORDER BY {key}",
                    number,
                )
                found += [(table, column, number, row[0]) for row in rows]
        return found

    def read(self, piece: Piece) -> bytes:
        table, column, number, at = piece
        where = f"WHERE session = %s AND {COLUMNS[table][0]} = %s"
        return bytes(self._do(f"SELECT {column} FROM $S.{table} {where}", number, at)[0][0])

    def write(self, piece: Piece, data: bytes) -> None:
        table, column, number, at = piece
        where = f"WHERE session = %s AND {COLUMNS[table][0]} = %s"
        self._do(f"UPDATE $S.{table} SET {column} = %s {where}", data, number, at)

    def lose(self, piece: Piece) -> None:
        table, _, number, at = piece
        where = f"WHERE session = %s AND {COLUMNS[table][0]} = %s"
        self._do(f"DELETE FROM $S.{table} {where}", number, at)

    def set_head(self, session: str, field: str, value: Any) -> None:
        self._do(f"UPDATE $S.sessions SET {field} = {value} WHERE id = %s", session)

    def call_it_a_commit(self, session: str) -> None:
        number = "(SELECT number FROM $S.sessions WHERE id = %s)"
        first = f"(SELECT min(position) FROM $S.journal WHERE session = {number})"
        self._do(
            f"UPDATE $S.journal SET kind = {rows.COMMIT} WHERE session = {number}"
            f" AND position = {first}",
            session,
            session,
        )


class Values:
    """The pieces of a Redis place."""

    def __init__(self, place: str) -> None:
        self._prefix = places.prefix(place)

    def _key(self, kind: str, session: str) -> bytes:
        return f"{self._prefix}:{kind}:{session}".encode()

    def of(self, session: str) -> list[Piece]:
        found: list[Piece] = []
        with valkey.client_of(places.shared_valkey()) as client:
            for kind in ("commit", "body", "events"):
                key = self._key(kind, session)
                found += [(key, name) for name in sorted(client.hkeys(key), key=int)]
            for kind in ("journal", "inbox"):
                key = self._key(kind, session)
                found += [(key, number) for number in range(client.llen(key))]
        return found

    def read(self, piece: Piece) -> bytes:
        key, at = piece
        with valkey.client_of(places.shared_valkey()) as client:
            value = client.lindex(key, at) if isinstance(at, int) else client.hget(key, at)
        assert isinstance(value, bytes)
        return value

    def write(self, piece: Piece, data: bytes) -> None:
        key, at = piece
        with valkey.client_of(places.shared_valkey()) as client:
            if isinstance(at, int):
                client.lset(key, at, data)
            else:
                client.hset(key, at, data)

    def lose(self, piece: Piece) -> None:
        key, at = piece
        with valkey.client_of(places.shared_valkey()) as client:
            if isinstance(at, int):
                client.lset(key, at, b"gone")
                client.lrem(key, 1, b"gone")
            else:
                client.hdel(key, at)

    def set_head(self, session: str, field: str, value: Any) -> None:
        with valkey.client_of(places.shared_valkey()) as client:
            client.hset(self._key("head", session), field, value)

    def call_it_a_commit(self, session: str) -> None:
        piece = (self._key("journal", session), 0)
        words = self.read(piece).split(b" ", 3)
        self.write(piece, b" ".join([*words[:2], b"commit", words[3]]))

    def drop_head(self, session: str) -> None:
        """Lose the head and keep all that hangs on it."""
        with valkey.client_of(places.shared_valkey()) as client:
            client.delete(self._key("head", session))


def pieces_of(place: str) -> Pieces:
    """What can be done to the pieces of a place on a server."""
    return Columns() if places.backend_of(place) == "postgres" else Values(place)
