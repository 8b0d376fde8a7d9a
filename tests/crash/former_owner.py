"""A process that owns sessions, stops itself, and tries to write to each of them when it goes on."""

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from raf import RafError
from raf.store.model import Lease, Select
from raf.store.owner import this_owner
from raf.store.port import Store
from raf.store.urls import open_store
from raf.testing.store_suite.base import Pen

COMMITS: Final = 6

Write = Callable[[Store, Pen], Awaitable[Any]]


async def _commit(store: Store, pen: Pen) -> None:
    del store
    await pen.write(body=b"late")


async def _append(store: Store, pen: Pen) -> None:
    await store.append(pen.lease, [b"late"])


async def _renew(store: Store, pen: Pen) -> list[bool]:
    return await store.renew([pen.lease])


async def _release(store: Store, pen: Pen) -> None:
    await store.release(pen.lease)


async def _delete(store: Store, pen: Pen) -> None:
    await store.delete(pen.lease)


async def _prune(store: Store, pen: Pen) -> None:
    reading = await store.read(pen.lease.session_id, Select(infos=True))
    assert reading is not None
    await store.prune(pen.lease, [info.position for info in reading.infos[1::-1]])


async def _prune_events(store: Store, pen: Pen) -> None:
    await store.prune(pen.lease, [], events_before=pen.events)


# What an owner can write, by the name of the session that it is tried on.
WRITES: Final[dict[str, Write]] = {
    "commit": _commit,
    "append": _append,
    "renew": _renew,
    "release": _release,
    "delete": _delete,
    "prune": _prune,
    "prune events": _prune_events,
}
# What each of them is answered when the session has another owner.
REFUSALS: Final = {
    **dict.fromkeys(WRITES, "LeaseLostError"),
    "renew": "[False]",
    "release": "None",
}


async def _own(store: Store, session_id: str, lease_s: float) -> Pen:
    claimed = await store.claim(session_id, this_owner(store.clock), lease_s=lease_s, create=True)
    lease: Lease = claimed.lease
    pen = Pen(store, lease)
    for number in range(COMMITS):
        await pen.write(full=number % 2 == 0)
    return pen


async def _answers(url: str, lease_s: float) -> dict[str, str]:
    async with open_store(url) as store:
        pens = {name: await _own(store, name, lease_s) for name in WRITES}
        signal.raise_signal(signal.SIGSTOP)
        answers: dict[str, str] = {}
        for name, write in WRITES.items():
            try:
                answers[name] = repr(await write(store, pens[name]))
            except RafError as error:
                answers[name] = type(error).__name__
        return answers


def main(url: str, lease_s: float, answers: Path) -> None:
    """Own, stop, try, and write down what was answered."""
    answers.write_text(json.dumps(asyncio.run(_answers(url, lease_s))), "utf-8")
