"""Who an owner is, and whether a lease still binds others.

Rules of this file:
- An owner is an incarnation: host, boot, pid namespace, pid, start time of the process, and a token
  of the engine.  A pid that came back has another start time.
- A lease of this boot binds until its time on the boot clock has passed.
- A lease of another boot cannot be compared with this clock: it binds until this watcher has seen
  it unchanged for its whole duration.
- An owner that is provably dead (same host, boot and pid namespace, and no such process any more)
  binds nobody.  What cannot be proved is taken for alive.
"""

import os
import socket
from pathlib import Path

from raf.clock import Clock, utc_text
from raf.store.model import Held, Owner

_START_TIME = 22 - 3  # proc(5): field 22 of stat, counted from field 3
# Who holds a session whose lease is lost or damaged: somebody of no known boot, so that the lease
# binds until it was seen unchanged for this long.
_UNKNOWN = Owner(host="unknown", boot_id="", pid_namespace="", pid=0, start_time="", token="")
_UNKNOWN_S = 30.0


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def process_start(pid: int) -> str:
    """The start time of a process in clock ticks since boot; empty when it cannot be read."""
    # The command in field 2 may hold blanks and brackets, so cut behind it: field 3 comes first.
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[_START_TIME] if len(fields) > _START_TIME else ""


def pid_namespace() -> str:
    """Names the pid namespace of this process; empty where there is none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def this_owner(clock: Clock) -> Owner:
    """A new owner identity for one engine of this process."""
    return Owner(
        host=socket.gethostname(),
        boot_id=clock.boot_id,
        pid_namespace=pid_namespace(),
        pid=os.getpid(),
        start_time=process_start(os.getpid()),
        token=clock.new_id(),
    )


def provably_dead(owner: Owner, clock: Clock) -> bool:
    """Whether the owner's process is gone for certain."""
    here = (socket.gethostname(), clock.boot_id, pid_namespace())
    if (owner.host, owner.boot_id, owner.pid_namespace) != here:
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    if not owner.start_time:
        return False
    if (state := _read(f"/proc/{owner.pid}/stat").rpartition(")")[2].split()) and state[0] == "Z":
        return True  # a zombie runs nothing any more
    return process_start(owner.pid) not in ("", owner.start_time)


def unknown_holder(epoch: int) -> Held:
    """Who holds a session whose lease cannot be read."""
    return Held(owner=_UNKNOWN, epoch=epoch, expires_boot=0.0, duration_s=_UNKNOWN_S)


class LeaseWatch:
    """Judges the leases of others; remembers since when it has seen one of another boot."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[Held, float]] = {}

    def binds(self, session_id: str, held: Held | None) -> bool:
        """Whether the lease keeps others out at this moment."""
        if held is None:
            self._seen.pop(session_id, None)
            return False
        if provably_dead(held.owner, self._clock):
            return False
        now = self._clock.boot()
        if held.owner.boot_id == self._clock.boot_id:
            return now < held.expires_boot
        known, since = self._seen.get(session_id, (None, now))
        if known != held:
            self._seen[session_id] = (held, now)
            return True
        return now - since < held.duration_s

    def until(self, held: Held) -> str:
        """When the lease ends, as wall time for a person; a renewal may move it."""
        left = held.expires_boot - self._clock.boot()
        if held.owner.boot_id != self._clock.boot_id:
            left = held.duration_s
        return utc_text(self._clock.now() + max(0.0, left))
