"""A store with a few sessions in it, for tests of commands that look and change."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raf.context import Context
from raf.engine.engine import WorkflowEngine
from raf.graph.builder import WorkflowBuilder
from raf.topology.workflow import Workflow


@dataclass
class Note:
    text: str
    stars: int = 0


async def write(ctx: Context, text: str) -> str:
    ctx.state["seen"] = len(text)
    ctx.scope("desk")["note"] = Note(text)
    ctx.scope("desk")["tags"] = ["new"]
    ctx.scope("a.b")["c.d"] = 1
    return text


async def check(ctx: Context, text: str) -> str:
    ctx.scope("desk").append("log", Note(text))
    if text == "bad":
        raise ValueError("bad text")
    return text.upper()


def flow(name: str = "notes", last: Callable[..., Any] = check) -> Workflow:
    return (
        WorkflowBuilder(name)
        .with_state("note", Note, scope="desk")
        .with_state("log", list[Note], scope="desk", reducer="append", initial=[])
        .add_node("write", write)
        .add_node("check", last)
        .set_start("write")
        .add_edge("write", "check")
        .build()
    )


async def fill(url: str) -> None:
    """`good` is completed, `failing` has failed in its second step."""
    async with WorkflowEngine(flow(), url) as engine:
        await engine.run("fine", "good")
        await engine.run("bad", "failing", check=False)
        await engine.run("odd", "a@b@1")


def url_of(folder: Path) -> str:
    return f"sqlite:{folder / 'runs.db'}"
