"""An effect is recorded: neither a failed attempt nor a second run of the script repeats it."""

import asyncio
from pathlib import Path

from raf import Context, RetryPolicy, WorkflowBuilder, WorkflowEngine

LEDGER = Path("ledger.txt")  # stands for the world outside, which has no way back


def charge(customer: str, cents: int, *, key: str) -> str:
    """Take the money; a real receiver would refuse a key that it has seen."""
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{customer} {cents} {len(key)}\n")
    return f"receipt for {cents} cents"


async def order(ctx: Context, customer: str) -> str:
    receipt: str = await ctx.effect(
        "charge", charge, customer, 1999, key=ctx.idempotency_key("charge")
    )
    print(f"attempt {ctx.attempt}: {receipt}")
    if ctx.attempt == 1:
        raise ConnectionError("the shop's printer is off")  # after the money was taken
    return receipt


workflow = (
    WorkflowBuilder("shop")
    .add_node("order", order, retry=RetryPolicy(attempts=2, backoff_s=0.01))
    .set_start("order")
    .build()
)


async def main() -> None:
    async with WorkflowEngine(workflow, store="sqlite:shop.db") as engine:
        result = await engine.run("reader", session_id="order-17")
    print(result.status, result.output)


if __name__ == "__main__":
    asyncio.run(main())
    print("ledger:", LEDGER.read_text(encoding="utf-8").splitlines())

# first run:
# > attempt 1: receipt for 1999 cents
# > attempt 2: receipt for 1999 cents
# > completed receipt for 1999 cents
# > ledger: ['reader 1999 40']
# second run:
# > completed receipt for 1999 cents
# > ledger: ['reader 1999 40']
