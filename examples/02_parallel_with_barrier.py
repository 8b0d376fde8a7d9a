"""Three analysts work side by side; a barrier waits for all of them and keeps their order."""

import asyncio
from collections.abc import Mapping

from raf import WorkflowBuilder, WorkflowEngine

TEXT = "It was the best of times, it was the worst of times."


async def split(text: str) -> list[str]:
    return text.lower().replace(",", "").replace(".", "").split()


async def count(words: list[str]) -> int:
    await asyncio.sleep(0.03)  # the slowest of the three, and still the first in the report
    return len(words)


async def distinct(words: list[str]) -> int:
    return len(set(words))


async def longest(words: list[str]) -> str:
    return max(words, key=len)


async def report(found: Mapping[str, int | str]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in found.items())


ANALYSTS = {"count": count, "distinct": distinct, "longest": longest}

builder = WorkflowBuilder("analysis").add_node("split", split).add_node("report", report)
for name, analyst in ANALYSTS.items():
    builder.add_node(name, analyst)
workflow = (
    builder.set_start("split")
    .add_fan_out("split", ANALYSTS)
    .add_fan_in(ANALYSTS, "report")  # a mapping by node name, since report asks for one
    .build()
)


async def main() -> None:
    async with WorkflowEngine(workflow, store="sqlite:analysis.db") as engine:
        async for event in engine.stream(TEXT, session_id="analysis-1"):
            if event.kind == "node_completed":
                print(f"step {event.step}: {event.node}")
        result = await engine.run(TEXT, session_id="analysis-1")
    print(result.output)


if __name__ == "__main__":
    asyncio.run(main())

# first run:
# > step 0: split
# > step 1: count
# > step 1: distinct
# > step 1: longest
# > step 2: report
# > count: 12, distinct: 7, longest: times
# second run:
# > count: 12, distinct: 7, longest: times
