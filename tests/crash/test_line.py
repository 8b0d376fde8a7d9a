"""Processes fight for one session, are stopped and killed meanwhile: what they did is one line."""

import asyncio
import json
import os
import random
import signal
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from raf.store.model import Select
from raf.store.urls import open_store
from tests.crash.backends import EMBEDDED, SERVERS, forget, url_of
from tests.crash.forking import FORKING, over
from tests.crash.line import Operation, faults_of, operations_of
from tests.crash.rivals import SESSION, Rivalry, ids_of, main

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

PROCESSES = 3
CLAIMS = {"short": 6, "long": 150}

SLOW_SERVERS = [pytest.param(backend, marks=pytest.mark.slow) for backend in SERVERS]


class Fight:
    """Some rivals, and somebody who stops and kills them."""

    def __init__(self, url: str, folder: Path, seed: int, claims: int) -> None:
        self.url = url
        self.killed = self.stopped = 0
        self._folder = folder
        self._claims = claims
        self._chance = random.Random(seed)
        self._seeds = iter(range(1000))

    async def run(self) -> None:
        """Until each rival has had the session so often, or was killed and replaced by one who has."""
        await asyncio.gather(*(self._place() for _ in range(PROCESSES)))

    async def _place(self) -> None:
        left = 2  # so many are killed before one is let end
        while True:
            process = self._start()
            if left == 0:
                assert await over(process) == 0
                process.close()
                return
            left -= 1
            await self._disturb(process)
            process.close()

    def _start(self) -> ForkServerProcess:
        seed = next(self._seeds)
        told = self._folder / f"told-{seed}"
        job = Rivalry(told=told, url=self.url, seed=seed, claims=self._claims)
        process = FORKING.Process(target=main, args=(job,), daemon=True)
        process.start()
        return process

    async def _disturb(self, process: ForkServerProcess) -> None:
        """Stop a process for longer than a lease, let it go on, kill it."""
        assert process.pid is not None
        for sign in (signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL):
            await over(process, self._chance.uniform(0.1, 0.4))
            with suppress(ProcessLookupError):
                os.kill(process.pid, sign)
        code = await over(process)
        assert code in (0, -signal.SIGKILL)
        self.killed += code != 0

    async def faults(self) -> tuple[list[str], list[Operation]]:
        """What no order explains, and all that was done."""
        lines = [
            json.loads(line)
            for told in sorted(self._folder.glob("told-*"))
            for line in told.read_bytes().splitlines()
        ]
        operations = operations_of(lines)
        async with open_store(self.url) as store:
            reading = await store.read(SESSION, Select(chain=True))
        assert reading is not None
        return faults_of(ids_of(reading), operations), operations


@pytest.mark.parametrize("backend", [*EMBEDDED, *SLOW_SERVERS])
async def test_rivals_write_one_line(backend: str, tmp_path: Path, campaign: str) -> None:
    """Numbers are unique, epochs rise, each commit follows its parent, and time agrees.

    All that with wall clocks that jump; and no lease is for ever, or the rivals would not end.
    """
    seed = 3 if campaign == "short" else random.SystemRandom().randrange(1 << 32)
    fight = Fight(url_of(backend, tmp_path), tmp_path, seed, CLAIMS[campaign])
    await fight.run()
    faults, operations = await fight.faults()
    assert faults == [], f"seed {seed}"
    assert fight.killed
    assert len([one for one in operations if one.answer == "ok" and one.what == "commit"]) > 20
    assert {one.what for one in operations if one.answer == "busy"} == {"claim"}
    forget(backend, tmp_path)


def row(number: int, *, epoch: int = 1, **more: Any) -> dict[str, Any]:
    """A commit that is stored."""
    parent = f"c{number - 1}" if number else ""
    return {"number": number, "epoch": epoch, "id": f"c{number}", "parent": parent, **more}


def commit(number: int, begin: float, **more: Any) -> Operation:
    """A commit that was acknowledged."""
    fields: dict[str, Any] = {
        "what": "commit",
        "pid": 1,
        "begin": begin,
        "end": begin + 1,
        "answer": "ok",
        "epoch": 1,
        "number": number,
        "id": f"c{number}",
        **more,
    }
    return Operation(**fields)


GOOD = [commit(0, 0.0), commit(1, 2.0), commit(2, 4.0, answer="", end=None)]
ROWS = [row(0), row(1), row(2)]
TAKEN = Operation(what="claim", pid=2, begin=0.5, end=1.5, answer="ok", epoch=2)


@pytest.mark.parametrize(
    ("stored", "operations", "fault"),
    [
        (ROWS, GOOD, ""),
        (ROWS[:2], GOOD, ""),  # what was cut off by a kill may be there or not
        (ROWS[:1], GOOD, "acknowledged and is lost"),
        ([row(0), row(2)], GOOD, "gaps"),
        ([row(0), row(1, parent="c7")], GOOD, "does not follow"),
        ([row(0, epoch=2), row(1)], GOOD, "the epoch falls"),
        ([*ROWS, row(3)], GOOD, "nobody made"),
        ([row(0), row(1, id="c0", parent="c0")], GOOD, "stands twice"),
        (ROWS, [*GOOD[:2], commit(2, 4.0, answer="LeaseLostError")], "refused and stands"),
        (ROWS, [commit(0, 5.0), commit(1, 2.0), GOOD[2]], "began when 1"),
        (ROWS, [*GOOD, TAKEN], "epoch 1 wrote after epoch 2"),
        (ROWS, [*GOOD[:1], TAKEN, TAKEN], "two claims"),
    ],
)
def test_each_fault_is_found(
    stored: list[dict[str, Any]], operations: list[Operation], fault: str
) -> None:
    """The judge lets a line pass, and finds each way in which it is none."""
    found = faults_of(stored, operations)
    assert any(fault in one for one in found) if fault else found == []
