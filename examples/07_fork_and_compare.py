"""Go back to an older checkpoint, fork it, change one thing, and compare the two outcomes."""

import asyncio
from contextlib import suppress

from raf import Context, WorkflowBuilder, WorkflowEngine
from raf.errors import SessionExistsError


async def plan(ctx: Context, topic: str) -> str:
    ctx.scope("brief")["style"] = {"tone": "sober", "length": "short"}
    return f"a plan for {topic}"


async def draft(ctx: Context, outline: str) -> str:
    style = ctx.scope("brief")["style"]
    return f"{style['length']}, {style['tone']} draft of {outline}"


async def polish(text: str) -> str:
    return f"polished {text}"


workflow = (
    WorkflowBuilder("essay")
    .add_node("plan", plan)
    .add_node("draft", draft)
    .add_node("polish", polish)
    .set_start("plan")
    .add_edge("plan", "draft")
    .add_edge("draft", "polish")
    .build()
)


async def main() -> None:
    async with WorkflowEngine(workflow, store="sqlite:essay.db") as engine:
        first = await engine.run("rivers", session_id="essay")
        history = await engine.history("essay")
        planned = next(info for info in history if info.step_number == 0)
        with suppress(SessionExistsError):  # an earlier run of this script made it
            await engine.fork("essay", "essay-bold", planned.checkpoint_id)
        if len(await engine.history("essay-bold")) == 1:  # the fork alone, not edited yet
            await engine.edit(
                "essay-bold",
                lambda editor: editor.scope("brief").update("style", {"tone": "bold"}),
                reason="how would it read?",
            )
        second = await engine.run("rivers", session_id="essay-bold")
        print(first.output)
        print(second.output)
        for change in await engine.manager.diff("essay-bold", 0, 1):
            print(f"{change.where} {change.key}: {change.before['tone']} -> {change.after['tone']}")


if __name__ == "__main__":
    asyncio.run(main())

# first run:
# > polished short, sober draft of a plan for rivers
# > polished short, bold draft of a plan for rivers
# > state ::brief style: sober -> bold
# second run:
# > polished short, sober draft of a plan for rivers
# > polished short, bold draft of a plan for rivers
# > state ::brief style: sober -> bold
