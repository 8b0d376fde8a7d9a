"""Stopped by SIGSTOP past its leases and replaced, a process writes nothing of any kind any more."""

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from raf.errors import SessionBusyError
from raf.store.model import Reading, Select
from raf.store.owner import this_owner
from raf.store.port import Store
from raf.store.urls import open_store
from raf.testing.store_suite.base import EVERYTHING, Pen, must_read
from tests.crash.backends import EMBEDDED, SERVERS, forget, url_of
from tests.crash.forking import FORKING, over, stopped
from tests.crash.former_owner import REFUSALS, WRITES, main

pytestmark = pytest.mark.crash

SHORT_LEASE_S = 0.4
LONG_S = 30.0
POLL_S = 0.01

SLOW_SERVERS = [pytest.param(backend, marks=pytest.mark.slow) for backend in SERVERS]


async def take_over(store: Store, session_id: str) -> None:
    """Claim a session as soon as it is free, and commit to it."""
    claimed = None
    while claimed is None:
        try:
            claimed = await store.claim(session_id, this_owner(store.clock), lease_s=LONG_S)
        except SessionBusyError:
            await asyncio.sleep(POLL_S)
    assert claimed.took_over
    pen = Pen(store, claimed.lease, (await must_read(store, session_id)).head)
    for _ in range(2):
        await pen.write(full=True, body=b"heir")
    # What is pruned leaves its positions: the former owner finds its next one free.
    reading = await must_read(store, session_id, Select(infos=True))
    old = [info.position for info in reading.infos[-2::-1]]
    await store.prune(claimed.lease, old, events_before=pen.events)
    await store.append(claimed.lease, [b"heir"])


async def stand(store: Store, session_id: str) -> tuple[Reading, float]:
    """All of a session, and when its lease ends: a server's clock is read a little later each time."""
    reading = await must_read(store, session_id, EVERYTHING)
    assert reading.head.held is not None
    held = replace(reading.head.held, expires_boot=0.0)
    whole = replace(reading, head=replace(reading.head, held=held))
    return whole, reading.head.held.expires_boot


@pytest.mark.parametrize("backend", [*EMBEDDED, *SLOW_SERVERS])
async def test_every_write_of_a_former_owner_is_refused(backend: str, tmp_path: Path) -> None:
    """Commit, journal, renewal, release, prune and delete: nothing changes, and most say so."""
    url, answers = url_of(backend, tmp_path), tmp_path / "answers.json"
    process = FORKING.Process(target=main, args=(url, SHORT_LEASE_S, answers), daemon=True)
    process.start()
    pid = process.pid
    assert pid is not None
    try:
        await stopped(pid)
        async with open_store(url) as store:
            for name in WRITES:
                await take_over(store, name)
            before = [await stand(store, name) for name in WRITES]
            os.kill(pid, signal.SIGCONT)
            assert await over(process) == 0
            assert json.loads(answers.read_text("utf-8")) == REFUSALS
            for name, stood in zip(WRITES, before, strict=True):
                now = await stand(store, name)
                assert now[0] == stood[0]
                assert now[1] == pytest.approx(stood[1], abs=LONG_S / 10)
    finally:
        process.kill()
        await over(process)
        process.close()
        forget(backend, tmp_path)
