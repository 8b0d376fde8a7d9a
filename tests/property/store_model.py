"""A session as a dict of facts: what the store must show, told without a store.

Rules of this file: plain lists and numbers, no look at any backend.  The rules of the port are told
a second time here, so that both must be wrong alike for a fault to pass.
"""

from dataclasses import dataclass, field, replace

from raf.store.model import Commit, Due, Head, Lease, Reading, Request


@dataclass(slots=True)
class Holder:
    """Who holds a session; `bound` until its time has passed."""

    lease: Lease
    bound: bool = True


@dataclass(slots=True)
class ModelSession:
    """One session: its commits, which bodies are left, its journal and its inbox."""

    nonce: str
    epoch: int
    holder: Holder | None
    commits: list[Commit] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)
    first_event: int = 1
    journal: list[bytes] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    consumed: int = 0

    @property
    def events(self) -> int:
        """How many events there were so far."""
        return sum(commit.event_count for commit in self.commits)

    def wrote(self, commit: Commit) -> None:
        """A commit is on disk."""
        self.commits.append(commit)
        self.kept.add(commit.commit)
        self.consumed = commit.consumed
        if commit.ends_journal:
            self.journal.clear()

    def chain(self, at: int) -> list[bytes]:
        """The bodies of the chain that ends at a commit; nothing when a part of it is gone."""
        bodies: list[bytes] = []
        for number in range(at, -1, -1):
            if number not in self.kept or number >= len(self.commits):
                return []
            bodies.insert(0, self.commits[number].body)
            if self.commits[number].full:
                return bodies
        return []

    def dropped(self, numbers: list[int]) -> None:
        """Bodies went."""
        self.kept -= set(numbers)

    def events_dropped(self, before: int) -> None:
        """Events of commits that lie wholly below a number went."""
        for commit in self.commits:
            if commit.first_event + commit.event_count <= before:
                self.first_event = max(self.first_event, commit.first_event + commit.event_count)

    def events_left(self) -> list[bytes]:
        """The event parts that are left, oldest first."""
        return [
            commit.events
            for commit in self.commits
            if commit.event_count and commit.first_event >= self.first_event
        ]

    def wants(self, due: Due, now: float) -> bool:
        """Whether a worker that asks so may take it, if nobody holds it."""
        if not self.commits:
            return False
        summary = self.commits[-1].summary
        asked = len(self.requests) > self.consumed
        timely = summary.wake_at is not None and summary.wake_at <= now
        ready = {
            "running": True,
            "submitted": timely or summary.wake_at is None,
            "sleeping": timely,
            "waiting": timely,
            "failed": False,
            "limited": False,
        }.get(summary.status)
        if ready is None or summary.queue not in due.queues:
            return False
        return summary.fingerprint in due.fingerprints and (ready or asked)


def must_show(model: ModelSession, reading: Reading) -> None:
    """Compare all that a reading of a session shows with the model.

    Raises:
        AssertionError: Naming the part that differs.
    """
    head = reading.head
    assert (head.nonce, head.epoch) == (model.nonce, model.epoch)
    assert head.commit == len(model.commits) - 1
    assert (head.events, head.first_event) == (model.events, model.first_event)
    assert (head.consumed, head.requests) == (model.consumed, len(model.requests))
    assert (head.held is not None) == (model.holder is not None)
    if model.commits:
        assert head.summary == model.commits[-1].summary
    assert [r.body for r in reading.chain] == model.chain(head.commit)
    assert [r.body for r in reading.journal if r.body] == model.journal
    assert list(reading.requests) == model.requests[model.consumed :]
    assert list(reading.inbox) == model.requests
    assert [r.events for r in reading.events] == model.events_left()
    assert [info.commit for info in reading.kept] == sorted(model.kept)
    positions = [record.info.position for record in reading.log]
    assert positions == sorted(set(positions))
    log = [record for record in reading.log if record.info.commit >= 0]
    assert [r.info for r in log] == list(reading.infos)
    assert [r.body for r in log if r.body] == [
        model.commits[number].body for number in sorted(model.kept)
    ]


def unowned(head: Head, epoch: int) -> Head:
    """A head as it is once nobody holds it, under this epoch."""
    return replace(head, held=None, epoch=epoch)
