"""From recorded edges to edges of the topology, with what is wrong with them.

Rules of this file:
- An edge whose nodes are known is drafted even when something else of it is wrong, so that one
  fault does not show up as many.  `loose` holds nodes that only a broken edge leads to.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from raf.graph.codes import Codes
from raf.graph.handler import Signature
from raf.graph.limits import is_count
from raf.graph.names import is_name
from raf.graph.nodes import Nodes
from raf.graph.options import LoopOptions
from raf.graph.parts import (
    DirectPart,
    EdgePart,
    FanInPart,
    FanOutPart,
    LoopPart,
    SwitchPart,
)
from raf.topology.model import (
    DirectEdge,
    Edge,
    FanInEdge,
    FanOutEdge,
    LoopEdge,
    SwitchEdge,
    Wait,
)


class Edges:
    """Collects drafted edges."""

    def __init__(self, nodes: Nodes, codes: Codes) -> None:
        self.problems: list[str] = []
        self.edges: list[Edge] = []
        self.loose: set[str] = set()
        self._nodes = nodes
        self._codes = codes
        self._loops: defaultdict[str, list[LoopOptions]] = defaultdict(list)

    def add(self, part: EdgePart) -> None:
        """Draft one edge."""
        match part:
            case DirectPart():
                self._direct(part)
            case SwitchPart():
                self._switch(part)
            case FanOutPart():
                self._fan_out(part)
            case FanInPart():
                self._fan_in(part)
            case LoopPart():
                self._loop(part)

    def check_variables(self, private_keys: Iterable[str]) -> None:
        """Whether every loop has a variable of its own in the scope of its source."""
        declared = set(private_keys)
        loops = [edge for edge in self.edges if isinstance(edge, LoopEdge)]
        for source, options in sorted(self._loops.items()):
            if len(options) > 1 and any(o.loop_variable is None for o in options):
                self.problems.append(
                    f"{len(options)} loops leave {source!r}: give each its own loop_variable"
                )
        used = Counter((loop.source, loop.variable) for loop in loops)
        for loop in loops:
            where = f"{_loop_name(loop.source, loop.target)}: loop_variable {loop.variable!r}"
            if used[loop.source, loop.variable] > 1 and self._all_named(loop.source):
                self.problems.append(f"{where} is another loop's too: give each its own")
            if loop.variable in declared:
                self.problems.append(
                    f"{where} is declared by with_state as well: rename one of the two"
                )

    def _all_named(self, source: str) -> bool:
        return all(options.loop_variable is not None for options in self._loops[source])

    def _keep(self, edge: Edge, where: str) -> None:
        if edge in self.edges:
            self.problems.append(f"{where} is declared twice: drop one")
        else:
            self.edges.append(edge)

    def _known(self, where: str, sources: Iterable[Any], targets: Iterable[Any]) -> bool:
        """Whether all these are nodes; targets of a broken edge are noted as loose."""
        sources, targets = tuple(sources), tuple(targets)
        faults = [self._nodes.missing(name, where) for name in (*sources, *targets)]
        if not any(faults):
            return True
        self.problems += dict.fromkeys(filter(None, faults))
        self.loose.update(name for name in targets if isinstance(name, str))
        return False

    def _condition(self, function: Any, where: str, what: str = "condition") -> str:
        return "" if function is None else self._codes.condition(function, where, what)

    def _direct(self, part: DirectPart) -> None:
        where = f"edge {part.source!r} -> {part.target!r}"
        name = self._condition(part.when, where)
        if self._known(where, [part.source], [part.target]):
            edge = DirectEdge(source=part.source, target=part.target, condition=name)
            self._keep(edge, where)

    def _switch(self, part: SwitchPart) -> None:
        where = f"switch after {part.source!r}"
        cases = part.cases if isinstance(part.cases, tuple) else ()
        good = [case for case in cases if isinstance(case, tuple) and len(case) == 2]  # noqa: PLR2004
        if not cases or len(good) < len(cases):
            self.problems.append(f"{where}: cases must be (condition, target) pairs, one or more")
        targets = [target for _, target in good]
        named = [(self._condition_of(condition, where), target) for condition, target in good]
        for name, count in Counter(name for name, _ in named if name).items():
            if count > 1:
                self.problems.append(
                    f"{where}: case {name!r} appears twice, and only the first is taken: drop one"
                )
        if part.default is None:
            self.problems.append(
                f"{where} has no default: name the node that gets what no case takes"
            )
        else:
            targets.append(part.default)
        if self._known(where, [part.source], targets) and targets:
            default = targets[-1]
            edge = SwitchEdge(source=part.source, cases=tuple(named), default=default)
            self._keep(edge, where)

    def _condition_of(self, condition: Any, where: str) -> str:
        return self._codes.condition(condition, where, "case")

    def _fan_out(self, part: FanOutPart) -> None:
        where = f"fan-out after {part.source!r}"
        chooser = self._condition(part.choose, where, "chooser")
        targets = self._listed(part.targets, f"{where}: targets")
        if targets and self._known(where, [part.source], targets):
            edge = FanOutEdge(
                source=part.source, targets=tuple(dict.fromkeys(targets)), chooser=chooser
            )
            self._keep(edge, where)

    def _fan_in(self, part: FanInPart) -> None:
        where = f"fan-in into {part.target!r}"
        sources = self._listed(part.sources, f"{where}: sources")
        distinct = tuple(dict.fromkeys(sources))
        if len(distinct) == 1:
            self.problems.append(
                f"{where} has one source, {sources[0]!r}: name two or more, or use add_edge"
            )
        wait = self._wait(part.wait, len(distinct), where)
        if part.collect not in (None, "list", "dict"):
            self.problems.append(f'{where}: collect is {part.collect!r}: give "list" or "dict"')
        if not distinct or not self._known(where, distinct, [part.target]):
            return
        as_dict = _wants_dict(self._nodes.signatures.get(part.target))
        edge = FanInEdge(
            sources=distinct,
            target=part.target,
            wait=wait,
            collect=part.collect or ("dict" if as_dict else "list"),
        )
        others = [e.barrier_id for e in self.edges if isinstance(e, FanInEdge)]
        if edge.barrier_id in others:
            sent = ", ".join(distinct)
            self.problems.append(f"{where} from {sent} is declared twice: drop one")
        else:
            self.edges.append(edge)

    def _listed(self, names: Any, what: str) -> tuple[Any, ...]:
        """A list of names without repeats; the faults are noted."""
        if not isinstance(names, tuple):
            self.problems.append(f"{what} are {names!r}: give a list of node names")
            return ()
        if not names:
            self.problems.append(f"{what} are empty: name at least one node")
        hashable = tuple(name if isinstance(name, str) else repr(name) for name in names)
        for name, count in Counter(hashable).items():
            if count > 1:
                self.problems.append(f"{what} hold {name!r} twice: name each node once")
        return hashable

    def _wait(self, wait: Any, count: int, where: str) -> Wait:
        if isinstance(wait, str) and wait == "quiescent":
            return "quiescent"
        if isinstance(wait, str) and wait == "all":
            return "all"
        if is_count(wait) and wait <= count:
            return int(wait)
        self.problems.append(
            f'{where}: wait is {wait!r}: give "all", "quiescent", or a number from 1 to {count}'
        )
        return "all"

    def _loop(self, part: LoopPart) -> None:
        where = _loop_name(part.source, part.target)
        options = part.options
        if not isinstance(options, LoopOptions):
            self.problems.append(
                f"{where}: options are {options!r}: pass LoopOptions(max_iterations=...)"
            )
            options = LoopOptions(1)
        elif not is_count(options.max_iterations):
            self.problems.append(
                f"{where}: max_iterations is {options.max_iterations!r}: give a whole number, "
                "1 or more"
            )
        variable = options.loop_variable
        if variable is not None and not is_name(variable):
            self.problems.append(f"{where}: loop_variable is {variable!r}: give printable text")
            variable = None
        if options.on_limit not in ("exit", "stop"):
            self.problems.append(
                f'{where}: on_limit is {options.on_limit!r}: give "exit" or "stop"'
            )
        until = self._condition(options.until, where, "until")
        if not self._known(where, [part.source], [part.target]):
            return
        loop = LoopEdge(
            source=part.source,
            target=part.target,
            max_iterations=options.max_iterations if is_count(options.max_iterations) else 1,
            variable=variable or f"__loop_{part.source}",
            until=until,
            on_limit=options.on_limit,
        )
        if any(isinstance(e, LoopEdge) and e.loop_id == loop.loop_id for e in self.edges):
            self.problems.append(f"{where} is declared twice: keep one, with the limits you mean")
            return
        self._loops[part.source].append(options)
        self.edges.append(loop)


def _loop_name(source: Any, target: Any) -> str:
    return f"loop {source!r} -> {target!r}"


def _wants_dict(signature: Signature | None) -> bool:
    """Whether a payload is annotated as a mapping."""
    return signature is not None and _is_mapping(signature.payload)


def _is_mapping(annotation: Any) -> bool:
    kind = get_origin(annotation) or annotation
    if kind in (Annotated, Union, UnionType):
        return any(_is_mapping(argument) for argument in get_args(annotation))
    return isinstance(kind, type) and issubclass(kind, Mapping)
