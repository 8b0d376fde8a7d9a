"""Single values that msgpack has no type for, as extension values and back.

Rules of this file
    1. One value, one encoding: no context, locale or platform setting has a say in it.
    2. A payload that no encoder of this file could have made is refused with `ValueError` or its
       like; the codec turns that into `UndecodableError`.
    3. The codes are for ever: they stand in every stored record.

Theory of operation
    `ENCODERS` maps an exact type to a function that returns an extension value; `DECODERS` maps a
    code to the function that reads its payload.  Code `FORM` marks the head of an encoded list that
    stands for something else (see `raf.values.classes`), `ENUM` is read by the codec, which knows
    the classes.
"""

import decimal
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgpack

from raf.errors import NotSerializableError

FORM, INT, DECIMAL, DATETIME, DATE, TIME, TIMEDELTA, UUID_, PATH, ENUM = range(1, 11)

_MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS_A_DAY = 24 * 60 * 60 * 1_000_000
_MSGPACK_INTS = range(-(1 << 63), 1 << 64)
_STAMP = struct.Struct(">HBBBBBIB")  # year month day hour minute second microsecond fold
_DATE = struct.Struct(">HBB")  # year month day
_TIME = struct.Struct(">BBBIB")  # hour minute second microsecond fold
_DELTA = struct.Struct(">iII")  # days seconds microseconds
_OFFSET = struct.Struct(">q")  # microseconds east of UTC
_UUID_BYTES = 16
_ZONE_KEY = re.compile(rb"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
# pydantic gives the datetimes that it reads from text a class of its own for fixed offsets.
_PYDANTIC_ZONE = ("pydantic_core._pydantic_core", "TzInfo")
_SAFETY = {b"": SafeUUID.unknown, b"\x01": SafeUUID.safe, b"\x02": SafeUUID.unsafe}
_SAFETY_BYTE = {safety: byte for byte, safety in _SAFETY.items()}
# The spelling of a Decimal depends on the context's `capitals`; this one is ours.
_SPELLING = decimal.Context(capitals=1)

_new_ext = tuple.__new__


def ext(code: int, payload: bytes) -> Any:
    """An extension value, without the checks of `msgpack.ExtType`."""
    return _new_ext(msgpack.ExtType, (code, payload))


def _put_text(text: str) -> bytes:
    """UTF-8 in which lone surrogates survive."""
    return text.encode("utf-8", "surrogatepass")


def _get_text(data: bytes) -> str:
    """The inverse of `_put_text`."""
    return data.decode("utf-8", "surrogatepass")


# -- numbers and names -------------------------------------------------------------------------


def _put_int(value: int) -> Any:
    """An int beyond 64 bits: two's complement, big-endian."""
    return ext(INT, value.to_bytes((value.bit_length() + 8) // 8, signed=True))


def _get_int(payload: bytes) -> int:
    value = int.from_bytes(payload, signed=True)
    if value in _MSGPACK_INTS:
        raise ValueError("a small int in the long form")
    return value


def _put_decimal(value: Decimal) -> Any:
    """The exact spelling: sign, digits, exponent, payload of a NaN."""
    return ext(DECIMAL, _SPELLING.to_sci_string(value).encode("ascii"))


def _get_decimal(payload: bytes) -> Decimal:
    text = payload.decode("ascii")
    value = Decimal(text)
    if _SPELLING.to_sci_string(value) != text:
        raise ValueError(f"{text[:40]!r} is no Decimal")
    return value


def _put_uuid(value: UUID) -> Any:
    """16 bytes, and one more when its safety is known."""
    return ext(UUID_, value.bytes + _SAFETY_BYTE[value.is_safe])


def _get_uuid(payload: bytes) -> UUID:
    return UUID(bytes=payload[:_UUID_BYTES], is_safe=_SAFETY[payload[_UUID_BYTES:]])


_PATH_KINDS: dict[bytes, type[PurePath]] = {b"C": Path, b"P": PurePosixPath, b"W": PureWindowsPath}
_PATH_BYTES: dict[type, bytes] = {type(Path()): b"C", PurePosixPath: b"P", PureWindowsPath: b"W"}


def _put_path(value: PurePath) -> Any:
    """One byte for the kind, then the path as text."""
    return ext(PATH, _PATH_BYTES[type(value)] + _put_text(str(value)))


def _get_path(payload: bytes) -> PurePath:
    return _PATH_KINDS[payload[:1]](_get_text(payload[1:]))


# -- dates and times ---------------------------------------------------------------------------


def _put_zone(zone: tzinfo | None) -> bytes:
    """Nothing, a fixed offset with or without a name (or pydantic's), or the key of a ZoneInfo."""
    if zone is None:
        return b""
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # its pickle protocol
        fixed = _OFFSET.pack(offset // _MICROSECOND)
        return b"N" + fixed + _put_text(name[0]) if name else b"O" + fixed
    if (type(zone).__module__, type(zone).__name__) == _PYDANTIC_ZONE:
        return b"P" + _OFFSET.pack((zone.utcoffset(None) or timedelta()) // _MICROSECOND)
    if type(zone) is ZoneInfo and zone.key is not None:
        try:
            ZoneInfo(zone.key)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise NotSerializableError(
                ".tzinfo", "ZoneInfo", f"zone {zone.key!r} is not in the zone database"
            ) from error
        return b"Z" + _put_text(zone.key)
    raise NotSerializableError(
        ".tzinfo", type(zone).__qualname__, "use datetime.timezone or a ZoneInfo with a key"
    )


def _get_zone(payload: bytes) -> tzinfo | None:
    kind, rest = payload[:1], payload[1:]
    if kind == b"":
        return None
    if kind == b"Z":
        # The zone database is files, and may be a package: no key leads anywhere else.
        if not _ZONE_KEY.fullmatch(rest):
            raise ValueError("damaged time zone")
        return ZoneInfo(rest.decode("ascii"))
    offset = timedelta(microseconds=_OFFSET.unpack(rest[: _OFFSET.size])[0])
    if kind == b"N":
        return timezone(offset, _get_text(rest[_OFFSET.size :]))
    if kind == b"P" and len(rest) == _OFFSET.size:
        from pydantic_core import TzInfo  # noqa: PLC0415 - only who stored such a zone pays for it

        return TzInfo(offset.total_seconds())
    if kind == b"O" and len(rest) == _OFFSET.size:
        return timezone(offset)
    raise ValueError("damaged time zone")


def _put_datetime(value: datetime) -> Any:
    """The fields of the wall clock, the fold, the zone."""
    stamp = _STAMP.pack(
        *(value.year, value.month, value.day, value.hour, value.minute, value.second),
        *(value.microsecond, value.fold),
    )
    return ext(DATETIME, stamp + _put_zone(value.tzinfo))


def _get_datetime(payload: bytes) -> datetime:
    year, month, day, hour, minute, second, micro, fold = _STAMP.unpack(payload[: _STAMP.size])
    zone = _get_zone(payload[_STAMP.size :])
    return datetime(year, month, day, hour, minute, second, micro, tzinfo=zone, fold=fold)


def _put_date(value: date) -> Any:
    return ext(DATE, _DATE.pack(value.year, value.month, value.day))


def _get_date(payload: bytes) -> date:
    return date(*_DATE.unpack(payload))


def _put_time(value: time) -> Any:
    """The fields, the fold, the zone."""
    stamp = _TIME.pack(value.hour, value.minute, value.second, value.microsecond, value.fold)
    return ext(TIME, stamp + _put_zone(value.tzinfo))


def _get_time(payload: bytes) -> time:
    hour, minute, second, micro, fold = _TIME.unpack(payload[: _TIME.size])
    return time(hour, minute, second, micro, tzinfo=_get_zone(payload[_TIME.size :]), fold=fold)


def _put_timedelta(value: timedelta) -> Any:
    return ext(TIMEDELTA, _DELTA.pack(value.days, value.seconds, value.microseconds))


def _get_timedelta(payload: bytes) -> timedelta:
    days, seconds, microseconds = _DELTA.unpack(payload)
    if seconds * 1_000_000 + microseconds >= _MICROSECONDS_A_DAY:
        raise ValueError("damaged timedelta")
    return timedelta(days, seconds, microseconds)


ENCODERS: dict[type, Callable[[Any], Any]] = {
    int: _put_int,  # asked for only beyond 64 bits
    Decimal: _put_decimal,
    UUID: _put_uuid,
    datetime: _put_datetime,
    date: _put_date,
    time: _put_time,
    timedelta: _put_timedelta,
    **dict.fromkeys(_PATH_BYTES, _put_path),
}

DECODERS: dict[int, Callable[[bytes], Any]] = {
    INT: _get_int,
    DECIMAL: _get_decimal,
    UUID_: _get_uuid,
    PATH: _get_path,
    DATETIME: _get_datetime,
    DATE: _get_date,
    TIME: _get_time,
    TIMEDELTA: _get_timedelta,
}
