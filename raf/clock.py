"""The only source of time, identity and chance in `raf`.

Rules of this file: nothing else in the package asks the operating system for time, random numbers
or new ids.  Rules of a step (`raf.engine.plan`, `raf.engine.apply`) never ask at all.
"""

import asyncio
import random
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """Time, new ids and jitter; `raf.testing.ManualClock` is the one that tests drive."""

    @property
    def boot_id(self) -> str:
        """Names this boot of the machine; times of `boot()` compare within one boot only."""

    def now(self) -> float:
        """UTC wall time in seconds since 1970."""

    def boot(self) -> float:
        """Seconds since boot, counting sleep; never steps back."""

    def monotonic(self) -> float:
        """Seconds of a steady clock, for durations within the process."""

    def new_id(self) -> str:
        """A new id of 32 hexadecimal digits, unique in practice."""

    def chance(self) -> float:
        """A number in [0, 1) for jitter."""

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds; returns at once for zero or less."""


def _read_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "boot"  # no boot ids here (macOS): one name, so leases compare by time alone


class SystemClock:
    """The machine's clock."""

    _boot_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def __init__(self) -> None:
        self.boot_id = _read_boot_id()

    def now(self) -> float:
        """UTC wall time in seconds since 1970."""
        return time.time()

    def boot(self) -> float:
        """Seconds since boot, counting sleep where the system can tell."""
        return time.clock_gettime(self._boot_clock)

    def monotonic(self) -> float:
        """Seconds of a steady clock."""
        return time.monotonic()

    def new_id(self) -> str:
        """A random id of 32 hexadecimal digits."""
        return uuid.uuid4().hex

    def chance(self) -> float:
        """A pseudo-random number in [0, 1)."""
        return random.random()  # noqa: S311 - jitter, not secrecy

    async def sleep(self, seconds: float) -> None:
        """Wait with asyncio."""
        if seconds > 0:
            await asyncio.sleep(seconds)


def utc_text(seconds: float) -> str:
    """UTC wall time as people read it: `2026-12-01T09:30:00Z`."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
