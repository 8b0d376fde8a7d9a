"""A second interpreter of the rules of workflows: from a description to what its runs must show.

It knows no bytes, checkpoints or tasks, and takes nothing from the engine but the rules.
"""

from copy import deepcopy
from dataclasses import replace
from itertools import count
from typing import Any, Self

from tests.property import description as say
from tests.property.description import Halt


class Oracle:
    """`tell()` runs; `events` and `flow.state` then say what was.

    With `keeps` the results of a failed step's finished nodes stand when the run is resumed.
    """

    def __init__(self, d: say.Data, *, keeps: bool = True) -> None:
        self.d, self.shape, self.keeps, self.mended = d, say.Shape.of(d), keeps, False
        self.events, self.numbers, self.resumes = list[Any](), count(1), d["resumes"]
        self.flow = say.Flow(state=dict(self.shape.initial))

    def tell(self) -> Self:
        for payload in self.d["inputs"]:
            self.flow = say.Flow(state=self.flow.state, limit=self.d["max_steps"])
            self.post(self.d["start"], {}, payload)
            while self.drive() != "completed":
                if not self.resumes:
                    return self
                self.resume()
        return self

    def resume(self) -> None:
        flow, self.resumes = self.flow, self.resumes - 1
        if self.events[-1][1] == "failed":
            self.mended, flow.failed = True, ()
            for m in flow.pending + flow.asleep:
                m.failures = 0
        elif flow.steps >= flow.limit:
            flow.limit += flow.steps
        parked, flow.parked = flow.parked, []
        for m, edge, name, stay in parked:
            flow.grants[stay] += edge["max"] * (m.path[name] >= edge["max"] + flow.grants[stay])
            self.post(edge["target"], m.path | {name: m.path[name] + 1}, m.payload, m.number)

    def drive(self) -> str:
        while (standing := self.standing())[0] in ("running", "sleeping"):
            if standing[0] == "running":
                self.step()
            else:
                self.events.append(("outcome", "sleeping"))
                self.flow.pending, self.flow.asleep = self.flow.asleep, []
        self.events.append(("outcome", *standing))
        return standing[0]

    def standing(self) -> tuple[str, ...]:
        flow = self.flow
        waits = [key[0] for key in sorted(flow.held) if self.shape.need[key[0]] < say.NEVER]
        if flow.failed or flow.parked:
            return flow.failed or ("limited", *sorted({name for _, _, name, _ in flow.parked}))
        if flow.pending:
            return ("limited", "steps") if flow.steps >= flow.limit else ("running",)
        if flow.asleep or not waits:
            return ("sleeping",) if flow.asleep else ("completed",)
        return ("failed", "unfilled", waits[0])

    def step(self) -> None:
        todo, mark = sorted(self.flow.pending, key=lambda m: (m.node, m.number)), len(self.events)
        for m in todo:
            m.did = m.did or say.called(self.d, m, self.flow.state, self.shape, self.mended)
        before = deepcopy(self.flow)
        try:
            self.apply(todo)
            self.events.append(("step_committed",))
        except Halt as halt:
            self.events[mark:] = [("node_failed", m.node) for m in todo if m.did.how == "fail"]
            self.flow, before.failed = before, ("failed", *halt.args)
            stands = self.keeps and halt.args[0] in ("node", "condition")
            for m in before.pending:
                m.did = m.did if stands and m.did.how not in ("fail", "sleep") else None

    def apply(self, todo: list[say.Message]) -> None:  # noqa: C901 - one step, told in one place
        flow = self.flow
        if failed := [m.node for m in todo if m.did.how == "fail"]:
            raise Halt("node", failed[0])
        flow.pending, flow.steps = [], flow.steps + 1
        self.fold([(*write, m.number) for m in todo for write in m.did.writes])
        for m in todo:
            if m.did.how == "sleep":
                again: Any = {"failures": m.failures + 1, "sleeps": m.sleeps + 1, "did": None}
                flow.asleep.append(replace(m, **again))
                continue
            self.events += [(m.did.how, m.node), *m.did.told]
            if m.did.how == "fallback":
                self.post(self.d["nodes"][m.node]["fallback"], m.path, m.payload)
            for send in m.did.sends:
                self.route(m, *send)
        self.fire(self.full())
        if not (flow.pending or flow.asleep or flow.parked):
            filled = {name for name, _ in flow.held}
            quiet = [key for key in sorted(flow.held) if self.shape.need[key[0]] == say.NEVER]
            self.fire([key for key in quiet if filled.isdisjoint(self.shape.feeders[key[0]])])
        for key in list(flow.late):
            shared = {loop: n for loop, n in key[1] if loop in self.shape.around[key[2]]}
            if all(shared | path != path for path in flow.paths()):
                del flow.late[key]

    def fold(self, writes: list[Any]) -> None:
        for place in dict.fromkeys(write[0] for write in writes):
            mine = [(way, number) for where, way, _, number in writes if where == place]
            free = self.shape.reducers.get(place) and "delete" not in dict(mine)
            if not free and len({number for _, number in mine}) > 1:
                raise Halt("conflict", place[1])
        for place, way, new, _ in writes:
            self.flow.state[place] = say.grown(self.flow.state.get(place), way, new)

    def post(self, node: str, path: say.Path, payload: Any, number: int = 0) -> None:
        here = {loop: path.get(loop, 1) for loop in self.shape.around[node]}
        self.flow.pending.append(say.Message(number or next(self.numbers), node, here, payload))
        self.flow.state |= {self.shape.variables[loop]: turn for loop, turn in here.items()}

    def holds(self, m: say.Message, condition: say.Data, payload: Any) -> bool:
        scope, key = condition["reads"]
        return say.holds(condition, payload, self.flow.state.get((scope or m.node, key)))

    def route(self, m: say.Message, payload: Any, to: str | None, taken: bool) -> None:
        for name, edge in self.shape.turning[m.node]:
            stay = (name, *list(m.path.items())[: list(m.path).index(name)])
            done = not to and edge["until"] and self.holds(m, edge["until"], payload)
            if done or to not in (None, edge["target"]):
                continue
            if m.path[name] < edge["max"] + self.flow.grants[stay]:
                self.post(edge["target"], m.path | {name: m.path[name] + 1}, payload)
                return
            self.events.append(("loop_limit", m.node, name, m.path[name]))
            if edge["on_limit"] == "stop":
                parked = replace(m, payload=payload, number=next(self.numbers))
                self.flow.parked.append((parked, edge, name, stay))
                return
        self.events += [("output", m.node, payload)] if taken else []
        for edge in self.shape.leaving[m.node]:
            for target in say.taken(edge, payload, to, lambda c: self.holds(m, c, payload)):
                taken = True
                if edge["kind"] == "fan_in":
                    self.hold(edge, m, payload)
                else:
                    self.post(target, m.path, payload)
        self.events += [] if taken else [("dead_letter", m.node, payload)]

    def hold(self, edge: say.Data, m: say.Message, payload: Any) -> None:
        around = self.shape.around[edge["target"]]
        key = (say.name_of(edge), tuple((loop, m.path.get(loop, 1)) for loop in around))
        if self.flow.late[*key, m.node]:
            self.flow.late[*key, m.node] -= 1
            self.events.append(("late", m.node, payload))
            return
        if m.node in self.flow.held.get(key, {}):
            if key not in self.full():
                raise Halt("barrier", key[0])
            self.fire([key])
        self.flow.held.setdefault(key, {})[m.node] = payload

    def full(self) -> list[Any]:
        held = self.flow.held
        return [key for key in sorted(held) if len(held[key]) >= self.shape.need[key[0]]]

    def fire(self, keys: list[Any]) -> None:
        for key in keys:
            edge, slots = self.shape.named[key[0]], self.flow.held.pop(key)
            there = {source: slots[source] for source in edge["sources"] if source in slots}
            if isinstance(edge["wait"], int):
                self.flow.late.update((*key, s) for s in edge["sources"] if s not in slots)
            self.post(edge["target"], dict(key[1]), there if edge["dict"] else [*there.values()])
