"""The store that a command works in, and the session or checkpoint that an argument names."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from raf.checkpoint.config import CheckpointConfig
from raf.checkpoint.manager import CheckpointManager
from raf.checkpoint.model import commit_of
from raf.engine.engine import WorkflowEngine
from raf.errors import (
    CheckpointNotFoundError,
    ConfigurationError,
    InvalidSessionIdError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from raf.store.model import MAX_SESSION_ID, check_session_id
from raf.store.port import Store
from raf.store.sealed import sealed_by_environment
from raf.store.urls import open_store
from raf.topology.saved import saved_workflow
from raf.topology.workflow import Workflow

# What looks after a session must not thin out its history by settings that are not its own.
KEEP_ALL = CheckpointConfig(max_checkpoints=2**62)


def store_of(url: str | Store) -> Store:
    """The store of a URL, made if it is missing; sealed if the environment holds keys.

    Raises:
        ConfigurationError: The URL names no store, or the keys cannot be read.
    """
    return sealed_by_environment(open_store(url))


def kept(url: str) -> Store:
    """The same, for commands whose work another process goes on with.

    Raises:
        ConfigurationError: As `store_of`, or no other process can look into it.
    """
    if url.partition(":")[0].lower() == "memory":
        raise ConfigurationError(
            "memory: is gone with its process: name a store with --store or RAF_STORE"
        )
    return store_of(url)


def existing(url: str) -> Store:
    """The same, for commands that make none.

    Raises:
        ConfigurationError: As `kept`.
        StoreUnavailableError: There is nothing in that place.
    """
    store = kept(url)
    scheme, _, rest = url.partition(":")
    path = Path(rest.partition("?")[0])
    # Where the folder may not even be looked into, the store itself says so.
    if scheme.lower() in ("file", "sqlite") and not path.exists() and _can_look(path):
        why = "there is nothing in that place; name another with --store or RAF_STORE"
        raise StoreUnavailableError(store.url, why)
    return store


def _can_look(path: Path) -> bool:
    folder = path.absolute().parent
    return not folder.exists() or os.access(folder, os.R_OK | os.X_OK)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[CheckpointManager]:
    """The manager of an existing store, open."""
    async with CheckpointManager(existing(url), KEEP_ALL) as manager:
        yield manager


@asynccontextmanager
async def caretaker(
    manager: CheckpointManager, session_id: str, workflow: Workflow | None = None
) -> AsyncIterator[WorkflowEngine]:
    """An engine that looks after a session without the code of its workflow.

    Args:
        manager: The open manager of its store.
        session_id: The session.
        workflow: The code to go by; the graph that the session holds when None.

    Raises:
        SessionNotFoundError: There is no such session.
        CorruptRecordError: It is damaged, so its graph cannot be read.
    """
    if workflow is None:
        restored = await manager.restore(session_id)
        if restored is None:
            raise SessionNotFoundError(session_id)
        workflow = saved_workflow(restored.manifest)
    engine = WorkflowEngine(workflow, manager.store, checkpoints=manager.config)
    async with engine:
        yield engine


async def find(manager: CheckpointManager, name: str) -> tuple[str, int | None]:
    """The session, and the commit if one is named, of `SESSION` or `SESSION@COMMIT`.

    A session of exactly that name comes first, since ids may hold an `@`.

    Raises:
        SessionNotFoundError: There is none.
        InvalidSessionIdError: It can name no session.
    """
    session_id, at, commit = name.rpartition("@")
    if not (at and session_id and commit.isascii() and commit.isdigit()):
        await manager.head(check_session_id(name))
        return name, None
    try:
        await manager.head(check_session_id(name))
    except (SessionNotFoundError, InvalidSessionIdError):
        if len(session_id) > MAX_SESSION_ID:
            raise
        await manager.head(check_session_id(session_id))
        return session_id, int(commit)
    return name, None


async def commit_in(manager: CheckpointManager, session_id: str, checkpoint: str) -> int:
    """The number of a checkpoint of the session, given as a number or `SESSION@COMMIT`.

    Raises:
        CheckpointNotFoundError: It is no checkpoint's id, another session's, or above the head.
    """
    commit = commit_of(session_id, checkpoint)
    if commit > (await manager.head(session_id)).commit:
        raise CheckpointNotFoundError(session_id, checkpoint)
    return commit
