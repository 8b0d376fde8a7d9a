"""The command that moves sessions to a new graph: migrate."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Final

import typer

from raf.cli import options, screen
from raf.cli.describe import standing
from raf.cli.exits import ExitCode, code_of_error
from raf.cli.inputs import read_mapping
from raf.cli.loading import load_workflow
from raf.cli.places import opened
from raf.engine.engine import WorkflowEngine
from raf.engine.migrate import MigrationPlan
from raf.errors import ConfigurationError, RafError
from raf.store.model import check_session_id
from raf.store.owner import LeaseWatch

Row = dict[str, Any]
GO: Final = ("compatible", "moves", "finished")


def migrate(
    reference: options.Reference,
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="SESSION",
            help="The id of the session; with --all or --dry-run it may be left out.",
            show_default=False,
        ),
    ] = None,
    *,
    renamed: options.Renamed = None,
    drop: options.Drop = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would happen; nothing is written.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every session of this workflow that can move.")
    ] = False,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; it stands in the event.")
    ] = "by hand",
    store: options.Store = options.DEFAULT_STORE,
    json: options.Json = False,
) -> None:
    """Move sessions at rest to the graph of this code.

    All that a session holds is led to its new place, in one commit with an event.  What has none is
    named, and that session is left as it was.
    """
    workflow, mapping = load_workflow(reference), read_mapping(renamed or [])
    given_up = drop or []
    if session is not None:
        check_session_id(session)
    if (session is None) is not every and not (dry_run and not every):
        raise ConfigurationError("name one SESSION, or say --all; --dry-run alone looks at all")

    async def main() -> list[Row]:
        async with (
            opened(store) as manager,
            WorkflowEngine(workflow, manager.store, checkpoints=manager.config) as engine,
        ):
            if session is not None and not dry_run:
                made = await engine.migrate(session, mapping, drop=given_up, reason=reason)
                return [{"session": session, "checkpoint": made}]
            plans = await engine.plan_migration(session, mapping, drop=given_up)
            judge = LeaseWatch(manager.store.clock)
            for at, plan in enumerate(plans):
                if plan.status == "running":
                    status = standing(await manager.head(plan.session_id), judge)
                    plans[at] = replace(plan, status=status)
            if dry_run:
                return [planned(plan) for plan in plans]
            return await _move(engine, plans, mapping, given_up, reason)

    rows = asyncio.run(main())
    screen.answer({"sessions": rows}, as_document=json, show=lambda: _show(rows))
    raise typer.Exit(max(map(_code, rows), default=ExitCode.OK))


def planned(plan: MigrationPlan) -> Row:
    """What would happen to a session, as `--json` gives it."""
    row = asdict(plan)
    row["session"] = row.pop("session_id")
    row["next"] = [{"node": node, "message": number} for node, number in plan.next]
    return row


async def _move(
    engine: WorkflowEngine,
    plans: Sequence[MigrationPlan],
    mapping: Mapping[str, str],
    drop: Sequence[str],
    reason: str,
) -> list[Row]:
    """Migrate each session that can move; one that cannot keeps no other back."""
    rows = []
    with screen.progress("migrating", len(plans)) as advance:
        for plan in plans:
            row = planned(plan)
            if plan.verdict in GO:
                try:
                    session = plan.session_id
                    made = await engine.migrate(session, mapping, drop=drop, reason=reason)
                    row["checkpoint"] = made
                except RafError as error:  # somebody runs it, or it changed meanwhile
                    code = int(code_of_error(error))
                    row["error"] = {"code": error.code, "message": str(error), "exit": code}
            rows.append(row)
            advance()
    return rows


def _code(row: Row) -> int:
    if row.get("verdict") == "refused":
        return ExitCode.MISMATCH
    return int(row["error"]["exit"]) if "error" in row else ExitCode.OK


def _show(rows: Sequence[Row]) -> None:
    if [set(row) for row in rows] == [{"session", "checkpoint"}]:
        screen.say(f"migrated: {rows[0]['checkpoint']}")
        return
    for differences, several in Counter(tuple(row["differences"]) for row in rows).items():
        if differences:
            screen.heading(f"what differs from the graph of {several} of {len(rows)} sessions")
            for difference in differences:
                screen.say(f"  {difference}")
            screen.say()
    headers = ("session", "status", "verdict", "next", "why")
    screen.table(
        headers,
        [(r["session"], r["status"], _verdict(r), _next(r), _why(r)) for r in rows],
        none="no session of this workflow",
    )


def _verdict(row: Row) -> str:
    if "error" in row:
        return "left as it was"
    return f"moved: {row['checkpoint']}" if "checkpoint" in row else str(row["verdict"])


def _next(row: Row) -> str:
    return ", ".join(dict.fromkeys(each["node"] for each in row["next"]))


def _why(row: Row) -> str:
    if "error" in row:
        return str(row["error"]["message"])
    return "; ".join(row["refusals"])
