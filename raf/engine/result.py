"""What an invocation leaves behind, as values; and its form in the journal.  Pure.

Rules of this file:
- A result is complete in itself: applying a journaled result and applying it live is the same.
- Values in it are encoded; nothing of the node's objects is kept.
- Entries of the journal are plain lists that begin with their kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from raf.checkpoint.shapes import EVENT, Check, data, fit, items, limit, seconds, text, whole
from raf.events import Happening, Kind
from raf.state.ops import Write, WriteKind

Status: TypeAlias = Literal["done", "failed", "skipped", "fallback", "suspended"]

_STATUSES: Final[dict[str, Status]] = {status: status for status in get_args(Status)}
RESULT, FAILURE, EFFECT, INTENT = "result", "failure", "effect", "intent"
RESET, VOID = "reset", "void"
_KINDS: Final[tuple[WriteKind, ...]] = ("set", "delete", "extend", "update", "add")


@dataclass(frozen=True, slots=True)
class Sent:
    """A payload on its way; `to` names one declared target, None all edges.

    `output` marks the return value of an output node: unless a loop edge takes it back, it is an
    output of the run, and if no edge takes it, it is no dead letter.
    """

    payload: bytes
    to: str | None = None
    output: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it is recorded: its type and text, never the object."""

    error_type: str
    text: str
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one invocation ended.

    Args:
        number: The invocation's message number.
        status: "done"; "failed" after the last attempt; "skipped" and "fallback" after it, by the
            node's policy; "suspended" when it waits for its next attempt until `wake_at`.
        failure: The last error, unless done.
        attempt: The attempt that ended it, from 1.
    """

    number: int
    status: Status = "done"
    sends: tuple[Sent, ...] = ()
    outputs: tuple[bytes, ...] = ()
    writes: tuple[Write, ...] = ()
    events: tuple[Happening, ...] = ()
    failure: Failure | None = None
    attempt: int = 1
    failures: int = 0
    wake_at: float = 0.0
    effects: tuple[tuple[str, bytes, bytes], ...] = ()


def result_to_wire(result: Result) -> list[Any]:
    """The journal entry of a result."""
    failure = result.failure
    return [
        RESULT,
        result.number,
        result.status,
        [[sent.payload, sent.to, sent.output] for sent in result.sends],
        list(result.outputs),
        [_write_to_wire(write) for write in result.writes],
        [[int(e.kind), e.node, e.message, dict(e.data), e.payload] for e in result.events],
        None if failure is None else [failure.error_type, failure.text, failure.code],
        [result.attempt, result.failures, result.wake_at],
        [list(effect) for effect in result.effects],
    ]


def _write_to_wire(write: Write) -> list[Any]:
    pairs = [part for pair in write.pairs for part in pair]
    kind = _KINDS.index(write.kind)
    return [write.scope, write.key, kind, write.value, list(write.items), pairs]


def _write_from_wire(wire: Sequence[Any]) -> Write:
    scope, key, kind, value, items, flat = wire
    pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
    return Write(scope, key, _KINDS[kind], value, tuple(items), pairs)


def _part(*shape: Check) -> Check:
    """A list with a field for each check."""
    return lambda fields: fit(fields, shape)


def _maybe(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _flag(value: Any) -> None:
    if type(value) is not bool:
        raise TypeError("a flag is true or false")


_SHAPE: Final = (
    *(text, whole, text),
    items(_part(data, _maybe(text), _flag)),
    items(data),
    items(_part(text, text, limit, data, items(data), items(data))),
    items(_part(*EVENT)),
    _maybe(_part(text, text, text)),
    _part(whole, whole, seconds),
    items(_part(text, data, data)),
)


def result_from_wire(wire: Sequence[Any]) -> Result:
    """The result of a journal entry.

    Raises:
        LookupError, TypeError, ValueError: It is none.
    """
    fit(list(wire), _SHAPE)
    _, number, status, sends, outputs, writes, events, failure, counts, effects = wire
    attempt, failures, wake_at = counts
    return Result(
        number=number,
        status=_STATUSES[status],
        sends=tuple(Sent(payload, to, output) for payload, to, output in sends),
        outputs=tuple(outputs),
        writes=tuple(_write_from_wire(write) for write in writes),
        events=tuple(
            Happening(Kind(kind), node, message, data, payload)
            for kind, node, message, data, payload in events
        ),
        failure=None if failure is None else Failure(*failure),
        attempt=attempt,
        failures=failures,
        wake_at=wake_at,
        effects=tuple((key, digest, value) for key, digest, value in effects),
    )


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """A recorded effect: the digest of its arguments, and its encoded result (None: in doubt)."""

    digest: bytes
    result: bytes | None
