"""What full_snapshot_interval buys: few full snapshots save bytes, short chains save reading."""

import asyncio
import hashlib
from typing import Literal

from raf import CheckpointConfig, Context, LoopOptions, WorkflowBuilder, WorkflowEngine

STEPS = 60
INTERVALS: tuple[int | Literal["auto"], ...] = (1, 10, 50, "auto")
# A state of some 25 kB that does not change, beside which a few bytes change in each step.
SHELF = {f"book {n}": hashlib.sha256(str(n).encode()).hexdigest() for n in range(600)}


async def read(ctx: Context, page: int) -> int:
    ctx.scope("reading")["page"] = page
    return page + 1


def at_the_end(page: int) -> bool:
    return page > STEPS


workflow = (
    WorkflowBuilder("reading")
    .add_node("read", read)
    .set_start("read")
    .add_loop("read", "read", LoopOptions(STEPS, until=at_the_end))
    .with_state("shelf", dict[str, str], scope="reading", initial=SHELF)
    .with_state("page", int, scope="reading")
    .build()
)


async def main() -> None:
    print("interval  fulls  weight  chain")
    for interval in INTERVALS:
        config = CheckpointConfig(full_snapshot_interval=interval, max_checkpoints=1000)
        store = "sqlite:reading.db"
        async with WorkflowEngine(workflow, store, checkpoints=config) as engine:
            session = f"interval-{interval}"
            await engine.run(1, session)
            history = await engine.history(session)
        fulls = [info for info in history if info.is_full_snapshot]
        # All bytes kept, in units of one full snapshot; and what a restore has to read.
        weight = round(sum(info.byte_size for info in history) / fulls[0].byte_size)
        chain = history[-1].commit - fulls[-1].commit + 1
        print(f"{interval!s:>8}  {len(fulls):>5}  {weight:>6}  {chain:>5}")


if __name__ == "__main__":
    asyncio.run(main())

# first run:
# > interval  fulls  weight  chain
# >        1     61      61      1
# >       10      7       7      1
# >       50      2       2     11
# >     auto      1       1     61
# second run:
# > interval  fulls  weight  chain
# >        1     61      61      1
# >       10      7       7      1
# >       50      2       2     11
# >     auto      1       1     61
