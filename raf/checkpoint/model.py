"""Checkpoints as people get them: plain values for reading, comparing and listing."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from raf.checkpoint.snapshot import Snapshot
from raf.errors import CheckpointNotFoundError
from raf.state.scope import ScopeKey
from raf.store.model import RecordInfo


def checkpoint_id(session_id: str, commit: int) -> str:
    """The id that people and links use: `session@commit`."""
    return f"{session_id}@{commit}"


def commit_of(session_id: str, checkpoint: str | int) -> int:
    """The commit number that a checkpoint id of this session names.

    Raises:
        CheckpointNotFoundError: It is no checkpoint id, or another session's.
    """
    if isinstance(checkpoint, int) and not isinstance(checkpoint, bool):
        return checkpoint
    text = str(checkpoint)
    owner, separator, number = text.rpartition("@")
    if separator and owner != session_id:
        why = f"it belongs to session {owner!r}"
        raise CheckpointNotFoundError(session_id, text, why)
    if not number.isascii() or not number.isdigit():
        why = "a checkpoint id is SESSION@COMMIT or a commit number"
        raise CheckpointNotFoundError(session_id, text, why)
    return int(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A whole checkpoint, decoded.

    Args:
        checkpoint_id: `session@commit`.
        step_number: The step it ends; -1 is the entry, before the first step.  Not unique: order
            comes from the commit number and the parent.
        graph_fingerprint: The graph that it was made under.
        state_data: Scope text -> key -> value.
        edge_state_data: What barriers hold and which loops were granted more, by name.
        pending_messages: Messages that the next step delivers.
        parent_checkpoint_id: The checkpoint before; None for a full snapshot.
        created_at: UTC seconds.
    """

    checkpoint_id: str
    session_id: str
    step_number: int
    graph_fingerprint: str
    state_data: dict[str, dict[str, Any]]
    edge_state_data: dict[str, Any]
    pending_messages: list[dict[str, Any]]
    parent_checkpoint_id: str | None
    is_full_snapshot: bool
    created_at: float
    run_id: str = ""
    status: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """One line of a session's history, without its data.

    `byte_size` is what is stored of it, compressed; 0 after it was pruned (its events stay).
    """

    checkpoint_id: str
    session_id: str
    commit: int
    step_number: int
    parent_checkpoint_id: str | None
    is_full_snapshot: bool
    byte_size: int
    events: int
    created_at: float
    finished_run: str = ""

    @classmethod
    def of(cls, session_id: str, info: RecordInfo) -> "CheckpointInfo":
        """From the clear fields of a record."""
        alone = info.full or info.commit == 0
        return cls(
            checkpoint_id=checkpoint_id(session_id, info.commit),
            session_id=session_id,
            commit=info.commit,
            step_number=info.step,
            parent_checkpoint_id=None if alone else checkpoint_id(session_id, info.commit - 1),
            is_full_snapshot=info.full,
            byte_size=info.body_size,
            events=info.event_count,
            created_at=info.created_at,
            finished_run=info.run_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between two checkpoints: added, removed or changed."""

    where: str
    key: str
    kind: str
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault that verify found; `sealed`: no fault, but its key is not at hand."""

    record: str
    why: str
    sealed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What verify looked at, and what it found; no findings: all is well."""

    session_id: str
    checkpoints: int
    fulls: int
    events: int
    findings: tuple[Finding, ...] = field(default=())

    @property
    def intact(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def sealed(self) -> bool:
        """Whether all that was found is that keys are not at hand: nothing is known to be damaged."""
        return bool(self.findings) and all(finding.sealed for finding in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What a repair gives up.

    Args:
        commits: Numbers of the commits after the last intact point.
        steps: Their steps, as far as they can be read.
        outputs: Outputs in their events of runs that have no record: such a run gives them anew.
        events: First and last numbers of events that cannot be read.
        journal: Entries of the step in flight: finished nodes and effects that may run again.
        requests: Numbers of requests that cannot be read.
        runs: Ids of runs that began after the last intact point.
        results: Ids of finished runs whose result cannot be read; called again, they run anew.
    """

    commits: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    outputs: int = 0
    events: tuple[tuple[int, int], ...] = ()
    journal: int = 0
    requests: tuple[int, ...] = ()
    runs: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What a repair of a session would do, or has done.

    Args:
        findings: What is damaged; nothing: there is nothing to repair.
        head: The last commit, as far as it is known.
        commit: The last intact one, to which the session falls back; None: nothing can be saved.
        step: The step that it ends.
        lost: What is given up.
        forks: Intact commits, one of each chain, from which the session can be forked instead.
        status: How its run stands after it; "failed" waits for a caller, who is to know of `again`.
        again: Steps that run again, with their effects, when the session goes on.
        nodes: The nodes of those steps, as far as events tell.
        anew: Whether the session must be written anew: the store cannot mend it in its place.
        checkpoint: The checkpoint that the repair made; empty when it was not done.
        left: What `verify` found after it; nothing: all is well.
    """

    session_id: str
    findings: tuple[Finding, ...]
    head: int = -1
    commit: int | None = None
    step: int = -1
    lost: Lost = Lost()
    forks: tuple[int, ...] = ()
    status: str = ""
    again: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    anew: bool = False
    checkpoint: str = ""
    left: tuple[Finding, ...] = ()

    @property
    def possible(self) -> bool:
        """Whether there is something to mend, and something to go on from."""
        return bool(self.findings) and self.commit is not None


def state_cells(snapshot: Snapshot) -> Iterator[tuple[str, str, bytes]]:
    """Every key of a snapshot's state with its encoded value, in order."""
    for op in snapshot.state.as_ops():
        yield op.scope, op.key, op.value


def scope_name(scope: str) -> str:
    """A scope as people read it: `node` or `::shared`."""
    key = ScopeKey.parse(scope)
    return key.node_id if key.scope_name is None else f"::{key.scope_name}"
