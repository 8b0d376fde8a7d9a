"""Random workflows: strategies that make descriptions, and the way from one to a real workflow.

A graph grows from blocks with one entry and one exit (a node, a chain, a split that may be joined, a
loop around a block), so that it is valid by construction; then a few edges are thrown across it where
they close no cycle and leave loops nested.  What is rare gets a *focus*: each description is told to
hold one feature in particular.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final, Protocol

from hypothesis import strategies as st

from raf import Context, LoopOptions, RetryPolicy, Workflow, WorkflowBuilder, named
from tests.property import description as say
from tests.property.description import Data

NAMES: Final = "abcdefghijklmnopqrstuvwxyz"
MOST_NODES: Final = 12
BOARD: Final = "::board"
KEYS: Final = (  # key, type, reducer, how it may be written and with what
    ("plain", int, None, [("assign", "item"), ("delete", "item")]),
    ("rows", list, None, [("assign", "list"), ("append", "item"), ("extend", "list")]),
    ("log", list, "append", [("assign", "item"), ("append", "item"), ("extend", "list")]),
    ("all", list, "extend", [("assign", "list"), ("append", "item"), ("delete", "item")]),
    ("total", int, "sum", [("assign", "item"), ("assign", "item"), ("delete", "item")]),
    ("table", dict, "merge", [("assign", "map"), ("update", "map")]),
    ("last", int, "last", [("assign", "item")]),
    ("mix", int, "mix", [("assign", "item")]),
)
OWN: Final = (
    ("note", [("assign", "item"), ("delete", "item")]),
    ("own", [("append", "item"), ("extend", "list")]),
)
SHAPES: Final[dict[str, tuple[str, ...]]] = {  # features of a graph, with the blocks that hold them
    "loop in loop": ("loop:again", "chain", "loop:again"),
    "barrier in loop": ("loop:again", "split:all"),
    "quorum": ("split:quorum",),
    "quiescent": ("split:quiescent",),
    "late": ("split:late",),
    "conflict": ("split:all",),
    "switch": ("split:switch",),
    "chosen": ("split:chosen",),
    "stop": ("loop:stop",),
    "fallback": ("guarded",),
}
DOINGS: Final = ("skip", "later", "retry", "mend", "dead letter", "effect")
HARMLESS: Final = ("none", "none", "write", "write", "write", "read", "read", "effect", "emit")
FREE: Final = (*HARMLESS, "output", "send", "silent", "sync", "retry", "skip", "later", "mend")


def plain_node() -> Data:
    """A node that does nothing but make its value and return it."""
    return {
        "sync": False,
        "silent": 0,
        "reads": [],
        "writes": [],
        "effects": 0,
        "fails": None,
        "attempts": 1,
        "long": False,
        "on_failure": "fail",
        "fallback": None,
        "emits": 0,
        "outputs": 0,
        "sends": [],
        "turns": 0,
    }


@dataclass
class Draft:
    """A description that grows."""

    draw: st.DrawFn
    names: list[str]
    nodes: dict[str, Data] = field(default_factory=dict)
    edges: list[Data] = field(default_factory=list)

    def pick(self, *options: Any) -> Any:
        """One of the options."""
        return self.draw(st.sampled_from(options))

    def one_in(self, count: int) -> bool:
        """True once in so many times."""
        return bool(self.draw(st.integers(1, count)) == count)

    @property
    def room(self) -> int:
        """How many nodes may still come."""
        return MOST_NODES - len(self.nodes)

    def node(self) -> str:
        """One more node."""
        name = self.names[len(self.nodes)]
        self.nodes[name] = plain_node()
        return name

    def edge(self, kind: str, **parts: Any) -> Data:
        """One more edge."""
        self.edges.append({"kind": kind, **parts})
        return self.edges[-1]

    def condition(self) -> Data:
        """A condition; one in a while reads the state, and a rare one raises."""
        mod = self.pick(2, 2, 2, 3)
        reads = self.pick(("", ""), ("", ""), ("", "note"), (BOARD, "plain"), (BOARD, "total"))
        if self.one_in(40):
            mod = 0
        return {"mod": mod, "rem": self.draw(st.integers(0, max(mod, 1) - 1)), "reads": reads}

    def link(self, source: str, target: str, *, always: bool = True) -> None:
        """A direct edge, with a condition if it need not hold."""
        when = None if always else self.condition()
        self.edge("direct", source=source, target=target, when=when)

    # -- blocks ------------------------------------------------------------------------------

    def block(self, depth: int, want: tuple[str, ...] = ()) -> tuple[str, str]:
        """A block: its entry and its exit.  `want` names what it must be, from outside in."""
        kinds = ["node", "chain", "split", "split", "loop", "guarded"] if depth > 0 else ["node"]
        kind = want[0] if want else self.pick(*kinds)
        word, _, detail = kind.partition(":")
        inner = want[1:]
        if self.room < 4 and word not in ("node", "loop"):
            word = "node"
        match word:
            case "chain":
                return self.chain(depth - 1, inner)
            case "split":
                return self.split(depth - 1, detail)
            case "loop":
                return self.loop(depth - 1, detail, inner)
            case "guarded":
                return self.guarded()
        name = self.node()
        return name, name

    def chain(self, depth: int, inner: tuple[str, ...] = ()) -> tuple[str, str]:
        """Two blocks, one behind the other."""
        first, middle = self.block(depth, inner)
        then, last = self.block(depth)
        self.link(middle, then, always=not self.one_in(5))
        return first, last

    def guarded(self) -> tuple[str, str]:
        """A node with a fallback, which may come back to where the node leads."""
        name, other, after = self.node(), self.node(), self.node()
        self.nodes[name] |= {"fallback": other, "on_failure": "fallback"}
        self.nodes[name] |= {"fails": {"kind": "always", "mod": self.pick(1, 2)}}
        self.link(name, after)
        if self.one_in(2):
            self.link(other, after)
        return name, after

    def loop(self, depth: int, detail: str, inner: tuple[str, ...]) -> tuple[str, str]:
        """A loop around a block."""
        first, last = self.block(depth, inner)
        if any(
            e["kind"] == "loop" and (e["source"], e["target"]) == (last, first) for e in self.edges
        ):
            head = self.node()
            self.link(head, first)
            first = head
        until = None if detail == "stop" or self.one_in(3) else self.condition()
        least = self.pick(2, 2, 3) if detail == "again" else self.pick(2, 2, 3, 1)
        stops = detail == "stop" or self.one_in(5)
        self.edge(
            "loop",
            source=last,
            target=first,
            max=least,
            until=None if detail == "again" and self.one_in(2) else until,
            on_limit="stop" if stops else "exit",
        )
        return first, last

    def split(self, depth: int, detail: str) -> tuple[str, str]:
        """Several blocks side by side, and how they come together."""
        way = {"switch": "switch", "chosen": "chosen"}.get(detail, "")
        if detail in ("all", "quorum", "quiescent", "late"):
            way = "all"
        way = way or self.pick("all", "all", "chosen", "switch", "directs")
        join = {"all": "all", "quorum": "quorum", "quiescent": "quiescent"}.get(detail, "")
        join = "quorum" if detail == "late" else join
        join = join or self.pick("all", "quorum", "quiescent", "directs")
        if join == "all" and way != "all" and not self.one_in(6):
            join = "directs" if way == "switch" else "quiescent"
        head = self.node()
        inside = 0 if detail == "late" else depth
        ways = [self.block(inside) for _ in range(self.pick(2, 2, 3))]
        tail = self.node()
        self._open(head, [first for first, _ in ways], way)
        if detail == "late":
            slow = self.node()
            self.link(ways[-1][1], slow)
            ways[-1] = (ways[-1][0], slow)
        self._join([last for _, last in ways], tail, join, detail)
        return head, tail

    def _open(self, head: str, entries: list[str], way: str) -> None:
        match way:
            case "switch":
                cases = [[self.condition(), entry] for entry in entries[:-1]]
                self.edge("switch", source=head, cases=cases, default=entries[-1])
            case "directs":
                for entry in entries:
                    self.link(head, entry, always=self.one_in(2))
            case _:
                salt = self.draw(st.integers(1, 9)) if way == "chosen" else 0
                self.edge("fan_out", source=head, targets=entries, choose=salt)

    def _join(self, exits: list[str], tail: str, join: str, detail: str) -> None:
        if join == "directs":
            for last in exits:
                self.link(last, tail, always=not self.one_in(4))
            return
        least = 1 if detail == "late" else self.draw(st.integers(1, len(exits)))
        wait = least if join == "quorum" else join
        order = exits if self.one_in(2) else exits[::-1]
        self.edge("fan_in", sources=order, target=tail, wait=wait, dict=self.one_in(2))

    # -- what is thrown across -----------------------------------------------------------------

    def shortcuts(self) -> None:
        """A few direct edges that close no cycle and leave the loops nested or apart."""
        for _ in range(self.pick(0, 0, 1, 2)):
            source, target = self.pick(*self.nodes), self.pick(*self.nodes)
            known = any((e.get("source"), e.get("target")) == (source, target) for e in self.edges)
            edge = {"kind": "direct", "source": source, "target": target, "when": None}
            d = {"nodes": self.nodes, "edges": [*self.edges, edge], "outputs": [], "state": []}
            shape = say.Shape.of(d)
            if not known and source not in shape.ahead[target] and are_nested(shape.bodies):
                edge["when"] = None if self.one_in(3) else self.condition()
                self.edges.append(edge)

    def name_variables(self) -> None:
        """Loops that leave one node need variables of their own; others may have one."""
        loops = [edge for edge in self.edges if edge["kind"] == "loop"]
        for place, edge in enumerate(loops):
            shared = sum(other["source"] == edge["source"] for other in loops) > 1
            own = shared or self.one_in(3)
            edge["variable"] = f"turn{place}" if own else f"__loop_{edge['source']}"
            edge["named"] = own

    # -- what nodes do -------------------------------------------------------------------------

    def do(self, name: str, what: str) -> None:
        """Give a node something to do."""
        node = self.nodes[name]
        match what:
            case "write" | "conflict":
                node["writes"].append(self._write("plain" if what == "conflict" else None))
            case "read":
                node["reads"].append(self._place())
            case "send" | "emit" | "output" | "effect":
                node[f"{what}s"] = node[f"{what}s"] + ([None] if what == "send" else 1)
            case "silent":
                node["silent"] = self.pick(1, 2, 2, 3)
            case "sync" if not node["effects"]:
                node["sync"] = True
            case "retry" | "skip" | "later" | "mend":
                self._fail(node, what)

    def _fail(self, node: Data, what: str) -> None:
        if node["fails"] is not None:
            return
        kind = {"retry": "flaky", "skip": "always"}.get(what, what)
        node["fails"] = {"kind": kind, "mod": 1 if what in ("retry", "later") else self.pick(1, 2)}
        node["attempts"] = self.pick(2, 3) if what in ("retry", "later") else self.pick(1, 1, 2)
        node["long"] = what == "later" or (what in ("skip", "mend") and self.one_in(3))
        if what == "skip" and not node["fallback"]:
            node["on_failure"] = "skip"

    def _place(self) -> list[str]:
        key = self.pick(*(key for key, *_ in KEYS), "note", "own")
        return ["" if key in ("note", "own") else BOARD, key]

    def _write(self, key: str | None) -> list[str]:
        scope, key = (BOARD, key) if key else self._place()
        ways = {key: ways for key, _, _, ways in KEYS} | dict(OWN)
        how, shape = self.pick(*ways[key])
        return [scope, key, how, shape]


def are_nested(bodies: dict[str, set[str]]) -> bool:
    """Whether loops lie inside each other or apart, and none has become another's double."""
    return all(
        one.isdisjoint(other) or one < other or other < one
        for one, other in combinations(bodies.values(), 2)
    )


@st.composite
def descriptions(draw: st.DrawFn, shape: str | None = None, doing: str | None = None) -> Data:
    """A random workflow with its inputs, limits and how often it is resumed.

    Args:
        draw: Of Hypothesis.
        shape: What its graph has; a random one of `SHAPES` when None.
        doing: What one of its nodes does; a random one of `DOINGS` when None.
    """
    draft = Draft(draw, draw(st.permutations(NAMES)))
    shape = shape or draft.pick(*SHAPES)
    doing = doing or draft.pick(*DOINGS)
    first, last = draft.block(2, SHAPES[shape])
    if not draft.one_in(3):
        after, end = draft.block(2, SHAPES[draft.pick(*SHAPES)])
        draft.link(last, after)
        last = end
    inside = set(draft.nodes)
    start = first
    if draft.one_in(4):
        start, middle = draft.block(1)
        draft.link(middle, first)
    draft.shortcuts()
    draft.name_variables()
    for name in list(draft.nodes):
        tame = name in inside and not draft.one_in(4)
        draft.do(name, draft.pick(*(HARMLESS if tame else FREE)))
        draft.do(name, draft.pick(*HARMLESS))
        draft.nodes[name]["turns"] = draft.pick(0, 1, 2, 4)
    _focus(draft, shape, doing, (start, last))
    _name_targets(draft)
    outputs = [] if draft.one_in(2) else sorted({draft.pick(*draft.nodes), last})
    return {
        "start": start,
        "nodes": draft.nodes,
        "edges": draft.edges,
        "state": _state(draft),
        "outputs": outputs,
        "inputs": draw(st.lists(st.integers(0, 99), min_size=1, max_size=2)),
        "resumes": draft.pick(0, 1, 1, 2),
        "max_steps": draft.pick(100, 100, 100, 100, 3, 5),
    }


def _focus(draft: Draft, shape: str, doing: str, ends: tuple[str, str]) -> None:
    if shape == "conflict":
        for edge in draft.edges:
            for name in edge["targets"] if edge["kind"] == "fan_out" else []:
                draft.do(name, "conflict")
    if doing == "dead letter":
        loose = [n for n in draft.nodes if not any(n in say.sources_of(e) for e in draft.edges)]
        draft.do(draft.pick(*loose, ends[0]), "send")
    else:
        end = ends[1] if doing in ("skip", "mend") else ends[0]  # where it does not stop the rest
        name = draft.pick(end, end, *draft.nodes)
        if doing != "effect" and not draft.nodes[name]["fallback"]:
            draft.nodes[name]["fails"] = None
        draft.do(name, doing)


def _name_targets(draft: Draft) -> None:
    """Some of what is sent names one declared target."""
    for name, node in draft.nodes.items():
        leaving = [edge for edge in draft.edges if name in say.sources_of(edge)]
        targets = sorted({target for edge in leaving for target in say.targets_of(edge)})
        node["sends"] = [draft.pick(None, *targets) for _ in node["sends"]]
        node["sync"] = node["sync"] and not node["effects"]


def _state(draft: Draft) -> list[Data]:
    keys: list[Data] = []
    for key, kind, reducer, _ in KEYS:
        initial = {int: 7, list: [7], dict: {"k0": 7}}[kind] if draft.one_in(3) else None
        if reducer or initial is not None:
            keys.append({"scope": BOARD, "key": key, "reducer": reducer, "initial": initial})
    if draft.one_in(2):
        keys.append({"scope": None, "key": "own", "reducer": "append", "initial": None})
    return keys


# -- from a description to a workflow ------------------------------------------------------------


class Outside(Protocol):
    """What the nodes of a real workflow meet: the world of a test."""

    def begins(self, ctx: Context) -> None:
        """An attempt begins."""

    def turns(self, ctx: Context, node: Data) -> int:
        """How often the attempt lets others run."""

    def passes(self, ctx: Context) -> None:
        """The attempt is under way."""

    def act(self, key: str, value: int) -> int:
        """An effect happens."""

    def recorded(self, key: str) -> None:
        """An effect's result is durable."""

    def fail(self, ctx: Context, kind: str, attempts: int) -> None:
        """Raise if a node that fails like that fails now."""

    def ends(self, ctx: Context) -> None:
        """The attempt has come to its end."""


def build(d: Data, outside: Outside) -> Workflow:
    """The workflow that a description describes."""
    builder = WorkflowBuilder("described")
    for name, node in d["nodes"].items():
        builder.add_node(
            name,
            _sync_handler(d, name, outside) if node["sync"] else _handler(d, name, outside),
            retry=RetryPolicy(
                attempts=node["attempts"],
                backoff_s=100.0 if node["long"] else 0.0,
                factor=1.0,
                max_backoff_s=1000.0,
                jitter="none",
            ),
            version=node.get("version", ""),
            on_failure="skip" if node["on_failure"] == "skip" else "fail",
            fallback=node["fallback"],
        )
    conditions = _Conditions()
    for edge in d["edges"]:
        _add_edge(builder, edge, conditions)
    for key in d["state"]:
        initial = {} if key["initial"] is None else {"initial": key["initial"]}
        kind = next((kind for name, kind, *_ in KEYS if name == key["key"]), list)
        scope = key["scope"] and key["scope"].removeprefix("::")
        reducer = named("mix", say.GROWN["mix"]) if key["reducer"] == "mix" else key["reducer"]
        builder.with_state(key["key"], kind, scope=scope, reducer=reducer, **initial)
    return builder.set_start(d["start"]).with_output_from(*d["outputs"]).build()


class _Conditions:
    """Gives every condition a name of its own."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, condition: Data) -> Any:
        self._count += 1
        scope, key = condition["reads"]
        if not key:
            return named(f"c{self._count}", lambda payload: say.holds(condition, payload, None))

        def with_state(payload: Any, state: Any) -> bool:
            place = state.scope(scope.removeprefix("::")) if scope else state
            return say.holds(condition, payload, place.get(key))

        return named(f"c{self._count}", with_state)

    def chooser(self, edge: Data) -> Any:
        self._count += 1
        return named(f"c{self._count}", lambda payload: say.chosen(edge, payload))


def _add_edge(builder: WorkflowBuilder, edge: Data, name: _Conditions) -> None:
    match edge["kind"]:
        case "direct":
            when = name(edge["when"]) if edge["when"] else None
            builder.add_edge(edge["source"], edge["target"], when)
        case "switch":
            cases = [(name(condition), target) for condition, target in edge["cases"]]
            builder.add_switch(edge["source"], cases, edge["default"])
        case "fan_out":
            choose = name.chooser(edge) if edge["choose"] else None
            builder.add_fan_out(edge["source"], edge["targets"], choose)
        case "fan_in":
            collect: Any = "dict" if edge["dict"] else "list"
            builder.add_fan_in(edge["sources"], edge["target"], edge["wait"], collect)
        case _:
            until = name(edge["until"]) if edge["until"] else None
            variable = edge["variable"] if edge["named"] else None
            options = LoopOptions(
                edge["max"], loop_variable=variable, until=until, on_limit=edge["on_limit"]
            )
            builder.add_loop(edge["source"], edge["target"], options)


def _scope(ctx: Context, scope: str) -> Any:
    return ctx.scope(scope.removeprefix("::")) if scope else ctx.state


def _write(ctx: Context, node: Data, value: int) -> int:
    for scope, key, how, shape in node["writes"]:
        place, new = _scope(ctx, scope), say.contents(value, shape)
        match how:
            case "assign":
                place[key] = new
            case "delete":
                if key in place:
                    del place[key]
            case _:
                getattr(place, how)(key, new)
        value = say.stir(value, place.get(key))
    return value


def _leave(ctx: Context, name: str, node: Data, value: int) -> int | None:
    told, sends, result = say.left_by(name, node, value)
    for word, _, each in told:
        (ctx.emit if word == "custom" else ctx.output)(each)
    for each, target, _ in sends:
        ctx.send(each, target)
    return result


def _begin(ctx: Context, name: str, node: Data, payload: Any) -> int:
    seen = [_scope(ctx, scope).get(key) for scope, key in node["reads"]]
    return say.begun(name, payload, seen)


def _handler(d: Data, name: str, outside: Outside) -> Callable[..., Any]:
    node = d["nodes"][name]

    async def handler(ctx: Context, payload: Any) -> int | None:
        outside.begins(ctx)
        value = _begin(ctx, name, node, payload)
        for _ in range(outside.turns(ctx, node)):
            await asyncio.sleep(0)
            outside.passes(ctx)
        for place in range(node["effects"]):
            argument = say.asked(name, payload, place)
            value = say.stir(value, await _act(ctx, f"e{place}", argument, outside))
        value = _write(ctx, node, value)
        if kind := say.failure_of(node, payload):
            outside.fail(ctx, kind, node["attempts"])
        result = _leave(ctx, name, node, value)
        outside.ends(ctx)
        return result

    return handler


async def _act(ctx: Context, name: str, argument: int, outside: Outside) -> int:
    key = ctx.idempotency_key(name)

    async def act(argument: int) -> int:
        return outside.act(key, argument)

    result: int = await ctx.effect(name, act, argument)
    outside.recorded(key)
    return result


def _sync_handler(d: Data, name: str, outside: Outside) -> Callable[..., Any]:
    node = d["nodes"][name]

    def handler(ctx: Context, payload: Any) -> int | None:
        outside.begins(ctx)
        value = _write(ctx, node, _begin(ctx, name, node, payload))
        if kind := say.failure_of(node, payload):
            outside.fail(ctx, kind, node["attempts"])
        result = _leave(ctx, name, node, value)
        outside.ends(ctx)
        return result

    return handler
