"""Runs a described workflow for real: in one life, or in several that end in crashes.

A life is one event loop with one engine and one store instance.  It ends when the session is
settled, when its process is *killed* (an abort, after which nothing reaches the store any more), or when
the run's task is cancelled.  All lives share the place that keeps the sessions, the clock, and the
world in which the nodes act.
"""

import asyncio
import json
import logging
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from raf import CheckpointConfig, CheckpointManager, Context, RunResult, Workflow, WorkflowEngine
from raf.checkpoint import codec
from raf.checkpoint.delta import as_ops
from raf.checkpoint.writer import SessionWriter
from raf.clock import Clock
from raf.engine import engine as engine_module
from raf.engine import executor as executor_module
from raf.engine.result import EFFECT, RESULT, VOID
from raf.events import LOGICAL, Happening, Kind
from raf.failpoint import set_hook
from raf.store.memory import MemoryStore
from raf.store.model import Claimed, Commit, Due, Lease, Owner, Reading, Request, Select
from raf.store.owner import this_owner
from raf.store.port import Store
from raf.store.sqlite import SqliteStore
from raf.testing import ManualClock
from raf.values.codec import decode
from tests.property.description import Data, acted
from tests.property.workflows import build

SESSION = "s"
RUNS = ("main", "second")
NO_SUCH_PID = 1 << 30

How = Literal["kill", "cancel"]


class Killed(BaseException):
    """The process is gone; no handler of the engine may catch it."""


class Unwell(Exception):  # noqa: N818 - a node of a test fails by it
    """A described node fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """Ends a life at the n-th pass (from 1) of a phase, or of any phase."""

    phase: str
    nth: int
    how: How


@dataclass(kw_only=True)
class World:
    """What outlives the process: the actions of nodes, and what a test has seen of all lives."""

    mended: bool = False
    acted: Counter[str] = field(default_factory=Counter)
    kept: set[str] = field(default_factory=set)
    unwell: Counter[str] = field(default_factory=Counter)
    first_step: dict[str, int] = field(default_factory=dict)
    journaled: set[tuple[str, int]] = field(default_factory=set)
    committed: set[tuple[str, int]] = field(default_factory=set)
    wrongs: list[str] = field(default_factory=list)
    # of the present life
    crash: Crash | None = None
    crashed_at: str = ""
    dead: bool = False
    passed: list[str] = field(default_factory=list)
    task: asyncio.Task[Any] | None = None
    ended: set[tuple[str, int]] = field(default_factory=set)
    shuffle: Any = None

    def live(self, crash: Crash | None, calls: asyncio.Task[Any]) -> None:
        """Begin another life."""
        self.crash, self.crashed_at, self.dead, self.passed = crash, "", False, []
        self.task, self.ended = calls, set()

    def alive(self) -> None:
        """Stop what goes on in a process that is gone."""
        if self.dead:
            raise Killed

    def passes_point(self, phase: str) -> None:
        """Pass a point at which the life may end."""
        self.alive()
        self.passed.append(phase)
        crash = self.crash
        if crash is None or self.crashed_at or crash.phase not in (phase, ""):
            return
        here = len(self.passed) if not crash.phase else self.passed.count(phase)
        if here == crash.nth:
            self.crashed_at = phase
            if crash.how == "kill":
                self.dead = True
                raise Killed(phase)
            if self.task is not None:
                self.task.cancel()

    # -- what nodes do -------------------------------------------------------------------------

    def begins(self, ctx: Context) -> None:
        """An attempt begins: of an invocation whose result is not known yet."""
        self.alive()
        who = (ctx.run_id, ctx.message)
        if who in self.committed or who in self.journaled:
            self.wrongs.append(f"{ctx.node} (message {ctx.message}) ran again after it had ended")
        self.first_step.setdefault(ctx.idempotency_key(""), ctx.step)

    def turns(self, ctx: Context, node: Data) -> int:
        """How often the attempt lets others run."""
        return int(node["turns"]) if self.shuffle is None else int(self.shuffle.randrange(4))

    def passes(self, ctx: Context) -> None:
        """In the middle of a node; one of its step may have ended before."""
        beside = any(step == ctx.step and run == ctx.run_id for run, step in self.ended)
        self.passes_point("beside a finished node" if beside else "in a node")

    def act(self, key: str, value: int) -> int:
        """An effect happens; never again once its result was kept."""
        self.alive()
        if key in self.kept:
            self.wrongs.append(f"effect {key} was repeated after it was recorded")
        self.acted[key] += 1
        return acted(value)

    def recorded(self, key: str) -> None:
        """An effect's result is durable."""
        self.alive()
        self.kept.add(key)

    def fail(self, ctx: Context, kind: str, attempts: int) -> None:
        """Fail as the kind says."""
        key = ctx.idempotency_key("")
        match kind:
            case "always":
                raise Unwell(kind)
            case "mend" if not self.mended:
                raise Unwell(kind)
            case "later" if ctx.step == self.first_step[key]:
                raise Unwell(kind)
            case "flaky" if self.unwell[key] < attempts - 1:
                self.unwell[key] += 1
                raise Unwell(kind)

    def ends(self, ctx: Context) -> None:
        """An attempt has come to its end."""
        self.ended.add((ctx.run_id, ctx.step))


class MortalStore(Store):
    """A store that a life reaches only while it lives; it knows the phases of a run."""

    def __init__(self, inner: Store, world: World) -> None:
        super().__init__(clock=inner.clock)
        self.inner = inner
        self.world = world
        self.commits: list[codec.CheckpointPart] = []
        self.happenings: list[Any] = []

    @property
    def url(self) -> str:
        return self.inner.url

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    async def claim(
        self, session_id: str, owner: Owner, *, lease_s: float, create: bool = False
    ) -> Claimed:
        self.world.passes_point("claim.before")
        claimed = await self.inner.claim(session_id, owner, lease_s=lease_s, create=create)
        self.world.passes_point("claim.after")
        return claimed

    async def claim_due(
        self, owner: Owner, due: Due, *, lease_s: float, limit: int
    ) -> list[Claimed]:
        self.world.passes_point("claim.before")
        claimed = await self.inner.claim_due(owner, due, lease_s=lease_s, limit=limit)
        self.world.passes_point("claim.after")
        return claimed

    async def renew(self, leases: Sequence[Lease]) -> list[bool]:
        self.world.passes_point("renew")
        return await self.inner.renew(leases)

    async def release(self, lease: Lease) -> None:
        self.world.passes_point("release.before")
        await self.inner.release(lease)
        self.world.passes_point("release.after")

    async def commit(self, lease: Lease, commit: Commit) -> None:
        part = codec.decode_checkpoint(commit.body, lease.session_id, "commit")
        events = _events_of(commit)
        kinds = {event.kind for event in events}
        phase = "outcome" if commit.summary.status not in ("running", "sleeping") else "commit"
        phase = "compaction" if commit.full and commit.commit else phase
        phase = "entry" if Kind.RUN_STARTED in kinds else phase
        phase = "going on" if Kind.RUN_RESUMED in kinds else phase
        self.world.passes_point(f"{phase}.before")
        await self.inner.commit(lease, commit)
        self.commits.append(part)
        self.happenings.append(events)
        ended = (Kind.NODE_COMPLETED, Kind.NODE_SKIPPED, Kind.FALLBACK)
        run = commit.summary.run_id
        self.world.committed |= {(run, e.message) for e in events if e.kind in ended}
        if commit.ends_journal:
            self.world.journaled.clear()
        self.world.passes_point(f"{phase}.after")

    async def append(self, lease: Lease, bodies: Sequence[bytes]) -> None:
        entries = [codec.decode_journal(body, lease.session_id, "journal") for body in bodies]
        phase = "effect" if any(entry[0] == EFFECT for entry in entries) else "journal"
        self.world.passes_point(f"{phase}.before")
        head = await self.inner.read(lease.session_id, Select())
        run = "" if head is None else head.head.summary.run_id
        void = {(run, n) for entry in entries if entry[0] == VOID for n in entry[1:]}
        self.world.journaled -= void  # first: cut off, it may be written all the same
        await self.inner.append(lease, bodies)
        ended = {(run, e[1]) for e in entries if e[0] == RESULT and e[2] != "suspended"}
        self.world.journaled |= ended - void
        self.world.passes_point(f"{phase}.after")

    async def read(self, session_id: str, select: Select) -> Reading | None:
        self.world.passes_point("read")
        return await self.inner.read(session_id, select)

    async def request(self, session_id: str, request_id: str, kind: str, body: bytes) -> Request:
        return await self.inner.request(session_id, request_id, kind, body)

    async def scan(self, *, after: str = "", limit: int = 1000) -> list[Any]:
        return await self.inner.scan(after=after, limit=limit)

    async def prune(
        self, lease: Lease, bodies: Sequence[int], *, events_before: int | None = None
    ) -> None:
        self.world.passes_point("prune.before")
        await self.inner.prune(lease, bodies, events_before=events_before)
        self.world.passes_point("prune.after")

    async def delete(self, lease: Lease) -> None:
        await self.inner.delete(lease)

    async def adopt(self, session: Reading) -> None:
        await self.inner.adopt(session)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a session is kept and run."""

    interval: int | Literal["auto"] = 50
    most: int = 100_000
    durability: Literal["sync", "async", "exit"] = "sync"
    journals: bool = True
    path: Path | None = None


@dataclass(kw_only=True)
class Story:
    """A described session with all its lives; `results` are of the last one."""

    d: Data
    settings: Settings = field(default_factory=Settings)
    world: World = field(default_factory=World)
    clock: ManualClock = field(default_factory=lambda: ManualClock(auto_advance=True))
    results: list[RunResult] = field(default_factory=list)
    live_digests: dict[int, bytes] = field(default_factory=dict)
    commits: list[codec.CheckpointPart] = field(default_factory=list)
    happenings: list[Any] = field(default_factory=list)
    workflow: Workflow = field(init=False)
    memory: MemoryStore = field(init=False)

    def __post_init__(self) -> None:
        self.workflow = build(self.d, self.world)
        self.memory = MemoryStore(clock=self.clock)

    def store(self) -> Store:
        """The store as another process would open it."""
        path = self.settings.path
        return (
            self.memory
            if path is None
            else SqliteStore(path, synchronous="normal", clock=self.clock)
        )

    def config(self) -> CheckpointConfig:
        """How often a full is written and what stays."""
        return CheckpointConfig(
            full_snapshot_interval=self.settings.interval, max_checkpoints=self.settings.most
        )

    # -- lives -----------------------------------------------------------------------------------

    def live(self, crash: Crash | None = None, *, by_resume: bool = False) -> bool:
        """One life; returns whether the session is settled."""
        least = 0.0 if self.settings.journals else float("inf")
        with (
            mock.patch.object(engine_module, "this_owner", _gone_owner),
            mock.patch.object(executor_module, "JOURNAL_FROM_S", least),
            mock.patch.object(SessionWriter, "prepare", self._prepare(SessionWriter.prepare)),
        ):
            set_hook(self._failpoint)
            try:
                return asyncio.run(self._life(crash, by_resume=by_resume))
            finally:
                set_hook(None)

    def _failpoint(self, name: str) -> None:
        if name.startswith("engine."):
            self.world.passes_point(name.removeprefix("engine."))

    def _prepare(self, prepare: Any) -> Any:
        def prepared(writer: SessionWriter, *args: Any) -> Any:
            made = prepare(writer, *args)
            digest = codec.ops_digest(as_ops(writer.snapshot))
            self.live_digests[made.committed.commit] = digest
            return made

        return prepared

    async def _life(self, crash: Crash | None, *, by_resume: bool) -> bool:
        self.results.clear()
        store = MortalStore(self.store(), self.world)
        engine = WorkflowEngine(
            self.workflow,
            store,
            checkpoints=self.config(),
            durability=self.settings.durability,
            max_steps=self.d["max_steps"],
        )
        await engine.open()
        calls = asyncio.ensure_future(self._calls(engine, store.inner, by_resume=by_resume))
        self.world.live(crash, calls)
        await asyncio.wait({calls})
        self.commits += store.commits
        self.happenings += store.happenings
        await _end(engine, store.inner)
        if calls.cancelled() or isinstance(calls.exception(), Killed):
            assert self.world.crashed_at
            return False
        calls.result()
        return not self.world.crashed_at

    async def _calls(self, engine: WorkflowEngine, inner: Store, *, by_resume: bool) -> None:
        while await self._goes_on(engine, inner, by_resume=by_resume):
            pass

    async def _goes_on(self, engine: WorkflowEngine, inner: Store, *, by_resume: bool) -> bool:
        """Take the next call that brings the session on; False when it is settled."""
        reading = await inner.read(SESSION, Select())
        if reading is None or reading.head.commit < 0:
            status, run = "new", RUNS[0]
        else:
            status, run = reading.head.summary.status, reading.head.summary.run_id
        pauses = [event[1] for event in await self._events(inner) if event[0] == "outcome"]
        pauses = [status for status in pauses if status in ("failed", "limited")]
        resumes = by_resume and status in ("running", "sleeping")
        if status in ("failed", "limited"):
            if len(pauses) > self.d["resumes"]:
                return False
            self.world.mended = "failed" in pauses
            resumes = True
        if status == "completed":
            if run == RUNS[len(self.d["inputs"]) - 1]:
                # The record of a finished run: nothing runs.
                self.results.append(await engine.run(self.d["inputs"][-1], SESSION, run_id=run))
                return False
            run = RUNS[1]
        if resumes:
            self.results.append(await engine.resume(SESSION, check=False))
        else:
            payload = self.d["inputs"][RUNS.index(run)]
            self.results.append(await engine.run(payload, SESSION, run_id=run, check=False))
        return True

    # -- what was ----------------------------------------------------------------------------------

    async def _events(self, store: Store) -> list[tuple[Any, ...]]:
        """The logical events of the session, without numbers."""
        manager, told, after = CheckpointManager(store), [], 0
        if await store.read(SESSION, Select()) is None:
            return []
        while True:
            head, page = await manager.events(SESSION, after=after)
            told += [self.told(event.what) for event in page if event.what.kind in LOGICAL]
            after = page[-1].number if page else head.events
            if after >= head.events:
                return told

    def told(self, what: Happening) -> tuple[Any, ...]:
        """A logical event as the oracle tells it."""
        match what.kind:
            case Kind.OUTCOME:
                return (what.kind.text, what.data["status"], *why(what.data.get("reason", "")))
            case Kind.LOOP_LIMIT:
                return (what.kind.text, what.node, what.data["loop"], what.data["iteration"])
            case Kind.STEP_COMMITTED:
                return (what.kind.text,)
        value = [decode(what.payload, self.workflow.types)] if what.payload else []
        return (what.kind.text, what.node, *value)

    def seen(self) -> tuple[list[Any], dict[Any, Any]]:
        """The logical events and the state, from the store."""

        async def look() -> tuple[list[Any], dict[Any, Any]]:
            async with self.store() as store:
                found = await CheckpointManager(store).load_full_state(SESSION)
                assert found is not None
                state = {(s, key): v for s, keys in found[1].items() for key, v in keys.items()}
                return await self._events(store), state

        return asyncio.run(look())

    def restored(self) -> dict[int, bytes]:
        """The digest of the restored snapshot at every commit that is kept."""

        async def look() -> dict[int, bytes]:
            async with self.store() as store:
                manager, found = CheckpointManager(store, self.config()), {}
                for info in await manager.history(SESSION):
                    if info.byte_size:
                        restored = await manager.restore(SESSION, info.checkpoint_id)
                        assert restored is not None
                        found[info.commit] = codec.ops_digest(as_ops(restored.snapshot))
                assert (await manager.verify(SESSION)).intact
                return found

        return asyncio.run(look())


def _events_of(commit: Commit) -> tuple[Happening, ...]:
    return codec.decode_events(commit.events, SESSION, "events").events if commit.events else ()


def digests(d: Data, seed: int | None = None) -> list[str]:
    """What each commit of an unbroken run holds: operations and events, byte for byte.

    Args:
        d: The workflow.
        seed: Shuffles the order in which the nodes of a step end.
    """
    story = Story(d=d, settings=Settings(interval=4))
    story.world.shuffle = None if seed is None else random.Random(seed)
    assert story.live()
    made = []
    for part, happenings in zip(story.commits, story.happenings, strict=True):
        events = codec.encode_events(
            codec.EventsPart(commit=0, run_id="", step=0, at=0.0, events=happenings)
        )
        made.append((part.digest + codec.ops_digest(part.delta or ()) + events).hex())
    return made


def main() -> None:
    """Tell the digests of the workflows that come in as JSON."""
    logging.getLogger("raf").setLevel(logging.CRITICAL)
    json.dump([digests(d) for d in json.load(sys.stdin)], sys.stdout)


async def _end(engine: WorkflowEngine, inner: Store) -> None:
    """End what a life leaves behind; the process would just be gone."""
    await engine.machine.keeper.close()
    engine.machine.tools.pool.shutdown(wait=False)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
    await inner.close()


def _gone_owner(clock: Clock) -> Owner:
    """An owner whose process is provably gone, so that the next life takes over at once."""
    return replace(this_owner(clock), pid=NO_SUCH_PID)


_WHY = (
    ("node", re.compile(r"^node '(\w+)' failed in step")),
    ("conflict", re.compile(r"both wrote .*\['(\w+)'\] in one step")),
    ("barrier", re.compile(r"barrier '([\w+>]+)'.* holds message")),
    ("unfilled", re.compile(r"nothing is left to run, and barrier '([\w+>]+)'")),
    ("condition", re.compile(r"condition '\w+' after node '\w+' failed()")),
    ("steps", re.compile(r"^\d+ steps were used()")),
)


def why(reason: str) -> list[str]:
    """The reason of an outcome in the oracle's words."""
    if found := re.match(r"loop (.*) reached its limit", reason):
        return found[1].split(", ")
    for word, pattern in _WHY:
        if found := pattern.search(reason):
            return [word, found[1]] if found[1] else [word]
    return [] if reason in ("", "an attempt waits for its time") else [reason]
