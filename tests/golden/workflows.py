"""Workflows whose fingerprints are on record in `fingerprints.json`.

A fingerprint decides whether a session may go on.  One that changes here breaks every unfinished
session out there, so the record is never rewritten: a new format gets a new prefix.
"""

from typing import Any

from raf.graph.builder import WorkflowBuilder
from raf.graph.names import named
from raf.graph.options import LoopOptions
from raf.topology.workflow import Workflow


async def work(payload: Any) -> Any:
    """Any node."""
    return payload


async def gather(payloads: list[Any]) -> Any:
    """A node behind a barrier."""
    return payloads


async def gather_by_name(payloads: dict[str, Any]) -> Any:
    """A node behind a barrier that wants names."""
    return payloads


def long(payload: Any) -> bool:
    """A condition."""
    return len(payload) > 10


def good(payload: Any, state: Any) -> bool:
    """A condition that looks at the state."""
    return bool(payload and state)


def widest(current: Any, contribution: Any) -> Any:
    """A reducer."""
    return max(current, contribution)


def every() -> dict[str, Workflow]:
    """Each workflow by the name of its record."""
    return {
        "single": single(),
        "line": line(),
        "wide": wide(),
        "loops": loops(),
        "named": unicode(),
    }


def single() -> Workflow:
    """One node."""
    return WorkflowBuilder("single").add_node("only", work).set_start("only").build()


def line() -> Workflow:
    """Edges with a condition, a version, outputs and a fallback."""
    return (
        WorkflowBuilder("line")
        .add_node("a", work, version="2", fallback="plan b")
        .add_agent_node("b", work, on_failure="skip")
        .add_node("c", work, retry=3, timeout_s=5, max_concurrency=2)
        .add_node("plan b", work)
        .set_start("a")
        .add_edge("a", "b", when=long)
        .add_edge("b", "c")
        .with_output_from("b", "c")
        .build()
    )


def wide() -> Workflow:
    """Fan-out, switch, and the three kinds of barriers."""
    builder = WorkflowBuilder("wide").add_node("split", work).set_start("split")
    for name in ("one", "two", "three"):
        builder.add_node(name, work)
    return (
        builder.add_node("most", gather)
        .add_node("every", gather_by_name)
        .add_node("rest", gather)
        .add_node("end", work)
        .add_fan_out("split", ["one", "two", "three"], choose=named("pick", lambda p: p["to"]))
        .add_fan_in(["one", "two", "three"], "most", wait=2)
        .add_fan_in(["three", "two"], "every")
        .add_fan_in(["one", "two"], "rest", wait="quiescent")
        .add_switch("most", [(long, "end"), (good, "rest end")], "end")
        .add_node("rest end", work)
        .build()
    )


def loops() -> Workflow:
    """A loop in a loop, and state."""
    return (
        WorkflowBuilder("loops")
        .add_node("draft", work)
        .add_node("edit", work)
        .add_node("check", work)
        .add_node("print", work)
        .set_start("draft")
        .add_edge("draft", "edit")
        .add_edge("edit", "check")
        .add_edge("check", "print")
        .add_loop("check", "edit", LoopOptions(3, loop_variable="pass", until=good))
        .add_loop("check", "draft", LoopOptions(2, loop_variable="round", on_limit="stop"))
        .with_state("notes", list[str], scope="board", reducer="append", initial=[])
        .with_state("best", int, scope="board", reducer=widest)
        .with_state("seen", int, initial=0)
        .build()
    )


def unicode() -> Workflow:
    """Names in other scripts."""
    return (
        WorkflowBuilder("书评")
        .add_node("分析", work)
        .add_node("rapport d'été", work)
        .set_start("分析")
        .add_edge("分析", "rapport d'été")
        .build()
    )
