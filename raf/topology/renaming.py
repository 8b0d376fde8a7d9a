"""From the names of one graph to those of another: nodes, loops, barriers, paths; pure.

Rules of this file:
- A mapping leads from names of the old graph to names of the new one.  It may name nodes, and also
  loops and barriers by their ids (`source>target`, `a+b>target`), for those that go on elsewhere.
- A node that is not named keeps its name, unless another node is led to it: then it is gone.
- A loop or barrier that is not named is known again by its id under the new names of its nodes.  A
  barrier is also known again as the only one of its target in both graphs, so a fan-in that gets
  one source more, or loses one, is still the same.
- What is not found so is gone (None).  Two old names never lead to one new name.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from raf.topology.loops import Loops, Path
from raf.topology.model import FanInEdge, LoopEdge, Topology


@dataclass(frozen=True, slots=True)
class Parts:
    """A graph's parts by name."""

    nodes: frozenset[str]
    loops: Mapping[str, LoopEdge]
    barriers: Mapping[str, FanInEdge]

    @classmethod
    def of(cls, topology: Topology) -> "Parts":
        """The parts of a topology."""
        edges = topology.edges
        return cls(
            frozenset(node.name for node in topology.nodes),
            {edge.loop_id: edge for edge in edges if isinstance(edge, LoopEdge)},
            {edge.barrier_id: edge for edge in edges if isinstance(edge, FanInEdge)},
        )

    @property
    def by_kind(self) -> Mapping[str, Collection[str]]:
        """The names, by what they name: nodes, loops, barriers."""
        return {"node": self.nodes, "loop": self.loops, "barrier": self.barriers}

    def kinds_of(self, name: str) -> frozenset[str]:
        """What a name names here: a node, a loop, a barrier."""
        return frozenset(kind for kind, group in self.by_kind.items() if name in group)

    def those(self, kinds: Collection[str]) -> str:
        """The names of some kinds, as a message gives them."""
        groups = (sorted(self.by_kind[kind]) for kind in sorted(kinds))
        return ", ".join(name for group in groups for name in group) or "none"


class Renaming:
    """Leads from the names of one graph to those of another.

    Attributes:
        faults: What is wrong with the mapping itself, in words.
    """

    def __init__(self, saved: Topology, current: Topology, mapping: Mapping[str, str]) -> None:
        self.old, self.new = Parts.of(saved), Parts.of(current)
        self.faults = tuple(_faults(self.old, self.new, mapping))
        self._mapping = mapping
        self._around = Loops.of(current).of_node
        led_to = {new for old, new in mapping.items() if old != new}
        self._nodes = {
            name: mapping.get(name, name)
            for name in self.old.nodes
            if mapping.get(name, name) in self.new.nodes and (name in mapping or name not in led_to)
        }
        loops = {name: self._loop_id(edge) for name, edge in self.old.loops.items()}
        self._loops = self._known(loops, self.new.loops)
        barriers = {name: self._barrier_id(edge) for name, edge in self.old.barriers.items()}
        self._barriers = self._known(barriers, self.new.barriers)

    def unknown(self, drop: Collection[str]) -> tuple[str, ...]:
        """What is wrong with old names that are to be dropped, in words."""
        there = self.old.those(self.old.by_kind)
        return tuple(
            f"drop names {name!r}, which is not in the graph that the session has; it has: {there}"
            for name in sorted(drop)
            if not self.old.kinds_of(name)
        )

    def node(self, name: str) -> str | None:
        """The new name of a node; None when it is gone."""
        return self._nodes.get(name)

    def loop(self, loop_id: str) -> LoopEdge | None:
        """The loop that an old one is now."""
        return self.new.loops.get(self._loops.get(loop_id, ""))

    def barrier(self, barrier_id: str) -> FanInEdge | None:
        """The barrier that an old one is now."""
        return self.new.barriers.get(self._barriers.get(barrier_id, ""))

    def path_at(self, path: Path, node: str) -> Path | None:
        """A path in new names, at a node of the new graph; None when it does not fit the loops there."""
        around = self._around[node]
        moved = tuple((self._loops.get(loop, ""), iteration) for loop, iteration in path)
        return moved if tuple(loop for loop, _ in moved) == around else None

    def path_around(self, path: Path, loop: LoopEdge) -> Path | None:
        """A path in new names, outside of a loop of the new graph."""
        around = self._around[loop.source]
        moved = tuple((self._loops.get(name, ""), iteration) for name, iteration in path)
        outside = around[: around.index(loop.loop_id)]
        return moved if tuple(name for name, _ in moved) == outside else None

    # -- how loops and barriers are known again ------------------------------------------------

    def _known(self, found: Mapping[str, str], new: Container[str]) -> dict[str, str]:
        """Those that the mapping names, and of the others those that were found again."""
        named = {name: self._mapping[name] for name in found if name in self._mapping}
        taken = set(named.values())
        return {n: i for n, i in found.items() if i in new and i not in taken} | named

    def _loop_id(self, edge: LoopEdge) -> str:
        return f"{self.node(edge.source)}>{self.node(edge.target)}"

    def _barrier_id(self, edge: FanInEdge) -> str:
        target = self.node(edge.target)
        known = f"{'+'.join(str(self.node(source)) for source in edge.sources)}>{target}"
        if known in self.new.barriers:
            return known
        before = _into(edge.target, self.old.barriers.values())
        after = _into(target, self.new.barriers.values())
        return after[0].barrier_id if len(before) == len(after) == 1 else ""


def _into(target: str | None, edges: Iterable[FanInEdge]) -> list[FanInEdge]:
    return [edge for edge in edges if edge.target == target]


def _faults(old: Parts, new: Parts, mapping: Mapping[str, str]) -> Iterable[str]:
    led: dict[str, str] = {}
    for name, other in mapping.items():
        kinds = old.kinds_of(name)
        if not kinds:
            there = old.those(["node"])
            yield (
                f"the mapping names {name!r}, which is not in the graph that the session has; its "
                f"nodes: {there}"
            )
        elif not kinds <= new.kinds_of(other):
            kind, there = " and ".join(sorted(kinds)), new.those(kinds)
            yield (
                f"the mapping leads {name!r} to {other!r}, but the new graph has no {kind} so "
                f"named; it has: {there}"
            )
        if other in led:
            yield f"the mapping leads {led[other]!r} and {name!r} to one name, {other!r}"
        led.setdefault(other, name)
