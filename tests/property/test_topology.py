"""Properties of topologies over random graphs: order of insertion, differences, paths of messages."""

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raf.graph.builder import WorkflowBuilder
from raf.graph.names import named
from raf.graph.options import LoopOptions
from raf.topology.fingerprint import differences, fingerprint, manifest
from raf.topology.loops import Loops
from raf.topology.model import DirectEdge, LoopEdge, Topology, edge_sources, edge_targets

Call = tuple[str, tuple[Any, ...], dict[str, Any]]

OK = named("ok", bool)
PICK = named("pick", lambda payload: payload)


async def work(payload: Any) -> Any:
    """Any node."""
    return payload


@st.composite
def calls(draw: st.DrawFn) -> list[Call]:
    """The calls that make a sound workflow: a chain, short cuts, barriers, and nested loops."""
    size = draw(st.integers(2, 9))
    names = [f"n{i}" for i in range(size)]
    versions = st.sampled_from(["", "2"])
    made: list[Call] = [("set_start", ("n0",), {})]
    made += [("add_node", (name, work), {"version": draw(versions)}) for name in names]
    made += [("add_edge", pair, {}) for pair in pairwise(names)]
    places = st.integers(0, size - 1)
    for low, high in draw(st.lists(st.tuples(places, places), max_size=4, unique=True)):
        if high - low > 1:
            made.append(_short_cut(draw, names, low, high))
    for number, (low, high) in enumerate(_nested(draw, 0, size - 1)):
        options = LoopOptions(
            draw(st.integers(1, 4)),
            loop_variable=f"v{number}",
            until=draw(st.sampled_from([None, OK])),
        )
        made.append(("add_loop", (names[high], names[low], options), {}))
    for key in draw(st.lists(st.sampled_from(["k", "m", "p"]), unique=True)):
        scope = draw(st.sampled_from([None, "board"]))
        made.append(("with_state", (key, list), {"scope": scope, "reducer": "append"}))
    return made


def _short_cut(draw: st.DrawFn, names: list[str], low: int, high: int) -> Call:
    kind = draw(st.sampled_from(["edge", "fan-out", "fan-in", "switch"]))
    middle = names[low + 1]
    match kind:
        case "edge":
            return ("add_edge", (names[low], names[high]), {"when": OK})
        case "fan-out":
            return ("add_fan_out", (names[low], [names[high], middle]), {"choose": PICK})
        case "fan-in":
            wait = draw(st.sampled_from(["all", 1, "quiescent"]))
            return ("add_fan_in", ([names[low], middle], names[high]), {"wait": wait})
        case _:
            return ("add_switch", (names[low], [(OK, names[high])], middle), {})


def _nested(draw: st.DrawFn, low: int, high: int, depth: int = 0) -> list[tuple[int, int]]:
    """Spans of the chain that are nested or apart."""
    if depth > 3 or not draw(st.booleans()):
        return []
    first = draw(st.integers(low, high))
    last = draw(st.integers(first, high))
    inner = [] if first == last else _nested(draw, first, last, depth + 1)
    after = _nested(draw, last + 1, high, depth + 1) if last < high else []
    return list(dict.fromkeys([(first, last), *inner, *after]))


def build(made: list[Call]) -> Topology:
    """The topology that the calls make."""
    builder = WorkflowBuilder("w")
    for method, arguments, options in made:
        getattr(builder, method)(*arguments, **options)
    return builder.build().topology


@given(calls(), st.randoms(use_true_random=False))
def test_the_order_of_insertion_never_matters(made: list[Call], chance: random.Random) -> None:
    """The same calls in another order make an equal topology and an equal fingerprint."""
    shuffled = list(made)
    chance.shuffle(shuffled)
    one, other = build(made), build(shuffled)
    assert one == other
    assert fingerprint(one) == fingerprint(other)


@given(calls(), calls())
def test_differences_are_empty_for_equal_graphs_only(one: list[Call], other: list[Call]) -> None:
    """Whenever two fingerprints differ there are words for it, and only then; both ways round."""
    here, there = build(one), build(other)
    saved, current = (manifest(t, nodes={}, conditions={}, reducers={}) for t in (here, there))
    same = fingerprint(here) == fingerprint(there)
    assert (differences(saved, current) == ()) is same
    assert (differences(current, saved) == ()) is same


@given(calls(), st.integers(1, 9))
def test_a_limit_is_part_of_the_fingerprint(made: list[Call], limit: int) -> None:
    """Any loop's limit, changed, makes another graph, which is named."""
    here = build(made)
    for edge in here.edges:
        if isinstance(edge, LoopEdge) and edge.max_iterations != limit:
            changed = replace(edge, max_iterations=limit)
            there = replace(here, edges=tuple(changed if e is edge else e for e in here.edges))
            assert fingerprint(here) != fingerprint(there)


@given(calls(), st.lists(st.integers(0, 99), max_size=40))
def test_a_path_is_as_long_as_the_nesting_is_deep(made: list[Call], turns: list[int]) -> None:
    """On any walk the path names the loops around the node, outermost first, all from 1 up."""
    topology = build(made)
    loops = Loops.of(topology)
    node, path = topology.start, loops.enter(topology.start)
    for turn in turns:
        exits = [
            (edge, target)
            for edge in topology.edges
            if node in edge_sources(edge)
            for target in edge_targets(edge)
        ]
        if not exits:
            break
        edge, target = exits[turn % len(exits)]
        before = path
        if isinstance(edge, LoopEdge):
            path = loops.back(path, edge)
            depth = loops.of_node[edge.source].index(edge.loop_id)
            assert path[:depth] == loops.outer(before, edge)
            assert path[depth] == (edge.loop_id, loops.iteration(before, edge) + 1)
            assert all(iteration == 1 for _, iteration in path[depth + 1 :])
        else:
            path = loops.along(path, node, target)
            kept = [a for a, b in zip(before, path, strict=False) if a == b]
            assert list(path[: len(kept)]) == kept
            assert all(iteration == 1 for _, iteration in path[len(kept) :])
        node = target
        assert tuple(loop for loop, _ in path) == loops.of_node[node]
        assert all(iteration >= 1 for _, iteration in path)


@given(calls())
def test_bodies_are_nested_or_apart(made: list[Call]) -> None:
    """What `build()` lets through has loops that never cross."""
    topology = build(made)
    chains = set(Loops.of(topology).of_node.values())
    for one in chains:
        for other in chains:
            shared = [a for a, b in zip(one, other, strict=False) if a == b]
            assert set(one) & set(other) == set(shared)
    assert DirectEdge(source="n0", target="n1") in topology.edges
