"""The store in a Postgres database: for several machines, and for many sessions at once."""

from raf.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
