"""A look into the SQLite store's writer, and a way to hold it while a group gathers."""

import asyncio
import sqlite3
import threading

from raf.failpoint import set_hook
from raf.store.sqlite import SqliteStore


def connection_of(store: SqliteStore) -> sqlite3.Connection:
    assert store._writer is not None
    assert store._writer._connection is not None
    return store._writer._connection


class Held:
    """Holds the writer thread inside its next group, so that others gather behind it."""

    def __init__(self) -> None:
        self._entered = threading.Event()
        self._go_on = threading.Event()

    def __enter__(self) -> "Held":
        set_hook(self._hook)
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()

    def _hook(self, name: str) -> None:
        if name == "store.sqlite.group.before" and not self._entered.is_set():
            self._entered.set()
            self._go_on.wait(30)

    async def reached(self) -> None:
        await asyncio.to_thread(self._entered.wait, 30)

    def let_go(self) -> None:
        set_hook(None)
        self._go_on.set()
