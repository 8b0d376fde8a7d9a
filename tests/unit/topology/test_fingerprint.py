"""The fingerprint: equal for equal graphs, other for each change; and the words for a change."""

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from raf.topology.fingerprint import (
    annotation_text,
    canonical,
    changed_code,
    differences,
    digest_of,
    fingerprint,
    manifest,
)
from raf.topology.model import (
    DirectEdge,
    Edge,
    FallbackEdge,
    FanInEdge,
    FanOutEdge,
    LoopEdge,
    NodeSpec,
    StateKey,
    SwitchEdge,
    Topology,
)
from raf.topology.workflow import Condition, NodeCode
from raf.values.annotation import Shape

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "fingerprints.json"

DIRECT = DirectEdge(source="a", target="b", condition="ok")
SWITCH = SwitchEdge(source="b", cases=(("x", "c"), ("y", "d")), default="e")
FAN_OUT = FanOutEdge(source="c", targets=("d", "e"), chooser="pick")
FAN_IN = FanInEdge(sources=("d", "e"), target="f")
LOOP = LoopEdge(source="f", target="b", max_iterations=3, variable="i", until="done")
FALLBACK = FallbackEdge(source="d", target="g")
EDGES: tuple[Edge, ...] = (DIRECT, SWITCH, FAN_OUT, FAN_IN, LOOP, FALLBACK)
NODES = (*(NodeSpec(name=n) for n in "abcdef"), NodeSpec(name="g", kind="agent", output=True))
STATE = (StateKey(key="k"), StateKey(key="k", scope="board", reducer="append"))
FULL = Topology(name="full", start="a", nodes=NODES, edges=EDGES, state=STATE)


def with_edge(old: Edge, **change: Any) -> Topology:
    """The full topology with one edge changed."""
    return replace(FULL, edges=tuple(replace(e, **change) if e is old else e for e in EDGES))


def with_node(name: str, **change: Any) -> Topology:
    """The full topology with one node changed."""
    return replace(FULL, nodes=tuple(replace(n, **change) if n.name == name else n for n in NODES))


def with_state(**change: Any) -> Topology:
    """The full topology with its shared key changed."""
    return replace(FULL, state=(STATE[0], replace(STATE[1], **change)))


CHANGES: list[tuple[Topology, tuple[str, ...]]] = [
    (replace(FULL, name="other"), ("name 'full' became 'other'",)),
    (replace(FULL, start="b"), ("start 'a' became 'b'",)),
    (replace(FULL, nodes=NODES[:-1]), ("node 'g' was removed",)),
    (replace(FULL, nodes=(*NODES, NodeSpec(name="h"))), ("node 'h' was added",)),
    (with_node("a", kind="agent"), ("node 'a': kind 'function' became 'agent'",)),
    (with_node("a", version="2"), ("node 'a': version '' became '2'",)),
    (with_node("a", output=True), ("node 'a': output False became True",)),
    (with_node("a", on_failure="skip"), ("node 'a': on_failure 'fail' became 'skip'",)),
    (replace(FULL, edges=EDGES[1:]), ("edge a -> b (when 'ok') was removed",)),
    (
        replace(FULL, edges=(*EDGES, DirectEdge(source="a", target="c"))),
        ("edge a -> c was added",),
    ),
    (
        with_edge(DIRECT, condition="fine"),
        ("condition 'ok' on the way from 'a' to 'b' was replaced by 'fine'",),
    ),
    (
        with_edge(DIRECT, condition=""),
        ("condition 'ok' on the way from 'a' to 'b' was removed",),
    ),
    (
        replace(FULL, edges=(*EDGES, DirectEdge(source="a", target="b"))),
        ("edge a -> b was added",),
    ),
    (
        with_edge(SWITCH, cases=SWITCH.cases[::-1]),
        ("switch after 'b': cases [['x', 'c'], ['y', 'd']] became [['y', 'd'], ['x', 'c']]",),
    ),
    (with_edge(SWITCH, default="c"), ("switch after 'b': default 'e' became 'c'",)),
    (with_edge(FAN_OUT, chooser="other"), ("fan-out after 'c': chooser 'pick' became 'other'",)),
    (
        with_edge(FAN_OUT, targets=("e", "d")),
        ("fan-out after 'c': targets ['d', 'e'] became ['e', 'd']",),
    ),
    (with_edge(FAN_IN, wait=1), ("barrier d+e>f: wait 'all' became 1",)),
    (with_edge(FAN_IN, wait="quiescent"), ("barrier d+e>f: wait 'all' became 'quiescent'",)),
    (with_edge(FAN_IN, collect="dict"), ("barrier d+e>f: collect 'list' became 'dict'",)),
    (
        with_edge(FAN_IN, sources=("e", "d")),
        ("barrier d+e>f: sources ['d', 'e'] became ['e', 'd']",),
    ),
    (with_edge(LOOP, max_iterations=5), ("loop f>b: max_iterations 3 became 5",)),
    (with_edge(LOOP, variable="j"), ("loop f>b: variable 'i' became 'j'",)),
    (with_edge(LOOP, until="never"), ("loop f>b: until 'done' became 'never'",)),
    (with_edge(LOOP, on_limit="stop"), ("loop f>b: on_limit 'exit' became 'stop'",)),
    (with_edge(FALLBACK, target="c"), ("fallback d>g: target 'g' became 'c'",)),
    (
        with_state(reducer="extend"),
        ("state 'k' of scope 'board': reducer 'append' became 'extend'",),
    ),
    (
        with_state(scope="wall"),
        ("state 'k' of scope 'board' was removed", "state 'k' of scope 'wall' was added"),
    ),
    (replace(FULL, state=STATE[1:]), ("state 'k' of each node was removed",)),
]


def described(topology: Topology) -> dict[str, Any]:
    """A manifest without code."""
    return manifest(topology, nodes={}, conditions={}, reducers={})


@pytest.mark.parametrize(("changed", "words"), CHANGES, ids=[words[0] for _, words in CHANGES])
def test_each_change_changes_the_fingerprint_and_is_named(
    changed: Topology, words: tuple[str, ...]
) -> None:
    """Whatever can change a run changes the fingerprint, and the difference says what it was."""
    assert fingerprint(changed) != fingerprint(FULL)
    assert differences(described(FULL), described(changed)) == words


def test_every_change_gives_a_fingerprint_of_its_own() -> None:
    """No two of the changes look alike."""
    prints = [fingerprint(topology) for topology, _ in CHANGES]
    assert len(set(prints)) == len(prints)


def test_every_field_of_a_topology_is_in_the_canonical_form() -> None:
    """A field that is added to the model and forgotten here is found."""
    text = json.dumps(canonical(FULL))
    for part in (FULL, *NODES[:1], *EDGES, *STATE[:1]):
        for name in type(part).__dataclass_fields__:
            assert f'"{name}"' in text, f"{type(part).__name__}.{name}"


def test_the_order_of_insertion_does_not_matter() -> None:
    """Nodes, edges and state keys in any order: one fingerprint."""
    turned = replace(FULL, nodes=NODES[::-1], state=STATE[::-1])
    for edges in itertools.permutations(EDGES):
        assert fingerprint(replace(turned, edges=edges)) == fingerprint(FULL)


def test_the_canonical_form_is_plain_json_data() -> None:
    """It survives JSON unchanged, so it can be stored and read back."""
    assert json.loads(json.dumps(canonical(FULL))) == canonical(FULL)
    assert json.loads(json.dumps(described(FULL))) == described(FULL)


def test_equal_graphs_have_no_differences() -> None:
    """Nothing is said of a graph and itself."""
    assert differences(described(FULL), described(FULL)) == ()


def test_a_session_without_a_description_is_no_crash() -> None:
    """Where nothing is on record, that is what is said."""
    assert differences({}, described(FULL)) == ("the session holds no description of its graph",)


PROGRAM = """
from tests.golden.workflows import every
for name, workflow in sorted(every().items()):
    print(name, workflow.fingerprint)
"""


@pytest.mark.parametrize("seed", ["0", "1", "424242"])
def test_the_hash_seed_does_not_matter(seed: str) -> None:
    """Another process with another hash seed builds the same fingerprints as are on record."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        check=True,
        capture_output=True,
        text=True,
    )
    built = dict(line.split() for line in run.stdout.splitlines())
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert built == {name: entry["fingerprint"] for name, entry in golden.items()}


def code(name: str, digest: str) -> Condition:
    """A condition with a given digest."""
    return Condition(name=name, call=bool, takes_state=False, source_digest=digest)


def test_changed_code_is_named() -> None:
    """A digest that changed under one name is told; unknown and new ones are not; no difference."""

    def with_code(**digests: str) -> dict[str, Any]:
        return manifest(
            FULL,
            nodes={},
            conditions={n: code(n, d) for n, d in digests.items()},
            reducers={"fold": digests.get("fold", "")},
        )

    before = with_code(same="1", other="1", unknown="", gone="1", fold="1")
    after = with_code(same="1", other="2", unknown="2", new="2", fold="2")
    assert changed_code(before, after) == ("fold", "other")
    assert changed_code(before, before) == ()
    assert differences(before, after) == ()


def test_payload_types_are_in_the_manifest_and_not_in_the_fingerprint() -> None:
    """A changed annotation is on record but makes no other graph."""

    def takes(annotation: Any) -> dict[str, Any]:
        node = NodeCode(
            name="a",
            call=str,
            is_async=False,
            takes_context=False,
            payload=Shape.of(annotation),
            returns=list[int],
        )
        return manifest(FULL, nodes={"a": node}, conditions={}, reducers={})

    assert takes(int)["payloads"] == {"a": {"takes": "int", "returns": "list[int]"}}
    assert digest_of(takes(int)["topology"]) == digest_of(takes(str)["topology"])
    assert differences(takes(int), takes(str)) == ()


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (int, "int"),
        (UUID, "uuid.UUID"),
        (dict[str, list[int]], "dict[str, list[int]]"),
        (int | None, "int | None"),
        (Any, "typing.Any"),
        (None, "None"),
    ],
)
def test_annotations_as_text(annotation: Any, text: str) -> None:
    """Annotations are written as people write them."""
    assert annotation_text(annotation) == text


def test_annotations_hold_no_address() -> None:
    """What differs from process to process is left out."""
    assert " at 0x" not in annotation_text(lambda: None)
