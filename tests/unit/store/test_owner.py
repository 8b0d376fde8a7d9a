"""Who an owner is, when it is provably dead, and until when a lease binds."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from raf.clock import SystemClock
from raf.store.model import Held, Owner
from raf.store.owner import LeaseWatch, process_start, provably_dead, this_owner
from raf.testing import ManualClock
from raf.testing.store_suite.base import NO_SUCH_PID

CLOCK = SystemClock()


def held(clock: ManualClock, **changes: object) -> Held:
    owner = replace(this_owner(clock), **changes)  # type: ignore[arg-type]
    return Held(owner=owner, epoch=1, expires_boot=clock.boot() + 30, duration_s=30)


def test_this_owner_is_this_process() -> None:
    """An owner names this process; two engines of it differ by their token alone."""
    one, two = this_owner(CLOCK), this_owner(CLOCK)
    assert one.pid == os.getpid()
    assert one.boot_id == CLOCK.boot_id
    assert one != two
    assert replace(one, token=two.token) == two
    assert str(one) == f"{one.host}/pid {os.getpid()}"


def test_the_start_of_a_process() -> None:
    """The start time is the same at each look and empty for a process that is not there."""
    assert process_start(os.getpid()) == process_start(os.getpid()) != ""
    assert process_start(NO_SUCH_PID) == ""


@pytest.mark.parametrize(
    ("changes", "dead"),
    [
        ({}, False),
        ({"pid": NO_SUCH_PID}, True),
        ({"start_time": "1"}, True),
        ({"start_time": ""}, False),
        ({"pid": NO_SUCH_PID, "host": "elsewhere"}, False),
        ({"pid": NO_SUCH_PID, "boot_id": "another"}, False),
        ({"pid": NO_SUCH_PID, "pid_namespace": "pid:[1]"}, False),
        ({"pid": 1, "start_time": process_start(1)}, False),
    ],
    ids=str,
)
def test_what_is_provably_dead(changes: dict[str, object], dead: bool) -> None:
    """Only a process of this host, boot and namespace that is gone or another one is dead."""
    owner: Owner = replace(this_owner(CLOCK), **changes)  # type: ignore[arg-type]
    assert provably_dead(owner, CLOCK) is dead


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_zombie_is_dead(child: subprocess.Popen[bytes]) -> None:
    """A killed process that nobody has waited for yet binds nobody."""
    owner = replace(this_owner(CLOCK), pid=child.pid, start_time=process_start(child.pid))
    assert not provably_dead(owner, CLOCK)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert provably_dead(owner, CLOCK)


def test_nobody_binds_nobody() -> None:
    """A session that is not held is free."""
    assert not LeaseWatch(ManualClock()).binds("s", None)


def test_a_lease_of_this_boot_ends_by_its_time() -> None:
    """It binds until its time on the boot clock; the wall clock does not matter."""
    clock = ManualClock()
    watch, lease = LeaseWatch(clock), held(clock)
    clock.step_wall(1e6)
    assert watch.binds("s", lease)
    clock.advance(29.5)
    assert watch.binds("s", lease)
    clock.advance(0.5)
    assert not watch.binds("s", lease)


def test_a_dead_owner_binds_nobody() -> None:
    """A lease with time left does not bind when its owner is dead."""
    clock = ManualClock()
    assert not LeaseWatch(clock).binds("s", held(clock, pid=NO_SUCH_PID))


def test_a_lease_of_another_boot_ends_when_it_was_seen_long_enough() -> None:
    """It binds for its duration from the first look on, whatever its own times say."""
    clock = ManualClock()
    watch, lease = LeaseWatch(clock), held(clock, boot_id="another")
    clock.advance(1e6)
    assert watch.binds("s", lease)
    clock.advance(29)
    assert watch.binds("s", lease)
    assert watch.binds("t", lease)  # another session begins its own watch
    clock.advance(1)
    assert not watch.binds("s", lease)
    assert watch.binds("t", lease)


def test_a_renewal_of_another_boot_begins_the_watch_anew() -> None:
    """Any change of the lease shows that its owner lives."""
    clock = ManualClock()
    watch, lease = LeaseWatch(clock), held(clock, boot_id="another")
    assert watch.binds("s", lease)
    clock.advance(29)
    renewed = replace(lease, expires_boot=lease.expires_boot + 10)
    assert watch.binds("s", renewed)
    clock.advance(29)
    assert watch.binds("s", renewed)
    clock.advance(1)
    assert not watch.binds("s", renewed)


def test_until_is_wall_time_for_people() -> None:
    """The end of a lease is shown as UTC time; one of another boot has its duration left."""
    clock = ManualClock(now=1_800_000_000.0)
    watch = LeaseWatch(clock)
    assert watch.until(held(clock)) == "2027-01-15T08:00:30Z"
    clock.advance(10)
    assert watch.until(held(clock, boot_id="another")) == "2027-01-15T08:00:40Z"
