"""Commands that change sessions at rest: cancel, edit, fork, pin, unpin, prune, delete.

None needs the code of the workflow: the session holds its graph.  Whoever changes a session claims
it first, so one that is running is not disturbed.
"""

import asyncio
from typing import Annotated

import typer

from raf.checkpoint.config import CheckpointConfig
from raf.checkpoint.manager import CheckpointManager
from raf.cli import options, screen
from raf.cli.editing import editor_for, read_changes
from raf.cli.exits import ExitCode
from raf.cli.inputs import read_mapping
from raf.cli.loading import load_workflow
from raf.cli.places import caretaker, commit_in, existing, opened
from raf.engine.engine import LEASE_S
from raf.errors import ConfigurationError, SessionNotFoundError
from raf.store.model import check_session_id
from raf.store.owner import this_owner


def cancel(
    session: options.Session,
    store: options.Store = options.DEFAULT_STORE,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait-s", metavar="SECONDS", min=0.0, help="Wait so long for its owner to stop."
        ),
    ] = 10.0,
    json: options.Json = False,
) -> None:
    """End a session's unfinished run as cancelled.

    The outcome is final; fork the session to go on from it.
    """

    async def main() -> str:
        async with (
            opened(store) as manager,
            caretaker(manager, check_session_id(session)) as engine,
        ):
            return await engine.cancel(session, wait_s=wait_s)

    status = asyncio.run(main())
    data = {"session": session, "status": status}
    screen.answer(data, as_document=json, show=lambda: screen.say(f"session {session}: {status}"))
    if status != "cancelled":
        if status == "completed":
            screen.hint("raf: the run ended before the request was heard")
            return
        screen.hint("raf: its owner has not stopped yet; the request stays in its inbox")
        raise typer.Exit(ExitCode.BUSY)


def edit(
    session: options.Session,
    *,
    assign: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SCOPE.KEY=JSON",
            help="Put this value under the key: NODE.KEY for a node's own scope, ::SCOPE.KEY for a "
            "shared one.",
        ),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="SCOPE.KEY", help="Remove the key."),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; it stands in the event.")
    ] = "by hand",
    workflow: options.MaybeReference = None,
    store: options.Store = options.DEFAULT_STORE,
    json: options.Json = False,
) -> None:
    """Change the state of a session at rest.

    All changes are one commit, with an event that holds the reason.
    """
    changes = read_changes(assign or [], delete or [])
    code = None if workflow is None else load_workflow(workflow)

    async def main() -> str:
        async with (
            opened(store) as manager,
            caretaker(manager, check_session_id(session), code) as engine,
        ):
            found = await manager.load_full_state(session)
            if found is None:
                raise SessionNotFoundError(session)
            change = editor_for(engine, found[0], changes)
            return await engine.edit(session, change, reason=reason)

    made = asyncio.run(main())
    data = {"session": session, "checkpoint": made, "changes": len(changes)}
    screen.answer(data, as_document=json, show=lambda: screen.say(f"edited: {made}"))


def fork(
    session: options.Session,
    *,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The id of the session to make.")],
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="COMMIT",
            help="A commit number or SESSION@COMMIT; the last when left out.",
        ),
    ] = None,
    allow_in_doubt: Annotated[
        bool,
        typer.Option(
            "--allow-in-doubt", help="Fork although the result of an effect is not known."
        ),
    ] = False,
    renamed: options.Renamed = None,
    drop: options.Drop = None,
    workflow: options.MaybeReference = None,
    store: options.Store = options.DEFAULT_STORE,
    json: options.Json = False,
) -> None:
    """Begin a new session from a checkpoint.

    The origin is only read; the new session stands alone.
    """
    mapping = read_mapping(renamed or [])
    code = None if workflow is None else load_workflow(workflow)

    async def main() -> str:
        async with (
            opened(store) as manager,
            caretaker(manager, check_session_id(session), code) as engine,
        ):
            where = None if at is None else await commit_in(manager, session, at)
            return await engine.fork(
                session,
                check_session_id(new),
                where,
                allow_in_doubt=allow_in_doubt,
                mapping=mapping,
                drop=drop or [],
            )

    entry = asyncio.run(main())
    data = {"session": new, "checkpoint": entry, "forked_from": session}
    show = f"forked: {entry}; go on with: raf resume MODULE:WORKFLOW {new}"
    screen.answer(data, as_document=json, show=lambda: screen.say(show))


def pin(
    session: options.Session,
    checkpoint: Annotated[
        str, typer.Argument(metavar="COMMIT", help="A commit number, or SESSION@COMMIT.")
    ],
    store: options.Store = options.DEFAULT_STORE,
    json: options.Json = False,
) -> None:
    """Keep a checkpoint and its chain from retention."""
    _pin(session, checkpoint, store, keep=True, json=json)


def unpin(
    session: options.Session,
    checkpoint: Annotated[
        str, typer.Argument(metavar="COMMIT", help="A commit number, or SESSION@COMMIT.")
    ],
    store: options.Store = options.DEFAULT_STORE,
    json: options.Json = False,
) -> None:
    """Let a pinned checkpoint go with retention again."""
    _pin(session, checkpoint, store, keep=False, json=json)


def _pin(session: str, checkpoint: str, store: str, *, keep: bool, json: bool) -> None:
    async def main() -> tuple[int, bool]:
        async with (
            opened(store) as manager,
            caretaker(manager, check_session_id(session)) as engine,
        ):
            commit = await commit_in(manager, session, checkpoint)
            await engine.pin(session, commit, keep=keep)
            restored = await manager.restore(session)
            pins = set() if restored is None else restored.snapshot.pins
            return commit, (commit in pins) == keep

    commit, done = asyncio.run(main())
    data = {"session": session, "commit": commit, "pinned": keep, "done": done}
    what = f"{session}@{commit} {'pinned' if keep else 'unpinned'}"
    later = "" if done else " as soon as its owner takes the request"
    screen.answer(data, as_document=json, show=lambda: screen.say(f"{what}{later}"))


def prune(
    session: options.Session,
    store: options.Store = options.DEFAULT_STORE,
    max_checkpoints: Annotated[
        int,
        typer.Option(
            "--max-checkpoints",
            min=1,
            metavar="N",
            help="So many stay, with the newest three chains and what is pinned.",
        ),
    ] = 100,
    events_before: Annotated[
        int | None,
        typer.Option(
            "--events-before", min=1, metavar="N", help="Drop events below this number too."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Drop old checkpoints, and old events if asked.

    Chains go as a whole, the oldest first; what is left can be resumed as before.
    """

    async def main() -> tuple[int, int]:
        config = CheckpointConfig(max_checkpoints=max_checkpoints)
        async with (
            CheckpointManager(existing(store), config) as manager,
            caretaker(manager, check_session_id(session)) as engine,
        ):
            first = (await manager.head(session)).first_event
            gone = await engine.prune(session, events_before=events_before)
            return gone, (await manager.head(session)).first_event - first

    gone, events = asyncio.run(main())
    data = {"session": session, "checkpoints": gone, "events": events}
    show = f"{session}: {gone} checkpoints and {events} events dropped"
    screen.answer(data, as_document=json, show=lambda: screen.say(show))


def delete(
    session: options.Session,
    yes: Annotated[bool, typer.Option("--yes", help="Really: there is no way back.")] = False,
    store: options.Store = options.DEFAULT_STORE,
    json: options.Json = False,
) -> None:
    """Remove a session with all it holds."""
    check_session_id(session)

    async def main() -> None:
        async with opened(store) as manager:
            # Its head alone, and no record of it: what is damaged can be deleted too.
            if not yes:
                await manager.head(session)
                raise ConfigurationError(f"deleting {session!r} is final: say it with --yes")
            owner = this_owner(manager.store.clock)
            claimed = await manager.claim(session, owner, lease_s=LEASE_S)
            await manager.store.delete(claimed.lease)

    asyncio.run(main())
    data = {"session": session, "deleted": True}
    screen.answer(data, as_document=json, show=lambda: screen.say(f"session {session} is deleted"))
