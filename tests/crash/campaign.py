"""A campaign: sessions on one store, two side by side, killed at every point and at any moment.

The plan is drawn from one seed.  Every named point that a process on this store passes kills at
least one process; the rest of the kills are at other passes of them and at random moments.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.crash.backends import forget, url_of
from tests.crash.life import Died, Kill, Life
from tests.crash.phases import (
    AFTER_COMMIT,
    BEFORE_COMMIT,
    BEFORE_ENTRY,
    BESIDE,
    COMPACTION,
    PHASES,
    RENEWAL,
)
from tests.crash.points import points_of_backend, store_point
from tests.crash.script import Job
from tests.crash.unbroken import Unbroken, unbroken
from tests.crash.witness import Witness

SIDE_BY_SIDE: Final = 2
DURABILITIES: Final = ("sync", "async", "exit")
SEEDS: Final = 6  # inputs of the workflow that a campaign takes
KILLS_OF_ONE: Final = (3, 6)  # of one session, at least and at most
MOST_EXTRA: Final = 20  # sessions that are added for phases without a kill
LONGEST_S: Final = 0.5  # a random moment, from the claim on; a turn takes about as long
# Passed only while a session or its store is made, or a lease grows old: first in a session's life.
FIRST: Final = (".open.", ".create.", ".renew.", ".mkdir.")


@dataclass(slots=True, kw_only=True)
class Campaign:
    """One campaign.

    Args:
        folder: Where its sessions live.
        backend: One of the durable stores.
        seed: What the plan is drawn from.
        kills: So many kills are to count, at least.
        random_share: Which part of the kills beyond the first of each point is at random moments.
    """

    folder: Path
    backend: str
    seed: int
    kills: int
    random_share: float = 0.5
    died: list[Died] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    lives: int = 0
    _extra: int = 0
    _chance: random.Random = field(init=False)
    _first: list[Kill] = field(default_factory=list)
    _any: list[Kill] = field(default_factory=list)
    _models: dict[int, Unbroken] = field(default_factory=dict)
    _totals: Counter[str] = field(default_factory=Counter)
    _missed: Counter[str] = field(default_factory=Counter)
    _witness: Witness = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    @property
    def counted(self) -> int:
        """Kills between the first claim and the last commit of their session."""
        return sum(died.counted for died in self.died)

    @property
    def histogram(self) -> Counter[str]:
        """Counted kills by phase."""
        return Counter(died.phase for died in self.died if died.counted)

    @property
    def killed_at(self) -> set[str]:
        """The points that killed."""
        return {died.kill.point for died in self.died}

    def report(self) -> str:
        """The campaign for a person."""
        found = self.histogram
        phases = ", ".join(f"{phase} {found[phase]}" for phase in (*PHASES, "between"))
        return (
            f"{self.backend}: seed {self.seed}, {self.lives} sessions, {len(self.died)} kills, "
            f"{self.counted} counted: {phases}"
        )

    async def run(self) -> None:
        """Kill until every point has killed and enough kills count."""
        for seed in range(SEEDS):
            self._models[seed] = await unbroken(seed, self.folder)
        async with Witness() as self._witness:
            await self._measure()
            self._plan()
            await asyncio.gather(*(self._work() for _ in range(SIDE_BY_SIDE)))

    async def _measure(self) -> None:
        """Count the passes of each point in a session that nobody kills."""
        life = self._life()
        await life.go([])
        self._totals = life.counts
        self.faults += life.faults

    def _plan(self) -> None:
        for point in points_of_backend(self.backend):
            hit = 1 + self._chance.randrange(max(1, self._totals[point]))
            first = any(mark in point for mark in FIRST)
            (self._first if first else self._any).append(Kill(point=point, hit=1 if first else hit))
        self._chance.shuffle(self._any)

    def _more(self) -> Kill:
        """Another kill, when every point has had its turn."""
        if self._chance.random() < self.random_share:
            return Kill(delay_s=self._chance.uniform(0.0, LONGEST_S))
        point = self._chance.choice([p for p in self._totals if not any(m in p for m in FIRST)])
        return Kill(point=point, hit=1 + self._chance.randrange(self._totals[point]))

    def _next_kills(self) -> list[Kill]:
        """The kills of one session; none when all is done."""
        if not (self._first or self._any) and self.counted >= self.kills:
            missing = [phase for phase in PHASES if not self.histogram[phase]]
            self._extra += 1
            return self._aimed(missing[0]) if missing and self._extra <= MOST_EXTRA else []
        kills = [self._first.pop()] if self._first else []
        more = self._chance.randint(*KILLS_OF_ONE) - len(kills)
        return kills + [self._any.pop() if self._any else self._more() for _ in range(more)]

    def _aimed(self, phase: str) -> list[Kill]:
        """Kills that hit a phase which has none so far."""
        commit = store_point(self.backend, "commit")
        made = f"store.{self.backend}.claim{'.create' if self.backend == 'file' else ''}"
        first = {
            BEFORE_ENTRY: Kill(point=f"{made}.after"),
            COMPACTION: Kill(point=f"{commit}.before", hit=4),  # behind three of the first chain
            RENEWAL: Kill(point=f"store.{self.backend}.renew.before"),
            BESIDE: Kill(point=f"{store_point(self.backend, 'delete')}.before"),
        }
        if phase in first:
            return [first[phase]]
        then = {
            BEFORE_COMMIT: f"{commit}.before",
            AFTER_COMMIT: f"{commit}.after",
            "journal": f"{store_point(self.backend, 'append')}.before",
            "claim": f"{store_point(self.backend, 'claim')}.before",
            "request": f"{store_point(self.backend, 'request')}.before",
            "prune": f"{store_point(self.backend, 'prune')}.before",
            "node": "script.node.before",
            "effect": "script.effect.before",
            "step": "engine.step.before_run",
        }
        point = then.get(phase, f"store.{self.backend}.{phase}.before")
        return [Kill(point=f"{commit}.after", hit=2), Kill(point=point)]

    def _life(self) -> Life:
        seed = self.lives % SEEDS
        folder = self.folder / f"{self.backend}-{self.lives}"
        folder.mkdir()
        durability = DURABILITIES[self.lives % len(DURABILITIES)]
        self.lives += 1
        job = Job(
            folder=str(folder),
            url=url_of(self.backend, folder),
            seed=seed,
            durability=durability,  # type: ignore[arg-type]
            names=points_of_backend(self.backend),
            witness=self._witness.path,
            wild_clock=self.lives % 2 == 0,
        )
        return Life(job=job, backend=self.backend, model=self._models[seed], witness=self._witness)

    async def _work(self) -> None:
        while not self.faults and (kills := self._next_kills()):
            life = self._life()
            await life.go(kills)
            if not life.faults:
                forget(self.backend, life.folder)
            self.died += life.died
            self.faults += life.faults
            self._put_back(life)

    def _put_back(self, life: Life) -> None:
        """Plan the points anew that did not come to kill, as the first of another session."""
        for kill in life.unfired:
            if not kill.point or kill.point in self.killed_at:
                continue
            self._missed[kill.point] += 1
            if self._missed[kill.point] > 3:
                self.faults.append(f"{self.backend}: no process came to {kill.point}")
            self._first.append(Kill(point=kill.point))
