"""How long a worker waits before it asks its store again; pure.

Rules of this file:
- A worker that found something asks again at once; one that found nothing waits longer each time,
  up to a bound, so that an idle fleet costs its store little.
- Each wait is drawn between half of its nominal length and all of it: workers that began together
  do not ask together.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """Waits that grow from `first_s` by `factor` up to `most_s` seconds."""

    first_s: float
    most_s: float
    factor: float = 2.0
    _waits: int = 0

    def next_s(self, chance: float) -> float:
        """The next wait; `chance` is a number in [0, 1)."""
        nominal = min(self.first_s * self.factor ** min(self._waits, 60), self.most_s)
        self._waits += 1
        return nominal * (1 + chance) / 2

    @property
    def waited(self) -> bool:
        """Whether there was a wait since it began."""
        return self._waits > 0

    def begin_anew(self) -> None:
        """The next wait is a short one again."""
        self._waits = 0
