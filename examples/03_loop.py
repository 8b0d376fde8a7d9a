"""An editor revises a draft in a loop until it is good enough, and the state keeps every version."""

import asyncio

from raf import Context, LoopOptions, WorkflowBuilder, WorkflowEngine, named

WORDS = ("clear", "short", "true")


async def write(ctx: Context, draft: str) -> str:
    ctx.scope("drafts").append("versions", draft)
    return draft


async def edit(ctx: Context, draft: str) -> str:
    word = WORDS[ctx.path[-1][1] - 1]  # the path tells which pass of the loop this is
    return f"{draft}, {word}"


def good_enough(draft: str) -> bool:
    return "true" in draft


async def publish(ctx: Context, draft: str) -> str:
    versions = ctx.scope("drafts")["versions"]
    return f"{draft} (version {len(versions) + 1})"


workflow = (
    WorkflowBuilder("editing")
    .add_node("write", write)
    .add_node("edit", edit)
    .add_node("publish", publish)
    .set_start("write")
    .add_edge("write", "edit")
    .add_loop("edit", "write", LoopOptions(10, until=named("good enough", good_enough)))
    .add_edge("edit", "publish")
    .with_state("versions", list[str], scope="drafts", initial=[])
    .build()
)


async def main() -> None:
    async with WorkflowEngine(workflow, store="sqlite:editing.db") as engine:
        result = await engine.run("A text", session_id="edit-1")
        print(result.output)
        found = await engine.state("edit-1")
        print(*found.state_data["::drafts"]["versions"], sep=" | ")
        print(f"{result.steps} steps, last pass {found.state_data['edit']['__loop_edit']}")


if __name__ == "__main__":
    asyncio.run(main())

# first run:
# > A text, clear, short, true (version 4)
# > A text | A text, clear | A text, clear, short
# > 7 steps, last pass 3
# second run:
# > A text, clear, short, true (version 4)
# > A text | A text, clear | A text, clear, short
# > 7 steps, last pass 3
