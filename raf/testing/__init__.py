"""The public test kit: a clock that a test drives, crash injection, and the store suite.

`raf.testing.store_suite.StoreSuite` is the conformance suite of the store port; it is the only part
that needs pytest, and it is imported by its own name.
"""

from raf.testing.clock import ManualClock
from raf.testing.crash import (
    Armed,
    CrashError,
    arm_from_environment,
    count_failpoints,
    crash_at,
)

__all__ = [
    "Armed",
    "CrashError",
    "ManualClock",
    "arm_from_environment",
    "count_failpoints",
    "crash_at",
]
