"""The demo as it is told: begin, pull the plug, resume, compare.

Every number that is shown was measured in this run.
"""

import asyncio
import shlex
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final, NoReturn

from raf.checkpoint.manager import CheckpointManager
from raf.checkpoint.restore import Restored
from raf.cli import screen
from raf.cli.demo.acts import (
    WORKFLOW,
    Held,
    Started,
    Worker,
    compare,
    held_by,
    read_ledger,
    restored,
    until_half_done,
    was_killed,
)
from raf.cli.demo.newsroom import workflow
from raf.cli.demo.reading import take_apart, words
from raf.cli.demo.tally import agents, invocations, steps
from raf.cli.exits import ExitCode
from raf.clock import SystemClock
from raf.engine.engine import LEASE_S
from raf.errors import ConfigurationError, SessionNotFoundError, StoreError
from raf.graph.draw import text as as_text
from raf.store.owner import this_owner
from raf.store.urls import open_store
from raf.values.plain import decode_plain

BIGGEST: Final = 500_000
PACES: Final = (1.0, 3.0)
SHOWN: Final = 14


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was measured, act by act."""

    document: str
    words: int
    store: str
    session: str
    unbroken: str
    seconds: float = 0.0
    killed: dict[str, Any] = field(default_factory=dict)
    resumed: dict[str, Any] = field(default_factory=dict)
    invocations: list[dict[str, Any]] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    committed_again: list[str] = field(default_factory=list)
    compared: list[dict[str, Any]] = field(default_factory=list)
    equal: bool = False


def demo(document: Path | None, store: str | None, *, keep: bool, as_document: bool) -> int:
    """Tell the story, and return the exit code: 0 when all that was compared is equal.

    Args:
        document: A text or Markdown file; the one that is shipped when None.
        store: A store's URL; one of its own in a temporary folder when None.
        keep: Leave the sessions behind, and with them a temporary store.
        as_document: Tell nothing but print what was measured as JSON.

    Raises:
        ConfigurationError: The document cannot be worked on, or the store cannot be shared.
    """
    name, text = _document(document)
    with _folder(keep=keep and store is None) as folder:
        (folder / "document.md").write_text(text, encoding="utf-8")
        story = _Story(folder, name, text, _store(store, folder), silent=as_document)
        before = signal.signal(signal.SIGTERM, _leave)
        try:
            seen = asyncio.run(story.tell())
        finally:
            signal.signal(signal.SIGTERM, before)
            story.stop()
            if store is not None and not keep:
                asyncio.run(story.clean_up())
        if keep:
            story.say_how_to_look()
    if as_document:
        screen.answer(asdict(seen), as_document=True, show=lambda: None)
    return ExitCode.OK if seen.equal else ExitCode.FAILED


def _leave(number: int, _frame: object) -> NoReturn:
    """End by a signal as by an error, so that nothing is left behind."""
    raise SystemExit(ExitCode.BY_SIGNAL + number)


def _document(path: Path | None) -> tuple[str, str]:
    if path is None:
        shipped = resources.files("raf.cli.demo") / "texts" / "rabbit-hole.md"
        return "Alice's Adventures in Wonderland, chapter I", shipped.read_text(encoding="utf-8")
    try:
        if path.stat().st_size > BIGGEST:
            raise ConfigurationError(f"{path} is too long for a demo: at most {BIGGEST} bytes")
        text = path.read_text(encoding="utf-8")
        take_apart(text)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not text: the demo reads UTF-8") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    return path.name, text


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="raf-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _store(url: str | None, folder: Path) -> str:
    if url is None:
        return f"sqlite:{folder / 'demo.db'}"
    open_store(url)
    if url.lower().startswith("memory:"):
        raise ConfigurationError("memory: is not shared by processes: take sqlite: or file:")
    return url


class _Story:
    """One telling."""

    def __init__(self, folder: Path, name: str, text: str, store: str, *, silent: bool) -> None:
        number = SystemClock().new_id()[:6]
        self.folder, self.store, self.silent = folder, store, silent
        self.ledger = folder / "ledger"
        self._workers: list[Worker] = []
        self.seen = Seen(
            document=name,
            words=sum(len(words(sentence)) for sentence in take_apart(text).sentences),
            store=store,
            session=f"demo-{number}",
            unbroken=f"demo-{number}-unbroken",
        )

    # -- acts ----------------------------------------------------------------------------------

    async def tell(self) -> Seen:
        """All acts, in order."""
        seen, clock = self.seen, SystemClock()
        began = clock.monotonic()
        count = len(workflow.topology.nodes)
        self._say(f"raf demo: {count} agents review {seen.document!r} ({seen.words} words)")
        self._draw()
        async with CheckpointManager(self.store) as manager:
            first, held = await self._pull_the_plug(manager)
            second, third = await self._resume(first, held)
            await self._unbroken(third)
            await self._compare(manager)
            await self._show_report(manager)
            seen.seconds = round(clock.monotonic() - began, 2)
            self._end(second)
        return seen

    async def _pull_the_plug(self, manager: CheckpointManager) -> tuple[Worker, Held]:
        seen = self.seen
        self._head("1  A worker begins")
        for pace in PACES:
            worker = self._start("run", WORKFLOW, "--session", seen.session, pace=pace)
            try:
                half_done = await until_half_done(manager, seen.session, worker)
            finally:
                code = worker.kill()
            if half_done and was_killed(code):
                break
            # It was too fast for us to meet it half-way: once more, with slower agents.
            await self._forget(manager, seen.session)
        else:
            raise ConfigurationError("the worker could not be met half-way: try again")
        held = held_by(await restored(manager, seen.session))
        self._head("2  The plug is pulled")
        self._say(
            f"SIGKILL to process {worker.pid} after {worker.seconds:.2f} s, in the middle of step "
            f"{held.step + 1}.  What the store holds:"
        )
        began = [each for each in self._started(seen.session) if not each.ended]
        self._facts(
            ("committed", f"{steps(held.step)} (checkpoint {seen.session}@{held.commit})"),
            ("journaled", f"{', '.join(held.journaled)}: finished, their results are kept"),
            ("lost", f"{', '.join(held.unfinished)}: {len(began)} were at work, none had ended"),
        )
        seen.killed = {"pid": worker.pid, "seconds": round(worker.seconds, 2), **asdict(held)}
        return worker, held

    async def _resume(self, first: Worker, held: Held) -> tuple[Worker, Worker]:
        """The resumed run; the unbroken one begins beside it, to save time."""
        seen = self.seen
        self._head("3  Another process resumes the session by its id")
        worker = self._start("resume", WORKFLOW, seen.session)
        unbroken = self._start("run", WORKFLOW, "--session", seen.unbroken, told=False)
        answer = await self._ended(worker)
        started = self._started(seen.session)
        self._say(
            f"{answer['status']} after {worker.seconds:.2f} s, resumed from {answer['resumed_from']}:"
        )
        committed = {(each.node, each.step) for each in started if each.step <= held.step}
        journaled = {(node, held.step + 1) for node in held.journaled}
        rows = invocations(started, first.pid, worker.pid, committed, journaled)
        headers = ("step", "agent", "pass", f"in {first.pid}", f"in {worker.pid}", "so")
        self._table(headers, [tuple(row.values()) for row in rows])
        twice = [(row["agent"], row["step"]) for row in rows if row["first"] and row["second"]]
        seen.again = [node for node, _ in twice]
        seen.committed_again = [
            node for node, step in twice if (node, step) in committed | journaled
        ]
        seen.invocations = rows
        seen.resumed = {
            "pid": worker.pid,
            "seconds": round(worker.seconds, 2),
            "status": answer["status"],
            "resumed_from": answer["resumed_from"],
        }
        return worker, unbroken

    async def _unbroken(self, worker: Worker) -> None:
        self._head("4  For comparison: the same, never disturbed, in a process beside it")
        self._tell(worker)
        answer = await self._ended(worker)
        self._say(f"{answer['status']} after {worker.seconds:.2f} s")

    async def _compare(self, manager: CheckpointManager) -> None:
        seen = self.seen
        self._head("5  Resumed and unbroken, side by side")
        found = await compare(manager, seen.session, seen.unbroken)
        again = self._started(seen.session)
        found.append(
            agents(
                again, self._started(seen.unbroken), again=seen.again, wrongly=seen.committed_again
            )
        )
        self._table(
            ("what", "resumed", "unbroken", "status"),
            [(c.what, c.resumed, c.unbroken, "equal" if c.equal else "DIFFERENT") for c in found],
        )
        seen.compared = [asdict(each) for each in found]
        seen.equal = all(each.equal for each in found)

    async def _show_report(self, manager: CheckpointManager) -> None:
        found = await restored(manager, self.seen.session)
        report = await _report(manager, found)
        self._head("The report that the agents wrote")
        shown = report.splitlines()[:SHOWN]
        self._say("\n".join(shown))
        if len(report.splitlines()) > SHOWN:
            self._say("…")

    def _end(self, second: Worker) -> None:
        seen = self.seen
        kept = sum(1 for row in seen.invocations if row["so"].startswith("kept"))
        self._say()
        if seen.equal:
            self._say(
                f"equal: the work of {kept} agents was kept, {len(seen.again)} cut off in mid-work "
                f"ran again in process {second.pid}; {seen.seconds:.1f} s in all"
            )
        else:
            self._say("NOT EQUAL: this is a fault; the table above says where")

    # -- parts ---------------------------------------------------------------------------------

    def _start(self, *command: str, pace: float = PACES[0], told: bool = True) -> Worker:
        document = self.folder / "document.md"
        given = ["--input-file", str(document)] if command[0] == "run" else []
        worker = Worker([*command, *given, "--store", self.store], ledger=self.ledger, pace=pace)
        self._workers.append(worker)
        if told:
            self._tell(worker)
        return worker

    def _tell(self, worker: Worker) -> None:
        self._say(f"$ {shlex.join(worker.words)}")
        self._say(f"process {worker.pid}")

    async def _ended(self, worker: Worker) -> dict[str, Any]:
        return await asyncio.to_thread(worker.wait)

    def _started(self, session: str) -> list[Started]:
        return read_ledger(self.ledger, session)

    async def _forget(self, manager: CheckpointManager, session: str) -> None:
        owner = this_owner(manager.store.clock)
        try:
            claimed = await manager.claim(session, owner, lease_s=LEASE_S)
        except SessionNotFoundError:
            return
        await manager.store.delete(claimed.lease)
        self.ledger.unlink(missing_ok=True)

    def stop(self) -> None:
        """See that no process outlives the telling."""
        for worker in self._workers:
            worker.stop()

    async def clean_up(self) -> None:
        """Remove the demo's sessions from a store that is somebody's."""
        async with CheckpointManager(self.store) as manager:
            for session in (self.seen.session, self.seen.unbroken):
                try:
                    await self._forget(manager, session)
                except StoreError as error:
                    screen.hint(f"session {session} was left behind: {error}")

    def say_how_to_look(self) -> None:
        """The commands that show what was left behind."""
        seen, place = self.seen, shlex.join(["--store", self.store])
        self._head("Kept, to look at")
        for command in (
            f"raf show {seen.session} --events {place}",
            f"raf history {seen.session} {place}",
            f"raf diff {seen.session} 0 {seen.killed['commit']} {place}",
            f"raf graph {WORKFLOW} --session {seen.session} {place}",
        ):
            self._say(command)

    # -- showing -------------------------------------------------------------------------------

    def _say(self, text: str = "") -> None:
        if not self.silent:
            screen.say(text)
            screen.flush()

    def _head(self, text: str) -> None:
        if not self.silent:
            screen.heading(text)

    def _draw(self) -> None:
        if not self.silent:
            screen.say()
            screen.drawing(as_text(workflow))

    def _facts(self, *pairs: tuple[str, str]) -> None:
        if not self.silent:
            screen.facts(pairs)

    def _table(self, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if not self.silent:
            screen.table(headers, rows, none="nothing")
            screen.flush()


async def _report(manager: CheckpointManager, found: Restored) -> str:
    record = await manager.run_record(found.head.session_id, found.snapshot.run.run_id)
    outputs = [] if record is None else record.what.data["outputs"]
    return "\n".join(str(decode_plain(payload)) for _, _, payload in outputs)
