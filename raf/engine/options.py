"""Whether options of an engine or a call can be meant; pure.

Rules of this file: a limit that could never be met, or that would never end, is refused at once.
"""

import math
from typing import Any, Final

from raf.errors import ConfigurationError

DURABILITIES: Final = ("sync", "async", "exit")


LARGEST: Final = 10**9


def check_count(name: str, value: Any) -> None:
    """Refuse what is no whole number from 1 to a thousand million."""
    if type(value) is not int or not 1 <= value <= LARGEST:
        raise ConfigurationError(
            f"{name} is a whole number from 1 to {LARGEST:,}, not {value!r:.80}"
        )


def check_number(name: str, value: Any) -> None:
    """Refuse what is no whole number of 0 or more."""
    if type(value) is not int or value < 0:
        raise ConfigurationError(f"{name} is a whole number of 0 or more, not {value!r:.80}")


def check_reason(value: Any) -> None:
    """Refuse what tells nobody why."""
    if type(value) is not str or not value.strip():
        raise ConfigurationError(f"reason says why, in words, not {value!r:.80}")


def check_seconds(name: str, value: Any) -> None:
    """Refuse what is no time above zero, in seconds."""
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise ConfigurationError(f"{name} is a number of seconds above 0, not {value!r}")


def check_durability(value: Any) -> None:
    """Refuse an unknown durability."""
    if value not in DURABILITIES:
        raise ConfigurationError(f"durability is sync, async or exit, not {value!r}")


def check_engine(
    *, durability: Any, max_concurrency: Any, max_steps: Any, lease_s: Any, threads: Any
) -> None:
    """Check the options of an engine.

    Raises:
        ConfigurationError: Names the option and what it takes.
    """
    check_durability(durability)
    check_count("max_steps", max_steps)
    check_count("threads", threads)
    check_seconds("lease_s", lease_s)
    if max_concurrency is not None:
        check_count("max_concurrency", max_concurrency)


def check_call(*, durability: Any = None, max_steps: Any = None, wait_s: Any = 0.0) -> None:
    """Check the options of one call; None leaves the engine's.

    Raises:
        ConfigurationError: Names the option and what it takes.
    """
    if durability is not None:
        check_durability(durability)
    if max_steps is not None:
        check_count("max_steps", max_steps)
    if type(wait_s) not in (int, float) or not 0 <= wait_s < math.inf:
        raise ConfigurationError(f"wait_s is a number of seconds, 0 or more, not {wait_s!r:.80}")
