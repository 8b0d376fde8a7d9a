"""The floors: what a step costs when nothing but the loop, or nothing but the database, is used."""

import asyncio
import os
import random
import sqlite3
import time
from pathlib import Path

from benchmarks.rows import SEED

RECORD = random.Random(SEED).randbytes(300)  # about what one small step stores


async def nothing() -> None:
    """A node that does nothing."""


async def bare_loop(steps: int) -> float:
    """Seconds for so many steps of one task each, waited for as a step must be."""
    began = time.perf_counter()
    for _ in range(steps):
        await asyncio.wait({asyncio.ensure_future(nothing())})
    return time.perf_counter() - began


def bare_commits(folder: Path, steps: int, synchronous: str) -> float:
    """Seconds for so many transactions that update a head and insert one record."""
    path = folder / f"bare-{synchronous}.db"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("CREATE TABLE heads (id INTEGER PRIMARY KEY, step INTEGER)")
        connection.execute("CREATE TABLE records (id INTEGER PRIMARY KEY, body BLOB)")
        connection.execute("INSERT INTO heads VALUES (1, 0)")
        began = time.perf_counter()
        for step in range(steps):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE heads SET step = ? WHERE id = 1", (step,))
            connection.execute("INSERT INTO records (body) VALUES (?)", (RECORD,))
            connection.execute("COMMIT")
        return time.perf_counter() - began
    finally:
        connection.close()


def bare_files(folder: Path, steps: int) -> float:
    """Seconds for so many new files, each synced and made visible with its folder."""
    place = folder / "bare-files"
    place.mkdir(exist_ok=True)
    descriptor = os.open(place, os.O_RDONLY)
    try:
        began = time.perf_counter()
        for step in range(steps):
            name = place / f"{step}.tmp"
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(file, RECORD)
            os.fsync(file)
            os.close(file)
            name.replace(place / f"{step}.rec")
            os.fsync(descriptor)
        return time.perf_counter() - began
    finally:
        os.close(descriptor)
