"""One session from its first process to its last, killed on the way, and what must hold of it.

Right after each kill the store shows the whole of one commit: the last one that was known to be
durable, or the one that was on its way; never less, never a third thing.  In the end everything is
as if nobody had been killed, and the ledgers outside say that nothing was done again that was kept.
"""

import asyncio
import os
import signal
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from raf import CheckpointManager
from raf.checkpoint.codec import ops_digest
from raf.errors import RafError
from tests.crash.backends import copy_store
from tests.crash.forking import over
from tests.crash.look import Sight, body, look
from tests.crash.phases import BEFORE_CLAIM, phase_of
from tests.crash.points import store_point
from tests.crash.processes import fork, told
from tests.crash.script import SESSION, TURNS, Job
from tests.crash.trace import Trace
from tests.crash.unbroken import Unbroken, acted, logical_events, started, stored_events
from tests.crash.witness import Seen, Witness
from tests.crash.workflow import Line, read_ledger

PATIENCE_S: Final = 60.0
POLL_S: Final = 0.001
# An invocation that lost its owner so often is given up, unless it has more attempts.
LOSSES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """When a process is to be killed: at a pass of a point, or so long after its first claim."""

    point: str = ""
    hit: int = 1
    delay_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.point}:{self.hit}" if self.point else f"after {1000 * self.delay_s:.1f} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """A process that was killed.

    It counts when that was between the first claim and the last commit of its session.
    """

    kill: Kill
    phase: str
    counted: bool


@dataclass(slots=True, kw_only=True)
class Life:
    """One session under kills.

    Args:
        job: What every process of it does.
        backend: One of the durable stores.
        model: The same session unbroken.
        witness: Who sees the effects; that of the job.
    """

    job: Job
    backend: str
    model: Unbroken
    witness: Witness | None = None
    died: list[Died] = field(default_factory=list)
    unfired: list[Kill] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _sights: list[tuple[int, Sight]] = field(default_factory=list)
    _kills: list[str] = field(default_factory=list)
    _lost: set[int] = field(default_factory=set)

    @property
    def folder(self) -> Path:
        """Where everything of the session is."""
        return Path(self.job.folder)

    def _wrong(self, what: str) -> None:
        told_kills = ", ".join(self._kills) or "no kill"
        self.faults.append(
            f"{self.backend}, seed {self.job.seed}, {self.job.durability} ({told_kills}): {what}"
        )

    async def go(self, kills: Iterable[Kill]) -> None:
        """Run the session to its end, killed as planned."""
        planned = deque(kills)
        ended = False
        while not ended and not self.faults:
            kill = self._allowed(planned) if planned else None
            if kill is None:
                self.unfired += planned
                planned.clear()
            ended = not await self._process(kill)
            if ended and kill is not None:
                self.unfired += [kill, *planned]
        if not self.faults:
            try:
                await self._check_end()
            except RafError as error:
                self._wrong(f"in the end the store cannot be read: {error}")

    def _allowed(self, planned: deque[Kill]) -> Kill | None:
        """The next kill; one behind a commit where a kill without progress would be one too many."""
        last = self._sights[-1][1] if self._sights else Sight()
        if last.aside_losses >= LOSSES - 1:
            return None
        if last.losses >= LOSSES - 1:
            # The first commit says that the run is taken up again, the second ends a step.
            return Kill(point=f"{store_point(self.backend, 'commit')}.after", hit=2)
        return planned.popleft()

    # -- one process ---------------------------------------------------------------------------

    async def _process(self, kill: Kill | None) -> bool:
        """Run one process; whether it was killed."""
        job = self.job
        if kill is not None and kill.point:
            job = replace(job, kill=f"{kill.point}:{kill.hit}:kill")
            if ".renew." in kill.point:
                job = replace(job, lease_s=0.9, linger_s=0.8)
        job.trace.unlink(missing_ok=True)
        trace = Trace(job.trace, job.names)
        try:
            process = fork(job)
            pid = process.pid
            assert pid is not None
            if kill is not None and not kill.point:
                await self._strike(process, trace, kill.delay_s)
            code = await self._ended(process)
            counts = trace.counts()
        finally:
            trace.close()
        if code == -signal.SIGKILL and kill is not None:
            self._kills.append(str(kill))
            self._lost.add(pid)
            await self._after_kill(kill, counts)
            return True
        self.counts += counts
        if code:
            errors = job.errors.read_text("utf-8", "replace")[-2000:]
            self._wrong(f"a process ended with {code}: {told(job)} {errors}")
        return False

    async def _strike(self, process: ForkServerProcess, trace: Trace, delay_s: float) -> None:
        """Kill a process so long after its claim."""
        while process.is_alive() and not any("claim" in name for name in trace.counts()):  # noqa: ASYNC110 - another process tells
            await asyncio.sleep(POLL_S)
        await asyncio.sleep(delay_s)
        if process.is_alive() and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)

    async def _ended(self, process: ForkServerProcess) -> int | None:
        await over(process, PATIENCE_S)
        code = process.exitcode
        if code is None:
            self._wrong(f"a process did not end in {PATIENCE_S} s")
            process.kill()
            await over(process)
        process.close()
        return code

    # -- after a kill --------------------------------------------------------------------------

    async def _after_kill(self, kill: Kill, counts: Counter[str]) -> None:
        url = copy_store(self.backend, self.folder, self.folder / "copy")
        try:
            sight = await look(url)
        except RafError as error:
            self._wrong(f"after the kill the store cannot be read: {error}")
            return
        lines = read_ledger(self.job.ledger)
        if sight is None:
            if lines:
                self._wrong("nodes ran, and the store shows no session")
            self.died.append(Died(kill=kill, phase=BEFORE_CLAIM, counted=False))
            return
        self._check_sight(sight, lines)
        last = _last_start(lines)
        landed = last is not None and self._reaches(sight, (last["run"], last["step"]))
        over = sight.place == self.model.places[-1] and sight.status == "completed"
        phase = phase_of(kill.point, counts, sight, landed=landed)
        self.died.append(Died(kill=kill, phase=phase, counted=not over))
        self._sights.append((len(lines), sight))

    def _reaches(self, sight: Sight, place: tuple[str, int]) -> bool:
        return sight.commit >= 0 and self.model.index(sight.place) >= self.model.index(place)

    def _check_sight(self, sight: Sight, lines: list[Line]) -> None:
        """The store shows one commit, whole, and it is one of the two that it may be."""
        before = self._sights[-1][1] if self._sights else Sight()
        if sight.epoch < before.epoch or sight.commit < before.commit:
            self._wrong(f"commit {before.commit} of epoch {before.epoch} is lost: {sight}")
        for fault in sight.faults:
            self._wrong(f"the session beside: {fault}")
        if sight.commit < 0:
            if lines:
                self._wrong("nodes ran before the input was durable")
            return
        if self.model.digests.get(sight.place) != sight.digest:
            self._wrong(f"commit {sight.commit} is no commit of the unbroken run: {sight.place}")
            return
        low, high = self._bounds(lines)
        at = self.model.index(sight.place)
        if not low <= at <= high:
            near = self.model.places[low : high + 1]
            self._wrong(f"the store shows {sight.place} and may show only {near}")

    def _bounds(self, lines: list[Line]) -> tuple[int, int]:
        """The commits that a kill may leave, as the nodes that started tell."""
        model, last = self.model, _last_start(lines)
        floor = self.model.index(self._sights[-1][1].place) if self._known() else 0
        if last is None:
            return floor, 0
        at = model.index((last["run"], last["step"]))
        entry = model.index((last["run"], -1))
        # Once a turn has ended, the entry of the next may be there before its first node.
        high = at + 1 if at + 1 < len(model.places) and model.places[at + 1][1] == -1 else at
        effect = max(
            (model.index((x["run"], x["step"])) for x in lines if x["what"] == "effect"), default=0
        )
        behind = {"sync": at - 1, "async": at - 2, "exit": entry}[self.job.durability]
        return max(floor, entry, effect - 1, behind), high

    def _known(self) -> bool:
        return bool(self._sights) and self._sights[-1][1].commit >= 0

    # -- in the end ----------------------------------------------------------------------------

    async def _check_end(self) -> None:
        model = self.model
        if (answer := told(self.job)) != {"outputs": model.outputs}:
            self._wrong(f"the script returned {answer}, unbroken {model.outputs}")
        lines = read_ledger(self.job.ledger)
        self._check_ledger(lines)
        async with CheckpointManager(self.job.url) as manager:
            verified = await manager.verify(SESSION)
            if not verified.intact:
                self._wrong(f"verify: {verified.findings}")
            await self._check_history(manager)
            if await manager.restore(TURNS[0]) is not None:
                self._wrong("there is a session that nobody made")

    async def _check_history(self, manager: CheckpointManager) -> None:
        """Numbers without gaps, every kept chain as it must be, the same logical events."""
        model = self.model
        history = await manager.history(SESSION)
        if [info.commit for info in history] != list(range(len(history))):
            self._wrong(f"commit numbers have gaps: {[info.commit for info in history]}")
        seen = -1
        for info in history:
            if not info.byte_size:
                continue
            restored = await manager.restore(SESSION, info.commit)
            assert restored is not None
            place = (restored.snapshot.run.run_id, restored.snapshot.step)
            if ops_digest(body(restored.snapshot)) != model.digests.get(place):
                self._wrong(f"commit {info.commit}, {place}, is not as in the unbroken run")
            elif not seen <= model.index(place):
                self._wrong(f"commit {info.commit} stands before its predecessor")
            else:
                seen = model.index(place)
        numbers = [event.number for event in await stored_events(manager)]
        if numbers != list(range(1, len(numbers) + 1)):
            self._wrong("event numbers have gaps")
        logical = await logical_events(manager)
        if logical != model.logical:
            differ = [
                pair for pair in zip(logical, model.logical, strict=False) if pair[0] != pair[1]
            ]
            counts = f"{len(logical)} for {len(model.logical)}"
            self._wrong(f"logical events differ, {counts}, first {differ[:1]}")

    def _check_ledger(self, lines: list[Line]) -> None:
        """Everything ran; nothing that was kept ran again."""
        if started(lines) != self.model.starts:
            self._wrong(f"nodes ran that should not, or not: {started(lines) ^ self.model.starts}")
        if acted(lines) != self.model.effects:
            self._wrong(f"effects are missing or new: {acted(lines) ^ self.model.effects}")
        for seen, sight in self._sights:
            if sight.commit >= 0:
                self._check_later(sight, lines[seen:])
        self._check_effects([line for line in lines if line["what"] == "effect"])
        attempts = Counter(
            (line["pid"], line["run"], line["message"], line["attempt"])
            for line in lines
            if line["what"] == "start"
        )
        self.faults += [f"started {n} times: {what}" for what, n in attempts.items() if n > 1]

    def _check_effects(self, lines: list[Line]) -> None:
        """One process does an effect once; its idempotency key is its own, and stays."""
        tokens: dict[tuple[str, int, str], str] = {}
        for line in lines:
            known = (line["run"], line["message"], line["key"])
            if tokens.setdefault(known, line["token"]) != line["token"]:
                self._wrong(f"the idempotency key of {known} changed")
        if len(set(tokens.values())) != len(tokens):
            self._wrong("two effects have one idempotency key")
        if self.witness is not None:
            self._check_seen(lines, self.witness.seen())

    def _check_seen(self, lines: list[Line], everything: list[Seen]) -> None:
        """The world saw each effect, and again only when the process that did it was killed."""
        tokens = {line["token"] for line in lines}
        by_key: dict[str, list[int]] = {token: [] for token in tokens}
        for one in everything:
            if one.key in by_key:
                by_key[one.key].append(one.pid)
        for key, pids in by_key.items():
            if not pids:
                self._wrong(f"nobody saw the effect {key}")
            if len(set(pids)) < len(pids) or not set(pids[:-1]) <= self._lost:
                self._wrong(f"the effect {key} was repeated without a loss, by {pids}")

    def _check_later(self, sight: Sight, lines: list[Line]) -> None:
        """What a sight showed as kept was not done later."""
        at = self.model.index(sight.place)
        for line in lines:
            known = (line["run"], line["message"])
            if self.model.index((line["run"], line["step"])) <= at:
                self._wrong(f"it was committed before commit {sight.commit}, and ran: {line}")
            if line["what"] == "start" and known in sight.results:
                self._wrong(f"its result was journaled, and it ran: {line}")
            if line["what"] == "effect" and (*known, line["key"]) in sight.effects:
                self._wrong(f"it was recorded, and done again: {line}")


def _last_start(lines: list[Line]) -> Line | None:
    """The start of the last step that began."""
    return next((line for line in reversed(lines) if line["what"] == "start"), None)
