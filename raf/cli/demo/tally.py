"""What the ledger and the store say together: whose turn was kept, and whose ran again; pure."""

from collections.abc import Sequence
from typing import Any

from raf.cli.demo.acts import Compared, Started


def steps(last: int) -> str:
    """Steps from the first on, in words."""
    return "step 0" if last == 0 else f"steps 0 to {last}"


def invocations(
    started: Sequence[Started],
    first: int,
    second: int,
    committed: set[tuple[str, int]],
    journaled: set[tuple[str, int]],
) -> list[dict[str, Any]]:
    """Each agent's turn: what the first process did of it, what the second, and what that means."""
    turns: dict[tuple[int, str, int], dict[int, str]] = {}
    for each in started:
        done = turns.setdefault((each.step, each.node, each.passed), {})
        done[each.pid] = "done" if each.ended else "cut off"
    rows = []
    for (step, node, passed), done in sorted(turns.items()):
        kept = (node, step) in committed or (node, step) in journaled
        if kept and second in done:
            so = "RAN AGAIN, although it was kept"
        elif kept:
            how = "its step was committed" if (node, step) in committed else "its result, journaled"
            so = f"kept: {how}"
        else:
            so = "ran again" if first in done else "ran"
        rows.append(
            {
                "step": step,
                "agent": node,
                "pass": passed or "",
                "first": done.get(first, ""),
                "second": done.get(second, ""),
                "so": so,
            }
        )
    return rows


def agents(
    resumed: Sequence[Started],
    unbroken: Sequence[Started],
    *,
    again: Sequence[str],
    wrongly: Sequence[str],
) -> Compared:
    """Whether the resumed session began no agent twice but those that were cut off.

    Args:
        resumed: The turns of the resumed session.
        unbroken: Those of the other.
        again: Agents that both processes began.
        wrongly: Those of them whose work had been kept.
    """
    turns = {(each.step, each.node) for each in resumed}
    same = turns == {(each.step, each.node) for each in unbroken}
    extra = len(resumed) - len(unbroken)
    return Compared(
        what="agents that began",
        resumed=f"{len(resumed)}, {len(again)} of them cut off once",
        unbroken=f"{len(unbroken)}",
        equal=same and extra == len(again) and not wrongly,
    )
