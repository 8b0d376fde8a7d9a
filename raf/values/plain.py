"""Reading values without their classes: for tools that have no workflow at hand.

Rules of this file
    1. An instance of a class is read as a plain dict of its fields, an enum member as its name;
       everything else exactly as `decode` reads it.
    2. No class is looked up, so what is shown does not depend on what is imported.
"""

from typing import Any

import msgpack

from raf.errors import UndecodableError
from raf.values.codec import MAX_BYTES
from raf.values.forms import Form
from raf.values.prepared import prepare
from raf.values.reader import Reader
from raf.values.registry import TypeTable
from raf.values.scalars import ENUM

_NO_TYPES = TypeTable()


class Fields(dict[str, Any]):
    """The fields of an instance; hashable, since the instance may have been a key."""

    def __hash__(self) -> int:  # type: ignore[override]
        """By identity: equal fields of two instances stay apart as keys."""
        return id(self)


class _PlainReader(Reader):
    """A reader that makes no instances."""

    __slots__ = ()

    def _ext(self, code: int, payload: bytes) -> Any:
        if code != ENUM:
            return super()._ext(code, payload)
        tag, member = msgpack.unpackb(payload, unicode_errors="surrogatepass")
        return member if isinstance(member, str) else f"{tag}({member})"

    def _instance(self, items: list[Any], form: Form) -> Any:
        self._inside -= form.instance
        parts = items[1] if len(items) > 1 else {}
        return Fields(parts) if isinstance(parts, dict) else items[1:]


def decode_plain(data: bytes, *, max_bytes: int = MAX_BYTES) -> Any:
    """The value of the bytes, with plain dicts in place of instances.

    Args:
        data: the bytes of one value.
        max_bytes: refuse more bytes than this.

    Raises:
        UndecodableError: the bytes are damaged.
    """
    if len(data) > max_bytes:
        raise UndecodableError(f"{len(data)} bytes are more than the {max_bytes} allowed")
    try:
        return _PlainReader(prepare(_NO_TYPES), readonly=False).read(data)
    except UndecodableError:
        raise
    except Exception as error:
        raise UndecodableError(f"{type(error).__name__}: {error}") from error
