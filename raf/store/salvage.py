"""What the backends share in reading all of a damaged session that can be read; pure."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from raf.errors import CorruptRecordError

Raw = TypeVar("Raw")
Value = TypeVar("Value")


def readable(
    raws: Iterable[Raw],
    read: Callable[[Raw, str], Value],
    session_id: str,
    damaged: list[CorruptRecordError],
) -> list[Value]:
    """The values that can be read; what cannot is left out, and its error goes to `damaged`."""
    found: list[Value] = []
    for raw in raws:
        try:
            found.append(read(raw, session_id))
        except CorruptRecordError as error:
            damaged.append(error)
    return found
