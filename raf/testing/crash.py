"""Stops the world at a named failpoint: by a kill, an exit, or an error.

Rules of this file: it only drives `raf.failpoint`; nothing in the package knows of it.  A point is
hit by name; the n-th hit fires, once.  Points may be passed in any thread.
"""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Literal, Self, get_args

from raf.errors import ConfigurationError
from raf.failpoint import set_hook

How = Literal["kill", "raise", "exit"]
ENVIRONMENT = "RAF_FAILPOINT"
EXIT_CODE = 86

_listeners: list[Callable[[str], None]] = []
_lock = threading.Lock()


class CrashError(Exception):
    """What an armed point raises under `how="raise"`; no part of raf's error tree."""

    def __init__(self, point: str) -> None:
        super().__init__(f"stopped at failpoint {point}")
        self.point = point


def _listen(listener: Callable[[str], None]) -> None:
    with _lock:
        _listeners.append(listener)
        set_hook(_passed)


def _forget(listener: Callable[[str], None]) -> None:
    with _lock:
        if listener in _listeners:
            _listeners.remove(listener)
        if not _listeners:
            set_hook(None)


def _passed(name: str) -> None:
    for listener in tuple(_listeners):
        listener(name)


class Armed:
    """A point that is armed until it is disarmed, at the latest at the end of a `with`."""

    def __init__(self, name: str, hit: int, how: How) -> None:
        self.name = name
        self.how = how
        self.fired = False
        self._left = hit
        self._count = threading.Lock()

    def __call__(self, name: str) -> None:
        """Count a pass; fire on the chosen one."""
        if name != self.name:
            return
        with self._count:
            self._left -= 1
            if self._left != 0:
                return
        self.fired = True
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "exit":
            os._exit(EXIT_CODE)
        raise CrashError(name)

    def disarm(self) -> None:
        """Let the point be passed again."""
        _forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.disarm()


def crash_at(name: str, *, hit: int = 1, how: How = "kill") -> Armed:
    """Arm a failpoint: its `hit`-th pass from now on stops the world.

    Args:
        name: The point, such as `store.sqlite.commit.before`.
        hit: Which pass fires, from 1.
        how: `kill` sends SIGKILL to this process, `exit` leaves it with code 86 and without any
            clean-up, `raise` raises `CrashError` where the point stands.

    Returns:
        The armed point; leave it armed, or use it as a context manager.

    Raises:
        ConfigurationError: `hit` is below 1 or `how` is unknown.
    """
    if hit < 1:
        raise ConfigurationError(f"a failpoint fires on hit 1 or later, not on {hit}")
    if how not in get_args(How):
        raise ConfigurationError(f"a failpoint can {', '.join(get_args(How))}, not {how!r}")
    armed = Armed(name, hit, how)
    _listen(armed)
    return armed


@contextmanager
def count_failpoints() -> Iterator[Counter[str]]:
    """Count how often each point is passed inside the `with`."""
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def count(name: str) -> None:
        with lock:
            seen[name] += 1

    _listen(count)
    try:
        yield seen
    finally:
        _forget(count)


def arm_from_environment() -> list[Armed]:
    """Arm what the environment variable `RAF_FAILPOINT` names: `name:hit:how`, comma-separated.

    Hit and how may be left out: `store.sqlite.commit.before` alone kills at the first pass.
    """
    return [_parse(part) for part in os.environ.get(ENVIRONMENT, "").split(",") if part]


def _parse(text: str) -> Armed:
    name, _, rest = text.partition(":")
    hit, _, how = rest.partition(":")
    hows: dict[str, How] = {"": "kill", "kill": "kill", "raise": "raise", "exit": "exit"}
    if not name or how not in hows or not (hit or "1").isdecimal():
        raise ConfigurationError(f"{ENVIRONMENT}={text!r} does not read name:hit:how")
    return crash_at(name, hit=int(hit or "1"), how=hows[how])
