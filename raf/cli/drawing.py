"""The command that draws a workflow: graph."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from raf.checkpoint.restore import Restored, StoredEvent
from raf.cli import options, screen
from raf.cli.loading import load_workflow
from raf.cli.places import opened
from raf.engine.journal import read_journal
from raf.errors import ConfigurationError, SessionNotFoundError, WorkflowMismatchError
from raf.events import Kind
from raf.graph.draw import DrawState, mermaid, svg, text
from raf.graph.draw.picture import Status
from raf.store.model import check_session_id
from raf.store.owner import LeaseWatch
from raf.topology.workflow import Workflow


class Format(StrEnum):
    """In which form a graph is drawn."""

    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


def graph(
    reference: options.Reference,
    *,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="Draw how this session stands over it."),
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="text for a terminal, mermaid for documents, svg for pages.",
            show_default="by the ending of --output, else text on a terminal and mermaid in a pipe",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Write it into this file."),
    ] = None,
    store: options.Store = options.DEFAULT_STORE,
    json: options.Json = False,
) -> None:
    """Draw a workflow, and a session over it."""
    workflow = load_workflow(reference)
    chosen = form or _form(output)
    overlay = None if session is None else asyncio.run(_overlay(workflow, store, session))
    draw = {Format.TEXT: text, Format.MERMAID: mermaid, Format.SVG: svg}[chosen]
    drawn = draw(workflow, overlay)
    if output is not None:
        _write(output, drawn)
        screen.hint(f"{chosen.value} of {workflow.name} is in {output}")
    data = {
        "workflow": workflow.name,
        "fingerprint": workflow.fingerprint,
        "format": chosen.value,
        "drawing": drawn,
        "nodes": {
            name: {"status": state.status, "count": state.count}
            for name, state in sorted((overlay or {}).items())
        },
    }
    if json:
        screen.answer(data, as_document=True, show=lambda: None)
    elif output is None:
        screen.drawing(drawn)


def _form(output: Path | None) -> Format:
    endings = {".svg": Format.SVG, ".mmd": Format.MERMAID, ".mermaid": Format.MERMAID}
    if output is not None:
        return endings.get(
            output.suffix, Format.TEXT if output.suffix == ".txt" else Format.MERMAID
        )
    return Format.TEXT if screen.is_terminal(sys.stdout) else Format.MERMAID


def _write(path: Path, drawn: str) -> None:
    try:
        path.write_text(f"{drawn}\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error


async def _overlay(workflow: Workflow, store: str, session: str) -> dict[str, DrawState]:
    """How the nodes of a session's run stand."""
    async with opened(store) as manager:
        restored = await manager.restore(check_session_id(session))
        if restored is None:
            raise SessionNotFoundError(session)
        if restored.head.summary.workflow != workflow.name:
            raise WorkflowMismatchError(session, restored.head.summary.workflow, workflow.name)
        events: list[StoredEvent] = []
        after = restored.head.first_event - 1
        while True:
            _, page = await manager.events(session, after=after)
            if not page:
                break
            events += page
            after = page[-1].number
        alive = LeaseWatch(manager.store.clock).binds(session, restored.head.held)
    return overlay_of(workflow, restored, events, alive=alive)


def overlay_of(
    workflow: Workflow, restored: Restored, events: Iterable[StoredEvent], *, alive: bool
) -> dict[str, DrawState]:
    """How each node of the session's last run stands; pure.

    Args:
        workflow: Its nodes.
        restored: The session as it stands.
        events: Its events.
        alive: Whether somebody runs it at this moment.
    """
    snapshot = restored.snapshot
    mine = [event.what for event in events if event.run_id == snapshot.run.run_id]
    counts = Counter(what.node for what in mine if what.kind is Kind.NODE_COMPLETED)
    now: dict[str, Status] = dict.fromkeys(counts, "done")
    if snapshot.run.status == "failed":
        now |= {what.node: "failed" for what in mine[-2:] if what.kind is Kind.NODE_FAILED}
    finished = read_journal(restored.journal).results
    for number, message in sorted(snapshot.pending.items()):
        if number in finished:
            counts[message.target] += 1
        elif now.get(message.target) != "failed":
            now[message.target] = "running" if alive else "pending"
    now |= {held.message.target: "waiting" for held in snapshot.suspended.values()}
    return {
        node.name: DrawState(
            now.get(node.name, "done" if counts[node.name] else "idle"), counts[node.name]
        )
        for node in workflow.topology.nodes
    }
