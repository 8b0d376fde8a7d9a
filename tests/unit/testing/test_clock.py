"""The clock that tests drive."""

import asyncio

import pytest

from raf.clock import Clock
from raf.testing import ManualClock


def test_it_is_a_clock() -> None:
    """It stands in for the machine's clock."""
    clock: Clock = ManualClock()
    assert clock.boot_id


def test_time_stands_still_until_it_is_moved() -> None:
    """`advance` moves all three clocks by the same amount."""
    clock = ManualClock(now=100.0, boot=10.0)
    assert (clock.now(), clock.boot(), clock.monotonic()) == (100.0, 10.0, 0.0)
    clock.advance(2.5)
    assert (clock.now(), clock.boot(), clock.monotonic()) == (102.5, 12.5, 2.5)
    with pytest.raises(ValueError, match="step_wall"):
        clock.advance(-1)


def test_the_wall_clock_can_be_set() -> None:
    """Setting the wall clock moves it alone, also backwards."""
    clock = ManualClock(now=100.0, boot=10.0)
    clock.step_wall(-50)
    assert (clock.now(), clock.boot(), clock.monotonic()) == (50.0, 10.0, 0.0)


def test_a_reboot() -> None:
    """Another boot has another name and begins near zero; the wall goes on."""
    clock = ManualClock(now=100.0)
    clock.reboot("second")
    assert (clock.boot_id, clock.boot(), clock.now()) == ("second", 1.0, 100.0)


def test_ids_and_chance_repeat() -> None:
    """Equal seeds give equal rows, other seeds other ones; ids are 32 hexadecimal digits."""

    def row(seed: int) -> list[object]:
        clock = ManualClock(seed=seed)
        return [*(clock.new_id() for _ in range(3)), *(clock.chance() for _ in range(3))]

    assert row(1) == row(1)
    assert not set(row(1)) & set(row(2))
    name = ManualClock(seed=7).new_id()
    assert len(name) == 32
    assert int(name, 16)


async def test_sleepers_wake_in_order() -> None:
    """Whoever slept until a moment wakes when time reaches it, the earliest first."""
    clock = ManualClock()
    woken: list[int] = []

    async def nap(seconds: int) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.create_task(nap(seconds)) for seconds in (3, 1, 2, 0)]
    await asyncio.sleep(0)
    assert (woken, clock.sleeping) == ([0], 3)
    await clock.elapse(0.5)
    assert woken == [0]
    await clock.elapse(2)
    assert woken == [0, 1, 2]
    clock.advance(10)
    await asyncio.gather(*tasks)
    assert woken == [0, 1, 2, 3]
    assert clock.sleeping == 0


async def test_a_sleeper_that_sleeps_again() -> None:
    """`elapse` lets each woken task act at its own moment."""
    clock = ManualClock()
    moments: list[float] = []

    async def tick() -> None:
        for _ in range(3):
            await clock.sleep(1)
            moments.append(clock.monotonic())

    task = asyncio.create_task(tick())
    await asyncio.sleep(0)
    await clock.elapse(10)
    assert moments == [1.0, 2.0, 3.0]
    await task


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    """Cancelling a sleeper leaves no trace when its time comes."""
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert clock.sleeping == 0
    clock.advance(5)


async def test_time_that_moves_by_itself() -> None:
    """With `auto_advance` sleepers wake at once, in the order of their times."""
    clock = ManualClock(auto_advance=True)
    woken: list[float] = []

    async def nap(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(clock.monotonic())

    await asyncio.gather(nap(10), nap(5), nap(7.5))
    assert woken == [5.0, 7.5, 10.0]
