"""Repairs a session: falls back to the last intact point, by a claim, a full commit and an event.

Theory of operation.  What is lost is decided by `rebuild` and told before anything is done.  Then
there are two ways.

*In its place*, when every record can be read but some bodies or journal entries say nothing: a full
snapshot of the last intact point is committed on top, so numbers go on without a gap, and the bodies
that are of no use are pruned.

*Anew*, when records, events or requests are missing in the store itself: the session is made whole
in memory, gets the same commit on top there, and is written to a backup file, which is an export
(`raf.store.transfer`).  Then the damaged one is deleted, and the file is imported.  Killed in
between, the file holds the session, and an import finishes the repair.

How the session stands on top of it is decided by `standing`: a run whose record can be read is over,
and one that would run lost steps again waits for a caller.

Rules of this file: nothing is changed without a claim, and a live owner is not disturbed; a session
without any intact point is left as it is; a repair makes nothing run by itself.
"""

import logging
import os
from collections.abc import AsyncIterator, Sequence
from typing import Final

from raf.checkpoint.config import CheckpointConfig
from raf.checkpoint.delta import Op
from raf.checkpoint.model import Repair, checkpoint_id
from raf.checkpoint.rebuild import Rebuilt, rebuild
from raf.checkpoint.restore import Restored
from raf.checkpoint.retention import ChainSize
from raf.checkpoint.verify import verify_session
from raf.checkpoint.writer import About, How, Numbers, SessionWriter, Stand
from raf.errors import (
    CheckpointError,
    CorruptRecordError,
    RafError,
    SessionNotFoundError,
    StoreError,
)
from raf.events import Happening, Kind
from raf.store.memory import MemoryStore
from raf.store.model import Lease, Select
from raf.store.port import Store
from raf.store.transfer import dump, load

log = logging.getLogger("raf.checkpoint")

# What is repaired keeps the history that it has left.
KEEP_ALL: Final = CheckpointConfig(max_checkpoints=2**62)


async def plan_repair(store: Store, session_id: str) -> Repair:
    """What a repair of a session would do; nothing is changed.

    Raises:
        SessionNotFoundError: There is no such session.
        FormatVersionError: A part of it is newer than this code: that is no damage.
    """
    verified = await verify_session(store, session_id)
    try:
        rebuilt = await _rebuilt(store, session_id)
    except CorruptRecordError:
        return Repair(session_id=session_id, findings=verified.findings)
    point = rebuilt.point
    return Repair(
        session_id=session_id,
        findings=verified.findings,
        head=rebuilt.session.head.commit,
        commit=None if point is None else point.commit,
        step=-1 if point is None else point.snapshot.step,
        lost=rebuilt.lost,
        forks=rebuilt.forks,
        status="" if rebuilt.stands is None else rebuilt.stands.status,
        again=() if rebuilt.stands is None else rebuilt.stands.steps,
        nodes=() if rebuilt.stands is None else rebuilt.stands.nodes,
        anew=rebuilt.filled or bool(set(verified.findings) - set(rebuilt.findings)),
    )


async def _rebuilt(store: Store, session_id: str) -> Rebuilt:
    salvage = await store.salvage(session_id)
    if salvage is None:
        raise SessionNotFoundError(session_id)
    return rebuild(salvage)


async def _commit_on_top(
    store: Store, lease: Lease, rebuilt: Rebuilt, how: How, reason: str, ops: Sequence[Op]
) -> str:
    """Commit a full snapshot of the last intact point, changed so, whatever stands below it."""
    session_id, point = lease.session_id, _point(rebuilt)
    reading = await store.read(session_id, Select())
    if reading is None:
        raise SessionNotFoundError(session_id)
    head, told = reading.head, reading.head.summary
    about = About(
        workflow=told.workflow or str(point.manifest.get("topology", {}).get("name", "")),
        manifest=point.manifest,
        forked_from=told.forked_from,
        queue=told.queue,
        not_before=told.wake_at if told.status == "submitted" else None,
    )
    stand = Stand(
        snapshot=point.snapshot,
        numbers=Numbers(commit=head.commit, events=head.events, consumed=head.consumed),
        chain=ChainSize(),
        parent=point.parent if point.commit == head.commit else b"",
    )
    writer = SessionWriter(store, KEEP_ALL, lease, stand, about)
    happening, at = _happening(rebuilt, point, reason), await store.now()
    writer.merge(ops, at)
    done = await writer.write(writer.prepare(ops, [happening], at, how))
    log.warning(
        "session %r was repaired: the state of commit %d is that of commit %d, the last one that is "
        "intact, and its run is %s (%s)",
        session_id,
        done.commit,
        point.commit,
        writer.snapshot.run.status,
        reason,
    )
    return checkpoint_id(session_id, done.commit)


def _point(rebuilt: Rebuilt) -> Restored:
    if rebuilt.point is None:
        session_id, found = rebuilt.session.head.session_id, rebuilt.findings
        record = found[0].record if found else "of the last chain"
        raise CorruptRecordError(session_id, record, "no checkpoint of the session is intact")
    return rebuilt.point


def _ops(rebuilt: Rebuilt, *, waits: bool) -> Sequence[Op]:
    """What makes the last intact snapshot stand as the session does."""
    stands = rebuilt.stands
    return stands.ops if stands is not None and (waits or stands.finished) else ()


def _happening(rebuilt: Rebuilt, point: Restored, reason: str) -> Happening:
    """The repair, with its reason and losses."""
    lost = rebuilt.lost
    data = {
        "reason": reason,
        "from": point.commit,
        "commits": list(lost.commits),
        "events": [list(span) for span in lost.events],
        "journal": lost.journal,
        "requests": list(lost.requests),
        "runs": list(lost.runs),
        "results": list(lost.results),
    }
    return Happening(Kind.REPAIRED, "", 0, data)


# -- the two ways ------------------------------------------------------------------------------------


async def repair_in_place(store: Store, lease: Lease, reason: str, *, waits: bool = True) -> str:
    """Put a full snapshot of the last intact point on top of a session that is held.

    Args:
        store: Where it is.
        lease: By which it is held.
        reason: Why.
        waits: Whether a run that is not over then waits for a caller; else it stands as it stood.

    Returns:
        The id of the checkpoint.

    Raises:
        CorruptRecordError: No point of it is intact, or its head cannot be read; it is untouched.
    """
    rebuilt = await _rebuilt(store, lease.session_id)
    broken = rebuilt.lost.journal > 0
    how = How(full=True, ends_journal=broken or not rebuilt.at_head)
    made = await _commit_on_top(store, lease, rebuilt, how, reason, _ops(rebuilt, waits=waits))
    if broken and rebuilt.journal:
        await store.append(lease, rebuilt.journal)
    try:
        await store.prune(lease, rebuilt.spoilt)
    except (CheckpointError, StoreError) as error:
        log.warning("session %r: what is damaged stays in its place: %s", lease.session_id, error)
    return made


async def repair_anew(
    store: Store, lease: Lease, reason: str, backup: str | os.PathLike[str]
) -> str:
    """Write a session that is held anew, by way of a backup file.

    Returns:
        The id of the checkpoint.

    Raises:
        CorruptRecordError: No point of it is intact; it is untouched.
        ConfigurationError: There is a file of that name; nothing was changed.
        StoreError: The store failed; the file, if it is there, holds the repaired session.
    """
    session_id = lease.session_id
    rebuilt = await _rebuilt(store, session_id)
    _point(rebuilt)
    how = How(full=True, ends_journal=not rebuilt.at_head)
    async with store.over(MemoryStore(clock=store.clock)) as bench:
        await bench.adopt(rebuilt.session)
        claimed = await bench.claim(session_id, lease.owner, lease_s=lease.duration_s)
        ops = _ops(rebuilt, waits=True)
        made = await _commit_on_top(bench, claimed.lease, rebuilt, how, reason, ops)
        await bench.release(claimed.lease)
        moved = await dump(bench, _only(session_id), backup)
    for _, error in moved.damaged:
        raise error
    await store.delete(lease)
    try:
        await load(store, backup)
    except RafError:
        log.error("session %r is in %s only: import it (raf import)", session_id, backup)  # noqa: TRY400
        raise
    log.warning("session %r was written anew, from %s", session_id, backup)
    return made


async def _only(session_id: str) -> AsyncIterator[str]:
    yield session_id
