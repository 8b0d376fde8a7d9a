"""How a session moves to another graph: everything that it holds finds its place, or is named; pure.

Rules of this file:
- Held things keep their message number, payload, path and time; only names change, by the mapping
  (`raf.topology.renaming`).  What has a place moves, what has none is a refusal that names it.
- A message needs its node, inside the same loops.  What a barrier gave up needs the barrier and its
  sources; what a barrier holds needs the barrier, inside the same loops, and a slot for its source;
  a parked message needs its loop.
- A journaled result needs the edge along which it names a target.  One that fell back where there is
  no fallback any more is judged anew, by what now follows a failure.
- The own state of a node goes with its node, and a loop's variable with its loop.  State of a node
  that is gone stays where it is, unless another's would take its place: then it is a refusal.
- What only counts or remembers goes without a word when its loop or barrier is gone: whatever stands
  there is refused by itself.  Outputs are history, and keep the names under which they were made.
- A mapping that cannot be meant is the only refusal: under it nothing else can be judged.
- `drop` names nodes, loops or barriers of the old graph whose things may be lost where they have no
  place; it takes nothing that has one.  A dropped message is a dead letter: an event holds it.  Its
  journal goes with it.  The own state of a dropped node that is gone goes too.  What a result sends
  to a dropped node becomes a dead letter when it is applied.
- A run that is over runs no more: what it holds and has no place is dropped unasked.
- The journal of the open step stays as it is if no name in it changed; else its folded records go
  into the checkpoint (`Keep`), so that there is one moment at which the session has moved.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from raf.checkpoint.codec import encode_journal
from raf.checkpoint.delta import (
    Fire,
    Grant,
    Graph,
    Hold,
    Keep,
    Late,
    Op,
    Park,
    Send,
    SetRun,
    Suspend,
    Take,
    Unpark,
    Wake,
    as_ops,
    merge,
)
from raf.checkpoint.restore import Restored
from raf.checkpoint.snapshot import BarrierKey, Message, Parked, Slot, Snapshot
from raf.engine.carrying import CarriedJournal, CarriedState
from raf.engine.edges import Edges
from raf.engine.journal import OpenStep
from raf.errors import UndecodableError
from raf.events import Happening, Kind
from raf.topology.compatible import Held, changes_in_reach
from raf.topology.loops import Path
from raf.topology.model import LoopEdge, Topology
from raf.topology.renaming import Renaming
from raf.topology.saved import saved_workflow
from raf.topology.workflow import Workflow

NO_MAPPING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """What moves a session to another graph.

    Args:
        ops: The operations of the one commit.
        happenings: A dead letter for each message that is dropped.
        refusals: What has no place, in words; with one of them nothing is to be committed.
        moves: What changes its name, in words.
        entries: The journal of the open step in new names.
        carried: Whether `ops` hold the journal, so that the commit ends it.
    """

    ops: tuple[Op, ...] = ()
    happenings: tuple[Happening, ...] = ()
    refusals: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    entries: tuple[tuple[object, ...], ...] = ()
    carried: bool = False


def held_by(snapshot: Snapshot, saved: Topology) -> Held:
    """Where what a session holds stands; a run that is over holds nothing that counts."""
    if snapshot.finished:
        return Held()
    messages = [*snapshot.pending.values(), *(s.message for s in snapshot.suspended.values())]
    sources = {e.loop_id: e.source for e in saved.edges if isinstance(e, LoopEdge)}
    parked = {sources[p.loop] for p in snapshot.parked.values() if p.loop in sources}
    return Held(
        nodes=frozenset(message.target for message in messages) | parked,
        barriers=frozenset(barrier for barrier, _ in snapshot.barriers),
        late=frozenset(barrier for barrier, _ in snapshot.late),
        fired=frozenset(message.source for message in messages if message.from_barrier),
    )


def saved_graph(restored: Restored, workflow: Workflow) -> Topology:
    """The graph that a session was saved under.

    Raises:
        UndecodableError: The session holds no description of it that this code knows.
    """
    if restored.snapshot.fingerprint == workflow.fingerprint:
        return workflow.topology
    return saved_workflow(restored.manifest).topology


def is_compatible(restored: Restored, workflow: Workflow) -> bool:
    """Whether nothing that the session holds can meet what changed of its graph."""
    try:
        saved = saved_graph(restored, workflow)
    except UndecodableError:
        return False
    return not changes_in_reach(saved, workflow.topology, held_by(restored.snapshot, saved))


def preview(snapshot: Snapshot, migration: Migration) -> Snapshot:
    """A copy of the session behind the migration."""
    moved = Snapshot()
    merge(moved, as_ops(snapshot))
    moved.sent_at = dict(snapshot.sent_at)
    merge(moved, migration.ops)
    return moved


def plan_migration(
    saved: Topology,
    workflow: Workflow,
    snapshot: Snapshot,
    step: OpenStep,
    mapping: Mapping[str, str] = NO_MAPPING,
    drop: Collection[str] = (),
) -> Migration:
    """What moves a session at rest to the graph of a workflow.

    Args:
        saved: The graph that the session was saved under.
        workflow: The code that it is to run under.
        snapshot: The session as it stands; it stays as it is.
        step: Its open step, as the journal tells it.
        mapping: Old names to new ones: nodes, and ids of loops and barriers.
        drop: Old names whose things may be lost where they have no place.
    """
    names, edges = Renaming(saved, workflow.topology, mapping), Edges.of(workflow)
    if faults := names.faults + names.unknown(drop):
        return Migration(refusals=faults)
    move = _Move(names, snapshot, frozenset(drop))
    move.messages()
    move.barriers()
    move.parked()
    state = CarriedState.of(snapshot.state, names, drop)
    journal = CarriedJournal(step, snapshot.pending, names, edges, move.dropped)
    for name, why in journal.refusals:
        move.has_no_place(name, why)
    move.refusals += [given_up_by(name, why) for name, why in state.refusals]
    move.ops += state.ops
    if snapshot.run.status == "sleeping" and not move.still_suspended:
        move.ops.append(SetRun(replace(snapshot.run, status="running", reason="")))
    entries = {number: journal.entries(number) for number in journal.numbers}
    if journal.changed:
        move.ops += [
            Keep(number, tuple(map(encode_journal, entries[number])))
            for number in journal.numbers
            if number in snapshot.pending and entries[number]
        ]
    return Migration(
        ops=(*move.ops, Graph(workflow.fingerprint)),
        happenings=tuple(move.happenings),
        refusals=tuple(move.refusals),
        moves=(*move.moves, *state.moves),
        entries=tuple(entry for number in journal.numbers for entry in entries[number]),
        carried=journal.changed,
    )


def migrated(
    saved: str, workflow: Workflow, changes: Sequence[str], *, reason: str, **told: object
) -> Happening:
    """The event that records a change of the graph."""
    graphs = {"from": saved, "to": workflow.fingerprint}
    data = graphs | {"reason": reason, "changes": list(changes)} | told
    return Happening(Kind.MIGRATED, "", 0, data)


def given_up_by(name: str, why: str) -> str:
    """A refusal, with the ways to go on: another name for the thing, or none."""
    return f"{why} (mapping={{{name!r}: NEW}} leads it elsewhere, drop=[{name!r}] gives it up)"


@dataclass(slots=True)
class _Move:
    """One migration while it is planned."""

    names: Renaming
    snapshot: Snapshot
    drop: frozenset[str]
    ops: list[Op] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    moves: list[str] = field(default_factory=list)
    dropped: set[int] = field(default_factory=set)
    still_suspended: bool = False

    def has_no_place(self, name: str, why: str) -> bool:
        """Whether what has no place may be lost; else it is refused."""
        if name in self.drop or self.snapshot.finished:
            return True
        self.refusals.append(given_up_by(name, why))
        return False

    def _give_up(self, source: str, target: str, number: int, payload: bytes) -> None:
        data = {"to": target, "dropped": True}
        self.happenings.append(Happening(Kind.DEAD_LETTER, source, number, data, payload))

    # -- messages ------------------------------------------------------------------------------

    def messages(self) -> None:
        """Move the pending, woken and suspended ones."""
        s = self.snapshot
        for number, message in sorted(s.pending.items()):
            moved = self._message(message)
            if moved is None:
                self.ops.append(Take((number,)))
            elif moved != message and number in s.woken:
                self.ops += [Suspend(replace(s.woken[number], message=moved)), Wake(number)]
            elif moved != message:
                self.ops.append(Send(moved))
        for number, held in sorted(s.suspended.items()):
            moved = self._message(held.message)
            self.still_suspended |= moved is not None
            if moved is None:
                self.ops += [Wake(number), Take((number,))]
            elif moved != held.message:
                self.ops.append(Suspend(replace(held, message=moved)))

    def _message(self, message: Message) -> Message | None:
        """The message in new names; None when it is given up (or refused)."""
        found = self._placed(message)
        if isinstance(found, Message):
            if found.target != message.target:
                said = f"message {message.number} for {message.target!r} goes to {found.target!r}"
                self.moves.append(said)
            return found
        name, why = found
        why = f"message {message.number} is for node {message.target!r}, {why}"
        if not self.has_no_place(name, why):
            return message
        self.dropped.add(message.number)
        senders = message.sources or (message.source,)
        for source, payload in zip(senders, message.payloads, strict=True):
            self._give_up(source, message.target, message.number, payload)
        return None

    def _placed(self, message: Message) -> Message | tuple[str, str]:
        """The message in new names; or the name to drop, and why it has no place."""
        target = self.names.node(message.target)
        if target is None:
            return message.target, "which is gone"
        path = self.names.path_at(message.path, target)
        if path is None:
            return message.target, "whose loops are others now"
        if not message.from_barrier:
            source = self.names.node(message.source) or message.source
            return replace(message, target=target, path=path, source=source)
        barrier = self.names.barrier(message.source)
        if barrier is None:
            return message.source, f"and comes from barrier {message.source!r}, which is gone"
        sources = tuple(self.names.node(source) or "" for source in message.sources)
        for source, moved in zip(message.sources, sources, strict=True):
            if moved not in barrier.sources:
                return message.source, f"and {source!r} feeds barrier {message.source!r} no more"
        return replace(
            message, target=target, path=path, source=barrier.barrier_id, sources=sources
        )

    def parked(self) -> None:
        """Move what waits before loop edges, and what loops were granted."""
        for number, parked in sorted(self.snapshot.parked.items()):
            loop = self.names.loop(parked.loop)
            path = None if loop is None else self.names.path_at(parked.path, loop.source)
            if loop is None or path is None:
                why = f"loop {parked.loop!r} is gone, or inside others, and parks message {number}"
                if self.has_no_place(parked.loop, why):
                    self.ops.append(Unpark(number))
                    source, _, target = parked.loop.partition(">")
                    self._give_up(source, target, number, parked.payload)
            elif (moved := Parked(number, loop.loop_id, path, parked.payload)) != parked:
                self.ops.append(Park(moved))
                said = f"message {number} of loop {parked.loop!r} goes to {loop.loop_id!r}"
                self.moves.append(said)
        self._grants()

    def _grants(self) -> None:
        old = self.snapshot.grants
        new: dict[tuple[str, Path], int] = {}
        for (loop_id, outer), iterations in old.items():
            loop = self.names.loop(loop_id)
            path = None if loop is None else self.names.path_around(outer, loop)
            if loop is not None and path is not None:
                new[loop.loop_id, path] = iterations
        self.ops += [Grant(key, 0) for key in sorted(old.keys() - new.keys())]
        self.ops += [Grant(key, n) for key, n in sorted(new.items()) if old.get(key) != n]

    # -- barriers ------------------------------------------------------------------------------

    def barriers(self) -> None:
        """Move what barriers hold, and who may be late."""
        late = dict(self.snapshot.late)
        holds: list[Op] = []
        for key, slots in sorted(self.snapshot.barriers.items()):
            moved = self._slots(key, slots)
            if moved != (key, slots):
                self.ops.append(Fire(key))
                late.pop(key, None)
                there, filled = moved
                holds += [Hold(there, slot) for _, slot in sorted(filled.items())]
                if filled and there[0] != key[0]:
                    self.moves.append(f"what barrier {key[0]!r} holds goes to {there[0]!r}")
        self.ops += holds
        wanted = dict(self._late())
        self.ops += [Late(key, ()) for key in sorted(late.keys() - wanted.keys())]
        self.ops += [Late(key, v) for key, v in sorted(wanted.items()) if late.get(key) != v]

    def _slots(
        self, key: BarrierKey, slots: Mapping[str, Slot]
    ) -> tuple[BarrierKey, dict[str, Slot]]:
        place = self._barrier_place(key)
        moved: dict[str, Slot] = {}
        for source, slot in sorted(slots.items()):
            sender = self.names.node(source)
            feeds = () if place is None else self.names.new.barriers[place[0]].sources
            if sender in feeds:
                moved[sender] = replace(slot, source=sender)
                continue
            gone = "and is gone, or its loops are others"
            why = gone if place is None else "which feeds it no more"
            why = f"barrier {key[0]!r} holds message {slot.number} of {source!r}, {why}"
            if self.has_no_place(key[0], why):
                self._give_up(source, key[0].partition(">")[2], slot.number, slot.payload)
        return place or key, moved

    def _barrier_place(self, key: BarrierKey) -> BarrierKey | None:
        barrier = self.names.barrier(key[0])
        path = None if barrier is None else self.names.path_at(key[1], barrier.target)
        return None if barrier is None or path is None else (barrier.barrier_id, path)

    def _late(self) -> Iterator[tuple[BarrierKey, tuple[str, ...]]]:
        for key, sources in self.snapshot.late.items():
            place = self._barrier_place(key)
            there = () if place is None else self.names.new.barriers[place[0]].sources
            moved = [self.names.node(source) or "" for source in sources]
            kept = sorted(source for source in moved if source in there)
            if place is not None and kept:
                yield place, tuple(kept)
