"""Values as JSON that any reader takes, and as words for a person; pure.

Rules of this file:
- Nothing is refused and nothing is lost silently: what JSON cannot say becomes an object with one
  key that begins with `$`, or text where a value has one usual spelling.
- The form of a value is a promise (`docs/reference/cli.md`).
- What is shown on a terminal holds no control characters: a value cannot move the cursor.
"""

import base64
import dataclasses
import json
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from enum import Enum
from typing import Any, Final

from pydantic import BaseModel

# Controls, formats (among them those that turn the direction of writing), halves of pairs, and
# signs that no standard knows.
_OBEYED = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def jsonable(value: Any) -> Any:
    r"""The value in terms of JSON.

    Example:
        >>> jsonable({"a": (1, float("nan")), "b": b"\x00", "c": {2}})
        {'a': [1, {'$float': 'nan'}], 'b': {'$bytes': 'AA=='}, 'c': {'$set': [2]}}
    """
    if isinstance(value, Enum):
        return value.name or str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    for kinds, form in _FORMS:
        if isinstance(value, kinds):
            return form(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: jsonable(getattr(value, f.name, None)) for f in dataclasses.fields(value)}
    return str(value)


def _float(value: float) -> Any:
    return value if math.isfinite(value) else {"$float": str(value)}


def _bytes(value: bytes | bytearray) -> Any:
    return {"$bytes": base64.b64encode(value).decode("ascii")}


def _row(value: Sequence[Any]) -> Any:
    names = getattr(value, "_fields", None)
    parts = [jsonable(part) for part in value]
    return parts if names is None else dict(zip(names, parts, strict=False))


def _set(value: Set[Any]) -> Any:
    parts = [jsonable(part) for part in value]
    return {"$set": sorted(parts, key=lambda part: (type(part).__name__, json.dumps(part)))}


def _map(value: Mapping[Any, Any]) -> Any:
    plain = all(isinstance(key, str) for key in value)
    if plain and not (len(value) == 1 and next(iter(value)).startswith("$")):
        return {str(key): jsonable(part) for key, part in value.items()}
    return {"$map": [[jsonable(key), jsonable(part)] for key, part in value.items()]}


_FORMS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (float, _float),
    ((bytes, bytearray), _bytes),
    ((datetime, date, time), lambda value: value.isoformat()),
    (timedelta, lambda value: {"$seconds": value.total_seconds()}),
    (BaseModel, lambda value: {name: jsonable(part) for name, part in value}),
    (Mapping, _map),
    ((list, tuple), _row),
    (Set, _set),
)


def as_json(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON text of ASCII signs, so that no terminal or pipe stumbles over it."""
    return json.dumps(jsonable(value), ensure_ascii=True, indent=indent, allow_nan=False)


def words(value: Any, *, longest: int | None = None) -> str:
    """The value on one line for a person, cut to so many signs."""
    said = value if isinstance(value, str) else json.dumps(jsonable(value), ensure_ascii=False)
    return shortened(harmless(said, lines=False), longest)


def shortened(text: str, longest: int | None) -> str:
    """The text, or its beginning and an ellipsis."""
    if longest is None or len(text) <= longest:
        return text
    return text[: max(1, longest - 1)] + "…"


def harmless(text: str, *, lines: bool = True) -> str:
    """Text without signs that a terminal would obey; with `lines` breaks and tabs stay."""
    kept = "\n\t" if lines else ""
    return "".join(
        sign if sign in kept or unicodedata.category(sign) not in _OBEYED else _escaped(sign)
        for sign in text
    )


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
