"""What a process of the campaigns does: the script that is run again after each kill.

It runs two turns of one session.  Between them it pins a checkpoint, and works on a second session
that is run, pruned, emptied of its first events, deleted, brought back and deleted; a third is taken
as workers take one.  Everything it does is safe to do again.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from raf import CheckpointConfig, RafError, WorkflowEngine
from raf.engine.commits import Durability
from raf.engine.engine import LEASE_S
from raf.failpoint import set_hook
from raf.store.model import Due, Select, Summary
from raf.store.owner import this_owner
from raf.store.port import Store
from raf.store.urls import open_store
from raf.testing import Armed, arm_from_environment
from raf.testing.crash import ENVIRONMENT
from raf.testing.store_suite.base import Pen
from tests.crash.trace import Trace
from tests.crash.wild_clock import WildClock
from tests.crash.workflow import Ledger, Nodes, small, story, task_of

SESSION: Final = "the session"
ASIDE: Final = "beside it"
LENT: Final = "lent to a worker"
TURNS: Final = ("first", "second")
# Small, so that a run of some twenty steps is compacted and pruned again and again.
CHECKPOINTS: Final = CheckpointConfig(full_snapshot_interval=3, max_checkpoints=7)
FAILED: Final = 3
LATE_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One process.

    Args:
        folder: Where its ledger, trace and result are.
        url: The store.
        seed: The first turn's input; the second has the next seed.
        kill: A point and the pass of it that kills the process; empty for none.
        stop: The same for a point that freezes it.
        names: The points that are traced.
        linger_s, gate, on_doubt, witness: As in `Nodes`.
        wait_s: Seconds to wait for another owner.
        wild_clock: The wall clock jumps two hours back and forth all the time.
    """

    folder: str
    url: str
    seed: int
    durability: Durability = "sync"
    kill: str = ""
    stop: str = ""
    names: Sequence[str] = ()
    lease_s: float = LEASE_S
    linger_s: float = 0.0
    gate: str = ""
    on_doubt: Literal["retry", "fail"] = "retry"
    witness: str = ""
    wait_s: float = 0.0
    wild_clock: bool = False

    @property
    def ledger(self) -> Path:
        """The nodes' ledger."""
        return Path(self.folder, "ledger")

    @property
    def trace(self) -> Path:
        """The counters of the points."""
        return Path(self.folder, "trace")

    @property
    def result(self) -> Path:
        """What the script returned, or the error that ended it."""
        return Path(self.folder, "result.json")

    @property
    def errors(self) -> Path:
        """What the process wrote on its standard error."""
        return Path(self.folder, "errors")


class Stopper:
    """Freezes the process at a pass of a point, until somebody lets it go on."""

    def __init__(self, text: str) -> None:
        self._name, _, hit = text.partition(":")
        self._left = int(hit or 1)

    def __call__(self, name: str) -> None:
        if name == self._name:
            self._left -= 1
            if self._left == 0:
                signal.raise_signal(signal.SIGSTOP)  # this thread goes no further


def arm(job: Job, trace: Trace) -> None:
    """Count every point; kill or freeze the process at the chosen one.

    A kill in a thread comes a moment late.  What the process does meanwhile, it could have done in
    any case; so a step that does not wait for its predecessor's commit is seen to begin.
    """
    os.environ[ENVIRONMENT] = job.kill
    doomed, _, rest = job.kill.partition(":")
    last = int(rest.partition(":")[0] or 1)
    main_thread = threading.main_thread()
    chosen: list[Armed | Stopper] = [*arm_from_environment()]
    if job.stop:
        chosen.append(Stopper(job.stop))

    def hook(name: str) -> None:
        count = trace.passed(name)
        if (name, count) == (doomed, last) and threading.current_thread() is not main_thread:
            threading.Event().wait(LATE_S)
        for one in chosen:
            one(name)

    set_hook(hook)


async def script(job: Job) -> dict[str, Any]:
    """The two turns and what is done between them."""
    ledger = Ledger(job.ledger)
    store = open_store(job.url, clock=WildClock(os.getpid()) if job.wild_clock else None)
    gate = Path(job.gate) if job.gate else None
    nodes = Nodes(
        ledger,
        linger_s=job.linger_s,
        gate=gate,
        on_doubt=job.on_doubt,
        witness=job.witness,
    )
    outputs: dict[str, Any] = {}
    try:
        async with WorkflowEngine(
            story(nodes),
            store,
            checkpoints=CHECKPOINTS,
            durability=job.durability,
            lease_s=job.lease_s,
        ) as engine:
            for number, turn in enumerate(TURNS):
                task = task_of(job.seed + number)
                result = await engine.run(task, SESSION, run_id=turn, wait_s=job.wait_s)
                outputs[turn] = result.outputs
                if number == 0 and (await engine.manager.head(SESSION)).summary.run_id == turn:
                    await engine.pin(SESSION, (await engine.manager.head(SESSION)).commit)
                    await beside(store)
    finally:
        ledger.close()
    return outputs


async def beside(store: Store) -> None:
    """Run a second session, prune it, drop its first events, delete it, bring it back, delete it."""
    checkpoints = CheckpointConfig(full_snapshot_interval=2, max_checkpoints=2)
    async with WorkflowEngine(small(), store, checkpoints=checkpoints) as engine:
        await engine.run(9, ASIDE)
        head = await engine.manager.head(ASIDE)
        await engine.prune(ASIDE, events_before=head.events // 2)
        whole = await store.read(ASIDE, Select(log=True, inbox=True))
        await engine.delete(ASIDE)
        assert whole is not None
        await store.adopt(whole)
        await engine.delete(ASIDE)
    await lent(store)


async def lent(store: Store) -> None:
    """Take a session as workers do, and delete it."""
    owner = this_owner(store.clock)
    wanted = Summary(workflow="lent", fingerprint="lent", status="running", queue="lent")
    claimed = await store.claim(LENT, owner, lease_s=LEASE_S, create=True)
    reading = await store.read(LENT, Select())
    assert reading is not None
    await Pen(store, claimed.lease, reading.head).write(summary=wanted)
    await store.release(claimed.lease)
    due = Due(fingerprints=frozenset({"lent"}), queues={"lent": 1})
    for taken in await store.claim_due(owner, due, lease_s=LEASE_S, limit=2):
        await store.delete(taken.lease)


def main(job: Job) -> None:
    """Run the script in this process and write down how it ended."""
    trace = Trace(job.trace, job.names)
    arm(job, trace)
    code = 0
    try:
        told: dict[str, Any] = {"outputs": asyncio.run(script(job))}
    except RafError as error:
        code = FAILED
        told = {"error": type(error).__name__, "text": str(error)}
    draft = job.result.with_suffix(".new")
    draft.write_text(json.dumps(told), encoding="utf-8")
    draft.replace(job.result)
    set_hook(None)
    if code:
        sys.exit(code)


def job_text(job: Job) -> str:
    """A job as an argument of a command line."""
    return json.dumps(asdict(job))


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
