"""The language in which the property tests describe workflows: plain data, and the words for it.

A description is nested dicts, lists, text and numbers, so that it can be printed, stored as JSON and
told to another process.  `workflows` makes and builds them, `oracle` interprets them.

A node gets a payload and makes its *value*, a number:

1. it starts from its name, the payload and what it reads (`reads`: scope or None, key);
2. each of its effects stirs its result in (`effects`);
3. it writes (`writes`: scope, key, how, shape), and what it then reads there is stirred in;
4. it fails if `fails` says so of the payload: "flaky" a few times, "always", "later" until it was put
   off once, "mend" until the run has failed once;
5. it emits, outputs and sends (`emits`, `outputs`, `sends`), and returns its value (`silent`: never
   with 1, always with 0, else unless it divides the value).
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any
from zlib import crc32

Data = dict[str, Any]
State = dict[tuple[str, str], Any]
Path = dict[str, int]

NEVER = inf  # so many sources fill a quiescent barrier
RANK = {"loop": 0, "switch": 1, "fan_out": 2, "direct": 3, "fan_in": 4}


def stir(*parts: Any) -> int:
    """A number that differs when anything in the parts does."""
    return crc32(json.dumps(parts).encode())


# -- what a node does ----------------------------------------------------------------------------


def begun(name: str, payload: Any, seen: list[Any]) -> int:
    """The value that a node starts from."""
    return stir(name, payload, seen)


def asked(name: str, payload: Any, place: int) -> int:
    """The argument of a node's effect: the same in each attempt, whatever the state is then."""
    return stir(name, payload, place)


def acted(argument: int) -> int:
    """The result of an effect."""
    return stir("effect", argument)


def failure_of(node: Data, payload: Any) -> str:
    """How a node fails on this payload; empty when it does not."""
    fails = node["fails"]
    return fails["kind"] if fails and stir("fail", payload) % fails["mod"] == 0 else ""


def left_by(
    name: str, node: Data, value: int
) -> tuple[list[tuple[str, str, int]], list[tuple[int, str | None, bool]], int | None]:
    """What a node leaves that has come to this value: events, sends, and what it returns."""
    told = [("custom", name, stir(value, "emit", place)) for place in range(node["emits"])]
    told += [("output", name, stir(value, "output", place)) for place in range(node["outputs"])]
    sends = [(stir(value, "send", place), to, False) for place, to in enumerate(node["sends"])]
    silent = node["silent"]
    quiet = silent == 1 or (silent > 1 and value % silent == 0)
    return told, sends, None if quiet else value


@dataclass
class Message:
    """A message on its way: `path` maps loops to iterations; `did` is a result that still stands."""

    number: int
    node: str
    path: Path
    payload: Any
    failures: int = 0
    sleeps: int = 0
    did: Any = None


@dataclass(kw_only=True)
class Flow:
    """What a run stands on between two steps; keys of barriers are (name, path)."""

    state: State
    limit: int = 0
    steps: int = 0
    pending: list[Message] = field(default_factory=list)
    asleep: list[Message] = field(default_factory=list)
    parked: list[Any] = field(default_factory=list)
    held: dict[Any, dict[str, Any]] = field(default_factory=dict)
    late: Counter[Any] = field(default_factory=Counter)
    grants: Counter[Any] = field(default_factory=Counter)
    failed: tuple[str, ...] = ()

    def paths(self) -> list[Path]:
        """The paths in which anything lives."""
        messages = [*self.pending, *self.asleep, *(message for message, *_ in self.parked)]
        return [m.path for m in messages] + [dict(path) for _, path in self.held]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What an invocation left: how it ended, and what.

    Args:
        how: The event that tells it; "sleep" when it waits for another attempt, or "fail".
        writes: Place, way and value of each.
        told: Events.
        sends: Value, one target or None for all edges, whether it is an output.
    """

    how: str
    writes: list[Any] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    sends: list[Any] = field(default_factory=list)


def called(d: Data, m: Message, state: State, shape: "Shape", mended: bool) -> Done:
    """Call a node with a message until it is done, put off or given up."""
    node = d["nodes"][m.node]
    fault = failure_of(node, m.payload)
    if {"always": True, "mend": not mended, "later": not m.sleeps}.get(fault):
        again = node["long"] and m.failures + 1 < node["attempts"]
        given_up = {"skip": "node_skipped"}.get(node["on_failure"], node["on_failure"])
        return Done(how="sleep" if again else given_up)
    value, writes = attempt(m.node, d, m.payload, dict(state), shape.reducers)
    told, sends, result = left_by(m.node, node, value)
    if result is not None:
        sends = [*sends, (result, None, m.node in shape.outputs)]
    return Done(how="node_completed", writes=writes, told=told, sends=sends)


def contents(value: int, shape: str) -> Any:
    """What a node writes: an item, a list or a map made of its value."""
    shapes = {"list": [value % 10, value % 7], "map": {f"k{value % 3}": value % 100}}
    return shapes.get(shape, value % 1000)


GROWN: dict[str | None, Callable[[Any, Any], Any]] = {
    None: lambda _old, new: new,
    "last": lambda _old, new: new,
    "append": lambda old, new: [*(old or []), new],
    "extend": lambda old, new: [*(old or []), *new],
    "update": lambda old, new: {**(old or {}), **new},
    "merge": lambda old, new: {**(old or {}), **new},
    "sum": lambda old, new: new if old is None else old + new,
    "mix": lambda old, new: new if old is None else stir(old, new),
    "delete": lambda _old, _new: None,
}


def grown(old: Any, way: str | None, new: Any) -> Any:
    """What a key holds (None: nothing) after it was written in this way, or by this reducer."""
    return GROWN[way](old, new)


def attempt(
    name: str, d: Data, payload: Any, state: State, reducers: State
) -> tuple[int, list[Any]]:
    """The value of a node on a state that it changes (private to it), and its writes, in order."""
    node, writes = d["nodes"][name], []
    value = begun(name, payload, [state.get((s or name, key)) for s, key in node["reads"]])
    for number in range(node["effects"]):
        value = stir(value, acted(asked(name, payload, number)))
    for scope, key, how, shape in node["writes"]:
        place, new = (scope or name, key), contents(value, shape)
        if how != "delete" or state.get(place) is not None:
            way = reducers.get(place) if how == "assign" else how
            state[place] = grown(state.get(place), way, new)
            writes.append((place, way, new))
        value = stir(value, state.get(place))
    return value, writes


class Halt(Exception):  # noqa: N818 - a step that cannot be applied leaves nothing
    """The arguments say why."""


def holds(condition: Data, payload: Any, seen: Any) -> bool:
    """Whether a condition holds for a payload and the value of the key that it reads, if any.

    Raises:
        Halt: This condition always raises.
    """
    if condition["mod"] == 0:
        raise Halt("condition")
    return bool(stir(payload, seen) % condition["mod"] == condition["rem"])


def chosen(edge: Data, payload: Any) -> list[str]:
    """The targets that a chooser takes, any number of them."""
    bits = stir(payload, edge["choose"])
    return [target for place, target in enumerate(edge["targets"]) if bits >> place & 1]


def taken(edge: Data, payload: Any, to: str | None, asks: Callable[[Data], bool]) -> list[str]:
    """Where an edge sends a payload, which may name one target; `asks` judges conditions."""
    targets = targets_of(edge)
    if to is not None:
        return [to] if to in targets else []
    match edge["kind"]:
        case "direct" if edge["when"]:
            return targets if asks(edge["when"]) else []
        case "switch":
            return [next((t for c, t in edge["cases"] if asks(c)), edge["default"])]
        case "fan_out" if edge["choose"]:
            return chosen(edge, payload)
    return targets


# -- what a graph looks like ---------------------------------------------------------------------


def targets_of(edge: Data) -> list[str]:
    """Every node that an edge may lead to."""
    if edge["kind"] == "switch":
        return list(dict.fromkeys([*(target for _, target in edge["cases"]), edge["default"]]))
    return list(edge["targets"]) if edge["kind"] == "fan_out" else [edge["target"]]


def sources_of(edge: Data) -> list[str]:
    """Every node that an edge leaves."""
    return list(edge["sources"]) if edge["kind"] == "fan_in" else [edge["source"]]


def name_of(edge: Data) -> str:
    """How a loop or a barrier is called."""
    return f"{'+'.join(sources_of(edge))}>{edge['target']}"


def place_of(edge: Data) -> tuple[Any, ...]:
    """Where an edge stands in the order of all edges."""
    return (sources_of(edge)[0], RANK[edge["kind"]], sources_of(edge), targets_of(edge))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What follows from a description.

    `ahead` is what a node reaches by all edges but loops, itself included; `bodies` are the nodes of
    each loop and `around` the loops of each node, outermost first; `leaving` are a node's edges but
    loops, in order; `named` finds loops and barriers; `need` is how many sources fill a barrier, and
    `feeders` are the barriers that lie before it; `outputs` are the nodes whose results are outputs;
    `turning` are a node's loops, innermost first, and `variables` the keys that mirror them;
    `reducers` and `initial` go by scope and key.
    """

    ahead: dict[str, set[str]]
    bodies: dict[str, set[str]]
    around: dict[str, list[str]]
    leaving: dict[str, list[Data]]
    turning: dict[str, list[tuple[str, Data]]]
    variables: dict[str, tuple[str, str]]
    named: dict[str, Data]
    need: dict[str, float]
    feeders: dict[str, set[str]]
    outputs: list[str]
    reducers: State
    initial: State

    @classmethod
    def of(cls, d: Data) -> "Shape":
        """Derive it."""
        nodes, edges = d["nodes"], sorted(d["edges"], key=place_of)
        loops = [edge for edge in edges if edge["kind"] == "loop"]
        barriers = {name_of(edge): edge for edge in edges if edge["kind"] == "fan_in"}
        leaving = {n: [e for e in edges if n in sources_of(e) and e not in loops] for n in nodes}
        ahead = _ahead(d)
        bodies = {
            name_of(edge): {n for n in ahead[edge["target"]] if edge["source"] in ahead[n]}
            for edge in loops
        }
        back = {name_of(edge): edge for edge in loops}
        outer_first = sorted(bodies, key=lambda name: (-len(bodies[name]), name))
        keys = [(s, k) for k in d["state"] for s in ([k["scope"]] if k["scope"] else nodes)]
        return cls(
            ahead=ahead,
            bodies=bodies,
            around={n: [name for name in outer_first if n in bodies[name]] for n in nodes},
            leaving=leaving,
            turning={
                n: [(x, back[x]) for x in reversed(outer_first) if back[x]["source"] == n]
                for n in nodes
            },
            variables={name_of(edge): (edge["source"], edge.get("variable", "")) for edge in loops},
            named=back | barriers,
            need={
                name: {"all": len(edge["sources"]), "quiescent": NEVER}.get(
                    edge["wait"], edge["wait"]
                )
                for name, edge in barriers.items()
            },
            feeders={
                name: {
                    other
                    for other, before in barriers.items()
                    if other != name and not ahead[before["target"]].isdisjoint(edge["sources"])
                }
                for name, edge in barriers.items()
            },
            outputs=d["outputs"] or [n for n in nodes if not leaving[n]],
            reducers={(scope, k["key"]): k["reducer"] for scope, k in keys},
            initial={(scope, k["key"]): k["initial"] for scope, k in keys},
        )


def _ahead(d: Data) -> dict[str, set[str]]:
    forward = [edge for edge in d["edges"] if edge["kind"] != "loop"]
    arcs = [(s, t) for edge in forward for s in sources_of(edge) for t in targets_of(edge)]
    arcs += [(name, node["fallback"]) for name, node in d["nodes"].items() if node["fallback"]]
    ahead = {name: {name} for name in d["nodes"]}
    for _ in ahead:
        for source, target in arcs:
            ahead[source] |= ahead[target]
    return ahead
