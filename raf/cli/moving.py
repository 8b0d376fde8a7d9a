"""Commands that move sessions between stores by an export file: export, import.

Sessions go as they lie in the store: what is encrypted stays encrypted, and no key is needed.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from raf.checkpoint.manager import CheckpointManager
from raf.checkpoint.model import Finding
from raf.cli import options, screen
from raf.cli.exits import ExitCode, code_of_error
from raf.cli.places import existing
from raf.errors import ConfigurationError
from raf.store.model import check_session_id
from raf.store.port import Store
from raf.store.sealed import sealed_by_environment
from raf.store.sealed.envelope import is_envelope
from raf.store.transfer import Moved, dump, load, whole
from raf.store.urls import open_store

# -- export ----------------------------------------------------------------------------------------


def export(
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="SESSION...", help="The sessions to export.", show_default=False),
    ] = None,
    *,
    to: Annotated[
        Path,
        typer.Option(
            "--to", metavar="FILE", help="The file to make; one that is there is refused."
        ),
    ],
    everything: Annotated[bool, typer.Option("--all", help="Every session of the store.")] = False,
    store: options.Store = options.DEFAULT_STORE,
    json: options.Json = False,
) -> None:
    """Write sessions to a file, whole and of one moment each.

    Others may go on writing meanwhile: each session holds all that was acknowledged before its turn.
    """
    if everything == bool(sessions):
        raise ConfigurationError("name the sessions to export, or give --all")
    names = [check_session_id(name) for name in dict.fromkeys(sessions or [])]

    async def main() -> Moved:
        async with CheckpointManager(existing(store).beneath) as manager:
            if everything:
                names.extend([head.session_id async for head in manager.heads()])
            for name in () if everything else names:
                await manager.head(name)
            with screen.progress("exporting", len(names)) as advance:
                return await dump(manager.store, _each(names), to, moved=advance)

    moved = asyncio.run(main())
    damaged = [
        {"session": name, "code": error.code, "message": str(error)}
        for name, error in moved.damaged
    ]
    data = {"file": str(to), "sessions": list(moved.sessions), "damaged": damaged}
    screen.answer(data, as_document=json, show=lambda: _show("exported", moved, to))
    if moved.damaged:
        for _, error in moved.damaged:
            screen.hint(f"raf: left out: {error}")
        raise typer.Exit(max(code_of_error(error) for _, error in moved.damaged))


async def _each(names: Sequence[str]) -> AsyncIterator[str]:
    for name in names:
        yield name


def _show(what: str, moved: Moved, file: Path) -> None:
    for name in moved.sessions:
        screen.say(f"{what}: {name}")
    for name in moved.skipped:
        screen.say(f"skipped, it is there: {name}")
    screen.say(f"{len(moved.sessions)} sessions {what}, {file}")


# -- import ----------------------------------------------------------------------------------------


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What raf export wrote.")],
    skip_existing: Annotated[
        bool,
        typer.Option(
            "--skip-existing", help="Leave sessions alone that are there, and take the others."
        ),
    ] = False,
    store: options.Store = options.DEFAULT_STORE,
    json: options.Json = False,
) -> None:
    """Take the sessions of an export file into a store, and check them there.

    Of a damaged file nothing is taken.  The store is made if it is not there.
    """
    place = open_store(store)
    if store.partition(":")[0].lower() == "memory":
        raise ConfigurationError("memory: ends with this command: name a store with --store")

    async def main() -> tuple[Moved, list[tuple[str, Finding]]]:
        async with place:
            moved = await load(place, file, skip_existing=skip_existing)
            findings: list[tuple[str, Finding]] = []
            with screen.progress("verifying", len(moved.sessions)) as advance:
                for name in moved.sessions:
                    findings += [(name, finding) for finding in await _check(place, name)]
                    advance()
            return moved, findings

    moved, findings = asyncio.run(main())
    data = {
        "file": str(file),
        "sessions": list(moved.sessions),
        "skipped": list(moved.skipped),
        "findings": [
            {"session": name, "record": found.record, "why": found.why} for name, found in findings
        ],
    }
    screen.answer(data, as_document=json, show=lambda: _show("imported", moved, file))
    _tell_found(moved, findings)


def _tell_found(moved: Moved, findings: Sequence[tuple[str, Finding]]) -> None:
    """What was found damaged, and what could not be looked at, which is no damage."""
    damaged = {name: found for name, found in findings if not found.sealed}
    sealed = {name for name, found in findings if found.sealed} - damaged.keys()
    if sealed:
        screen.hint(
            f"raf: {len(sealed)} of {len(moved.sessions)} sessions were imported and not checked: "
            "they are sealed with a key that is not at hand (RAF_KEYS, RAF_KEY_FILE)"
        )
    if damaged:
        screen.hint(
            f"raf: {len(damaged)} of {len(moved.sessions)} sessions are damaged, as they were in the "
            f"store that they come from: raf verify {next(iter(damaged))}"
        )
        raise typer.Exit(ExitCode.DAMAGED)


async def _check(place: Store, name: str) -> Sequence[Finding]:
    """What verify finds of a session; an encrypted one is looked at if its keys are at hand."""
    session = await whole(place, name)
    store = place
    if any(is_envelope(record.body) for record in session.log):
        store = sealed_by_environment(place)
        if store is place:
            return ()
    return (await CheckpointManager(store).verify(name)).findings
