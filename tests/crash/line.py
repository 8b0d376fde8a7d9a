"""Whether what many processes did to one session could have been done by one after another; pure.

The commit numbers give the only order there can be, so the history is linearizable when that order
fits what each process was answered, and when.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

OK = "ok"
REFUSED = ("LeaseLostError", "CommitOrderError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A claim or a commit that a process made.

    `end` and `answer` are those of the process; when it was killed meanwhile they are None and
    empty, and the operation may have been done or not.
    """

    what: str
    pid: int
    begin: float
    end: float | None = None
    answer: str = ""
    epoch: int = 0
    number: int = -1
    id: str = ""
    parent: str = ""


def operations_of(lines: Sequence[dict[str, Any]]) -> list[Operation]:
    """The operations of what processes told; the line of an end replaces that of the beginning."""
    found: dict[tuple[int, float], Operation] = {}
    for line in lines:
        found[line["pid"], line["begin"]] = Operation(**line)
    return list(found.values())


def faults_of(stored: Sequence[dict[str, Any]], operations: Sequence[Operation]) -> list[str]:
    """Everything that no order explains.

    Args:
        stored: `number`, `epoch`, `id` and `parent` of each commit of the session, in its order.
        operations: What the processes did.
    """
    commits = [one for one in operations if one.what == "commit"]
    claims = [one for one in operations if one.what == "claim" and one.answer == OK]
    return [
        *_chain_faults(stored),
        *_answer_faults(stored, commits),
        *_time_faults([one for one in commits if one.answer == OK]),
        *_epoch_faults(claims, commits),
    ]


def _chain_faults(stored: Sequence[dict[str, Any]]) -> Iterator[str]:
    if [row["number"] for row in stored] != list(range(len(stored))):
        yield f"numbers have gaps or doubles: {[row['number'] for row in stored]}"
    if len({row["id"] for row in stored}) != len(stored):
        yield "a commit stands twice"
    for before, after in zip(({"id": "", "epoch": 0}, *stored), stored, strict=False):
        if after["parent"] != before["id"]:
            yield f"commit {after['number']} does not follow from the one before"
        if after["epoch"] < before["epoch"]:
            yield f"the epoch falls at commit {after['number']}"


def _answer_faults(stored: Sequence[dict[str, Any]], commits: Sequence[Operation]) -> Iterator[str]:
    there = {row["id"]: row for row in stored}
    known = {one.id: one for one in commits}
    for one in commits:
        row = there.get(one.id)
        if one.answer == OK and (row is None or row["number"] != one.number):
            yield f"commit {one.number} of process {one.pid} was acknowledged and is lost"
        if one.answer in REFUSED and row is not None:
            yield f"commit {one.number} of process {one.pid} was refused and stands"
    for name, row in there.items():
        if name not in known:
            yield f"nobody made commit {row['number']}"


def _time_faults(done: Sequence[Operation]) -> Iterator[str]:
    """What had ended before another began has the lower number."""
    by_begin = sorted(done, key=lambda one: one.begin)
    by_end = sorted(done, key=lambda one: one.end or 0.0)
    highest, at = -1, 0
    for one in by_begin:
        while at < len(by_end) and (by_end[at].end or 0.0) < one.begin:
            highest = max(highest, by_end[at].number)
            at += 1
        if one.number <= highest:
            yield f"commit {one.number} began when {highest} had been acknowledged"


def _epoch_faults(claims: Sequence[Operation], commits: Sequence[Operation]) -> Iterator[str]:
    """Each claim has its epoch; once one was answered, no lower epoch begins and succeeds."""
    if len({one.epoch for one in claims}) != len(claims):
        yield "two claims have one epoch"
    for claim in claims:
        for one in [*claims, *commits]:
            later = one.begin > (claim.end or 0.0)
            if one.answer == OK and later and one.epoch < claim.epoch:
                yield f"epoch {one.epoch} wrote after epoch {claim.epoch} had the session"
