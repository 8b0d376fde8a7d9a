"""Whether options of an engine or a call can be meant; pure.

Rules of this file: a limit that could never be met, or that would never end, is refused at once.
"""

import math
from typing import Any, Final

from raf.errors import ConfigurationError

DURABILITIES: Final = ("sync", "async", "exit")


def check_count(name: str, value: Any) -> None:
    """Refuse what is no whole number of 1 or more."""
    if type(value) is not int or value < 1:
        raise ConfigurationError(f"{name} is a whole number of 1 or more, not {value!r}")


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


def check_call(*, durability: Any = None, max_steps: Any = None) -> None:
    """Check the options of one call; None leaves the engine's.

    Raises:
        ConfigurationError: Names the option and what it takes.
    """
    if durability is not None:
        check_durability(durability)
    if max_steps is not None:
        check_count("max_steps", max_steps)
