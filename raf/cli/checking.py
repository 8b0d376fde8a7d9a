"""Commands that check what is stored, and mend it when they are told to: verify, repair."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from raf.checkpoint.manager import CheckpointManager
from raf.checkpoint.model import Finding, Lost, Repair, Verified
from raf.cli import options, screen
from raf.cli.exits import ExitCode
from raf.cli.places import opened
from raf.errors import MissingKeyError, RafError, SessionNotFoundError
from raf.store.model import Head, check_session_id

# -- verify ----------------------------------------------------------------------------------------


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

    Every record, the links between them, the merged state, events, journal, inbox and head.
    """

    async def main() -> list[Verified]:
        async with opened(store) as manager:
            if session is not None:
                return [await manager.verify(check_session_id(session))]
            return await _verify_all(manager)

    found = asyncio.run(main())
    damaged = [verified for verified in found if not (verified.intact or verified.sealed)]
    sealed = [verified for verified in found if verified.sealed]
    data = {
        "intact": not (damaged or sealed),
        "sessions": [
            {
                "session": v.session_id,
                "intact": v.intact,
                "sealed": v.sealed,
                "checkpoints": v.checkpoints,
                "fulls": v.fulls,
                "events": v.events,
                "findings": _findings(v.findings),
            }
            for v in found
        ],
    }
    screen.answer(data, as_document=json, show=lambda: _show_verified(found))
    if sealed:
        screen.hint(
            f"raf: {len(sealed)} of {len(found)} sessions are sealed with a key that is not at hand, "
            "and were not checked: set RAF_KEYS or RAF_KEY_FILE to a ring that holds it"
        )
    if damaged:
        screen.hint(
            f"raf: {len(damaged)} of {len(found)} sessions are damaged; "
            f"raf repair {damaged[0].session_id} shows what can be saved"
        )
    if damaged or sealed:
        raise typer.Exit(ExitCode.DAMAGED if damaged else ExitCode.USAGE)


async def _verify_all(manager: CheckpointManager) -> list[Verified]:
    """Every session; what goes wrong with one is a finding of it, and the others go on."""
    heads = [head async for head in manager.heads()]
    found = []
    with screen.progress("verifying", len(heads)) as advance:
        for head in heads:
            verified = await _verified(manager, head)
            found += [] if verified is None else [verified]
            advance()
    return found


async def _verified(manager: CheckpointManager, head: Head) -> Verified | None:
    """None for a session that was deleted meanwhile."""
    try:
        return await manager.verify(head.session_id)
    except SessionNotFoundError:
        if head.summary.status != "damaged":
            return None
        why, sealed = head.summary.reason, False
    except RafError as error:
        why, sealed = str(error), isinstance(error, MissingKeyError)
    finding = Finding(record="session", why=why, sealed=sealed)
    return Verified(
        session_id=head.session_id, checkpoints=0, fulls=0, events=0, findings=(finding,)
    )


def _findings(findings: Sequence[Finding]) -> list[dict[str, str]]:
    return [{"record": finding.record, "why": finding.why} for finding in findings]


def _show_verified(found: list[Verified]) -> None:
    rows = [
        (
            v.session_id,
            "intact" if v.intact else "sealed" if v.sealed else "damaged",
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


# -- repair ----------------------------------------------------------------------------------------


def repair(
    session: options.Session,
    *,
    apply: Annotated[
        bool, typer.Option("--apply", help="Do what is shown; without it nothing is changed.")
    ] = False,
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            metavar="TEXT",
            help="Why; it stands in the event.  Needed with --apply.",
            show_default=False,
        ),
    ] = "",
    backup: Annotated[
        Path | None,
        typer.Option(
            "--backup",
            metavar="FILE",
            help="Write the session anew by way of this export file; needed where the store has "
            "lost records, events or requests.",
            show_default=False,
        ),
    ] = None,
    wait_s: options.WaitS = 0.0,
    store: options.Store = options.DEFAULT_STORE,
    json: options.Json = False,
) -> None:
    """Show what can be saved of a damaged session, and fall back to it when told to.

    The session falls back to its last intact commit, in a commit of its own with the reason.
    """

    async def main() -> Repair:
        async with opened(store) as manager:
            return await manager.repair(
                check_session_id(session),
                apply=apply,
                reason=reason,
                backup=backup,
                wait_s=wait_s,
            )

    found = asyncio.run(main())
    data = {
        "session": session,
        "intact": not found.findings,
        "findings": _findings(found.findings),
        "commit": found.commit,
        "step": None if found.commit is None else found.step,
        "head": found.head,
        "lost": _lost(found.lost),
        "forks": list(found.forks),
        "status": found.status or None,
        "again": {"steps": list(found.again), "nodes": list(found.nodes)},
        "anew": found.anew,
        "checkpoint": found.checkpoint or None,
        "left": _findings(found.left),
    }
    screen.answer(data, as_document=json, show=lambda: _show_repair(found))
    if not found.checkpoint:
        _tell_how(found)
    if found.findings and (found.left or not found.checkpoint):
        raise typer.Exit(ExitCode.DAMAGED)


def _lost(lost: Lost) -> dict[str, Any]:
    return {
        "commits": list(lost.commits),
        "steps": list(lost.steps),
        "outputs": lost.outputs,
        "events": [list(span) for span in lost.events],
        "journal": lost.journal,
        "requests": list(lost.requests),
        "runs": list(lost.runs),
        "results": list(lost.results),
    }


def _show_repair(found: Repair) -> None:
    if not found.findings:
        screen.say(f"session {found.session_id} is intact")
        return
    screen.table(("record", "why"), [(f.record, f.why) for f in found.findings], none="")
    if found.commit is None:
        screen.say("nothing can be saved: no checkpoint is intact")
        return
    screen.heading("what is left")
    screen.facts(
        [
            ("last intact", f"{found.session_id}@{found.commit}, step {found.step}"),
            *((name, value) for name, value in _lost_words(found.lost) if value),
            ("its run then is", found.status),
            *((("runs again on resume", _again_words(found)),) if found.again else ()),
            ("forks", ", ".join(f"{found.session_id}@{commit}" for commit in found.forks)),
        ]
    )
    if found.checkpoint:
        screen.say(f"repaired: {found.checkpoint}")
    for finding in found.left:
        screen.say(f"still damaged: {finding.record}: {finding.why}")


def _again_words(found: Repair) -> str:
    steps, nodes = ", ".join(map(str, found.again)), ", ".join(found.nodes)
    return f"steps {steps}{f' ({nodes})' if nodes else ''}, with their effects"


def _lost_words(lost: Lost) -> list[tuple[str, str]]:
    """What is given up, each kind by name; empty where there is none."""
    events = ", ".join(
        str(first) if first == last else f"{first} to {last}" for first, last in lost.events
    )
    return [
        ("lost commits", ", ".join(map(str, lost.commits))),
        ("lost steps", ", ".join(map(str, lost.steps))),
        ("lost outputs", str(lost.outputs or "")),
        ("lost events", events),
        ("lost journal entries", str(lost.journal or "")),
        ("lost requests", ", ".join(map(str, lost.requests))),
        ("lost runs", ", ".join(lost.runs)),
        ("lost results", ", ".join(lost.results)),
    ]


def _tell_how(found: Repair) -> None:
    if not found.findings:
        return
    if not found.possible:
        screen.hint(f"raf: it cannot be mended; raf delete {found.session_id} --yes removes it")
        return
    backup = " --backup FILE" if found.anew else ""
    screen.hint(
        f"raf: nothing was changed; raf repair {found.session_id} --apply --reason TEXT{backup} falls "
        f"back to commit {found.commit}, and raf fork {found.session_id} NEW --at COMMIT leaves it"
    )
