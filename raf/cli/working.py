"""Commands for runs that nobody waits for: submit leaves one, worker runs what is due."""

import asyncio
import logging
import shlex
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Annotated

import typer

from raf.cli import debug, options, screen
from raf.cli.describe import result_data
from raf.cli.draining import Ended, with_drain
from raf.cli.exits import ExitCode, code_of_error
from raf.cli.inputs import read_input
from raf.cli.loading import load_workflow
from raf.cli.places import existing, kept
from raf.cli.running import checkpoints_of
from raf.engine.engine import LEASE_S, MAX_STEPS, WorkflowEngine
from raf.engine.outcome import RunResult, Submitted
from raf.errors import ConfigurationError, RafError
from raf.worker.worker import CONCURRENCY, POLL_S, Worker


def submit(
    reference: options.Reference,
    *,
    text: options.Input = None,
    session: options.NewSession = None,
    run_id: options.RunId = "main",
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Not before this time, such as 2026-12-01T09:30:00Z.",
            show_default=False,
        ),
    ] = None,
    queue: Annotated[
        str, typer.Option("--queue", metavar="NAME", help="Which workers are to take it.")
    ] = "default",
    store: options.Store = options.DEFAULT_STORE,
    input_file: options.InputFile = None,
    input_json: options.InputJson = None,
    max_steps: options.MaxSteps = None,
    json: options.Json = False,
) -> None:
    """Leave a run to a worker.

    Its input is on disk when the command ends, and nothing of it has run.  The same command again
    changes nothing and tells how the run stands.
    """
    workflow = load_workflow(reference)
    value = read_input(workflow, text, input_file, input_json)
    when = None if at is None else _time(at)
    place = kept(store)

    async def main() -> Submitted:
        async with WorkflowEngine(workflow, place, max_steps=max_steps or MAX_STEPS) as engine:
            return await engine.submit(value, session, run_id=run_id, at=when, queue=queue)

    found = asyncio.run(main())
    data = {"session": found.session_id, "run": found.run_id, "status": found.status}
    show = f"session {found.session_id}: {found.status}"
    screen.answer(data, as_document=json, show=lambda: screen.say(show))


def worker(
    references: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:WORKFLOW...",
            help="Workflows, or functions that make one: pkg.module:name or path/file.py:name.",
            show_default=False,
        ),
    ],
    *,
    store: options.Store = options.DEFAULT_STORE,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="NAME[=LIMIT]",
            help="Serve this queue (may be given several times); with a limit, so many of its "
            "sessions run at once in all workers together.",
            show_default="default",
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, metavar="N", help="So many sessions at once.")
    ] = CONCURRENCY,
    poll_s: Annotated[
        float, typer.Option("--poll-s", metavar="SECONDS", help="Look so often when idle.")
    ] = POLL_S,
    lease_s: Annotated[
        float,
        typer.Option("--lease-s", metavar="SECONDS", help="Own a session so long without renewal."),
    ] = LEASE_S,
    drain_grace_s: Annotated[
        float | None,
        typer.Option(
            "--drain-grace",
            min=0.0,
            metavar="SECONDS",
            help="Interrupt steps that are not done so long after the first signal.",
            show_default=False,
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Run what is due, and end when nothing is.")
    ] = False,
    durability: options.DurabilityOption = None,
    interval: options.Interval = "50",
    json: options.Json = False,
) -> None:
    """Run the sessions of a store that are due, many at once.

    Submitted and sleeping ones whose time has come, and those whose owner is gone.  SIGINT and
    SIGTERM drain: nothing new is taken, each run stops at the next end of a step, every session is
    given back, and the command ends with 0.  A second signal stops at once.  With --once the exit
    code is that of the gravest error that left a session aside.
    """
    workflows = [load_workflow(reference) for reference in references]
    place = existing(store)
    served = _queues(queues or ["default"])
    config = checkpoints_of(interval)
    if not debug.wanted():
        _tell_of_trouble()

    aside: dict[str, ExitCode] = {}

    def put_aside(session_id: str, error: Exception) -> None:
        if once:
            aside[session_id] = (
                code_of_error(error) if isinstance(error, RafError) else ExitCode.FAULT
            )

    def tell(result: RunResult) -> None:
        aside.pop(result.session_id, None)
        _tell(result, json)

    async def main() -> Ended[None]:
        async with AsyncExitStack() as stack:
            engines = [
                await stack.enter_async_context(
                    WorkflowEngine(
                        workflow,
                        place,
                        checkpoints=config,
                        durability=(durability or options.Durability.SYNC).value,
                        lease_s=lease_s,
                    )
                )
                for workflow in workflows
            ]
            made = Worker(
                engines,
                queues=served,
                concurrency=concurrency,
                poll_s=poll_s,
                lease_s=lease_s,
                on_outcome=tell,
                on_aside=put_aside,
            )
            _say_hello(made, [workflow.name for workflow in workflows], served)
            again = shlex.join(["raf", "worker", *references])
            ended = await with_drain(made, made.run(once=once), again, grace_s=drain_grace_s)
            if json:
                screen.line({"worker": {"outcomes": dict(sorted(made.outcomes.items()))}})
            return ended

    ended = asyncio.run(main())
    if ended.by_signal is None:
        raise typer.Exit(max(aside.values(), default=ExitCode.OK))


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"--at {text!r:.80} is no time: write one such as 2026-12-01T09:30:00Z"
        ) from error
    if found.tzinfo is None:
        raise ConfigurationError(f"--at {text!r:.80} has no time zone: write Z behind it for UTC")
    return found


def _queues(words: list[str]) -> dict[str, int | None]:
    """NAME or NAME=LIMIT, each as a name with its limit."""
    found: dict[str, int | None] = {}
    for word in words:
        name, told, limit = word.partition("=")
        if told and not (limit.isascii() and limit.isdigit()):
            raise ConfigurationError(f"--queue {word!r:.80}: the limit is a number of 1 or more")
        if name in found:
            raise ConfigurationError(f"--queue {name!r:.80} is given twice: which limit holds?")
        found[name] = int(limit) if told else None
    return found


def _say_hello(made: Worker, names: list[str], queues: dict[str, int | None]) -> None:
    served = [
        name if limit is None else f"{name} (at most {limit})" for name, limit in queues.items()
    ]
    screen.hint(
        f"raf: runs {', '.join(names)} of {made.store.url}, {made.concurrency} sessions at once; "
        f"queues: {', '.join(served)}"
    )


def _tell(result: RunResult, as_document: bool) -> None:
    if as_document:
        screen.line({"result": result_data(result)})
        return
    why = f": {result.reason}" if result.reason else ""
    screen.say(f"session {result.session_id}, run {result.run_id}: {result.status}{why}")


class _OnStandardError(logging.Handler):
    """What went wrong while nobody waits, a sentence a line."""

    def emit(self, record: logging.LogRecord) -> None:
        screen.hint(f"raf: {record.getMessage()}")


def _tell_of_trouble() -> None:
    logging.getLogger("raf").addHandler(_OnStandardError(logging.WARNING))
