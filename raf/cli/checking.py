"""The command that checks what is stored: verify."""

import asyncio
from typing import Annotated

import typer

from raf.checkpoint.model import Verified
from raf.cli import options, screen
from raf.cli.exits import ExitCode
from raf.cli.places import opened
from raf.store.port import check_session_id


def verify(
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="SESSION",
            help="One session; all of the store when left out.",
            show_default=False,
        ),
    ] = None,
    store: options.Store = options.DEFAULT_STORE,
    json: options.Json = False,
) -> None:
    """Check what is stored, of a session or of all.

    Every record, the links between them, the merged state and the numbers of the events.
    """

    async def main() -> list[Verified]:
        async with opened(store) as manager:
            if session is None:
                ids = [head.session_id async for head in manager.heads()]
            else:
                ids = [check_session_id(session)]
            with screen.progress("verifying", len(ids)) as advance:
                found = []
                for each in ids:
                    found.append(await manager.verify(each))
                    advance()
            return found

    found = asyncio.run(main())
    intact = all(verified.intact for verified in found)
    data = {
        "intact": intact,
        "sessions": [
            {
                "session": v.session_id,
                "intact": v.intact,
                "checkpoints": v.checkpoints,
                "fulls": v.fulls,
                "events": v.events,
                "findings": [{"record": f.record, "why": f.why} for f in v.findings],
            }
            for v in found
        ],
    }
    screen.answer(data, as_document=json, show=lambda: _show(found))
    if not intact:
        damaged = sum(not verified.intact for verified in found)
        screen.hint(
            f"raf: {damaged} of {len(found)} sessions are damaged; what is intact before it can be "
            "forked: raf fork SESSION NEW --at COMMIT"
        )
        raise typer.Exit(ExitCode.DAMAGED)


def _show(found: list[Verified]) -> None:
    rows = [
        (
            v.session_id,
            "intact" if v.intact else "damaged",
            v.checkpoints,
            v.fulls,
            v.events,
        )
        for v in found
    ]
    headers = ("session", "status", "checkpoints", "fulls", "events")
    screen.table(headers, rows, none="no sessions")
    findings = [(v.session_id, f.record, f.why) for v in found for f in v.findings]
    if findings:
        screen.heading("findings")
        screen.table(("session", "record", "why"), findings, none="")
