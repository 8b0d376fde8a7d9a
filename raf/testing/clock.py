"""A clock that a test moves by hand.

Rules of this file: time stands still unless the test says so.  Wall time, boot time and the steady
clock move together under `advance`; `step_wall` moves the wall alone, as an operator who sets the
clock does; `reboot` begins another boot.
"""

import asyncio
import heapq
import itertools
import random


class ManualClock:
    """Implements `raf.clock.Clock`; ids and jitter come from a seed, so a test repeats itself.

    Args:
        now: Wall time to begin with, UTC seconds since 1970.
        boot: Seconds since boot to begin with.
        boot_id: The name of this boot.
        seed: Ids and jitter follow from it; give each machine of a test its own.
        auto_advance: `sleep` moves the time by itself, to the earliest sleeper first.

    Example:
        >>> clock = ManualClock()
        >>> before = clock.now()
        >>> clock.advance(30)
        >>> clock.now() - before
        30.0
    """

    def __init__(
        self,
        *,
        now: float = 1_800_000_000.0,
        boot: float = 1_000.0,
        boot_id: str = "boot-1",
        seed: int = 0,
        auto_advance: bool = False,
    ) -> None:
        self.auto_advance = auto_advance
        self._boot_id = boot_id
        self._now = now
        self._boot = boot
        self._monotonic = 0.0
        self._seed = seed
        self._ids = itertools.count(1)
        self._random = random.Random(seed)  # noqa: S311 - repeatable jitter
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    @property
    def boot_id(self) -> str:
        """Names this boot."""
        return self._boot_id

    def now(self) -> float:
        """Wall time in UTC seconds since 1970."""
        return self._now

    def boot(self) -> float:
        """Seconds since this boot."""
        return self._boot

    def monotonic(self) -> float:
        """Seconds of the steady clock; starts at zero."""
        return self._monotonic

    def new_id(self) -> str:
        """The next id of 32 hexadecimal digits; equal seeds give equal ids."""
        return f"{self._seed & 0xFFFFFFFFFFFFFFFF:016x}{next(self._ids):016x}"

    def chance(self) -> float:
        """The next number in [0, 1) of the seed's row."""
        return self._random.random()

    def advance(self, seconds: float) -> None:
        """Let time pass on all three clocks and wake whoever slept until then, in order.

        Args:
            seconds: How long, zero or more.  The woken tasks run once the caller awaits.
        """
        if seconds < 0:
            raise ValueError("time does not run backwards: use step_wall() for the wall clock")
        self._now += seconds
        self._boot += seconds
        self._monotonic += seconds
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)

    async def elapse(self, seconds: float) -> None:
        """Advance from one sleeper to the next, letting each run before time goes on."""
        end = self._monotonic + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self.advance(max(0.0, self._sleepers[0][0] - self._monotonic))
            await _let_others_run()
        self.advance(max(0.0, end - self._monotonic))
        await _let_others_run()

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward (or back, below zero); nothing else moves, nobody wakes."""
        self._now += seconds

    def reboot(self, boot_id: str) -> None:
        """Begin another boot: its name is new and its clock starts near zero."""
        self._boot_id = boot_id
        self._boot = 1.0

    @property
    def sleeping(self) -> int:
        """How many sleepers wait for the time to move."""
        return sum(not sleeper.done() for _, _, sleeper in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Wait until the time was advanced by so much; returns at once for zero or less."""
        if seconds <= 0:
            return
        sleeper = asyncio.get_running_loop().create_future()
        due = self._monotonic + seconds
        heapq.heappush(self._sleepers, (due, next(self._order), sleeper))
        while self.auto_advance and not sleeper.done():
            await asyncio.sleep(0)
            if not sleeper.done():
                self.advance(max(0.0, self._sleepers[0][0] - self._monotonic))
        await sleeper


async def _let_others_run() -> None:
    # A woken task may need several turns of the loop to reach its next wait.
    for _ in range(10):
        await asyncio.sleep(0)
