"""A machine whose wall clock is set two hours forth and back all the time; its other clocks are right."""

import random
from typing import Final

from raf.clock import SystemClock

STEP_S: Final = 7200.0


class WildClock(SystemClock):
    """The system's clock, with a wall clock that nobody can trust."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._steps = random.Random(seed)

    def now(self) -> float:
        """Wall time, two hours early, right, or two hours late."""
        return super().now() + self._steps.choice((-STEP_S, 0.0, STEP_S))
