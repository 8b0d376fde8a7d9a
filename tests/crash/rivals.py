"""Processes that want one session: each claims it, commits, lets go or keeps it too long, and tells all.

Each operation is told before it begins and after it has ended, with steady times that compare between
processes.  What was stored and what was told is then judged by `tests.crash.line`.  Their wall clocks
jump back and forth: no lease may care.
"""

import asyncio
import json
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from raf import RafError
from raf.errors import SessionBusyError
from raf.store.model import Lease, Reading, Select
from raf.store.owner import this_owner
from raf.store.port import Store
from raf.store.urls import open_store
from raf.testing.store_suite.base import Pen
from tests.crash.wild_clock import WildClock

SESSION: Final = "wanted"
LEASE_S: Final = 0.15
MOST_COMMITS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivalry:
    """What one process does.

    Args:
        told: Where it tells its operations.
        url: The store.
        seed: Its chances.
        claims: It ends when it has had the session so often.
    """

    told: Path
    url: str
    seed: int
    claims: int


class Protocol:
    """Tells operations: a line when one begins, another when it has ended."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def begins(self, **what: object) -> dict[str, object]:
        """Tell what is about to be done."""
        line = {**what, "pid": os.getpid(), "begin": time.monotonic()}
        self._write(line)
        return line

    def ended(self, line: dict[str, object], answer: str, **more: object) -> None:
        """Tell how it went."""
        self._write({**line, **more, "end": time.monotonic(), "answer": answer})

    def _write(self, line: dict[str, object]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def body_of(commit_id: str, parent: str) -> bytes:
    """A checkpoint that says which it follows."""
    return json.dumps({"id": commit_id, "parent": parent}).encode()


def ids_of(reading: Reading) -> list[dict[str, Any]]:
    """What the checkpoints of a session say, oldest first."""
    return [
        {
            "number": record.info.commit,
            "epoch": record.info.epoch,
            **json.loads(record.body),
        }
        for record in reading.chain
    ]


class Rival:
    """One process' work."""

    def __init__(self, job: Rivalry, store: Store) -> None:
        self._store = store
        self._chance = random.Random(job.seed)
        self._protocol = Protocol(job.told)
        self._owner = this_owner(store.clock)

    async def try_once(self) -> bool:
        """Claim and commit some; False when another had the session."""
        line = self._protocol.begins(what="claim")
        try:
            claimed = await self._store.claim(SESSION, self._owner, lease_s=LEASE_S, create=True)
        except SessionBusyError:
            self._protocol.ended(line, "busy")
            await asyncio.sleep(self._chance.uniform(0.002, 0.02))
            return False
        lease = claimed.lease
        self._protocol.ended(line, "ok", epoch=lease.epoch)
        try:
            await self._write(lease)
        except RafError:
            return True
        if self._chance.random() < 0.6:
            await self._store.release(lease)
        return True

    async def _write(self, lease: Lease) -> None:
        reading = await self._store.read(SESSION, Select(chain=True))
        assert reading is not None
        pen = Pen(self._store, lease, reading.head)
        parent = ids_of(reading)[-1]["id"] if reading.chain else ""
        for _ in range(self._chance.randint(1, MOST_COMMITS)):
            if self._chance.random() < 0.1:
                await asyncio.sleep(2 * LEASE_S)  # too late: another may have the session
            if self._chance.random() < 0.2:
                await self._store.renew([lease])
            parent = await self._commit(pen, parent)

    async def _commit(self, pen: Pen, parent: str) -> str:
        draft = pen.draft()
        draft = pen.draft(commit_id=draft.commit_id, body=body_of(draft.commit_id, parent))
        line = self._protocol.begins(
            what="commit",
            epoch=pen.lease.epoch,
            number=draft.commit,
            id=draft.commit_id,
            parent=parent,
        )
        try:
            await self._store.commit(pen.lease, draft)
        except RafError as error:
            self._protocol.ended(line, type(error).__name__)
            raise
        self._protocol.ended(line, "ok")
        pen.wrote(draft)
        return draft.commit_id


async def _rival(job: Rivalry) -> None:
    async with open_store(job.url, clock=WildClock(job.seed)) as store:
        rival = Rival(job, store)
        left = job.claims
        while left:
            left -= await rival.try_once()


def main(job: Rivalry) -> None:
    """Be a rival."""
    asyncio.run(_rival(job))
