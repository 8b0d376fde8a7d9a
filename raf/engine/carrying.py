"""What goes along when a session moves to another graph, besides messages: state and journal; pure.

Rules of this file stand with the plan that they are part of (`raf.engine.migration`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from raf.checkpoint.delta import Op
from raf.checkpoint.snapshot import Message
from raf.engine.edges import Edges, Leaving
from raf.engine.journal import OpenStep
from raf.engine.result import EFFECT, FAILURE, INTENT, Result, result_to_wire
from raf.state.ops import Delete, Set, State, Write
from raf.state.scope import ScopeKey
from raf.topology.renaming import Renaming

Place: TypeAlias = tuple[str, str]  # of a value in the state: scope and key
Entry: TypeAlias = tuple[object, ...]


@dataclass(slots=True)
class CarriedState:
    """The own state of nodes and the variables of loops, on their way to new names.

    `refusals` are pairs: the name to drop, and why it is in the way.
    """

    ops: list[Op] = field(default_factory=list)
    moves: list[str] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, state: State, names: Renaming, drop: Collection[str]) -> "CarriedState":
        """What moves of a state; `drop` gives up the state of nodes that are gone."""
        made = cls()
        variables = dict(_variables(names))
        gone: list[Op] = []
        come: dict[Place, Set] = {}
        stays: set[Place] = set()
        for cell in state.as_ops():
            here, scope = (cell.scope, cell.key), ScopeKey.parse(cell.scope)
            moved = None if scope.is_shared else names.node(scope.node_id)
            there = variables.get(here) or (here if moved is None else (_own(moved), cell.key))
            if there != here:
                made._refuse_meeting(there, come)
                come[there] = Set(*there, cell.value)
            elif moved is not None or scope.is_shared or scope.node_id not in drop:
                stays.add(here)
                continue
            gone.append(Delete(*here))
        for place in sorted(come):
            made._refuse_meeting(place, stays)
        made.ops += [*gone, *(come[place] for place in sorted(come))]
        made.moves += [f"state goes to node {name!r}" for name in _names_of(come)]
        return made

    def _refuse_meeting(self, place: Place, taken: Collection[Place]) -> None:
        if place in taken:
            name = ScopeKey.parse(place[0]).node_id
            why = f"state {place[1]!r} of {name!r} is in the way of what moves there"
            self.refusals.append((name, why))


def _variables(names: Renaming) -> Iterator[tuple[Place, Place]]:
    for loop_id, loop in names.old.loops.items():
        now = names.loop(loop_id)
        if now is not None:
            yield (_own(loop.source), loop.variable), (_own(now.source), now.variable)


def _own(node: str) -> str:
    return str(ScopeKey.private(node))


def _names_of(places: Iterable[Place]) -> list[str]:
    return sorted({ScopeKey.parse(scope).node_id for scope, _ in places})


class CarriedJournal:
    """The open step in new names.

    Attributes:
        step: What it says now, without invocations that were given up.
        changed: Whether a name in it changed, or anything of it is gone.
        refusals: Pairs: the name to drop, and what a result wants with it.
    """

    def __init__(
        self,
        step: OpenStep,
        pending: Mapping[int, Message],
        names: Renaming,
        edges: Edges,
        given_up: Collection[int],
    ) -> None:
        self.refusals: list[tuple[str, str]] = []
        self._names, self._edges = names, edges
        self.step = replace(
            step, results={}, failures=dict(step.failures), last_failure=dict(step.last_failure)
        )
        for number, result in step.results.items():
            message = pending.get(number)
            node = None if message is None else names.node(message.target)
            if number not in given_up and node is not None:
                self._take(result, edges.leaving[node])
        told = {*step.results, *step.effects, *step.failures}
        self.numbers = sorted(told - set(given_up))
        self.changed = self.step.results != step.results or bool(told & set(given_up))

    def entries(self, number: int) -> list[Entry]:
        """The journal entries that say of one invocation what the step says."""
        return list(_entries(self.step, number))

    def _take(self, result: Result, leaving: Leaving) -> None:
        if result.status == "fallback" and not leaving.fallback and result.failure:
            self.step.failures[result.number] = result.failures
            self.step.last_failure[result.number] = result.failure
        else:
            self.step.results[result.number] = self._renamed(result, leaving)

    def _renamed(self, result: Result, leaving: Leaving) -> Result:
        sends = []
        for sent in result.sends:
            to = sent.to and (self._names.node(sent.to) or sent.to)
            if sent.to and to not in leaving.targets:
                why = f"a result of message {result.number} is for {sent.to!r}, where no edge leads"
                self.refusals.append((sent.to, why))
            sends.append(replace(sent, to=to))
        events = [
            replace(event, node=self._names.node(event.node) or event.node)
            for event in result.events
        ]
        writes = tuple(map(self._write, result.writes))
        return replace(result, sends=tuple(sends), writes=writes, events=tuple(events))

    def _write(self, write: Write) -> Write:
        scope = ScopeKey.parse(write.scope)
        moved = None if scope.is_shared else self._names.node(scope.node_id)
        return write if moved is None else replace(write, scope=_own(moved))


def _entries(step: OpenStep, number: int) -> Iterator[Entry]:
    for key, record in step.effects.get(number, {}).items():
        if record.result is None:
            yield (INTENT, number, key, record.digest)
        else:
            yield (EFFECT, number, key, record.digest, record.result)
    if number in step.failures and number in step.last_failure:
        failure, first = step.last_failure[number], step.first_failure.get(number, 0.0)
        said = (failure.error_type, failure.text, failure.code)
        yield (FAILURE, number, step.failures[number], first, *said)
    if number in step.results:
        yield tuple(result_to_wire(step.results[number]))
