"""How members of enums and flags are stored, and found again."""

import enum
from typing import Any

import msgpack

from raf.errors import UndecodableError
from raf.values.scalars import ENUM, ext
from raf.values.versions import Way


class EnumPlan:
    """Enum members by name; flags, which combine, by value."""

    def __init__(self, cls: type[enum.Enum], tag: str) -> None:
        self.cls = cls
        self.tag = tag
        self.way = Way()
        self.flag = issubclass(cls, enum.Flag)
        self._known: dict[Any, Any] = {}

    def take(self, value: Any) -> Any:
        """The extension value that stands for the member."""
        key = value._value_ if self.flag else value._name_
        known = self._known.get(key)
        if known is None:
            stored = key.to_bytes((key.bit_length() + 8) // 8, signed=True) if self.flag else key
            packed = msgpack.packb([self.tag, stored], unicode_errors="surrogatepass")
            known = self._known[key] = ext(ENUM, packed)
        return known

    def build(self, stored: object) -> Any:
        """The member; refuses a name or value that the class does not have."""
        if self.flag and type(stored) is bytes:
            number = self.way.go(int.from_bytes(stored, signed=True), int)
            member = self.cls(number)
            if type(member) is self.cls and member.value == number:
                return member
        elif not self.flag and type(stored) is str:
            name: str = self.way.go(stored, str)
            if name in self.cls.__members__:
                return self.cls.__members__[name]
            stored = name
        raise UndecodableError(f"{self.tag} has no member {stored!r}")
