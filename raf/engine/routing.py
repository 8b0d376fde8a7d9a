"""Where a message goes; pure.

Rules of this file:
- Loop edges are asked first, innermost first: if `until` is false and the iteration is below the
  limit, the message goes back and nowhere else.  At the limit it goes to the other edges ("exit"),
  or is parked before the loop edge ("stop").
- Each other edge judges the message on its own.  A switch takes its first match.
- Conditions see a decoded copy of the payload and the state behind the step's writes; each runs
  once for a message.  What they raise fails the step.
- A return value of an output node is an output, unless a loop edge takes it back (or parks it): a
  pass is no result.  A node that wants to show each pass calls `output()`.
- A message that no edge takes, and that is no output, is a dead letter.
- Messages are numbered in the order in which they are routed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from raf.checkpoint.delta import Op, Park, Send
from raf.checkpoint.snapshot import Message, Output, Parked, Path, Slot, Snapshot
from raf.engine.barriers import Barriers, Fired
from raf.engine.edges import Edges, Leaving
from raf.engine.plan import Invocation
from raf.engine.result import Sent
from raf.errors import ConditionError, RafError
from raf.events import Happening, Kind
from raf.state.ops import Set
from raf.state.scope import ScopeKey
from raf.state.view import StateView
from raf.topology.model import (
    DirectEdge,
    FanInEdge,
    FanOutEdge,
    LoopEdge,
    SwitchEdge,
    edge_targets,
)
from raf.topology.workflow import Workflow
from raf.values.codec import decode, encode


@dataclass(slots=True)
class Router:
    """Routes the messages of one step and collects what that changes."""

    workflow: Workflow
    edges: Edges
    snapshot: Snapshot
    view: StateView
    barriers: Barriers
    next_number: int
    ops: list[Op] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    mirrors: dict[tuple[str, str], int] = field(default_factory=dict)

    def route(self, invocation: Invocation, sent: Sent) -> None:
        """Send one payload of an invocation along the edges of its node.

        Raises:
            ConditionError: A condition raised or answered nonsense.
            PayloadTypeError: The payload does not fit its receiver.
            BarrierConflictError: A barrier holds a message of this source already.
        """
        source, path = invocation.node, invocation.message.path
        leaving = self.edges.leaving[source]
        if self._turn_back(source, path, leaving, sent):
            return
        if sent.output:
            self.put_out(invocation, sent.payload)
        taken = False
        for group in leaving.groups:
            match group:
                case FanInEdge():
                    taken |= self._into_barrier(group, source, path, sent)
                case _:
                    for target in self._targets(group, source, sent):
                        self._send(source, target, path, sent.payload)
                        taken = True
        if not taken and not sent.output:
            data = {"to": sent.to} if sent.to else {}
            self.happenings.append(
                Happening(Kind.DEAD_LETTER, source, invocation.number, data, sent.payload)
            )

    def put_out(self, invocation: Invocation, payload: bytes) -> None:
        """Add to the outputs of the run."""
        node = invocation.node
        self.outputs.append(Output(self.snapshot.step + 1, node, payload))
        self.happenings.append(Happening(Kind.OUTPUT, node, invocation.number, {}, payload))

    def fall_back(self, invocation: Invocation) -> None:
        """Hand the message of a failed node to its fallback node."""
        message = invocation.message
        target = self.edges.leaving[message.target].fallback
        path = self.workflow.loops.along(message.path, message.target, target)
        self._post(message.source, target, path, message.payloads, message.sources)

    def fire(self, fired: Iterable[Fired]) -> None:
        """Send on what barriers gave up."""
        for each in fired:
            payloads = tuple(slot.payload for slot in each.slots)
            sources = tuple(slot.source for slot in each.slots)
            self._fit_collected(each.edge, sources, payloads)
            self._post(each.edge.barrier_id, each.edge.target, each.path, payloads, sources)

    def enter(self, target: str, path: Path, payload: bytes) -> None:
        """Send the run's input to its start."""
        self._post("", target, path, (payload,), ())

    # -- loops -------------------------------------------------------------------------------

    def _turn_back(self, source: str, path: Path, leaving: Leaving, sent: Sent) -> bool:
        for loop in leaving.loops:
            if sent.to not in (None, loop.target):
                continue
            if sent.to is None and loop.until and self._holds(loop.until, source, sent.payload):
                continue
            loops = self.workflow.loops
            granted = self.snapshot.grants.get((loop.loop_id, loops.outer(path, loop)), 0)
            if loops.iteration(path, loop) < loop.max_iterations + granted:
                self.go_back(loop, path, sent.payload)
                return True
            self._at_limit(loop, path, sent.payload)
            if loop.on_limit == "stop":
                return True
        return False

    def go_back(self, loop: LoopEdge, path: Path, payload: bytes) -> None:
        """Take the loop edge once more."""
        self._fit(loop.source, loop.target, payload)
        back = self.workflow.loops.back(path, loop)
        self._post(loop.source, loop.target, back, (payload,), ())

    def _at_limit(self, loop: LoopEdge, path: Path, payload: bytes) -> None:
        data = {"loop": loop.loop_id, "iteration": self.workflow.loops.iteration(path, loop)}
        self.happenings.append(Happening(Kind.LOOP_LIMIT, loop.source, 0, data))
        if loop.on_limit == "stop":
            parked = Parked(self._number(), loop.loop_id, path, payload)
            self.parked.append(parked)
            self.ops.append(Park(parked))

    def _mirror(self, path: Path) -> None:
        for loop_id, iteration in path:
            loop = self.edges.loops[loop_id]
            self.mirrors[str(ScopeKey.private(loop.source)), loop.variable] = iteration

    def mirror_ops(self) -> list[Set]:
        """The iterations that changed, as the loops' variables show them."""
        ops = []
        for (scope, key), iteration in self.mirrors.items():
            encoded = encode(iteration, self.workflow.types)
            cell = self.view.cell(scope, key)
            if cell is None or cell.encoded() != encoded:
                ops.append(Set(scope, key, encoded))
        return ops

    # -- edges -------------------------------------------------------------------------------

    def _targets(
        self, group: DirectEdge | SwitchEdge | FanOutEdge, source: str, sent: Sent
    ) -> tuple[str, ...]:
        """Where a group takes a payload: the addressed target, or those that it judges."""
        if sent.to is not None:
            return (sent.to,) if sent.to in edge_targets(group) else ()
        match group:
            case DirectEdge():
                holds = not group.condition or self._holds(group.condition, source, sent.payload)
                return (group.target,) if holds else ()
            case SwitchEdge():
                return (self._first_match(group, source, sent.payload),)
            case FanOutEdge():
                return self._chosen(group, source, sent.payload)

    def _first_match(self, switch: SwitchEdge, source: str, payload: bytes) -> str:
        for condition, target in switch.cases:
            if self._holds(condition, source, payload):
                return target
        return switch.default

    def _chosen(self, group: FanOutEdge, source: str, payload: bytes) -> tuple[str, ...]:
        if not group.chooser:
            return group.targets
        answer = self._ask(group.chooser, source, payload)
        names = [answer] if isinstance(answer, str) else answer
        if not isinstance(names, list | tuple | set | frozenset) or any(
            name not in group.targets for name in names
        ):
            why = f"it answered {answer!r:.80}, not names among {group.targets}"
            raise ConditionError(group.chooser, source, why)
        return tuple(target for target in group.targets if target in names)

    def _holds(self, condition: str, source: str, payload: bytes) -> bool:
        answer = self._ask(condition, source, payload)
        if not isinstance(answer, bool):
            raise ConditionError(condition, source, f"it answered {answer!r:.80}, not a bool")
        return answer

    def _ask(self, name: str, source: str, payload: bytes) -> Any:
        condition = self.workflow.conditions[name]
        copy = decode(payload, self.workflow.types)
        try:
            if condition.takes_state:
                return condition.call(copy, self.view.at(source))
            return condition.call(copy)
        except RafError as error:
            raise ConditionError(name, source, str(error)) from error
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ConditionError(name, source, why) from error

    # -- sending -----------------------------------------------------------------------------

    def _into_barrier(self, edge: FanInEdge, source: str, path: Path, sent: Sent) -> bool:
        if sent.to not in (None, edge.target):
            return False
        there = self.workflow.loops.along(path, source, edge.target)
        slot = Slot(source, self._number(), sent.payload)
        answer = self.barriers.put(edge, there, slot)
        if answer == "late":
            data = {"barrier": edge.barrier_id}
            self.happenings.append(Happening(Kind.LATE, source, slot.number, data, sent.payload))
        elif isinstance(answer, Fired):
            self.fire([answer])
        return True

    def _send(self, source: str, target: str, path: Path, payload: bytes) -> None:
        self._fit(source, target, payload)
        there = self.workflow.loops.along(path, source, target)
        self._post(source, target, there, (payload,), ())

    def _post(
        self,
        source: str,
        target: str,
        path: Path,
        payloads: tuple[bytes, ...],
        sources: tuple[str, ...],
    ) -> None:
        message = Message(self._number(), source, target, path, payloads, sources)
        self._mirror(path)
        self.sent.append(message)
        self.ops.append(Send(message))

    def _fit(self, source: str, target: str, payload: bytes) -> None:
        shape = self.workflow.nodes[target].payload
        if not shape.accepts_anything:
            where = f"payload from {source!r} to {target!r}"
            shape.fit(decode(payload, self.workflow.types), where)

    def _fit_collected(
        self, edge: FanInEdge, sources: tuple[str, ...], payloads: tuple[bytes, ...]
    ) -> None:
        shape = self.workflow.nodes[edge.target].payload
        if not shape.accepts_anything:
            values = [decode(payload, self.workflow.types) for payload in payloads]
            collected = (
                values if edge.collect == "list" else dict(zip(sources, values, strict=True))
            )
            shape.fit(collected, f"payload of barrier {edge.barrier_id!r}")

    def _number(self) -> int:
        self.next_number += 1
        return self.next_number - 1
