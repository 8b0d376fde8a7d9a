"""What the journal of a step in flight says; pure.

Rules of this file:
- A result found here is applied and its node does not run again.
- A recorded effect is returned, never repeated; an intent without an effect is in doubt.
- Failures are counted from their records.  A loss is a claim over a lease that was not released:
  it counts for every invocation that was unfinished, from its last durable record on.
- A reset (a caller continued a failed run) sets both counts to zero, and what was put off in this
  step is tried again at once.  A void takes back results that could not be applied, so that their
  nodes run again; their effects stay recorded.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from raf.checkpoint.restore import JournalEntry
from raf.checkpoint.shapes import data, fit, seconds, text, whole
from raf.checkpoint.snapshot import Suspension
from raf.engine.result import (
    EFFECT,
    FAILURE,
    INTENT,
    RESET,
    RESULT,
    VOID,
    EffectRecord,
    Failure,
    Result,
    result_from_wire,
)
from raf.errors import UndecodableError


@dataclass(slots=True)
class OpenStep:
    """The step in flight, as its journal tells it."""

    results: dict[int, Result] = field(default_factory=dict)
    effects: dict[int, dict[str, EffectRecord]] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)
    first_failure: dict[int, float] = field(default_factory=dict)
    last_failure: dict[int, Failure] = field(default_factory=dict)
    claims: list[int] = field(default_factory=list)
    durable_at: dict[int, int] = field(default_factory=dict)
    reset_at: int = 0

    def losses(self, number: int) -> int:
        """How often the owner vanished while this invocation was unfinished."""
        since = max(self.reset_at, self.durable_at.get(number, 0))
        return sum(1 for position in self.claims if position > since)

    def recall(self, woken: Iterable[Suspension]) -> None:
        """Take over what woken invocations know of their earlier attempts."""
        for suspension in woken:
            number = suspension.message.number
            self.failures.setdefault(number, suspension.failures)
            effects = self.effects_of(number)
            for key, digest, result in suspension.effects:
                effects.setdefault(key, EffectRecord(digest, result or None))

    def effects_of(self, number: int) -> dict[str, EffectRecord]:
        """The recorded effects of an invocation, by key."""
        return self.effects.setdefault(number, {})


def read_journal(entries: Iterable[JournalEntry]) -> OpenStep:
    """Fold the entries of an open journal, in order.

    Raises:
        UndecodableError: An entry is of no kind that this version knows, or damaged.
    """
    step = OpenStep()
    for entry in entries:
        if not entry.entry:
            if entry.took_over:
                step.claims.append(entry.position)
        else:
            try:
                _take(step, entry.position, entry.entry)
            except (LookupError, TypeError, ValueError) as error:
                why = f"the journal entry at position {entry.position} is damaged: {error}"
                raise UndecodableError(why) from error
    return step


def _take(step: OpenStep, position: int, wire: tuple[Any, ...]) -> None:
    kind, *fields = wire
    if kind == RESULT:
        result = result_from_wire(wire)
        step.results[result.number] = result
        step.durable_at[result.number] = position
    elif kind == FAILURE:
        fit(fields, (whole, whole, seconds, text, text, text))
        number, failures, at, *failure = fields
        step.failures[number] = failures
        step.first_failure.setdefault(number, at)
        step.last_failure[number] = Failure(*failure)
    elif kind == VOID:
        fit(fields, (), whole)
        for number in fields:
            step.results.pop(number, None)
    elif kind == RESET:
        fit(fields, ())
        step.reset_at = position
        step.results = {n: r for n, r in step.results.items() if r.status != "suspended"}
        step.failures.clear()
        step.first_failure.clear()
        step.last_failure.clear()
    else:
        _take_effect(step, position, kind, fields)


def _take_effect(step: OpenStep, position: int, kind: Any, fields: list[Any]) -> None:
    fit(fields, (whole, text, data), data)
    number, key, digest, *value = fields
    if kind == EFFECT:
        step.effects_of(number)[key] = EffectRecord(digest, value[0])
        step.durable_at[number] = position
    elif kind != INTENT:
        raise UndecodableError(f"journal entry {kind!r} is unknown: a newer version wrote it")
    elif digest:
        step.effects_of(number).setdefault(key, EffectRecord(digest, None))
    else:  # withdrawn: the action itself said that it failed
        step.effects_of(number).pop(key, None)
