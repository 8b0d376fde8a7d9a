"""Whether options of an engine or a call can be meant; pure.

Rules of this file: a limit that could never be met, or that would never end, is refused at once.
"""

import inspect
import math
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args

from raf.errors import ConfigurationError

OnChange: TypeAlias = Literal["refuse", "compatible"]
OnCorrupt: TypeAlias = Literal["refuse", "last-intact"]
DURABILITIES: Final = ("sync", "async", "exit")


LARGEST: Final = 10**9
LONGEST_QUEUE: Final = 100
LONGEST_LEASE_S: Final = 86_400  # a day: so long would a session stand still after a crash
LAST_MOMENT: Final = 253_402_300_799  # the end of the year 9999: what a person can be shown


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


def check_lease(value: Any) -> None:
    """Refuse what is no time above zero and up to a day, in seconds."""
    check_seconds("lease_s", value)
    if value > LONGEST_LEASE_S:
        raise ConfigurationError(
            f"lease_s is at most {LONGEST_LEASE_S:,} seconds (a day), not {value!r}"
        )


def check_durability(value: Any) -> None:
    """Refuse an unknown durability."""
    if value not in DURABILITIES:
        raise ConfigurationError(f"durability is sync, async or exit, not {value!r}")


def check_change(name: str, change: Any) -> None:
    """Refuse what is no plain function: a coroutine would never be awaited."""
    if not callable(change) or inspect.iscoroutinefunction(change):
        raise ConfigurationError(f"{name} takes a plain function of one editor")


def check_mapping(mapping: Any, drop: Any) -> dict[str, str]:
    """The mapping of names; refuses what is none, and a `drop` that is no collection of names."""
    names = {} if mapping is None else mapping
    if not isinstance(names, Mapping) or any(
        type(part) is not str or not part for pair in names.items() for part in pair
    ):
        raise ConfigurationError(f"mapping leads old names to new ones, not {mapping!r:.80}")
    if isinstance(drop, str) or not isinstance(drop, Collection) or {*map(type, drop)} - {str}:
        raise ConfigurationError(f"drop is a collection of names, not {drop!r:.80}")
    return dict(names)


def check_on_change(value: Any) -> None:
    """Refuse an unknown way to meet a changed graph."""
    if value not in get_args(OnChange):
        raise ConfigurationError(f"on_change is refuse or compatible, not {value!r:.80}")


def check_on_corrupt(value: Any) -> None:
    """Refuse an unknown way to meet a damaged session."""
    if value not in get_args(OnCorrupt):
        raise ConfigurationError(f"on_corrupt is refuse or last-intact, not {value!r:.80}")


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
    check_lease(lease_s)
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


def check_queue(value: Any) -> str:
    """Return the name if it can name a queue: 1 to 100 printable characters without `=`.

    Raises:
        ConfigurationError: It cannot.
    """
    fits = type(value) is str and 1 <= len(value) <= LONGEST_QUEUE and value.isprintable()
    if not fits or "=" in value:
        what = f"1 to {LONGEST_QUEUE} printable characters without '='"
        raise ConfigurationError(f"a queue is named by {what}, not {value!r:.80}")
    return str(value)


def moment(at: Any) -> float | None:
    """A time as UTC seconds since 1970; None stays None.

    Raises:
        ConfigurationError: It is neither a number nor a datetime with a time zone.
    """
    if at is None:
        return None
    if isinstance(at, datetime):
        if at.tzinfo is None:
            what = "a datetime needs a time zone, such as datetime(..., tzinfo=UTC)"
            raise ConfigurationError(f"at={at!r:.80} could mean many moments: {what}")
        at = at.timestamp()
    if type(at) not in (int, float) or not 0 <= at <= LAST_MOMENT:
        raise ConfigurationError(
            f"at is UTC seconds since 1970, or a datetime with a time zone, not {at!r:.80}"
        )
    return float(at)
