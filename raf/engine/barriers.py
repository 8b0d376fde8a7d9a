"""Barriers: what a fan-in holds back until it fires; pure.

Rules of this file:
- A barrier is keyed by its edge and the path, so passes of a loop never mix.  It takes one message
  from each source; a second one before it fired is a conflict; after it fired it fills anew.
- `all` and a quorum fire at the end of the step that fills them (before a second message of a
  source that finds it full).  A quorum takes all that are present, in declared order; the sources
  that were missing may come too late, once for each time they were missed: that is an event, never
  an error, remembered while anything of the path lives.
- `quiescent` fires when nothing is pending or suspended, and only barriers that no other filled
  barrier can reach by forward edges.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from raf.checkpoint.delta import Fire, Hold, Late, Op
from raf.checkpoint.snapshot import BarrierKey, Path, Slot, Snapshot
from raf.errors import BarrierConflictError, BarrierUnfilledError
from raf.topology.model import FanInEdge


@dataclass(frozen=True, slots=True)
class Fired:
    """What a barrier gave up: its edge, path, and what each source had sent, in declared order."""

    edge: FanInEdge
    path: Path
    slots: tuple[Slot, ...]


def shown(key: BarrierKey) -> str:
    """How errors name a barrier."""
    barrier, path = key
    passes = ", ".join(f"{loop} pass {n}" for loop, n in path)
    return f"{barrier!r} ({passes})" if passes else repr(barrier)


@dataclass(slots=True)
class Barriers:
    """The barriers of a session while a step is applied; changes are collected as operations."""

    edges: Mapping[str, FanInEdge]
    filled: dict[BarrierKey, dict[str, Slot]]
    late: dict[BarrierKey, tuple[str, ...]]
    held_before: frozenset[BarrierKey]
    _holds: dict[BarrierKey, list[Hold]] = field(default_factory=dict)
    _ops: list[Op] = field(default_factory=list)

    @classmethod
    def of(cls, snapshot: Snapshot, edges: Mapping[str, FanInEdge]) -> "Barriers":
        """A working copy: the snapshot stays as it is."""
        filled = {key: dict(slots) for key, slots in snapshot.barriers.items()}
        return cls(edges, filled, dict(snapshot.late), frozenset(filled))

    def ops(self) -> list[Op]:
        """What changed; a message that came and went with the same step leaves nothing."""
        return [*self._ops, *(hold for key in self._holds for hold in self._holds[key])]

    def put(self, edge: FanInEdge, path: Path, slot: Slot) -> Fired | str | None:
        """Take a message: returns what had to fire before, or "late", or None.

        Raises:
            BarrierConflictError: The source's slot is taken and the barrier is not full.
        """
        key = (edge.barrier_id, path)
        late = list(self.late.get(key, ()))
        if slot.source in late:
            late.remove(slot.source)
            self._set_late(key, tuple(late))
            return "late"
        fired = None
        held = self.filled.get(key, {}).get(slot.source)
        if held is not None:
            if not self._is_full(edge, key):
                raise BarrierConflictError(shown(key), slot.source, held.number, slot.number)
            fired = self._fire(edge, key)
        self.filled.setdefault(key, {})[slot.source] = slot
        self._holds.setdefault(key, []).append(Hold(key, slot))
        return fired

    def fire_full(self) -> Iterator[Fired]:
        """Fire every `all` and quorum barrier that is full, in edge and path order."""
        for key in sorted(self.filled):
            edge = self.edges[key[0]]
            if self._is_full(edge, key):
                yield self._fire(edge, key)

    def fire_quiescent(self, reaches: Mapping[str, Collection[str]]) -> list[Fired]:
        """Fire the `quiescent` barriers that no other filled barrier can still feed."""
        ready = [
            key
            for key in sorted(self.filled)
            if self.edges[key[0]].wait == "quiescent" and not self._is_fed(key, reaches)
        ]
        return [self._fire(self.edges[key[0]], key) for key in ready]

    def _is_fed(self, key: BarrierKey, reaches: Mapping[str, Collection[str]]) -> bool:
        sources = self.edges[key[0]].sources
        return any(
            source in reaches[self.edges[other[0]].target]
            for other in self.filled
            if other[0] != key[0]
            for source in sources
        )

    def check_filled(self) -> None:
        """Refuse to end while an `all` or quorum barrier waits.

        A `quiescent` one is held only by these: it misses nothing by itself, so it is not named.

        Raises:
            BarrierUnfilledError: Names the first such barrier and what it misses.
        """
        for key in sorted(self.filled):
            edge = self.edges[key[0]]
            if edge.wait != "quiescent":
                missing = tuple(s for s in edge.sources if s not in self.filled[key])
                raise BarrierUnfilledError(shown(key), missing)

    def forget_late(self, alive: Iterable[Path], around: Mapping[str, Sequence[str]]) -> None:
        """Forget late sources of paths that nothing lives in any more.

        A source outside a loop that the barrier is in may come as long as anything lives out there.
        """
        if not self.late:
            return
        paths = [*alive, *(path for _, path in self.filled)]
        for key in sorted(self.late):
            late = self.late[key]
            shared = {s: tuple(turn for turn in key[1] if turn[0] in around[s]) for s in set(late)}
            left = tuple(s for s in late if any(p[: len(shared[s])] == shared[s] for p in paths))
            if left != late:
                self._set_late(key, left)

    def _is_full(self, edge: FanInEdge, key: BarrierKey) -> bool:
        if edge.wait == "quiescent":
            return False
        need = len(edge.sources) if edge.wait == "all" else edge.wait
        return len(self.filled[key]) >= need

    def _fire(self, edge: FanInEdge, key: BarrierKey) -> Fired:
        slots = self.filled.pop(key)
        missing = tuple(s for s in edge.sources if s not in slots)
        newly = missing if isinstance(edge.wait, int) else ()
        late = tuple(sorted([*self.late.get(key, ()), *newly]))
        if late:
            self.late[key] = late
        self._holds.pop(key, None)
        if key in self.held_before:
            self.held_before -= {key}
            self._ops.append(Fire(key, late))
        elif newly:
            self._ops.append(Late(key, late))
        return Fired(edge, key[1], tuple(slots[s] for s in edge.sources if s in slots))

    def _set_late(self, key: BarrierKey, late: tuple[str, ...]) -> None:
        if late:
            self.late[key] = late
        else:
            self.late.pop(key, None)
        self._ops.append(Late(key, late))
