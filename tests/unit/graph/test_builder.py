"""What a sound builder builds."""

import itertools
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest

from raf.graph.builder import WorkflowBuilder
from raf.graph.names import named
from raf.graph.options import LoopOptions
from raf.topology.model import (
    DirectEdge,
    FallbackEdge,
    FanInEdge,
    FanOutEdge,
    LoopEdge,
    StateKey,
    SwitchEdge,
)
from raf.topology.workflow import RetryPolicy, Workflow
from raf.values.codec import decode


@dataclass
class Paper:
    title: str


class Parts(TypedDict):
    b: str
    c: str


async def work(payload: Any) -> Any:
    return payload


async def read(paper: Paper) -> str:
    return paper.title


def ok(payload: Any, state: Any) -> bool:
    return bool(payload and state)


def fold(current: Any, contribution: Any) -> Any:
    return current or contribution


def builder(names: str = "abcd") -> WorkflowBuilder:
    made = WorkflowBuilder("w").set_start(names[0])
    for name in names:
        made.add_node(name, work)
    return made


def test_every_kind_of_edge() -> None:
    """Edges are in the topology as they were declared, in canonical order."""
    built = (
        builder("abcdef")
        .add_node("plan b", work)
        .add_node("g", work, fallback="plan b")
        .add_fan_in(["d", "c"], "e", wait=1)
        .add_switch("a", {named("x", bool): "b", ok: "c"}, "d")
        .add_fan_out("b", ["d", "c"], choose=ok)
        .add_edge("e", "f", when=ok)
        .add_edge("f", "g")
        .add_loop("f", "a", LoopOptions(3, until=ok, on_limit="stop"))
        .build()
    )
    assert built.topology.edges == (
        SwitchEdge(source="a", cases=(("x", "b"), ("ok", "c")), default="d"),
        FanOutEdge(source="b", targets=("d", "c"), chooser="ok"),
        FanInEdge(sources=("d", "c"), target="e", wait=1),
        DirectEdge(source="e", target="f", condition="ok"),
        LoopEdge(
            source="f",
            target="a",
            max_iterations=3,
            variable="__loop_f",
            until="ok",
            on_limit="stop",
        ),
        DirectEdge(source="f", target="g"),
        FallbackEdge(source="g", target="plan b"),
    )
    assert set(built.conditions) == {"x", "ok"}
    assert built.conditions["ok"].takes_state
    assert built.conditions["x"].call is bool
    assert built.loops.of_node["c"] == ("f>a",)


def test_code_of_a_node() -> None:
    """Limits are kept with the code and not in the topology; a number of attempts is a policy."""
    policy = RetryPolicy(attempts=4, on=(OSError,))
    built = (
        WorkflowBuilder("w")
        .set_start("a")
        .add_node("a", read, retry=3, timeout_s=5, idle_timeout_s=1.5, max_concurrency=2)
        .add_agent_node("b", work, retry=policy, version="2", on_failure="skip")
        .add_edge("a", "b")
        .build()
    )
    first, second = built.nodes["a"], built.nodes["b"]
    assert (first.retry.attempts, first.timeout_s, first.idle_timeout_s) == (3, 5, 1.5)
    assert (first.max_concurrency, first.payload.annotation, first.returns) == (2, Paper, str)
    assert second.retry is policy
    spec = built.topology.node("b")
    assert (spec.kind, spec.version, spec.on_failure, spec.output) == ("agent", "2", "skip", True)
    assert built.types.tag_of(Paper) is not None


@pytest.mark.parametrize(
    ("names", "arrange", "outputs"),
    [
        ("a", lambda b: b, "a"),
        ("ab", lambda b: b.add_edge("a", "b"), "b"),
        ("abc", lambda b: b.add_fan_out("a", ["b", "c"]), "bc"),
        ("ab", lambda b: b.add_edge("a", "b").with_output_from("a"), "a"),
        (
            "ab",
            lambda b: b.add_edge("a", "b").with_output_from("b", "a").with_output_from("a"),
            "ab",
        ),
        ("ab", lambda b: b.add_edge("a", "b").add_loop("b", "a", LoopOptions(2)), "b"),
        (
            "ab",
            lambda b: b.add_node("c", work, fallback="b").add_fan_out("a", ["b", "c"]),
            "bc",
        ),
    ],
)
def test_outputs(
    names: str, arrange: Callable[[WorkflowBuilder], WorkflowBuilder], outputs: str
) -> None:
    """By default nodes that nothing follows; a way back or a fallback is nothing that follows."""
    built = arrange(builder(names)).build()
    assert [node.name for node in built.topology.nodes if node.output] == list(outputs)


def collects(annotation: Any) -> Callable[..., Any]:
    async def collect(payload: Any) -> Any:
        return payload

    collect.__annotations__["payload"] = annotation
    return collect


@pytest.mark.parametrize(
    ("annotation", "how"),
    [
        (list[str], "list"),
        (Any, "list"),
        (dict[str, str], "dict"),
        (dict, "dict"),
        (Mapping[str, Any], "dict"),
        (dict[str, str] | None, "dict"),
        (Annotated[dict[str, str], "by source"], "dict"),
        (Parts, "dict"),
    ],
)
def test_how_a_barrier_hands_over(annotation: Any, how: str) -> None:
    """The target's annotation says whether it gets a list or a dict; `collect` overrules it."""
    made = builder("abc").add_node("d", collects(annotation)).add_fan_out("a", ["b", "c"])
    (edge,) = [
        e
        for e in made.add_fan_in(["b", "c"], "d").build().topology.edges
        if isinstance(e, FanInEdge)
    ]
    assert edge.collect == how


def test_collect_can_be_said() -> None:
    """Without an annotation the builder's word decides."""
    made = builder().add_fan_out("a", ["b", "c"]).add_fan_in(["b", "c"], "d", collect="dict")
    assert FanInEdge(sources=("b", "c"), target="d", collect="dict") in made.build().topology.edges


def test_state() -> None:
    """Keys are in the topology; type, fold and initial value are with the code."""
    built = (
        builder("a")
        .with_state("seen", int, initial=0)
        .with_state("notes", list[str], scope="board", reducer="append", initial=["x"])
        .with_state("best", int, scope="board", reducer=fold)
        .with_state("none", None | int, initial=None)
        .with_state("paper", Paper)
        .build()
    )
    assert built.topology.state == (
        StateKey(key="none"),
        StateKey(key="paper"),
        StateKey(key="seen"),
        StateKey(key="best", scope="board", reducer="fold"),
        StateKey(key="notes", scope="board", reducer="append"),
    )
    code = {key.key: key for key in built.state}
    assert decode(code["notes"].initial or b"", built.types) == ["x"]
    assert decode(code["none"].initial or b"", built.types) is None
    assert code["paper"].initial is None
    assert code["best"].reducer is not None
    assert code["best"].reducer.fold is fold
    assert built.manifest["reducers"].keys() == {"fold"}


def test_a_builder_goes_on_after_build() -> None:
    """What was built does not change when the builder does, nor with lists that were passed in."""
    targets = ["b", "c"]
    made = builder("abc").add_fan_out("a", targets)
    first = made.build()
    targets.append("z")
    made.add_node("d", work).add_edge("c", "d")
    second = made.build()
    assert len(first.topology.nodes) == 3
    assert len(second.topology.nodes) == 4
    with pytest.raises(TypeError):
        first.nodes["a"] = first.nodes["b"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        first.topology = second.topology  # type: ignore[misc]


def test_sets_have_an_order() -> None:
    """Targets given as a set are sorted: a set's own order differs from process to process."""
    built = builder().add_fan_out("a", {"d", "c", "b"}).build()
    assert FanOutEdge(source="a", targets=("b", "c", "d")) in built.topology.edges


def test_the_order_of_calls_does_not_matter() -> None:
    """Whatever order nodes and edges are added in, the fingerprint is the same."""
    calls: list[Callable[[WorkflowBuilder], object]] = [
        lambda b: b.add_node("a", work),
        lambda b: b.add_node("b", work),
        lambda b: b.add_edge("a", "b"),
        lambda b: b.set_start("a"),
        lambda b: b.add_loop("b", "a", LoopOptions(2)),
        lambda b: b.with_state("k", int),
    ]
    prints = set()
    for order in itertools.permutations(calls):
        made = WorkflowBuilder("w")
        for call in order:
            call(made)
        prints.add(made.build().fingerprint)
    assert len(prints) == 1


def test_what_stays_out_of_the_fingerprint() -> None:
    """Retry, timeouts, concurrency, handler bodies and payload types make no other graph."""

    def make(handler: Any = work, **options: Any) -> Workflow:
        return WorkflowBuilder("w").set_start("a").add_node("a", handler, **options).build()

    base = make().fingerprint
    assert make(retry=5, timeout_s=1, idle_timeout_s=1, max_concurrency=1).fingerprint == base
    assert make(read).fingerprint == base
    assert make(version="2").fingerprint != base


def test_both_a_fan_out_and_an_edge_to_one_node() -> None:
    """Each group of edges judges a message on its own, so both may lead to one node."""
    builder("ab").add_fan_out("a", ["b"]).add_edge("a", "b").build()


def test_names_may_be_of_any_script() -> None:
    """Names with spaces, quotes and signs of other scripts are names."""
    names = ["分析", "a b", "l'été", 'say "x"', "a::b", "{}", "a/b", "%"]
    made = WorkflowBuilder("评").set_start(names[0])
    for name in names:
        made.add_node(name, work)
    assert len(made.add_fan_out(names[0], names[1:]).build().topology.nodes) == len(names)


def test_networkx_is_loaded_by_build_alone() -> None:
    """A program that only imports the builder does not pay for the graph library."""
    code = (
        "import sys\nfrom raf.graph.builder import WorkflowBuilder\n"
        "print('networkx' in sys.modules)\n"
        "WorkflowBuilder('w').set_start('a').add_node('a', str.upper).build()\n"
        "print('networkx' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["False", "True"]
