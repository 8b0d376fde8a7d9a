"""Whether a session wants to run; pure, shared by the backends and the workers.

Rules of this file:
- A running session whose owner is gone wants to go on; a submitted, sleeping or waiting one wants to
  at its time; any unfinished one does when something was asked of it that nobody has consumed.
- A finished session and one without a commit want nothing: of the latter no input is kept.
- A failed or limited run waits for a caller, who answers for going on; only what is asked of it
  (a cancel, say) is consumed.
- A queue's limit counts its sessions that are held by leases that bind.
"""

from collections import Counter
from collections.abc import Iterable

from raf.store.model import Due, Head, Summary

FINISHED = ("completed", "cancelled")
# They stand until their time comes, or until something is asked of them.
TIMED = ("submitted", "sleeping", "waiting")


def wants_to_run(summary: Summary, now: float) -> bool:
    """Whether a session could go on at this time (UTC seconds) by itself."""
    if summary.status == "submitted" and summary.wake_at is None:
        return True
    due = summary.wake_at is not None and summary.wake_at <= now
    return summary.status == "running" or (summary.status in TIMED and due)


def is_due(head: Head, due: Due, now: float) -> bool:
    """Whether a worker that asks so may take this session, if nobody holds it."""
    summary = head.summary
    if head.commit < 0 or summary.status in FINISHED or head.session_id in due.skip:
        return False
    if summary.fingerprint not in due.fingerprints or summary.queue not in due.queues:
        return False
    return wants_to_run(summary, now) or head.requests > head.consumed


def since(head: Head) -> float:
    """Since when it is due, UTC seconds: workers take the smallest first."""
    wake_at = head.summary.wake_at
    return head.updated_at if wake_at is None else wake_at


def order(head: Head) -> tuple[float, str]:
    """Sorts those that are due: longest due first, of equal ones by id in code point order."""
    return since(head), head.session_id


class Places:
    """How many more sessions of each queue may be taken.

    Args:
        due: Which queues there are, and their limits.
        held: The queue of each session that a binding lease holds.
    """

    def __init__(self, due: Due, held: Iterable[str]) -> None:
        self._limits = due.queues
        self._held = Counter(held)

    def free(self, queue: str) -> bool:
        """Whether a session of this queue may be taken."""
        limit = self._limits.get(queue, 0)
        return limit is None or self._held[queue] < limit

    def take(self, queue: str) -> None:
        """Count one more."""
        self._held[queue] += 1


def choose(heads: Iterable[Head], due: Due, now: float, places: Places) -> list[Head]:
    """Those that are due and for which there was a place when asked, in the order to take them.

    Args:
        heads: Sessions that nobody holds.
        due: What the worker asks for.
        now: The store's time, UTC seconds.
        places: Asked, not taken: the caller takes a place with each session that it gets.
    """
    asked = (head for head in heads if places.free(head.summary.queue))
    return sorted((head for head in asked if is_due(head, due, now)), key=order)
