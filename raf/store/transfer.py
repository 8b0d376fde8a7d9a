"""Moving sessions between stores, directly or by an export file, without any loss.

Theory of operation.  A session is read whole, of one moment, with all that is left of its log and
its inbox, and is adopted by another store as it is: numbers, times, nonce and bytes.  So hashes,
idempotency keys and `after=` still hold, and sealed sessions stay sealed: no key is needed.

Rules of this file:
- An export file has its name only when all of it is on disk.
- A file is read twice: first to the end, to see that it is whole, then to import it.  So of a
  damaged file nothing is imported.
- Each session is adopted wholly or not at all.  Of sessions at a time only one is in memory.
"""

import asyncio
import errno
import os
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from raf.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptRecordError,
    ExportFileError,
    SessionExistsError,
    SessionNotFoundError,
    StoreFullError,
    StoreUnavailableError,
)
from raf.failpoint import failpoint
from raf.store.audit import audit
from raf.store.container import MisfitError, Packer, Unpacker, frame_size
from raf.store.model import Reading, Select
from raf.store.port import Store
from raf.store.record import HEADER

WHOLE: Final = Select(log=True, inbox=True)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What became of the sessions that were to be moved.

    Args:
        sessions: Those that were moved, in order.
        skipped: Those that were there already, and stayed as they were.
        damaged: Those that could not be read whole, with the reason.
    """

    sessions: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    damaged: tuple[tuple[str, CheckpointError], ...] = ()


async def whole(store: Store, session_id: str) -> Reading:
    """All that is left of a session, of one moment.

    Raises:
        SessionNotFoundError: There is no such session.
        CorruptRecordError: Its parts cannot be read, or do not agree with each other.
    """
    session = await store.read(session_id, WHOLE)
    if session is None:
        raise SessionNotFoundError(session_id)
    if faults := audit(session):
        raise CorruptRecordError(session_id, faults[0].record, faults[0].why)
    return session


async def copy_session(source: Store, target: Store, session_id: str) -> Reading:
    """Copy a session from one open store to another; returns what was copied.

    From a store that is not sealed into one that is, it is sealed on its way, and the other way
    round: the stores are taken as they are given.

    Guarantees:
        Lossless: whoever goes on with the copy repeats no effect and no event number.
        Atomic: the target has the whole session or none.

    Raises:
        SessionNotFoundError: The source has no such session.
        SessionExistsError: The target has one of that name; it is untouched.
        CorruptRecordError: The session cannot be read whole; nothing was written.
    """
    session = await whole(source, session_id)
    await target.adopt(session)
    return session


# -- out -------------------------------------------------------------------------------------------


async def dump(
    store: Store,
    session_ids: AsyncIterable[str],
    path: str | os.PathLike[str],
    *,
    moved: Callable[[], None] = lambda: None,
) -> Moved:
    """Write sessions of an open store to an export file, as they lie there: sealed ones sealed.

    Args:
        store: Where they are; others may write to it meanwhile.
        session_ids: Which ones; one that is deleted meanwhile is left out.
        path: The file to make.
        moved: Called after each session.

    Returns:
        Which are in the file, and which could not be read whole and are not.

    Guarantees:
        Each session is of one moment, and holds all that was acknowledged before its turn.
        Durable: on return the file is on disk; a killed export leaves no file of that name.

    Raises:
        ConfigurationError: There is a file of that name; it is untouched.
        StoreUnavailableError, StoreFullError: The file cannot be written; there is none.
    """
    target = Path(path)
    if await asyncio.to_thread(os.path.lexists, target):
        raise ConfigurationError(f"{target} is there already: name another file for the export")
    draft = target.with_name(f".{target.name}.{store.clock.new_id()}")
    try:
        file = await _on_disk(target, lambda: draft.open("xb"))
        with file:
            result = await _dump(store, session_ids, file, target, moved)
        await _on_disk(target, lambda: _publish(draft, target))
    finally:
        with suppress(OSError):
            await asyncio.to_thread(draft.unlink)
    return result


async def _dump(
    store: Store,
    session_ids: AsyncIterable[str],
    file: BinaryIO,
    target: Path,
    moved: Callable[[], None],
) -> Moved:
    packer = Packer()
    written: list[str] = []
    damaged: list[tuple[str, CheckpointError]] = []
    await _on_disk(target, lambda: file.write(packer.begin(store.clock.now())))
    async for session_id in session_ids:
        try:
            session = await whole(store.beneath, session_id)
        except SessionNotFoundError:
            continue
        except CheckpointError as error:
            damaged.append((session_id, error))
        else:
            await _on_disk(target, partial(file.writelines, packer.session(session)))
            written.append(session_id)
        moved()
    await _on_disk(target, lambda: _finish(file, packer.end()))
    return Moved(sessions=tuple(written), damaged=tuple(damaged))


async def _on_disk(target: Path, work: Callable[[], Answer]) -> Answer:
    """Do something to the file in a thread; errors of the system name it."""
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        kind = StoreFullError if error.errno in _FULL else StoreUnavailableError
        raise kind(str(target), error.strerror or str(error)) from error


def _finish(file: BinaryIO, end: bytes) -> None:
    file.write(end)
    file.flush()
    failpoint("store.export.sync.before")
    os.fsync(file.fileno())
    failpoint("store.export.sync.after")


def _publish(draft: Path, target: Path) -> None:
    failpoint("store.export.publish.before")
    draft.rename(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    failpoint("store.export.publish.after")


# -- in --------------------------------------------------------------------------------------------


async def load(
    store: Store,
    path: str | os.PathLike[str],
    *,
    skip_existing: bool = False,
    moved: Callable[[], None] = lambda: None,
) -> Moved:
    """Take the sessions of an export file into an open store, under their own names, as they lie.

    Args:
        store: Where they go.
        path: The file.
        skip_existing: Leave sessions alone that are there, instead of refusing the whole file.
        moved: Called after each session.

    Returns:
        Which were imported, and which were skipped.

    Guarantees:
        Of a file that is damaged, cut off, newer or foreign nothing is imported.
        Atomic for each session.  An error of the store in between leaves those that came before it;
        the same call with `skip_existing` goes on.

    Raises:
        ConfigurationError: There is no such file.
        ExportFileError, FormatVersionError: The file cannot be trusted or read.
        SessionExistsError: A session of it is there; nothing was imported.
        StoreError: The store failed; sessions before it are imported.
    """
    source = Path(path)
    if not await asyncio.to_thread(source.is_file):
        raise ConfigurationError(f"there is no file {source} to import")
    async with aclosing(_sessions(source)) as sessions:
        async for session in sessions:
            name = session.head.session_id
            if not skip_existing and await store.beneath.read(name, Select()) is not None:
                raise SessionExistsError(name)
    imported: list[str] = []
    skipped: list[str] = []
    async with aclosing(_sessions(source)) as sessions:
        async for session in sessions:
            name = session.head.session_id
            try:
                await store.beneath.adopt(session)
                imported.append(name)
            except SessionExistsError:
                if not skip_existing:
                    raise
                skipped.append(name)
            moved()
    return Moved(sessions=tuple(imported), skipped=tuple(skipped))


async def _sessions(source: Path) -> AsyncGenerator[Reading, None]:
    """The sessions of a file, one after another; at the end of it the file is known to be whole."""
    file = await _on_disk(source, lambda: source.open("rb"))
    with file:
        unpacker = Unpacker()
        left = await _on_disk(source, lambda: os.fstat(file.fileno()).st_size)
        try:
            while left:
                frame = await _on_disk(source, partial(_frame, file, left))
                left -= len(frame)
                if (session := unpacker.take(frame)) is not None:
                    yield session
            unpacker.check_finished()
        except MisfitError as misfit:
            raise ExportFileError(str(source), misfit.where, misfit.why) from misfit


def _frame(file: BinaryIO, left: int) -> bytes:
    """The bytes of the next frame; never more than the file has left."""
    header = file.read(HEADER.size)
    size = frame_size(header)
    if size > left:
        raise MisfitError("its end", f"it is cut off {size - left} bytes before a frame ends")
    return header + file.read(size - len(header))
