"""The command that continues what was left behind: recover."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

import typer

from raf.cli import options, screen
from raf.cli.describe import result_data
from raf.cli.draining import Ended, with_drain
from raf.cli.exits import ExitCode, code_of_error, code_of_status
from raf.cli.loading import load_workflow
from raf.cli.places import existing
from raf.cli.running import Opened
from raf.engine.engine import WorkflowEngine
from raf.engine.outcome import RunResult
from raf.errors import NothingToResumeError, RafError, SessionBusyError, SessionNotFoundError
from raf.store.due import wants_to_run


@dataclass(frozen=True, slots=True)
class Left:
    """A session that could not be continued, and why."""

    session: str
    error: RafError


def recover(
    reference: options.Reference,
    *,
    store: options.Store = options.DEFAULT_STORE,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="So many sessions at once.")
    ] = 8,
    max_steps: options.MaxSteps = None,
    durability: options.DurabilityOption = None,
    interval: options.Interval = "50",
    allow_compatible: options.AllowCompatible = False,
    json: options.Json = False,
) -> None:
    """Continue all sessions whose owner is gone.

    Those of this workflow that are interrupted, or that sleep and whose time has come.
    """
    existing(store)
    on = Opened(load_workflow(reference), store, max_steps, durability, interval)
    on.compatible = allow_compatible

    async def main() -> Ended[list[RunResult | Left]]:
        async with on.engine() as engine:
            again = on.command("recover", reference)
            return await with_drain(engine, _continue_all(engine, limit), again)

    ended = asyncio.run(main())
    results = [each for each in ended.result if isinstance(each, RunResult)]
    left = [each for each in ended.result if isinstance(each, Left)]
    rows: list[tuple[object, ...]]
    rows = [(r.session_id, r.run_id, r.status, r.steps, r.reason) for r in results]
    rows += [(each.session, "", "left as it was", "", str(each.error)) for each in left]
    headers = ("session", "run", "status", "steps", "reason")
    screen.answer(
        {
            "results": [result_data(result) for result in results],
            "left": [
                {"session": each.session, "code": each.error.code, "message": str(each.error)}
                for each in left
            ],
        },
        as_document=json,
        show=lambda: screen.table(headers, rows, none="nothing to recover"),
    )
    raise typer.Exit(_code(results, left, ended.by_signal))


async def _continue_all(engine: WorkflowEngine, limit: int) -> list[RunResult | Left]:
    """Resume each session that could run; one that cannot go on keeps no other back."""
    slots = asyncio.Semaphore(limit)

    async def adopt(session: str) -> RunResult | Left | None:
        async with slots:
            if engine.draining:
                return None  # what has not begun is left for the next time
            try:
                return await engine.resume(session, check=False, wait=False)
            except (SessionBusyError, NothingToResumeError, SessionNotFoundError):
                return None  # somebody else runs it, or was first
            except RafError as error:
                return Left(session, error)

    now = await engine.manager.store.now()
    sessions = [
        head.session_id
        async for head in engine.manager.heads()
        if head.summary.workflow == engine.workflow.name and wants_to_run(head.summary, now)
    ]
    with screen.progress("recovering", len(sessions)) as advance:

        async def counted(session: str) -> RunResult | Left | None:
            found = await adopt(session)
            advance()
            return found

        found = await asyncio.gather(*map(counted, sessions))
    return [each for each in found if each is not None]


def _code(results: list[RunResult], left: list[Left], by_signal: int | None) -> int:
    """The exit code of all together: the signal's, else the gravest outcome's."""
    statuses = {result.status for result in results}
    if by_signal is not None and "drained" in statuses:
        return by_signal
    if "failed" in statuses:
        return ExitCode.FAILED
    if left:
        return max(code_of_error(each.error) for each in left)
    return max((code_of_status(status) for status in statuses), default=ExitCode.OK)
