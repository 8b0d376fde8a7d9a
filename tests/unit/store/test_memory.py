"""What is particular to the memory store; the rest is in the conformance suite."""

import asyncio
import threading

from raf.store.memory import MemoryStore
from raf.store.model import Select
from raf.testing.store_suite.base import bodies, head_of, must_read, new_session


async def test_engines_come_and_go() -> None:
    """What one user of the instance stored, the next finds, though it was closed between."""
    store = MemoryStore()
    async with store:
        await new_session(store, commits=2)
    async with store:
        assert bodies(await must_read(store)) == [b"body 0", b"body 1"]


async def test_two_instances_are_two_places() -> None:
    """Another instance knows nothing of the first."""
    async with MemoryStore() as one, MemoryStore() as two:
        await new_session(one)
        assert await two.read("s", Select()) is None


async def test_what_was_handed_in_can_change() -> None:
    """A buffer that its owner goes on using does not change what is stored."""
    async with MemoryStore() as store:
        pen = await new_session(store)
        buffer = bytearray(b"first")
        await pen.write(body=buffer)
        buffer[:] = b"other"
        assert bodies(await must_read(store)) == [b"first"]


async def test_threads_keep_the_numbers() -> None:
    """Event loops of several threads share an instance without losing a number."""
    async with MemoryStore() as store:
        await new_session(store)

        def work(name: int) -> None:
            async def send() -> None:
                for n in range(200):
                    await store.request("s", f"{name} {n}", "signal", b"")

            asyncio.run(send())

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        requests = (await must_read(store)).requests
        assert [request.seq for request in requests] == list(range(1, 801))
        assert (await head_of(store)).requests == 800
