"""The same operations on the memory store and on a real Redis server give the same answers."""

import asyncio
import itertools
import os
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raf.store.memory import MemoryStore
from raf.store.redis import RedisStore
from raf.testing import ManualClock
from raf.testing.store_suite.base import live_owner
from tests.conformance.test_backends_agree import STEPS, Player
from tests.servers.valkey import forget, move_back, redis_url

__all__ = ["redis_url"]


TURNS = itertools.count()


def plain(notes: list[object]) -> list[str]:
    """The answers as text, with ids by the order in which they came up and without wall times."""
    known: dict[str, str] = {}
    number = itertools.count()
    found = []
    for note in notes:
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "then", repr(note)).replace("=30.0", "=30")
        found.append(
            re.sub(
                r"\b[0-9a-f]{32}\b",
                lambda match: known.setdefault(match[0], f"id {next(number)}"),
                text,
            )
        )
    return found


class RedisPlayer(Player):
    """Lets time pass on the server too."""

    server, prefix = "", ""

    async def _do(self, op: str, name: Any, *rest: Any) -> object:
        if op == "pass":
            move_back(self.server, self.prefix, name)
        return await super()._do(op, name, *rest)


async def play_both(url: str, prefix: str, steps: list[tuple[Any, ...]]) -> list[list[object]]:
    """What each store answered."""
    owner = live_owner(ManualClock())
    notes = []
    for is_redis in (False, True):
        clock = ManualClock()
        place = f"{url}?prefix={prefix}"
        async with (
            RedisStore(place, clock=clock) if is_redis else MemoryStore(clock=clock) as store
        ):
            player = (RedisPlayer if is_redis else Player)(store, clock)
            if isinstance(player, RedisPlayer):
                player.server, player.prefix = url, prefix
            player.owner = owner
            for step in steps:
                await player.play(step)
            notes.append(player.notes)
    return notes


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(STEPS, max_size=30).map(lambda steps: [("claim", "a", True), *steps]))
def test_memory_and_redis_agree(redis_url: str, steps: list[tuple[Any, ...]]) -> None:
    """Whatever is done in whatever order, no difference can be seen, not even in positions."""
    prefix = f"agree-{os.getpid()}-{next(TURNS)}"
    try:
        one, two = asyncio.run(play_both(redis_url, prefix, steps))
    finally:
        forget(redis_url, prefix)
    for left, right in zip(plain(one), plain(two), strict=True):
        assert left == right
