"""Hello: two nodes and one file; a second run of the script returns what is recorded."""

import asyncio

from raf import WorkflowBuilder, WorkflowEngine


async def greet(name: str) -> str:
    print(f"greet runs for {name}")
    return f"Hello, {name}"


async def shout(text: str) -> str:
    print("shout runs")
    return f"{text.upper()}!"


workflow = (
    WorkflowBuilder("hello")
    .add_node("greet", greet)
    .add_node("shout", shout)
    .set_start("greet")
    .add_edge("greet", "shout")
    .with_output_from("shout")
    .build()
)


async def main() -> None:
    async with WorkflowEngine(workflow, store="sqlite:hello.db") as engine:
        result = await engine.run("reader", session_id="hello-1")
    print(result.status, result.outputs, f"{result.steps} steps")


if __name__ == "__main__":
    asyncio.run(main())

# first run:
# > greet runs for reader
# > shout runs
# > completed ['HELLO, READER!'] 2 steps
# second run:
# > completed ['HELLO, READER!'] 2 steps
