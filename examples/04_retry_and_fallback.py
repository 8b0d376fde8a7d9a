"""A flaky node is tried again, a broken one is replaced by its fallback, and the run completes."""

import asyncio

from raf import Context, RetryPolicy, WorkflowBuilder, WorkflowEngine

PATIENT = RetryPolicy(attempts=3, backoff_s=0.01, on=(ConnectionError,))


async def search(ctx: Context, question: str) -> str:
    ctx.state["tried"] = ctx.attempt  # vanishes with the attempt, when the attempt fails
    print(f"search, attempt {ctx.attempt}")
    if ctx.attempt < PATIENT.attempts:
        raise ConnectionError("the line is bad")
    return f"three answers to {question!r}"


async def big_model(found: str) -> str:
    print("big_model")
    raise ConnectionError(f"no such host for {len(found)} characters")


async def small_model(found: str) -> str:
    print("small_model")  # gets the very message that big_model could not handle
    return f"a summary of {found}"


workflow = (
    WorkflowBuilder("research")
    .add_node("search", search, retry=PATIENT)
    .add_node("big_model", big_model, fallback="small_model")
    .add_node("small_model", small_model)
    .set_start("search")
    .add_edge("search", "big_model")
    .with_output_from("big_model", "small_model")
    .build()
)


async def main() -> None:
    async with WorkflowEngine(workflow, store="sqlite:research.db") as engine:
        async for event in engine.stream("why?", session_id="research-1"):
            if event.kind == "fallback":
                print(f"event: {event.node} gave up, {event.data['error']}")
        result = await engine.run("why?", session_id="research-1")
        print(result.status, result.output)
        print((await engine.state("research-1")).state_data)


if __name__ == "__main__":
    asyncio.run(main())

# first run:
# > search, attempt 1
# > search, attempt 2
# > search, attempt 3
# > big_model
# > event: big_model gave up, no such host for 23 characters
# > small_model
# > completed a summary of three answers to 'why?'
# > {'search': {'tried': 3}}
# second run:
# > completed a summary of three answers to 'why?'
# > {'search': {'tried': 3}}
