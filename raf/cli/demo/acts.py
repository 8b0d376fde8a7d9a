"""What the demo does: processes that work, are killed and go on, and what is seen of them.

Rules of this file: nothing is claimed that was not read from the store, from the agents' ledger, or
from how a process ended.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from raf.checkpoint.codec import ops_digest
from raf.checkpoint.compare import differences
from raf.checkpoint.delta import as_ops
from raf.checkpoint.manager import CheckpointManager
from raf.checkpoint.restore import Restored, StoredEvent
from raf.clock import SystemClock
from raf.engine.journal import read_journal
from raf.errors import ConfigurationError, SessionNotFoundError
from raf.events import LOGICAL
from raf.values.plain import decode_plain

WORKFLOW: Final = "raf.cli.demo.newsroom:workflow"
LOOK_S: Final = 0.01
PATIENCE_S: Final = 60.0
WAIT_FOR: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An agent that began, as it noted itself."""

    session: str
    node: str
    step: int
    passed: int
    pid: int
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the store held of a session at one moment."""

    commit: int
    step: int
    journaled: tuple[str, ...]
    unfinished: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One thing of two sessions, and whether it is equal."""

    what: str
    resumed: str
    unbroken: str
    equal: bool


class Worker:
    """A process that runs the command line, as a person would."""

    def __init__(self, arguments: Sequence[str], *, ledger: Path, pace: float) -> None:
        self.words = ["raf", *arguments]
        self.began = SystemClock().monotonic()
        above = str(Path(__file__).parents[3])
        inherited = os.environ.get("PYTHONPATH")
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "raf", *arguments, "--json"],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([above, inherited] if inherited else [above]),
                "RAF_DEMO_LEDGER": str(ledger),
                "RAF_DEMO_PACE": str(pace),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self.pid = self._process.pid
        self.seconds = 0.0

    @property
    def gone(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> int:
        """SIGKILL it, wait for its end, and return its exit code: minus the signal."""
        self._process.kill()
        self._process.communicate()
        self.seconds = SystemClock().monotonic() - self.began
        return self._process.returncode

    def stop(self) -> None:
        """See that it does not outlive the demo."""
        if not self.gone:
            self._process.kill()

    def wait(self) -> dict[str, Any]:
        """Wait for its end and return its answer.

        Raises:
            ConfigurationError: It failed; with what it said.
        """
        out, err = self._process.communicate()
        self.seconds = SystemClock().monotonic() - self.began
        if self._process.returncode != 0:
            said = err.strip().splitlines()
            raise ConfigurationError(
                f"the worker failed: {said[-1] if said else 'it said nothing'}"
            )
        answer: dict[str, Any] = json.loads(out)["result"]
        return answer


def was_killed(code: int) -> bool:
    """Whether an exit code says that SIGKILL ended the process."""
    return code == -signal.SIGKILL


async def until_half_done(
    manager: CheckpointManager, session: str, worker: Worker, wanted: int = WAIT_FOR
) -> bool:
    """Watch the store until so many results of a step in flight are durable; False: it went by."""
    clock = SystemClock()
    until = clock.monotonic() + PATIENCE_S
    while not worker.gone and clock.monotonic() < until:
        restored = await manager.restore(session)
        if restored is not None:
            held = held_by(restored)
            if len(held.journaled) >= wanted and held.unfinished:
                return True
        await asyncio.sleep(LOOK_S)
    return False


def held_by(restored: Restored) -> Held:
    """What a restored session holds."""
    pending, results = restored.snapshot.pending, read_journal(restored.journal).results
    return Held(
        commit=restored.commit,
        step=restored.snapshot.step,
        journaled=tuple(sorted(m.target for n, m in pending.items() if n in results)),
        unfinished=tuple(sorted(m.target for n, m in pending.items() if n not in results)),
    )


def read_ledger(ledger: Path, session: str) -> list[Started]:
    """The agents that began in a session, in the order they did."""
    lines = [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    mine = [line for line in lines if line["session"] == session]
    ended = {(line["node"], line["step"], line["pid"]) for line in mine if line["what"] == "end"}
    return [
        Started(
            session=session,
            node=line["node"],
            step=line["step"],
            passed=line["pass"],
            pid=line["pid"],
            ended=(line["node"], line["step"], line["pid"]) in ended,
        )
        for line in mine
        if line["what"] == "begin"
    ]


async def logical_events(manager: CheckpointManager, session: str) -> list[StoredEvent]:
    """The events that a resumed session and an unbroken one share."""
    found: list[StoredEvent] = []
    after = 0
    while True:
        _, page = await manager.events(session, after=after)
        if not page:
            return [event for event in found if event.what.kind in LOGICAL]
        found += page
        after = page[-1].number


async def restored(manager: CheckpointManager, session: str) -> Restored:
    """A session that is there.

    Raises:
        SessionNotFoundError: It is not.
    """
    found = await manager.restore(session)
    if found is None:
        raise SessionNotFoundError(session)
    return found


async def compare(manager: CheckpointManager, resumed: str, unbroken: str) -> list[Compared]:
    """Outputs, state, and logical events of two sessions, side by side."""
    one, two = await restored(manager, resumed), await restored(manager, unbroken)
    first, second = await _outputs(manager, one), await _outputs(manager, two)
    digests = [ops_digest(as_ops(each.snapshot)) for each in (one, two)]
    changes = differences(one.snapshot, two.snapshot, decode_plain)
    keys = [sum(1 for _ in each.snapshot.state.as_ops()) for each in (one, two)]
    mine = [_same(event) for event in await logical_events(manager, resumed)]
    theirs = [_same(event) for event in await logical_events(manager, unbroken)]
    return [
        Compared(
            what="outputs",
            resumed=f"{len(first)}, {sum(map(len, first))} bytes",
            unbroken=f"{len(second)}, {sum(map(len, second))} bytes",
            equal=first == second and len(first) > 0,
        ),
        Compared(
            what="state and all else of the snapshot",
            resumed=f"{keys[0]} keys, digest {digests[0].hex()[:12]}",
            unbroken=f"{keys[1]} keys, digest {digests[1].hex()[:12]}",
            equal=digests[0] == digests[1] and not changes,
        ),
        Compared(
            what="logical events",
            resumed=f"{len(mine)}",
            unbroken=f"{len(theirs)}",
            equal=mine == theirs and len(mine) > 0,
        ),
    ]


async def _outputs(manager: CheckpointManager, found: Restored) -> list[bytes]:
    record = await manager.run_record(found.head.session_id, found.snapshot.run.run_id)
    return [] if record is None else [payload for _, _, payload in record.what.data["outputs"]]


def _same(event: StoredEvent) -> tuple[Any, ...]:
    """An event without its number: what must be equal."""
    what = event.what
    return (
        event.run_id,
        event.step,
        what.kind,
        what.node,
        what.message,
        dict(what.data),
        what.payload,
    )
