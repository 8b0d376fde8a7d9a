"""The workflow of the demo: nine agents review a document.

    split -> themes, tone, structure, names -> (barrier) -> outline -> editor <-> critic -> report

Every agent takes a moment, as one that asks a model would: RAF_DEMO_PACE is how many times its
usual moment (0: none).  With RAF_DEMO_LEDGER each agent notes there that it began and ended, and in
which process: the demo's own witness, which `raf` knows nothing of.
"""

import json
import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

from raf.cli.demo import analysts, desk
from raf.cli.demo.analysts import Names, Structure, Themes, Tone
from raf.cli.demo.desk import Draft, Measure, Outline
from raf.cli.demo.reading import Parts, take_apart
from raf.cli.demo.report import write_report
from raf.clock import SystemClock
from raf.context import Context
from raf.graph.builder import WorkflowBuilder
from raf.graph.names import named
from raf.graph.options import LoopOptions
from raf.topology.workflow import Workflow

ANALYSTS: Final = ("themes", "tone", "structure", "names")
PASSES: Final = 12
# Two analysts end early and two late: between lies the moment to pull the plug.
MOMENTS: Final = {"themes": 0.10, "names": 0.20, "tone": 0.70, "structure": 0.80}
MOMENT: Final = 0.02

T = TypeVar("T")


async def _at_work(ctx: Context, work: Callable[[], T]) -> T:
    """Do an agent's work: note its begin, take its moment, note its end."""
    _note(ctx, "begin")
    pace = float(os.environ.get("RAF_DEMO_PACE", "0"))
    await SystemClock().sleep(pace * MOMENTS.get(ctx.node, MOMENT))
    result = work()
    _note(ctx, "end")
    return result


def _note(ctx: Context, what: str) -> None:
    """Add a line to the ledger; one write, so that lines of two processes never mix."""
    path = os.environ.get("RAF_DEMO_LEDGER")
    if not path:
        return
    passed = ctx.path[-1][1] if ctx.path else 0
    entry: dict[str, Any] = {
        "what": what,
        "session": ctx.session_id,
        "node": ctx.node,
        "step": ctx.step,
        "pass": passed,
        "pid": os.getpid(),
    }
    line = f"{json.dumps(entry)}\n".encode()
    ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(ledger, line)
    finally:
        os.close(ledger)


async def split(ctx: Context, text: str) -> Parts:
    """Take the document apart."""
    parts = await _at_work(ctx, lambda: take_apart(text))
    ctx.scope("desk")["parts"] = parts
    return parts


async def themes(ctx: Context, parts: Parts) -> Themes:
    """Find the terms that recur."""
    return await _at_work(ctx, lambda: analysts.find_themes(parts))


async def tone(ctx: Context, parts: Parts) -> Tone:
    """Find how bright or dark the words are."""
    return await _at_work(ctx, lambda: analysts.find_tone(parts))


async def structure(ctx: Context, parts: Parts) -> Structure:
    """Measure the text."""
    return await _at_work(ctx, lambda: analysts.find_structure(parts))


async def names(ctx: Context, parts: Parts) -> Names:
    """Find names, numbers and what is said aloud."""
    return await _at_work(ctx, lambda: analysts.find_names(parts))


async def outline(ctx: Context, findings: dict[str, Themes | Tone | Structure | Names]) -> Draft:
    """Set the goals for the summary by what all four found."""
    seen, measured = findings["themes"], findings["structure"]
    assert isinstance(seen, Themes)  # noqa: S101 - the barrier names who sent what
    assert isinstance(measured, Structure)  # noqa: S101 - the same
    desk_scope = ctx.scope("desk")
    parts = desk_scope["parts"]
    desk_scope["findings"] = findings
    desk_scope["outline"] = await _at_work(ctx, lambda: desk.make_outline(parts, seen, measured))
    return Draft()


async def editor(ctx: Context, draft: Draft) -> Draft:
    """Change one sentence of the summary."""
    plan = ctx.scope("desk")["outline"]
    return await _at_work(ctx, lambda: desk.revise(plan, draft))


async def critic(ctx: Context, draft: Draft) -> Draft:
    """Measure the summary and say what is to be done."""
    desk_scope = ctx.scope("desk")
    plan = desk_scope["outline"]
    measure = await _at_work(ctx, lambda: desk.judge(plan, draft))
    desk_scope.append("measures", measure)
    return desk.judged(draft, measure)


async def report(ctx: Context, draft: Draft) -> str:
    """Write it all down."""
    scope = ctx.scope("desk")
    at_desk = {key: scope[key] for key in scope}
    return await _at_work(ctx, lambda: write_report(at_desk, draft))


def is_good(draft: Draft) -> bool:
    """Whether the critic has nothing to say any more."""
    return draft.verdict == "good"


def build() -> Workflow:
    """The workflow."""
    return (
        WorkflowBuilder("review")
        .with_state("parts", Parts, scope="desk")
        .with_state("findings", dict[str, Themes | Tone | Structure | Names], scope="desk")
        .with_state("outline", Outline, scope="desk")
        .with_state("measures", list[Measure], scope="desk", initial=[])
        .add_node("split", split)
        .add_node("themes", themes)
        .add_node("tone", tone)
        .add_node("structure", structure)
        .add_node("names", names)
        .add_node("outline", outline)
        .add_node("editor", editor)
        .add_node("critic", critic)
        .add_node("report", report)
        .set_start("split")
        .add_fan_out("split", ANALYSTS)
        .add_fan_in(ANALYSTS, "outline")
        .add_edge("outline", "editor")
        .add_edge("editor", "critic")
        .add_loop("critic", "editor", LoopOptions(PASSES, until=named("good enough", is_good)))
        .add_edge("critic", "report")
        .with_output_from("report")
        .build()
    )


workflow = build()
