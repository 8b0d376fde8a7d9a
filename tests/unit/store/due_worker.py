"""A process that claims what is due and says how many it got; the tests start it.

Usage: due_worker.py URL PLACES waits|dies
  waits  hold them until the standard input ends, then give them back
  dies   end at once, holding them
"""

import asyncio
import os
import sys

from raf.clock import SystemClock
from raf.store.owner import this_owner
from raf.store.urls import open_store
from raf.testing.store_suite.base import LEASE_S
from raf.testing.store_suite.due import ours


async def main(url: str, places: str, end: str) -> None:
    """Claim one at a time, so that processes come in between each other."""
    async with open_store(url, clock=SystemClock()) as store:
        owner, due = this_owner(store.clock), ours(queues={"default": int(places)})
        claims = []
        while got := await store.claim_due(owner, due, lease_s=LEASE_S, limit=1):
            claims += got
        sys.stdout.write(f"{len(claims)}\n")
        sys.stdout.flush()
        if end == "dies":
            os._exit(0)
        await asyncio.to_thread(sys.stdin.read)
        for claimed in claims:
            await store.release(claimed.lease)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
