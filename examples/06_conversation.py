"""A conversation is several runs of one session: state stays, and a key makes a turn repeatable."""

import asyncio
from dataclasses import dataclass

from raf import AgentSession, Context, WorkflowBuilder, WorkflowEngine


@dataclass(frozen=True)
class Line:
    """One line of the chat; known to the store since `with_state` names it."""

    who: str
    text: str


async def answer(ctx: Context, message: str) -> str:
    print(f"  the agent works on {message!r}")
    chat = ctx.scope("chat")
    asked = [line.text for line in chat["lines"] if line.who == "user"]
    reply = f"you asked {len(asked)} questions before" if asked else "nice to meet you"
    chat.extend("lines", [Line("user", message), Line("agent", reply)])
    return reply


workflow = (
    WorkflowBuilder("chat")
    .add_node("answer", answer)
    .set_start("answer")
    .with_state("lines", list[Line], scope="chat", initial=[])
    .build()
)


async def main() -> None:
    async with WorkflowEngine(workflow, store="sqlite:chat.db") as engine:
        session = AgentSession.with_id("chat-1", engine)
        for key, message in [("t1", "who are you?"), ("t2", "and why?"), ("t3", "since when?")]:
            turn = await session.send(message, key)
            print(f"{turn.run_id}: {turn.output}")
        again = await session.send("and why?", "t2")  # a repeated turn: its recorded answer
        print(f"{again.run_id} again: {again.output}")
        state = (await engine.state(session)).state_data
        print(f"{len(state['::chat']['lines'])} lines are kept")


if __name__ == "__main__":
    asyncio.run(main())

# first run:
# >   the agent works on 'who are you?'
# > t1: nice to meet you
# >   the agent works on 'and why?'
# > t2: you asked 1 questions before
# >   the agent works on 'since when?'
# > t3: you asked 2 questions before
# > t2 again: you asked 1 questions before
# > 6 lines are kept
# second run:
# > t1: nice to meet you
# > t2: you asked 1 questions before
# > t3: you asked 2 questions before
# > t2 again: you asked 1 questions before
# > 6 lines are kept
