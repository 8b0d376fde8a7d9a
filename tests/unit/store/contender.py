"""A process that works on a store beside others; the tests start it.

Usage: contender.py MODE PATH-OR-URL NAME; a path is that of a SQLite file
  race   commit on a session of its own and, whenever it can be claimed, on one that all share
  once   one of each operation, for the failpoint named in RAF_FAILPOINT
  leave  write, then end without closing the store
"""

import asyncio
import sys
from dataclasses import replace

from raf.clock import SystemClock
from raf.errors import SessionBusyError
from raf.store.owner import this_owner
from raf.store.port import Store
from raf.store.sqlite import SqliteStore
from raf.store.urls import open_store
from raf.testing import arm_from_environment
from raf.testing.store_suite.base import Pen, claim, head_of, new_session

STEPS = 40
SHARED = "shared"


async def race(store: Store, name: str) -> None:
    """Write STEPS commits on each session."""
    own = await new_session(store, name)
    done = 0
    owner = this_owner(store.clock)
    while done < STEPS or own.number < STEPS - 1:
        if own.number < STEPS - 1:
            await own.write()
        if done == STEPS:
            continue
        try:
            lease = await claim(store, SHARED, owner=replace(owner, token=f"{name} {done}"))
        except SessionBusyError:
            continue
        await Pen(store, lease, await head_of(store, SHARED)).write(body=name.encode())
        await store.release(lease)
        done += 1


async def once(store: Store, name: str) -> None:
    """Do each operation once; the parent armed a point, so this may end anywhere."""
    pen = await new_session(store, name)
    await pen.write()
    await store.append(pen.lease, [b"journal"])
    await store.request(name, "r", "signal", b"")
    await store.renew([pen.lease])
    await store.prune(pen.lease, [(await head_of(store, name)).commit_position])
    await store.release(pen.lease)
    await store.delete(pen.lease)


async def main(mode: str, path: str, name: str) -> None:
    clock = SystemClock()
    store = open_store(path, clock=clock) if ":" in path else SqliteStore(path, clock=clock)
    await store.open()
    if mode == "race":
        await race(store, name)
        await store.close()
    elif mode == "once":
        arm_from_environment()
        await once(store, name)
        await store.close()
    else:
        await new_session(store, name, commits=3)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
