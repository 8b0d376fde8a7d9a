"""Values to bytes: one packer, and the hook that it calls for what it cannot pack itself.

Rules of this file
    1. What can be packed is packed by one call into C; a Python loop runs only over bytes and
       extension values that might be of msgpack's own types, and over very deep structures.
    2. The items of a set are sorted by their encoding.

Theory of operation
    The hook answers with something that msgpack can pack: an extension value, or a list headed by
    a mark.  msgpack then packs that, and asks again for what it holds.
"""

from collections.abc import Callable
from typing import Any

import msgpack

from raf.errors import NotSerializableError
from raf.values.forms import FROZENSET, SET, TUPLE, Form
from raf.values.prepared import Prepared
from raf.values.readonly import ReadOnlyDict, ReadOnlyList, ReadOnlySet
from raf.values.scalars import ENCODERS
from raf.values.spans import FORM_HEAD, array_header
from raf.values.walk import ATOMS, FOREIGN, MAX_NESTING, TOO_DEEP, holds_foreign

MAX_BYTES = 1 << 29  # of one value

_UNPACK_NESTING = 1024  # what msgpack's unpacker has room for
_SMALL = 4096  # bytes; up to here one pass of translate is cheaper than a search for each byte
_BUFFER = 1024

_CONTAINER_HEADS = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])
_SUSPECTS = bytes([*range(0xC4, 0xCA), *range(0xD4, 0xD9)])  # bytes and extension values
# What msgpack and the classes' attributes may say of a value that cannot be packed.
SAID = (TypeError, ValueError, OverflowError, RecursionError, RuntimeError, AttributeError)


class Writer:
    """One packer and the hook that it calls for what it cannot pack itself."""

    def __init__(self, prepared: Prepared, errors: str | None = None) -> None:
        self._prepared = prepared
        self._errors = errors
        self._spare: list[Any] = []
        self._orders: dict[int, tuple[Any, list[Any]]] = {}
        self._putters: dict[type, Callable[[Any], Any]] = {
            **ENCODERS,
            tuple: lambda items: [TUPLE.mark, *items],
            set: lambda items: self._ordered(items, SET),
            frozenset: lambda items: self._ordered(items, FROZENSET),
            ReadOnlyList: list,
            ReadOnlyDict: dict,
            ReadOnlySet: lambda items: self._ordered(items, SET),
        }
        self.packer = self._packer()

    def _packer(self) -> Any:
        return msgpack.Packer(
            default=self._hook,
            strict_types=True,
            use_bin_type=True,
            unicode_errors=self._errors,
            buf_size=_BUFFER,
        )

    def _hook(self, value: Any) -> Any:
        """What msgpack is to pack in place of a value that it does not know."""
        cls = type(value)
        putter = self._putters.get(cls)
        if putter is None:
            putter = self._putters[cls] = self._prepared.putter(cls)
        return putter(value)

    def _ordered(self, items: Any, form: Form) -> list[Any]:
        """A set as a list sorted by encoding.

        A set within a set is asked for once for each set around it, so its order is kept until the
        call ends; keeping the set beside it keeps its id from being used again.
        """
        known = self._orders.get(id(items))
        if known is None:
            packer = self._spare.pop() if self._spare else self._packer()
            order = [form.mark, *sorted(items, key=packer.pack)]
            self._spare.append(packer)
            known = self._orders[id(items)] = (items, order)
        return known[1]

    def pack(self, value: Any) -> bytes:
        """The bytes of a value.

        Raises:
            NotSerializableError: with an empty path, for a part that cannot be stored.
            Exception: what msgpack raises for values that it cannot pack (see `SAID`).
        """
        data: bytes = self.packer.pack(value)
        if self._orders:
            self._orders.clear()
        if type(value) not in ATOMS:
            self._judge(value, data)
        if len(data) > MAX_BYTES:
            why = f"it takes more than {MAX_BYTES} bytes: keep it outside and store where it is"
            raise NotSerializableError("", type(value).__qualname__, why)
        return data

    def _judge(self, value: Any, data: bytes) -> None:
        """Refuses what msgpack packs and we could not give back."""
        why = ""
        if _has_suspects(data) and holds_foreign(value, self._prepared.plans.get):
            why = FOREIGN.get(type(value), "it holds a type of msgpack's own")
        elif len(data) > MAX_NESTING and _too_deep(data):
            why = TOO_DEEP
        if why:
            raise NotSerializableError("", type(value).__qualname__, why)


def _has_suspects(data: bytes) -> bool:
    """Whether the bytes may hold bytes or extension values; sometimes true without reason."""
    if len(data) > _SMALL:
        return any(suspect in data for suspect in _SUSPECTS)
    bare = data.replace(FORM_HEAD, b"")
    return len(bare.translate(None, _SUSPECTS)) != len(bare)


def _too_deep(data: bytes) -> bool:
    """Whether packed bytes nest deeper than the limit; asked of longer bytes only."""
    if len(data) - len(data.translate(None, _CONTAINER_HEADS)) <= MAX_NESTING:
        return False
    padding = _UNPACK_NESTING - MAX_NESTING
    unpacker = msgpack.Unpacker(None, max_buffer_size=len(data) + padding)
    unpacker.feed(array_header(1) * padding + data)
    try:
        unpacker.skip()
    except msgpack.StackError:
        return True
    return False
