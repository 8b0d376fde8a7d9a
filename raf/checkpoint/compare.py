"""What differs between two snapshots, and whether a full says what its chain says; pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from raf.checkpoint.codec import CheckpointPart, ops_digest
from raf.checkpoint.delta import as_ops, merge
from raf.checkpoint.model import Change, scope_name, state_cells
from raf.checkpoint.snapshot import Snapshot

Decode = Callable[[bytes], Any]


def differences(before: Snapshot, after: Snapshot, decode: Decode) -> list[Change]:
    """What changed between two snapshots: state first, then messages, barriers, loops, run."""
    old = {(scope, key): value for scope, key, value in state_cells(before)}
    new = {(scope, key): value for scope, key, value in state_cells(after)}
    changes = [
        _change(
            f"state {scope_name(scope)}", key, old.get((scope, key)), new.get((scope, key)), decode
        )
        for scope, key in sorted(old.keys() | new.keys())
        if old.get((scope, key)) != new.get((scope, key))
    ]
    for where, mine, theirs in (
        ("pending", _pending(before), _pending(after)),
        ("barrier", _barriers(before), _barriers(after)),
        ("loop", _loops(before), _loops(after)),
        ("run", _run(before), _run(after)),
    ):
        changes += _plain(where, mine, theirs)
    return changes


def _change(
    where: str, key: str, before: bytes | None, after: bytes | None, decode: Decode
) -> Change:
    kind = "added" if before is None else "removed" if after is None else "changed"
    return Change(
        where=where,
        key=key,
        kind=kind,
        before=None if before is None else decode(before),
        after=None if after is None else decode(after),
    )


def _plain(where: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            kind = "added" if key not in before else "removed" if key not in after else "changed"
            yield Change(
                where=where, key=key, kind=kind, before=before.get(key), after=after.get(key)
            )


def _pending(snapshot: Snapshot) -> dict[str, Any]:
    return {f"message {n}": m.target for n, m in snapshot.pending.items()}


def _barriers(snapshot: Snapshot) -> dict[str, Any]:
    return {
        f"{barrier} {path}" if path else barrier: sorted(slots)
        for (barrier, path), slots in snapshot.barriers.items()
    }


def _loops(snapshot: Snapshot) -> dict[str, Any]:
    parked = {f"{p.loop} parked": p.number for p in snapshot.parked.values()}
    granted = {f"{loop} granted {path}": n for (loop, path), n in snapshot.grants.items()}
    return parked | granted


def _run(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "run_id": snapshot.run.run_id,
        "status": snapshot.run.status,
        "step": snapshot.step,
        "outputs": len(snapshot.outputs),
    }


def full_agrees(before: Snapshot, full: CheckpointPart) -> bool:
    """Whether a full says what the snapshot before it and its own operations make; changes `before`."""
    merge(before, full.delta or (), full.envelope.at)
    return ops_digest(as_ops(before)) == full.digest
