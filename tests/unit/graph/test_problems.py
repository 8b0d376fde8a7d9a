"""Every fault of a graph is reported by `build()`, with its remedy, and all at once."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from raf.context import Context
from raf.errors import GraphError
from raf.graph.builder import WorkflowBuilder
from raf.graph.names import named
from raf.graph.options import LoopOptions
from raf.topology.workflow import RetryPolicy

Change = Callable[[Any], object]  # a builder, asked for what its types forbid


async def work(payload: Any) -> Any:
    return payload


async def other(payload: Any) -> Any:
    return payload


def plain(payload: Any) -> Any:
    return payload


def ok(payload: Any) -> bool:
    return bool(payload)


def fine(payload: Any) -> bool:
    return bool(payload)


def nodes(*names: str) -> WorkflowBuilder:
    """A builder with these nodes, the first of them the start."""
    builder = WorkflowBuilder("w").set_start(names[0])
    for name in names:
        builder.add_node(name, work)
    return builder


def line(names: str = "abc") -> WorkflowBuilder:
    """Nodes named by letters, in a row."""
    builder = nodes(*names)
    for source, target in pairwise(names):
        builder.add_edge(source, target)
    return builder


def problems(builder: WorkflowBuilder) -> tuple[str, ...]:
    """What `build()` says."""
    with pytest.raises(GraphError) as caught:
        builder.build()
    return caught.value.problems


def one(builder: WorkflowBuilder) -> str:
    """The only thing that `build()` says."""
    said = problems(builder)
    assert len(said) == 1, said
    return said[0]


def test_all_problems_come_at_once() -> None:
    """Independent faults are all in one error, with the workflow's name; the builder is as it was."""
    builder = (
        WorkflowBuilder("many")
        .add_node("a", work, retry=0)
        .add_node("a", work)
        .add_node("b", "no function")  # type: ignore[arg-type]
        .add_node("c", work)
        .add_edge("a", "b", when=lambda p: p)
        .add_edge("b", "a")
        .add_edge("b", "nowhere")
        .add_fan_in(["a"], "c", wait=7)
        .with_state("k", int, reducer="append")
        .with_output_from("z")
    )
    said = problems(builder)
    assert len(said) == 11, said
    assert problems(builder) == said
    error = GraphError("many", said)
    assert str(error).startswith("workflow 'many' cannot be built:\n  - node 'a': retry is 0")
    wanted = [
        "added twice",
        "retry is 0",
        "cannot be called",
        "no start",
        "lambda",
        "undeclared cycle a -> b -> a",
        "no node 'nowhere'",
        "one source",
        "wait is 7",
        "reducer 'append'",
        "no node 'z'",
    ]
    for words in wanted:
        assert any(words in sentence for sentence in said), words


# -- names and start ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", None, 5, " w", "a\nb", "\ud800"])
def test_the_name_of_the_workflow(name: Any) -> None:
    """A workflow has a printable name."""
    said = one(WorkflowBuilder(name).add_node("a", work).set_start("a"))
    assert "name is" in said
    assert "give printable text" in said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "is odd: use printable text"),
        (" a", "is odd"),
        ("a\x00", "is odd"),
        ("\ud800", "is odd"),
        (None, "is NoneType: give text"),
        (5, "is int: give text"),
        (["a"], "is list: give text"),
        ("a>b", "leave them out"),
        ("a+b", "leave them out"),
    ],
)
def test_names_of_nodes(name: Any, words: str) -> None:
    """A node's name is printable text without the signs that ids use."""
    assert words in one(line().add_node(name, work))


STARTS: list[tuple[Change, str]] = [
    (lambda b: None, "no start: call set_start(name)"),
    (lambda b: b.set_start("z"), "start: there is no node 'z': add it with add_node"),
    (lambda b: b.set_start(None), "start: there is no node None"),
    (lambda b: b.set_start(["a"]), "start: there is no node ['a']"),
    (lambda b: b.set_start("a").set_start("b"), "set to 'a' and 'b': call set_start once"),
]


@pytest.mark.parametrize(("change", "words"), STARTS, ids=[w for _, w in STARTS])
def test_the_start(change: Change, words: str) -> None:
    """There is one start, and it is a node."""
    builder = WorkflowBuilder("w").add_node("a", work).add_node("b", work).add_edge("a", "b")
    change(builder)
    assert words in one(builder)


def test_a_workflow_has_nodes() -> None:
    """An empty builder says what is missing."""
    assert problems(WorkflowBuilder("w")) == (
        "there are no nodes: add one with add_node",
        "there is no start: call set_start(name)",
    )


def test_a_near_miss_is_suggested() -> None:
    """An unknown name that looks like a known one is mended in the message."""
    builder = nodes("analyze", "report").add_edge("analyze", "report")
    assert "did you mean 'report'?" in one(builder.with_output_from("reports"))


# -- handlers and options of a node ------------------------------------------------------------


async def nothing() -> None: ...
async def context_only(ctx: Context) -> None: ...
async def bare_context(ctx) -> None: ...  # type: ignore[no-untyped-def]
async def three(ctx: Context, a: int, b: int) -> None: ...
async def keyword(payload: int, *, model: str) -> None: ...
async def two_payloads(left: str, right: str) -> None: ...
async def turned(payload: str, ctx: Context) -> None: ...
async def unresolved(payload: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def generator(payload: int) -> Iterator[int]:
    yield payload


async def stream(payload: int) -> AsyncIterator[int]:
    yield payload


def iterator(payload: int) -> Iterator[int]:
    return iter([payload])


@dataclass
class Model:
    name: str


HANDLERS: list[tuple[Any, str]] = [
    (None, "is NoneType, which cannot be called: pass a function"),
    ("work", "is str, which cannot be called"),
    (Model, "is the class Model: pass a function or an instance"),
    (nothing, "takes nothing: it is called with (payload) or (ctx, payload)"),
    (context_only, "takes a context and no payload"),
    (bare_context, "takes a context and no payload"),
    (three, "needs (ctx, a, b)"),
    (keyword, "needs the keyword 'model'"),
    (two_payloads, "takes str as the first of two"),
    (turned, "takes the context behind the payload"),
    (unresolved, "cannot be resolved"),
    (generator, "is a generator: return one value, or send several with ctx.send()"),
    (stream, "is a generator"),
    (iterator, "returns an iterator"),
    (max, "has no signature that can be read: wrap it"),
]


@pytest.mark.parametrize(("handler", "words"), HANDLERS, ids=[w for _, w in HANDLERS])
def test_handlers(handler: Any, words: str) -> None:
    """What cannot be called as a node is refused, by name and with the way it is called."""
    said = one(nodes("a").add_node("b", handler).add_edge("a", "b"))
    assert said.startswith("node 'b': its handler ")
    assert words in said


def test_agents() -> None:
    """An agent is an object with run, or a callable."""
    said = one(nodes("a").add_agent_node("b", object()).add_edge("a", "b"))
    assert (
        "its agent is object, which cannot be called: pass a callable or an object with run" in said
    )


NOT_SECONDS = [0, -1, float("nan"), float("inf"), True, "5"]
NOT_COUNTS = [0, -1, 1.5, float("nan"), True, "5"]

OPTIONS: list[tuple[dict[str, Any], str]] = [
    *(({"timeout_s": v}, f"timeout_s is {v!r}: give seconds above 0") for v in NOT_SECONDS),
    *(({"idle_timeout_s": v}, f"idle_timeout_s is {v!r}: give seconds") for v in NOT_SECONDS),
    *(({"max_concurrency": v}, f"max_concurrency is {v!r}: give a whole") for v in NOT_COUNTS),
    *(({"retry": v}, f"retry is {v!r}: give a number of attempts") for v in NOT_COUNTS),
    *(
        ({"retry": RetryPolicy(attempts=v)}, f"retry.attempts is {v!r}: give a whole number")  # type: ignore[arg-type]
        for v in NOT_COUNTS
    ),
    ({"retry": RetryPolicy(backoff_s=-1)}, "retry.backoff_s is -1: give seconds, 0 or more"),
    ({"retry": RetryPolicy(backoff_s=float("nan"))}, "retry.backoff_s is nan"),
    ({"retry": RetryPolicy(factor=0.5)}, "retry.factor is 0.5: give a finite number, 1 or more"),
    ({"retry": RetryPolicy(max_backoff_s=float("inf"))}, "retry.max_backoff_s is inf"),
    ({"retry": RetryPolicy(total_s=0)}, "retry.total_s is 0: give seconds above 0, or None"),
    ({"retry": RetryPolicy(jitter="some")}, "retry.jitter is 'some'"),  # type: ignore[arg-type]
    ({"retry": RetryPolicy(on=())}, "retry.on is (): give a tuple of exception types"),
    ({"retry": RetryPolicy(on=ValueError)}, "retry.on is <class"),  # type: ignore[arg-type]
    ({"retry": RetryPolicy(on=(BaseException,))}, "retry.on is"),  # type: ignore[arg-type]
    ({"version": 2}, "version is 2: give text"),
    ({"on_failure": "ignore"}, 'on_failure is \'ignore\': give "fail" or "skip"'),
    ({"on_failure": "skip", "fallback": "a"}, "exclude each other: drop one"),
    ({"fallback": "z"}, "fallback of node 'b': there is no node 'z'"),
    ({"fallback": "b"}, "fallback of node 'b' is the node itself: name another"),
    ({"fallback": 5}, "fallback of node 'b': there is no node 5"),
    ({"fallback": "a"}, "undeclared cycle a -> b -> a"),
]


@pytest.mark.parametrize(("options", "words"), OPTIONS, ids=[w for _, w in OPTIONS])
def test_options_of_a_node(options: dict[str, Any], words: str) -> None:
    """Numbers, words and names given for a node are judged."""
    said = problems(nodes("a").add_node("b", work, **options).add_edge("a", "b"))
    assert words in said[0]


@pytest.mark.parametrize("name", ["timeout_s", "idle_timeout_s"])
def test_a_thread_has_no_deadline(name: str) -> None:
    """A sync function cannot be stopped, so it takes no deadline."""
    options: dict[str, Any] = {name: 5}
    said = one(nodes("a").add_node("b", plain, **options).add_edge("a", "b"))
    assert said.startswith(f"node 'b': {name} is set for a sync function")
    assert "make it async def, or drop the limit" in said


# -- edges --------------------------------------------------------------------------------------


async def slow(payload: Any) -> bool:
    return bool(payload)


def three_values(payload: Any, state: Any, more: Any) -> bool:
    return bool(payload)


def no_value() -> bool:
    return True


def yields(payload: Any) -> Iterator[bool]:
    yield True


def another(name: str) -> Callable[[Any], bool]:
    """A function of that name, and another one each time."""

    def made(payload: Any) -> bool:
        return bool(payload)

    made.__name__ = name
    return made


class Asks:
    def __call__(self, payload: Any) -> bool:
        return bool(payload)


CONDITIONS: list[tuple[Any, str]] = [
    (lambda p: p, 'is a lambda, which has no name: write named("ok", lambda ...)'),
    (partial(ok), "is a partial of"),
    (partial(ok), 'which has no name: write named("ok", ...)'),
    (Asks(), "is an object of class Asks, which has no name"),
    (named("", ok), "is named '': use printable text"),
    (named("a\nb", ok), "use printable text"),
    (named(5, ok), "is named 5"),  # type: ignore[arg-type]
    ("ok", "is str, which cannot be called: pass a function"),
    (5, "is int, which cannot be called"),
    (slow, "'slow' is async: it must answer at once, so make it a plain def"),
    (yields, "is a generator: it must return one value"),
    (three_values, "has other parameters: it is called with (payload) or (payload, state)"),
    (no_value, "has other parameters"),
    (named("ok", no_value), "'ok' has other parameters"),
]


@pytest.mark.parametrize("place", ["edge", "case", "chooser", "until"])
@pytest.mark.parametrize(("condition", "words"), CONDITIONS, ids=[w for _, w in CONDITIONS])
def test_conditions(place: str, condition: Any, words: str) -> None:
    """Wherever a condition stands it has a name, is sync and takes payload and state."""
    builder = nodes("a", "b", "c").add_edge("a", "c")
    match place:
        case "edge":
            builder.add_edge("a", "b", when=condition)
        case "case":
            builder.add_switch("a", [(condition, "b")], "c")
        case "chooser":
            builder.add_fan_out("a", ["b", "c"], choose=condition)
        case _:
            builder.add_edge("a", "b").add_loop("b", "a", LoopOptions(2, until=condition))
    assert words in one(builder)


def test_one_name_means_one_function() -> None:
    """Two functions of one name are told apart in the message; one function may be used twice."""
    builder = line().add_edge("a", "c", when=ok).add_switch("a", [(ok, "b")], "c")
    builder.build()
    said = one(builder.add_edge("b", "c", when=named("ok", fine)))
    assert "the name 'ok' means two functions" in said
    assert "test_problems.ok" in said
    assert "test_problems.fine" in said
    assert 'rename one with named("another name", ...)' in said


EDGES: list[tuple[Change, str]] = [
    (lambda b: b.add_edge("a", "z"), "edge 'a' -> 'z': there is no node 'z'"),
    (lambda b: b.add_edge("z", "a"), "edge 'z' -> 'a': there is no node 'z'"),
    (lambda b: b.add_edge(None, "a"), "there is no node None"),
    (lambda b: b.add_edge("a", ["b"]), "there is no node ['b']"),
    (lambda b: b.add_edge("a", "b"), "edge 'a' -> 'b' is declared twice: drop one"),
    (lambda b: b.add_edge("a", "a"), "undeclared cycle a -> a: declare the way back with"),
    (lambda b: b.add_switch("a", [], "b"), "cases must be (condition, target) pairs, one or more"),
    (lambda b: b.add_switch("a", {}, "b"), "cases must be (condition, target) pairs"),
    (lambda b: b.add_switch("a", [(ok,)], "b"), "cases must be (condition, target) pairs"),
    (lambda b: b.add_switch("a", None, "b"), "cases must be (condition, target) pairs"),
    (lambda b: b.add_switch("a", ok, "b"), "cases must be (condition, target) pairs"),
    (lambda b: b.add_switch("a", [(ok, "b")]), "has no default: name the node that gets what"),
    (lambda b: b.add_switch("a", [(ok, "b")], "z"), "switch after 'a': there is no node 'z'"),
    (lambda b: b.add_switch("a", [(ok, "z")], "b"), "switch after 'a': there is no node 'z'"),
    (lambda b: b.add_switch("a", {ok: "z"}, "b"), "switch after 'a': there is no node 'z'"),
    (lambda b: b.add_switch("z", [(ok, "b")], "b"), "switch after 'z': there is no node 'z'"),
    (lambda b: b.add_switch("a", [(ok, "b"), (ok, "c")], "b"), "case 'ok' appears twice"),
    (lambda b: b.add_fan_out("a", []), "fan-out after 'a': targets are empty"),
    (lambda b: b.add_fan_out("a", "bc"), "targets are 'bc': give a list of node names"),
    (lambda b: b.add_fan_out("a", None), "targets are None: give a list"),
    (lambda b: b.add_fan_out("a", ["b", "b"]), "targets hold 'b' twice: name each node once"),
    (lambda b: b.add_fan_out("a", ["b", "z"]), "fan-out after 'a': there is no node 'z'"),
    (lambda b: b.add_fan_out("z", ["b"]), "fan-out after 'z': there is no node 'z'"),
    (lambda b: b.add_fan_in([], "c"), "fan-in into 'c': sources are empty"),
    (lambda b: b.add_fan_in("ab", "c"), "sources are 'ab': give a list of node names"),
    (lambda b: b.add_fan_in(["a"], "c"), "has one source, 'a': name two or more, or use add_edge"),
    (lambda b: b.add_fan_in(["a", "a", "b"], "c"), "sources hold 'a' twice"),
    (lambda b: b.add_fan_in(["a", "z"], "c"), "fan-in into 'c': there is no node 'z'"),
    (lambda b: b.add_fan_in(["a", "b"], "z"), "fan-in into 'z': there is no node 'z'"),
    *(
        (
            lambda b, wait=wait: b.add_fan_in(["a", "b"], "c", wait=wait),
            f'wait is {wait!r}: give "all", "quiescent", or a number from 1 to 2',
        )
        for wait in (0, -1, 3, True, 1.5, float("nan"), "2", "any", None)
    ),
    (lambda b: b.add_fan_in(["a", "b"], "c", collect="set"), "collect is 'set': give \"list\""),
    (
        lambda b: b.add_fan_in(["a", "b"], "c").add_fan_in(["a", "b"], "c", wait=1),
        "fan-in into 'c' from a, b is declared twice: drop one",
    ),
    (lambda b: b.add_fan_in(["a", "c"], "b"), "undeclared cycle b -> c -> b"),
    (lambda b: b.add_loop("c", "z", LoopOptions(2)), "loop 'c' -> 'z': there is no node 'z'"),
    (lambda b: b.add_loop("z", "a", LoopOptions(2)), "loop 'z' -> 'a': there is no node 'z'"),
    (lambda b: b.add_loop("c", "a", 3), "options are 3: pass LoopOptions(max_iterations=...)"),
    (lambda b: b.add_loop("c", "a", None), "options are None: pass LoopOptions"),
    *(
        (
            lambda b, limit=limit: b.add_loop("c", "a", LoopOptions(limit)),
            f"loop 'c' -> 'a': max_iterations is {limit!r}: give a whole number, 1 or more",
        )
        for limit in (0, -3, float("nan"), float("inf"), 2.0, True, "5", None)
    ),
    (
        lambda b: b.add_loop("c", "a", LoopOptions(2, on_limit="raise")),  # type: ignore[arg-type]
        'on_limit is \'raise\': give "exit" or "stop"',
    ),
    (lambda b: b.add_loop("c", "a", LoopOptions(2, loop_variable="")), "loop_variable is ''"),
    (lambda b: b.add_loop("c", "a", LoopOptions(2, loop_variable=3)), "loop_variable is 3"),  # type: ignore[arg-type]
    (
        lambda b: b.add_loop("a", "c", LoopOptions(2)),
        "loop 'a' -> 'c' closes no cycle, as no edges lead from 'c' to 'a': swap the two",
    ),
    (
        lambda b: b.add_loop("c", "a", LoopOptions(2)).add_loop("c", "a", LoopOptions(3)),
        "loop 'c' -> 'a' is declared twice: keep one, with the limits you mean",
    ),
    (
        lambda b: b.add_loop("c", "a", LoopOptions(2)).add_loop("c", "b", LoopOptions(2)),
        "2 loops leave 'c': give each its own loop_variable",
    ),
    (
        lambda b: b.add_loop("c", "a", LoopOptions(2)).add_loop(
            "c", "b", LoopOptions(2, loop_variable="x")
        ),
        "2 loops leave 'c': give each its own loop_variable",
    ),
    (
        lambda b: b.add_loop("c", "a", LoopOptions(2)).with_state("__loop_c", int),
        "loop_variable '__loop_c' is declared by with_state as well: rename one",
    ),
]


@pytest.mark.parametrize(("change", "words"), EDGES, ids=[w for _, w in EDGES])
def test_edges(change: Change, words: str) -> None:
    """Each wrong edge is one sentence with its remedy, and nothing else is blamed for it."""
    builder = line()
    change(builder)
    assert words in one(builder)


def test_two_loops_with_one_variable() -> None:
    """Two loops that leave one node cannot mirror their iterations in one key."""
    builder = line().add_loop("c", "a", LoopOptions(2, loop_variable="i"))
    said = problems(builder.add_loop("c", "b", LoopOptions(2, loop_variable="i")))
    assert said == (
        "loop 'c' -> 'a': loop_variable 'i' is another loop's too: give each its own",
        "loop 'c' -> 'b': loop_variable 'i' is another loop's too: give each its own",
    )


# -- the shape ----------------------------------------------------------------------------------


def test_unreachable_nodes_are_named() -> None:
    """Every node that no way from the start leads to is named; broken edges blame nobody."""
    builder = line().add_node("x", work).add_node("y", work).add_edge("x", "y")
    assert problems(builder) == (
        "node 'x' cannot be reached from the start 'a': add an edge to it, or remove it",
        "node 'y' cannot be reached from the start 'a': add an edge to it, or remove it",
    )
    builder = line().add_node("x", work).add_node("y", work).add_edge("x", "y")
    assert "no node 'typo'" in one(builder.add_edge("typo", "x"))


def test_an_undeclared_cycle_is_printed_as_a_path() -> None:
    """The way back is the edge to where the cycle is entered, and the remedy names it."""
    builder = nodes("in", "b", "a", "c").add_edge("in", "b").add_edge("b", "c").add_edge("c", "a")
    assert one(builder.add_edge("a", "b")) == (
        "undeclared cycle b -> c -> a -> b: declare the way back with add_loop('a', 'b', "
        "LoopOptions(max_iterations=...))"
    )


def test_every_undeclared_cycle_is_printed() -> None:
    """Two cycles, also through one node, are two problems."""
    said = problems(line("abcd").add_edge("b", "a").add_edge("d", "c").add_edge("d", "a"))
    assert [sentence.partition(":")[0] for sentence in said] == [
        "undeclared cycle a -> b -> a",
        "undeclared cycle a -> b -> c -> d -> a",
        "undeclared cycle c -> d -> c",
    ]


def test_a_cycle_over_a_fallback_is_a_cycle() -> None:
    """A fallback that leads back would go round for ever, too."""
    builder = nodes("a").add_node("b", work, fallback="a").add_edge("a", "b")
    assert "undeclared cycle a -> b -> a" in one(builder)


def test_crossing_loops_are_named() -> None:
    """Bodies that overlap without nesting are refused, with the nodes that they share."""
    builder = line("abcde").add_loop("c", "a", LoopOptions(2)).add_loop("d", "b", LoopOptions(2))
    assert one(builder) == (
        "loops 'c' -> 'a' and 'd' -> 'b' cross: both hold 'b', 'c', only the first 'a', only the "
        "second 'd': make one lie inside the other, or keep them apart"
    )


@pytest.mark.parametrize("loops", ["ca dc", "ca da", "da db", "cb da", "bb ca", "ba dc"])
def test_loops_that_nest_or_keep_apart_are_fine(loops: str) -> None:
    """What does not cross builds; loops that meet in one node only share it and cross."""
    builder = line("abcd")
    for number, way in enumerate(loops.split()):
        options = LoopOptions(2, loop_variable=f"v{number}")
        builder.add_loop(way[0], way[1], options)
    if loops == "ca dc":
        assert "cross: both hold 'c'" in one(builder)
    else:
        builder.build()


# -- payloads -----------------------------------------------------------------------------------


async def gives_int(payload: Any) -> int:
    return int(payload)


async def gives_maybe_int(payload: Any) -> int | None: ...
async def gives_none(payload: Any) -> None: ...
async def gives_model(payload: Any) -> Model:
    return Model(str(payload))


async def takes_int(payload: int) -> Any: ...
async def takes_str(payload: str) -> Any: ...
async def takes_either(payload: int | str) -> Any: ...
async def takes_model(ctx: Context, payload: Model) -> Any: ...
async def takes_ints(payload: list[int]) -> Any: ...
async def takes_strs(payload: list[str]) -> Any: ...
async def takes_named_ints(payload: dict[str, int]) -> Any: ...
async def takes_named_strs(payload: dict[str, str]) -> Any: ...


def pair(source: Any, target: Any) -> WorkflowBuilder:
    """Two nodes, not joined yet."""
    return WorkflowBuilder("w").set_start("a").add_node("a", source).add_node("b", target)


MEETINGS: list[tuple[Any, Any, bool]] = [
    (gives_int, takes_int, True),
    (gives_int, takes_str, False),
    (gives_int, takes_either, True),
    (gives_int, work, True),
    (work, takes_int, True),
    (gives_maybe_int, takes_int, True),
    (gives_maybe_int, takes_str, False),
    (gives_none, takes_str, True),
    (gives_model, takes_model, True),
    (gives_model, takes_int, False),
    (gives_int, takes_model, False),
    (gives_int, takes_ints, False),
]


@pytest.mark.parametrize("how", ["edge", "switch", "fan-out", "loop"])
@pytest.mark.parametrize(("source", "target", "meets"), MEETINGS)
def test_payloads_along_edges(how: str, source: Any, target: Any, *, meets: bool) -> None:
    """What the source returns is held against what the target takes, on every kind of edge."""
    builder = pair(source, target)
    match how:
        case "edge":
            builder.add_edge("a", "b")
        case "switch":
            builder.add_switch("a", [(ok, "b")], "b")
        case "fan-out":
            builder.add_fan_out("a", ["b"])
        case _:  # from "a" back to "b", with an untyped node at the start
            builder.add_node("s", work).add_node("m", work)
            builder = (
                WorkflowBuilder("w")
                .set_start("b")
                .add_node("a", source)
                .add_node("b", target)
                .add_node("m", work)
                .add_edge("b", "m")
                .add_edge("m", "a")
                .add_loop("a", "b", LoopOptions(2))
            )
    if meets:
        builder.build()
        return
    said = one(builder)
    assert said.startswith("'a' returns ")
    assert "but 'b' takes " in said
    assert "make the annotations agree, or put a node between that converts" in said


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (takes_ints, ""),
        (takes_named_ints, ""),
        (work, ""),
        (takes_strs, "hands over a list, list[int] from 'a', but 'c' takes list[str]"),
        (takes_named_strs, "hands over a dict, dict[str, int] from 'a'"),
        (
            takes_int,
            "hands over a list, list[int] from 'a', but 'c' takes int: annotate it as list",
        ),
    ],
)
def test_payloads_through_a_barrier(target: Any, words: str) -> None:
    """A barrier hands over a list or a dict of what its sources return."""
    builder = (
        WorkflowBuilder("w")
        .set_start("s")
        .add_node("s", work)
        .add_node("a", gives_int)
        .add_node("b", work)
        .add_node("c", target)
        .add_fan_out("s", ["a", "b"])
        .add_fan_in(["a", "b"], "c")
    )
    if words:
        assert words in problems(builder)[0]
    else:
        builder.build()


def test_payload_of_a_fallback() -> None:
    """A fallback gets the message of the node that failed, so both take the same."""
    builder = WorkflowBuilder("w").set_start("a").add_node("a", takes_int, fallback="b")
    assert one(builder.add_node("b", takes_str)) == (
        "fallback 'b' gets what 'a' takes, int, but takes str: make both take the same type"
    )


def test_braces_in_names_are_only_signs() -> None:
    """A name is never taken for a pattern."""
    builder = WorkflowBuilder("{w}").set_start("{a}").add_node("{a}", gives_int)
    builder.add_node("{0}", takes_str).add_edge("{a}", "{0}")
    assert "'{a}' returns int, but '{0}' takes str" in one(builder)


# -- state and outputs --------------------------------------------------------------------------


def fold(current: Any, contribution: Any) -> Any:
    return current or contribution


async def slow_fold(current: Any, contribution: Any) -> Any:
    return current or contribution


def sum_all(current: Any) -> Any:
    return current


STATE: list[tuple[dict[str, Any], str]] = [
    ({"key": "", "type": int}, "state '': give the key as printable text"),
    ({"key": 5, "type": int}, "state 5: give the key"),
    ({"type": int, "scope": ""}, "scope is '': give printable text"),
    ({"type": int, "scope": 5}, "scope is 5: give printable text"),
    ({"type": int, "reducer": "max"}, "reducer 'max' is unknown: use one of last, append"),
    ({"type": int, "reducer": lambda a, b: a}, "the reducer is a lambda, which has no name"),
    ({"type": int, "reducer": slow_fold}, "reducer 'slow_fold' is async"),
    ({"type": int, "reducer": sum_all}, "it is called with (current, contribution)"),
    ({"type": int, "reducer": 5}, "the reducer is int, which cannot be called"),
    (
        {"type": int, "reducer": named("sum", fold)},
        "has the name of the builtin 'sum': pass \"sum\"",
    ),
    ({"type": int, "reducer": "append"}, "reducer 'append' works on a list, and the type is int"),
    ({"type": dict, "reducer": "extend"}, "reducer 'extend' works on a list"),
    ({"type": list[int], "reducer": "merge"}, "reducer 'merge' works on a dict"),
    ({"type": int, "initial": "one"}, "the initial value cannot be used"),
    ({"type": Any, "initial": object()}, "the initial value cannot be used"),
]


@pytest.mark.parametrize(("declared", "words"), STATE, ids=[w for _, w in STATE])
def test_state(declared: dict[str, Any], words: str) -> None:
    """Keys, scopes, reducers and initial values are judged."""
    options = {"key": "k", **declared}
    assert words in one(nodes("a").with_state(options.pop("key"), options.pop("type"), **options))


def test_a_key_is_declared_once() -> None:
    """Twice in one scope is a fault; in two scopes it is two keys."""
    builder = nodes("a").with_state("k", int).with_state("k", int, scope="s")
    builder.build()
    assert "state 'k' of scope 's' is declared twice" in one(
        builder.with_state("k", str, scope="s")
    )


def test_one_reducer_name_means_one_function() -> None:
    """Two folds of one name are refused."""
    builder = nodes("a").with_state("k", int, reducer=fold)
    said = one(builder.with_state("m", int, reducer=named("fold", max)))
    assert "the name 'fold' means two functions" in said


@pytest.mark.parametrize("name", ["z", None, ["a"]])
def test_outputs(name: Any) -> None:
    """Outputs come from nodes."""
    assert f"with_output_from: there is no node {name!r}" in one(line().with_output_from(name))


def test_types_of_one_name() -> None:
    """Two classes that records could not tell apart are refused."""

    def make() -> type:
        @dataclass
        class Twin:
            name: str

        return Twin

    builder = nodes("a").with_state("k", make()).with_state("m", make())
    assert "share the tag" in one(builder)
