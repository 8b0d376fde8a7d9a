"""Operations to plain lists and back; pure.

Rules of this file:
- The first item of each list is the operation's code.  Codes are stored: never reuse one.
- `TABLE` has a row for each operation: its code, its type, how its fields are listed and read.
- Neighbouring `Set`s of one scope share one list; one payload that stands in several operations is
  stored once, in a table, and named by its place there.
- A path is a flat list: loop, iteration, loop, iteration …
- What is read is checked by the row's shape first: an operation never holds a field of another type.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from raf.checkpoint import delta as d
from raf.checkpoint.shapes import (
    Check,
    count,
    data,
    fit,
    items,
    limit,
    seconds,
    text,
    whole,
)
from raf.checkpoint.snapshot import Message, Output, Parked, Path, Run, Slot, Suspension
from raf.state.ops import Delete, Extend, Set, Update


class _Payloads:
    """Payloads by place; equal ones share a place."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}

    def __call__(self, payload: bytes) -> int:
        return self._places.setdefault(payload, len(self._places))

    def all(self) -> list[bytes]:
        return list(self._places)


Put = Callable[[Any, _Payloads], list[Any]]
Get = Callable[[Sequence[Any], Sequence[bytes]], d.Op]


@dataclass(frozen=True, slots=True)
class Row:
    """How one operation is stored: its code and the list of its fields.

    `shape` checks the fields by place, and `rest` those that may follow any number of times.
    """

    code: int
    kind: type
    put: Put
    get: Get
    shape: tuple[Check, ...]
    rest: Check | None = None


def _flat(path: Path) -> list[Any]:
    return [part for item in path for part in item]


def _pairs(flat: Sequence[Any], width: int = 2) -> tuple[tuple[Any, ...], ...]:
    return tuple(zip(*(flat[place::width] for place in range(width)), strict=True))


def _path(flat: Sequence[Any]) -> Path:
    return tuple((name, iteration) for name, iteration in _pairs(flat))


def _flat_path(value: Any) -> None:
    if type(value) is not list:
        raise TypeError("a path is a list")
    for name, iteration in _pairs(value):
        text(name)
        whole(iteration)


def _place(value: Any) -> None:
    whole(value)
    if value < 0:
        raise ValueError("a payload has no such place")


_MESSAGE: Final = (whole, text, text, _flat_path, items(_place), items(text))


def _put_message(message: Message, payloads: _Payloads) -> list[Any]:
    return [
        message.number,
        message.source,
        message.target,
        _flat(message.path),
        [payloads(payload) for payload in message.payloads],
        list(message.sources),
    ]


def _get_message(fields: Sequence[Any], payloads: Sequence[bytes]) -> Message:
    number, source, target, path, places, sources = fields
    held = tuple(payloads[place] for place in places)
    return Message(number, source, target, _path(path), held, tuple(sources))


def _put_hold(op: d.Hold, payloads: _Payloads) -> list[Any]:
    (barrier, path), slot = op.barrier, op.slot
    return [barrier, _flat(path), slot.source, slot.number, payloads(slot.payload)]


def _get_hold(fields: Sequence[Any], payloads: Sequence[bytes]) -> d.Op:
    barrier, path, source, number, place = fields
    return d.Hold((barrier, _path(path)), Slot(source, number, payloads[place]))


def _put_park(op: d.Park, payloads: _Payloads) -> list[Any]:
    parked = op.parked
    return [parked.number, parked.loop, _flat(parked.path), payloads(parked.payload)]


def _get_park(fields: Sequence[Any], payloads: Sequence[bytes]) -> d.Op:
    number, loop, path, place = fields
    return d.Park(Parked(number, loop, _path(path), payloads[place]))


def _put_suspend(op: d.Suspend, payloads: _Payloads) -> list[Any]:
    held = op.suspension
    effects = [part for effect in held.effects for part in effect]
    return [
        held.reason,
        held.wake_at,
        held.failures,
        effects,
        *_put_message(held.message, payloads),
    ]


def _get_suspend(fields: Sequence[Any], payloads: Sequence[bytes]) -> d.Op:
    reason, wake_at, failures, effects, *message = fields
    recorded = tuple((key, digest, result) for key, digest, result in _pairs(effects, 3))
    held = _get_message(message, payloads)
    return d.Suspend(Suspension(held, reason, wake_at, failures, recorded))


def _effects(value: Any) -> None:
    if type(value) is not list:
        raise TypeError("effects are a list")
    for key, digest, result in _pairs(value, 3):
        text(key)
        data(digest)
        data(result)


SET: Final = 0
TABLE: Final[tuple[Row, ...]] = (
    Row(1, Delete, lambda o, _: [o.scope, o.key], lambda f, _: Delete(*f), (text, text)),
    Row(
        2,
        Extend,
        lambda o, _: [o.scope, o.key, _counted(list(o.items))],
        lambda f, _: Extend(f[0], f[1], tuple(f[2])),
        (text, text, items(data)),
    ),
    Row(
        3,
        Update,
        lambda o, _: [o.scope, o.key, _counted([part for pair in o.pairs for part in pair])],
        lambda f, _: Update(f[0], f[1], tuple((k, v) for k, v in _pairs(f[2]))),
        (text, text, items(data)),
    ),
    Row(
        10,
        d.Send,
        lambda o, p: _put_message(o.message, p),
        lambda f, p: d.Send(_get_message(f, p)),
        _MESSAGE,
    ),
    Row(11, d.Take, lambda o, _: list(o.numbers), lambda f, _: d.Take(tuple(f)), (), whole),
    Row(12, d.Hold, _put_hold, _get_hold, (text, _flat_path, text, whole, _place)),
    Row(
        13,
        d.Fire,
        lambda o, _: [o.barrier[0], _flat(o.barrier[1]), *o.late],
        lambda f, _: d.Fire((f[0], _path(f[1])), tuple(f[2:])),
        (text, _flat_path),
        text,
    ),
    Row(
        14,
        d.Late,
        lambda o, _: [o.barrier[0], _flat(o.barrier[1]), *o.late],
        lambda f, _: d.Late((f[0], _path(f[1])), tuple(f[2:])),
        (text, _flat_path),
        text,
    ),
    Row(
        15,
        d.Emit,
        lambda o, p: [o.output.step, o.output.node, p(o.output.payload)],
        lambda f, p: d.Emit(Output(f[0], f[1], p[f[2]])),
        (whole, text, _place),
    ),
    Row(
        16,
        d.Count,
        lambda o, _: [o.step, o.next_number, o.steps_used, o.steps_limit],
        lambda f, _: d.Count(*f),
        (whole, whole, whole, limit),
    ),
    Row(
        17,
        d.Grant,
        lambda o, _: [o.loop[0], _flat(o.loop[1]), o.iterations],
        lambda f, _: d.Grant((f[0], _path(f[1])), f[2]),
        (text, _flat_path, limit),
    ),
    Row(18, d.Park, _put_park, _get_park, (whole, text, _flat_path, _place)),
    Row(19, d.Unpark, lambda o, _: [o.number], lambda f, _: d.Unpark(*f), (whole,)),
    Row(20, d.Suspend, _put_suspend, _get_suspend, (text, seconds, whole, _effects, *_MESSAGE)),
    Row(21, d.Wake, lambda o, _: [o.number], lambda f, _: d.Wake(*f), (whole,)),
    Row(
        22,
        d.SetRun,
        lambda o, _: [o.run.run_id, o.run.input_digest, o.run.status, o.run.reason],
        lambda f, _: d.SetRun(Run(*f)),
        (text, data, text, text),
    ),
    Row(23, d.Clear, lambda _o, _: [], lambda _f, _: d.Clear(), ()),
    Row(24, d.Graph, lambda o, _: [o.fingerprint], lambda f, _: d.Graph(*f), (text,)),
    Row(25, d.Pin, lambda o, _: [o.commit], lambda f, _: d.Pin(*f), (whole,)),
    Row(26, d.Unpin, lambda o, _: [o.commit], lambda f, _: d.Unpin(*f), (whole,)),
    Row(
        27,
        d.Keep,
        lambda o, _: [o.number, *o.records],
        lambda f, _: d.Keep(f[0], tuple(f[1:])),
        (whole,),
        data,
    ),
)
_BY_KIND: Final = {row.kind: row for row in TABLE}
_BY_CODE: Final = {row.code: row for row in TABLE}


def _counted(held: list[Any]) -> list[Any]:
    count(held)
    return held


def ops_to_wire(ops: Iterable[d.Op]) -> list[Any]:
    """`[payload table, operation, operation, …]` as plain data.

    Raises:
        NotSerializableError: There are more than one list can hold.
    """
    payloads = _Payloads()
    wire: list[Any] = []
    for op in ops:
        if isinstance(op, Set):
            if wire and wire[-1][0] == SET and wire[-1][1] == op.scope:
                wire[-1] += (op.key, op.value)
            else:
                wire.append([SET, op.scope, op.key, op.value])
        else:
            row = _BY_KIND[type(op)]
            wire.append([row.code, *row.put(op, payloads)])
    for held in wire:
        count(held)
    return _counted([_counted(payloads.all()), *wire])


def ops_from_wire(wire: Any) -> tuple[d.Op, ...]:
    """The operations of plain data; `ValueError`, `TypeError`, `LookupError` when it is none."""
    payloads, *listed = wire
    items(data)(payloads)
    ops: list[d.Op] = []
    for code, *fields in listed:
        whole(code)
        if code == SET:
            scope, *pairs = fields
            text(scope)
            for key, value in _pairs(pairs):
                text(key)
                data(value)
                ops.append(Set(scope, key, value))
        else:
            row = _BY_CODE[code]
            fit(fields, row.shape, row.rest)
            ops.append(row.get(fields, payloads))
    return tuple(ops)
