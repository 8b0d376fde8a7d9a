"""Many sessions at once on one store, in processes that are killed and replaced."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from raf import CheckpointManager, WorkflowEngine
from raf.errors import CommitError, RafError, StoreBusyError, StoreUnavailableError
from tests.crash.forking import FORKING, over
from tests.crash.small_parity import SmallModel
from tests.crash.small_run import CHECKPOINTS, SmallJob, Teller, lines_of, output, small
from tests.crash.unbroken import logical_events

SHARES: Final = 4
AGAIN_S: Final = 0.05


def session_id(number: int) -> str:
    """The name of a session of the crowd."""
    return f"of many {number}"


async def run_all(job: SmallJob, sessions: range) -> None:
    """Run sessions side by side, each to its end; what the store refuses for now is tried again."""
    workflow = small(Teller(job.told), job)
    async with WorkflowEngine(workflow, job.url, checkpoints=CHECKPOINTS) as engine:

        async def one(number: int) -> None:
            while True:
                try:
                    result = await engine.run(10, session_id(number), wait_s=60)
                except (CommitError, StoreUnavailableError, StoreBusyError):
                    await asyncio.sleep(AGAIN_S)
                else:
                    assert list(result.outputs) == output(job)
                    return

        await asyncio.gather(*map(one, sessions))


async def _open_patiently(job: SmallJob, sessions: range) -> None:
    """The same, also when the server is away at the beginning."""
    while True:
        try:
            return await run_all(job, sessions)
        except StoreUnavailableError:
            await asyncio.sleep(AGAIN_S)


def main(job: SmallJob, sessions: range) -> None:
    """Run a share of the crowd."""
    asyncio.run(_open_patiently(job, sessions))


@dataclass(slots=True, kw_only=True)
class Crowd:
    """A crowd and those who work on it.

    Args:
        job: The store, and what a session does.
        sessions: How many.
        kills: So many processes are killed.
        seed: When, and which.
    """

    job: SmallJob
    sessions: int
    kills: int
    seed: int
    killed: int = 0
    faults: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Work on all sessions until all have ended."""
        chance = random.Random(self.seed)
        shares = [range(first, self.sessions, SHARES) for first in range(SHARES)]
        processes = {number: self._start(share) for number, share in enumerate(shares)}
        while self.killed < self.kills and processes:
            number = chance.choice(list(processes))
            process = processes[number]
            code = await over(process, chance.uniform(0.2, 0.8))
            if code is None:
                process.kill()
                await over(process)
                self.killed += 1
                processes[number] = self._start(shares[number])
            else:
                del processes[number]
                self._ended(code)
            process.close()
        for process in processes.values():
            self._ended(await over(process))
            process.close()

    def _start(self, share: range) -> ForkServerProcess:
        process = FORKING.Process(target=main, args=(self.job, share), daemon=True)
        process.start()
        return process

    def _ended(self, code: int | None) -> None:
        if code != 0:
            self.faults.append(f"a process ended with {code}")

    async def check(self, model: SmallModel) -> None:
        """Each session is whole and as the unbroken one, and no effect was repeated in vain."""
        async with CheckpointManager(self.job.url) as manager:
            for number in range(self.sessions):
                name = session_id(number)
                try:
                    findings = (await manager.verify(name)).findings
                    logical = await logical_events(manager, name)
                except RafError as error:
                    self.faults.append(f"{name} cannot be read: {error}")
                    continue
                if findings or logical != model.logical:
                    self.faults.append(f"{name} is not the unbroken one: {findings}")
        done = Counter(line["token"] for line in lines_of(self.job) if line["what"] == "effect")
        if len(done) != self.sessions * self.job.rounds:
            self.faults.append(f"{len(done)} effects were done")
        if (most := max(done.values())) > 1 + self.killed:
            self.faults.append(f"an effect was done {most} times, with {self.killed} kills")


def crowd_job(folder: Path, url: str, *, rounds: int) -> SmallJob:
    """What each session of a crowd does: steps that last, so that kills meet them."""
    return SmallJob(folder=str(folder), url=url, rounds=rounds, slow=True)
