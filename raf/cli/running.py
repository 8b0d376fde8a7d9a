"""Commands that run workflows: run, resume, recover."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable

import typer

from raf.checkpoint.config import CheckpointConfig
from raf.cli import debug, options, screen
from raf.cli.describe import event_data, result_data
from raf.cli.draining import Ended, with_drain
from raf.cli.exits import ExitCode, code_of_status
from raf.cli.inputs import read_input
from raf.cli.jsonable import words
from raf.cli.loading import load_workflow
from raf.cli.places import existing, store_of
from raf.clock import SystemClock
from raf.engine.engine import MAX_STEPS, WorkflowEngine
from raf.engine.follow import follow
from raf.engine.outcome import RunResult
from raf.errors import ConfigurationError
from raf.events import Event
from raf.store.model import check_session_id
from raf.store.port import Store
from raf.topology.workflow import Workflow

Call = Callable[[WorkflowEngine], Awaitable[RunResult]]


def run(
    reference: options.Reference,
    *,
    text: options.Input = None,
    session: options.NewSession = None,
    run_id: options.RunId = "main",
    store: options.Store = options.DEFAULT_STORE,
    input_file: options.InputFile = None,
    input_json: options.InputJson = None,
    max_steps: options.MaxSteps = None,
    durability: options.DurabilityOption = None,
    interval: options.Interval = "50",
    wait_s: options.WaitS = 0.0,
    no_wait: options.NoWait = False,
    allow_compatible: options.AllowCompatible = False,
    stream: options.Stream = False,
    json: options.Json = False,
) -> None:
    """Run a workflow, or go on where the run stopped.

    The same command again is the recovery: a finished run answers what is recorded.  SIGINT and
    SIGTERM stop the run at the next end of a step, a second one at once.
    """
    workflow = load_workflow(reference)
    value = read_input(workflow, text, input_file, input_json)
    session_id = check_session_id(session if session is not None else SystemClock().new_id())
    on = Opened(workflow, store, max_steps, durability, interval)
    on.told = session is not None
    on.compatible = allow_compatible

    def call(engine: WorkflowEngine) -> Awaitable[RunResult]:
        return engine.run(
            value, session_id, run_id=run_id, check=debug.wanted(), wait=not no_wait, wait_s=wait_s
        )

    _finish(asyncio.run(_drive(on, session_id, reference, call, stream, json)), reference, on, json)


def resume(
    reference: options.Reference,
    session: options.Session,
    *,
    store: options.Store = options.DEFAULT_STORE,
    max_steps: options.MaxSteps = None,
    durability: options.DurabilityOption = None,
    interval: options.Interval = "50",
    wait_s: options.WaitS = 0.0,
    no_wait: options.NoWait = False,
    allow_compatible: options.AllowCompatible = False,
    stream: options.Stream = False,
    json: options.Json = False,
) -> None:
    """Continue the unfinished run of a session."""
    existing(store)
    on = Opened(load_workflow(reference), store, max_steps, durability, interval)
    on.compatible = allow_compatible

    def call(engine: WorkflowEngine) -> Awaitable[RunResult]:
        return engine.resume(session, check=debug.wanted(), wait=not no_wait, wait_s=wait_s)

    check_session_id(session)
    _finish(asyncio.run(_drive(on, session, reference, call, stream, json)), reference, on, json)


class Opened:
    """How a command opens its engine, and how it says the same to a person."""

    def __init__(
        self,
        workflow: Workflow,
        store: str | Store,
        max_steps: int | None,
        durability: options.Durability | None,
        interval: str,
    ) -> None:
        self.workflow = workflow
        self._store = store
        self._max_steps = max_steps or MAX_STEPS
        self._durability = durability or options.Durability.SYNC
        self._checkpoints = checkpoints_of(interval)
        self.told = True  # whether the person knows the session's id already
        self.compatible = False  # whether a compatible change of the graph may be gone on with

    def engine(self) -> WorkflowEngine:
        """The engine, not yet open."""
        return WorkflowEngine(
            self.workflow,
            store_of(self._store),
            checkpoints=self._checkpoints,
            durability=self._durability.value,
            max_steps=self._max_steps,
            on_change="compatible" if self.compatible else "refuse",
        )

    def command(self, *words_of: str) -> str:
        """A command line on the same store."""
        place = [] if self._store == options.DEFAULT_STORE else ["--store", str(self._store)]
        return shlex.join(["raf", *words_of, *place])


def checkpoints_of(interval: str) -> CheckpointConfig:
    """What `--interval` says."""
    if interval == "auto":
        return CheckpointConfig(full_snapshot_interval="auto")
    if not interval.isascii() or not interval.isdigit() or int(interval) < 1:
        raise ConfigurationError(f"--interval is a number of 1 or more, or auto, not {interval!r}")
    return CheckpointConfig(full_snapshot_interval=int(interval))


async def _drive(
    on: Opened, session_id: str, reference: str, call: Call, stream: bool, json: bool
) -> Ended[RunResult]:
    """Run with events shown, if asked for; drained by a signal."""
    async with on.engine() as engine:
        if not on.told:
            screen.hint(f"session {session_id}")
        work = _followed(engine, session_id, call, json) if stream else _awaited(call(engine))
        return await with_drain(engine, work, on.command("resume", reference, session_id))


async def _awaited(call: Awaitable[RunResult]) -> RunResult:
    return await call


async def _followed(engine: WorkflowEngine, session_id: str, call: Call, json: bool) -> RunResult:
    """The outcome of a call whose events are printed as they happen."""
    found: list[RunResult] = []

    async def keep() -> None:
        found.append(await call(engine))

    events = follow(
        engine.manager,
        engine.machine.hub,
        session_id,
        types=engine.workflow.types,
        after=None,
        call=keep,
    )
    async for event in events:
        if json:
            screen.line({"event": event_data(event)})
        else:
            screen.say(_event_line(event))
    return found[0]


def _event_line(event: Event) -> str:
    number = "live" if event.number is None else f"#{event.number}"
    said = [f"{number:>5}  step {event.step:<3} {event.kind:<15} {event.node}".rstrip()]
    details = dict(event.data) | ({} if event.value is None else {"value": event.value})
    details.pop("outputs", None)  # they are printed below, whole
    said += [f"{key}={words(value, longest=100)}" for key, value in details.items()]
    return "  ".join(said)


def _finish(ended: Ended[RunResult], reference: str, on: Opened, json: bool) -> None:
    """Print the outcome and end with its exit code."""
    result = ended.result
    again = on.command("resume", reference, result.session_id)
    if json:
        screen.line({"result": result_data(result)})
    else:
        for output in result.outputs:
            screen.say(output if isinstance(output, str) else words(output))
    code = code_of_status(result.status)
    if result.status == "drained" and ended.by_signal is not None:
        screen.hint(f"drained behind step {result.steps - 1}; go on with: {again}")
        raise typer.Exit(ended.by_signal)
    if code is not ExitCode.OK:
        screen.hint(f"raf: {_paused(result, again)}")
    raise typer.Exit(code)


def _paused(result: RunResult, again: str) -> str:
    """What stands in the way, and what to do next."""
    why = f": {result.reason}" if result.reason else ""
    what = f"run {result.run_id!r} of session {result.session_id!r} is {result.status}{why}"
    if result.status == "cancelled":
        return f"{what}; go on from it with: raf fork {shlex.quote(result.session_id)} NEW"
    if result.status == "failed":
        return f"{what}; mend the cause, then: {again}"
    return f"{what}; go on with: {again}"
