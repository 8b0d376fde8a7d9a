"""Checks of numbers and words given for a node; pure.  Each fault is a sentence with its remedy."""

import math
from inspect import isclass
from typing import Any

from raf.graph.parts import NodePart
from raf.topology.workflow import RetryPolicy

LARGEST = 10**9


def is_count(value: Any) -> bool:
    """Whether this is a whole number from 1 to a thousand million; True is none."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST


def is_seconds(value: Any, *, least: float = 0.0) -> bool:
    """Whether this is a finite number above zero, or from `least` on where that is not zero."""
    return is_number(value) and (value >= least if least else value > 0)


def is_number(value: Any) -> bool:
    """Whether this is a finite number; True is none."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def retry_of(given: Any) -> tuple[RetryPolicy, list[str]]:
    """The retry policy that `retry=` means, and what is wrong with it."""
    if given is None:
        return RetryPolicy(), []
    if isinstance(given, RetryPolicy):
        return given, _policy_faults(given)
    if is_count(given):
        return RetryPolicy(attempts=given), []
    return RetryPolicy(), [
        f"retry is {given!r}: give a number of attempts, 1 or more, or a RetryPolicy"
    ]


def _policy_faults(retry: RetryPolicy) -> list[str]:
    total = retry.total_s
    errors: Any = retry.on
    checks = [
        ("attempts", is_count(retry.attempts), "a whole number, 1 or more"),
        ("backoff_s", _not_negative(retry.backoff_s), "seconds, 0 or more"),
        ("factor", is_seconds(retry.factor, least=1.0), "a finite number, 1 or more"),
        ("max_backoff_s", _not_negative(retry.max_backoff_s), "seconds, 0 or more"),
        ("jitter", retry.jitter in ("full", "none"), '"full" or "none"'),
        ("total_s", total is None or is_seconds(total), "seconds above 0, or None"),
        (
            "on",
            isinstance(errors, tuple) and errors != () and all(map(_is_error, errors)),
            "a tuple of exception types",
        ),
    ]
    return [
        f"retry.{name} is {getattr(retry, name)!r}: give {wanted}"
        for name, good, wanted in checks
        if not good
    ]


def _not_negative(value: Any) -> bool:
    return is_number(value) and bool(value >= 0)


def _is_error(value: Any) -> bool:
    return isclass(value) and issubclass(value, Exception)


def limit_faults(part: NodePart, *, is_async: bool) -> list[str]:
    """What is wrong with a node's deadlines, concurrency, version and ways to fail."""
    said = []
    for name in ("timeout_s", "idle_timeout_s"):
        said += _deadline_faults(name, getattr(part, name), is_async=is_async)
    if part.max_concurrency is not None and not is_count(part.max_concurrency):
        said.append(f"max_concurrency is {part.max_concurrency!r}: give a whole number, 1 or more")
    if not isinstance(part.version, str):
        said.append(f"version is {part.version!r}: give text")
    if part.on_failure not in ("fail", "skip"):
        said.append(f'on_failure is {part.on_failure!r}: give "fail" or "skip", or name a fallback')
    elif part.fallback is not None and part.on_failure == "skip":
        said.append('on_failure="skip" and a fallback exclude each other: drop one')
    return said


def _deadline_faults(name: str, seconds: Any, *, is_async: bool) -> list[str]:
    if seconds is None:
        return []
    said = [] if is_seconds(seconds) else [f"{name} is {seconds!r}: give seconds above 0, or None"]
    if not is_async:
        said.append(
            f"{name} is set for a sync function, whose thread cannot be stopped: make it "
            "async def, or drop the limit"
        )
    return said
