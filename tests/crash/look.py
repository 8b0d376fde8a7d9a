"""What a store shows right after a kill."""

from dataclasses import dataclass, field
from typing import TypeAlias

from raf import CheckpointManager
from raf.checkpoint.codec import ops_digest
from raf.checkpoint.delta import Op, Pin, as_ops
from raf.checkpoint.restore import JournalEntry, Restored
from raf.checkpoint.retention import chains
from raf.checkpoint.snapshot import Snapshot
from raf.store.model import Head, RecordInfo, Select
from tests.crash.script import ASIDE, CHECKPOINTS, SESSION

Place: TypeAlias = tuple[str, int]
Invocation: TypeAlias = tuple[str, int]


def body(snapshot: Snapshot) -> tuple[Op, ...]:
    """What decides how a session goes on; pins are asked for from outside and left out."""
    return tuple(op for op in as_ops(snapshot) if not isinstance(op, Pin))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The session as the store shows it.

    Args:
        place: Run and step of the last commit.
        digest: Of the last commit's body.
        losses: As the next claim will find them: of the invocation that has most.
        results: Invocations whose results are in the open journal.
        effects: Invocation and key of each effect that is in the open journal.
        is_full: Whether the last commit is a full; `full_is_next`: whether the next will be.
        aside: Whether the second session is there, and how many losses it has.
        aside_losses: Of the second session.
        faults: What `verify` says against the session beside.
    """

    commit: int = -1
    epoch: int = 0
    place: Place = ("", -1)
    status: str = "new"
    digest: bytes = b""
    losses: int = 0
    results: frozenset[Invocation] = frozenset()
    effects: frozenset[tuple[str, int, str]] = frozenset()
    is_full: bool = False
    full_is_next: bool = False
    aside: bool = False
    aside_losses: int = 0
    faults: tuple[str, ...] = ()


async def look(url: str) -> Sight | None:
    """The session of a store; None when it was never claimed."""
    async with CheckpointManager(url) as manager:
        reading = await manager.store.read(SESSION, Select(kept=True))
        if reading is None:
            return None
        if reading.head.commit < 0:
            return Sight(epoch=reading.head.epoch)
        restored = await manager.restore(SESSION)
        assert restored is not None
        aside = await manager.store.read(ASIDE, Select())
        losses, faults = 0, tuple[str, ...]()
        if aside is not None and aside.head.commit >= 0:
            beside = await manager.restore(ASIDE)
            assert beside is not None
            losses = Kept.of(beside).losses(beside)
            faults = tuple(map(str, (await manager.verify(ASIDE)).findings))
        return _sight(reading.head, reading.kept, restored, aside is not None, losses, faults)


def _sight(
    head: Head,
    kept: tuple[RecordInfo, ...],
    restored: Restored,
    aside: bool,
    aside_losses: int,
    faults: tuple[str, ...],
) -> Sight:
    snapshot, journal = restored.snapshot, Kept.of(restored)
    run, last = snapshot.run.run_id, chains(kept)[-1]
    interval = CHECKPOINTS.interval
    assert interval is not None
    return Sight(
        commit=head.commit,
        epoch=head.epoch,
        place=(run, snapshot.step),
        status=snapshot.run.status,
        digest=ops_digest(body(snapshot)),
        losses=journal.losses(restored),
        results=frozenset((run, number) for number in journal.results),
        effects=frozenset((run, number, key) for number, key in journal.effects),
        is_full=kept[-1].full,
        full_is_next=len(last) >= interval,
        aside=aside,
        aside_losses=aside_losses,
        faults=faults,
    )


@dataclass(slots=True)
class Kept:
    """What the open journal of a session keeps, read here once more, apart from the engine."""

    claims: list[int] = field(default_factory=list)
    durable: dict[int, int] = field(default_factory=dict)
    results: set[int] = field(default_factory=set)
    effects: set[tuple[int, str]] = field(default_factory=set)
    reset: int = 0

    @classmethod
    def of(cls, restored: Restored) -> "Kept":
        """Fold a journal."""
        kept = cls()
        for record in restored.journal:
            kept._take(record)
        return kept

    def _take(self, record: JournalEntry) -> None:
        kind, *rest = record.entry or ("claim" if record.took_over else "",)
        match kind:
            case "claim":
                self.claims.append(record.position)
            case "result":
                self.results.add(rest[0])
                self.durable[rest[0]] = record.position
            case "effect":
                self.effects.add((rest[0], rest[1]))
                self.durable[rest[0]] = record.position
            case "void":
                self.results.difference_update(rest)
            case "reset":
                self.reset = record.position

    def losses(self, restored: Restored) -> int:
        """The most losses of an unfinished invocation, with the one that the next claim counts."""
        next_claim = int(restored.head.held is not None)
        return max(
            (
                sum(at > max(self.reset, self.durable.get(n, 0)) for at in self.claims) + next_claim
                for n in restored.snapshot.pending
                if n not in self.results
            ),
            default=0,
        )
