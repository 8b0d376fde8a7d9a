"""Deltas over random sessions: what is written is what is read, and a chain is its snapshot."""

import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from raf.checkpoint import codec
from raf.checkpoint import delta as d
from raf.checkpoint.snapshot import Message, Output, Parked, Path, Run, Slot, Snapshot, Suspension
from raf.state.cell import Cell
from raf.state.ops import Delete, Extend, Set, Update
from raf.values.codec import encode
from raf.values.registry import TypeTable

TYPES: Final = TypeTable()
NAMES: Final = ("a", "b", "node with blanks", "::shared", "ä/ö", "\ud800", "")
ITEMS: Final = (None, True, 0, -1, 2**70, 1.5, "text", b"bytes", [1, 2], {"k": [3]}, ())


def enc(value: Any) -> bytes:
    """An encoded value."""
    return encode(value, TYPES)


class Walk:
    """A session that changes by one random operation after the other."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.snapshot = Snapshot()
        self.number = 0

    def pick(self, options: Any) -> Any:
        """One of them."""
        return self.draw(st.sampled_from(sorted(options, key=repr)))

    def count(self) -> int:
        """A small number, or a large one."""
        return self.draw(st.integers(0, 9) | st.integers(0, 2**40))

    def name(self) -> str:
        """A name; the store takes any text."""
        return str(self.pick(NAMES))

    def payload(self) -> bytes:
        """An encoded payload."""
        return enc(self.pick(ITEMS))

    def path(self) -> Path:
        """A path of some loops."""
        loops = self.draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
        return tuple((loop, 1 + self.count()) for loop in loops)

    def message(self) -> Message:
        """A new message, of a node or a barrier."""
        self.number += 1
        sources = self.draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
        payloads = tuple(self.payload() for _ in sources or [""])
        return Message(self.number, self.name(), self.name(), self.path(), payloads, tuple(sources))

    def suspension(self, message: Message) -> Suspension:
        """A suspended invocation, perhaps with recorded effects."""
        effects = tuple((self.name(), b"digest", self.payload()) for _ in range(self.pick([0, 2])))
        return Suspension(message, "retry", float(self.count()), self.count(), effects)

    def operation(self) -> d.Op:
        """An operation that fits the session as it stands."""
        made: list[Callable[[], d.Op]] = [
            self.set,
            lambda: d.Send(self.message()),
            lambda: d.Hold((self.name(), self.path()), Slot(self.name(), 7, self.payload())),
            lambda: d.Late((self.name(), self.path()), self.late()),
            lambda: d.Emit(Output(self.count(), self.name(), self.payload())),
            lambda: d.Count(self.count() - 1, self.count(), self.count(), self.count()),
            lambda: d.Grant((self.name(), self.path()), self.count()),
            lambda: d.Park(Parked(self.count(), self.name(), self.path(), self.payload())),
            lambda: d.Suspend(self.suspension(self.message())),
            lambda: d.SetRun(Run(self.name(), b"16 bytes", "running", self.name())),
            lambda: d.Graph(self.name()),
            lambda: d.Pin(self.count()),
            lambda: d.Unpin(self.count()),
            *self.fitting(),
        ]
        return (self.pick(range(len(made))) and made[self.pick(range(len(made)))]()) or self.set()

    def late(self) -> tuple[str, ...]:
        """Sources that may come too late, some more than once."""
        return tuple(sorted(self.draw(st.lists(st.sampled_from(NAMES), max_size=3))))

    def set(self) -> d.Op:
        """A key of the state."""
        value = self.pick([[1], {"k": 1}, "text", 3, None])
        return Set(self.name(), self.name(), enc(value))

    def places(self, kind: str) -> list[tuple[str, str]]:
        """The keys that hold anything, a list, or a map."""
        cells = [(op.scope, op.key, Cell(op.value)) for op in self.snapshot.state.as_ops()]
        return [(scope, key) for scope, key, cell in cells if not kind or getattr(cell, kind)]

    def fitting(self) -> list[Callable[[], d.Op]]:
        """Operations on what is there."""
        s, cells = self.snapshot, self.places("")
        lists, maps = self.places("is_list"), self.places("is_map")

        def grow() -> d.Op:
            scope, key = self.pick(lists)
            return Extend(scope, key, (self.payload(), self.payload()))

        def change() -> d.Op:
            scope, key = self.pick(maps)
            return Update(scope, key, ((self.payload(), self.payload()),))

        made: list[tuple[Any, Callable[[], d.Op]]] = [
            (cells, lambda: Delete(*self.pick(cells))),
            (lists, grow),
            (maps, change),
            (s.pending, lambda: d.Take((self.pick(s.pending),))),
            (s.pending, lambda: d.Keep(self.pick(s.pending), (self.payload(), self.payload()))),
            (s.barriers, lambda: d.Fire(self.pick(s.barriers), self.late())),
            (s.parked, lambda: d.Unpark(self.pick(s.parked))),
            (s.suspended, lambda: d.Wake(self.pick(s.suspended))),
            (self.draw(st.integers(1, 12)) == 1, d.Clear),
        ]
        return [make for is_there, make in made if is_there]

    def delta(self) -> list[d.Op]:
        """Some operations, merged one by one, each fitting what the ones before made."""
        ops = []
        for _ in range(self.draw(st.integers(0, 5))):
            ops.append(self.operation())
            d.merge(self.snapshot, ops[-1:], float(self.number))
        return ops


@st.composite
def walks(draw: st.DrawFn) -> tuple[list[list[d.Op]], list[Snapshot]]:
    """The deltas of a session, and its snapshot behind each."""
    walk = Walk(draw)
    deltas, snapshots = [], []
    for _ in range(draw(st.integers(1, 6))):
        deltas.append(walk.delta())
        snapshots.append(deepcopy(walk.snapshot))
    return deltas, snapshots


def stored(ops: list[d.Op], *, whole: Snapshot | None = None) -> codec.CheckpointPart:
    """The operations as they come back from a record."""
    envelope = codec.Envelope(commit=3, step=1, at=2.5, epoch=1, nonce="00" * 16)
    full = None if whole is None else d.as_ops(whole)
    part = codec.encode_checkpoint(envelope, ops, whole=full)
    return codec.decode_checkpoint(part, "s", "commit 3")


def told(snapshot: Snapshot) -> tuple[d.Op, ...]:
    """All that a snapshot is."""
    return tuple(d.as_ops(snapshot))


@given(walks())
def test_operations_come_back_as_they_were_written(
    walked: tuple[list[list[d.Op]], list[Snapshot]],
) -> None:
    """A delta holds its operations, a full the whole snapshot and the operations beside it."""
    deltas, snapshots = walked
    for ops, snapshot in zip(deltas, snapshots, strict=True):
        assert stored(ops).ops == tuple(ops)
        full = stored(ops, whole=snapshot)
        assert (full.ops, full.delta) == (told(snapshot), tuple(ops))
        assert full.digest == codec.ops_digest(d.as_ops(snapshot))


@given(walks(), st.integers(0, 5))
def test_a_chain_is_the_snapshot_that_ran(
    walked: tuple[list[list[d.Op]], list[Snapshot]], start: int
) -> None:
    """From any full on, the deltas read back make the very snapshots that the session had."""
    deltas, snapshots = walked
    start = start % len(snapshots)
    replayed = Snapshot()
    d.merge(replayed, stored([], whole=snapshots[start]).ops)
    assert told(replayed) == told(snapshots[start])
    for ops, snapshot in zip(deltas[start + 1 :], snapshots[start + 1 :], strict=True):
        d.merge(replayed, stored(ops).ops)
        assert told(replayed) == told(snapshot)


@given(walks(), st.randoms(use_true_random=False))
def test_equal_snapshots_give_equal_bytes(
    walked: tuple[list[list[d.Op]], list[Snapshot]], chance: random.Random
) -> None:
    """The order in which things came in is not told: only what is there."""
    snapshot = walked[1][-1]
    twin = deepcopy(snapshot)
    for name in ("pending", "barriers", "late", "grants", "parked", "suspended", "woken"):
        items = list(getattr(twin, name).items())
        chance.shuffle(items)
        setattr(twin, name, dict(items))
    twin.pins = set(chance.sample(sorted(twin.pins), len(twin.pins)))
    again = Snapshot()
    ops = list(d.as_ops(twin))
    states = [op for op in ops if isinstance(op, Set)]
    chance.shuffle(states)
    d.merge(again, [*states, *(op for op in ops if not isinstance(op, Set))])
    assert told(twin) == told(snapshot) == told(again)
    assert codec.ops_digest(d.as_ops(twin)) == codec.ops_digest(d.as_ops(snapshot))


@given(walks())
def test_a_new_run_keeps_the_state_and_nothing_else(
    walked: tuple[list[list[d.Op]], list[Snapshot]],
) -> None:
    """Behind `Clear` only state, pins, graph, run and step are as they were."""
    snapshot = walked[1][-1]
    before = deepcopy(snapshot)
    d.merge(snapshot, [d.Clear()])
    empty = Snapshot(
        state=before.state,
        run=before.run,
        step=before.step,
        fingerprint=before.fingerprint,
        pins=before.pins,
    )
    assert told(snapshot) == told(empty)
    assert snapshot.sent_at == {}
