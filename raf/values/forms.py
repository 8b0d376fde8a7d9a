"""The forms that stand for composite values in the encoding, and the kinds of storable classes.

Rules of this file
    1. The bytes of the marks are for ever: they stand in every stored record.
    2. A class is of at most one kind; whether it *may* be stored is the type table's question.
"""

import dataclasses
import enum

from raf.values.scalars import FORM, ext

_MODEL_ROOTS = ("pydantic.main", "pydantic.root_model")  # where the bare base classes live


class Form:
    """The mark at the head of an encoded list that says what the rest stands for."""

    __slots__ = ("byte", "instance", "mark", "name")

    def __init__(self, name: str, byte: bytes, *, instance: bool = False) -> None:
        self.name = name
        self.byte = byte
        self.instance = instance
        self.mark = ext(FORM, byte)


TUPLE = Form("tuple", b"\x01")
SET = Form("set", b"\x02")
FROZENSET = Form("frozenset", b"\x03")
DATACLASS = Form("dataclass", b"\x04", instance=True)
NAMED_TUPLE = Form("named tuple", b"\x05")
MODEL = Form("model", b"\x06", instance=True)
FORMS = {form.byte: form for form in (TUPLE, SET, FROZENSET, DATACLASS, NAMED_TUPLE, MODEL)}


def kind_of(cls: object) -> str | None:
    """Which of the storable kinds a class is: dataclass, model, named tuple, enum, or None."""
    if not isinstance(cls, type):
        return None
    if issubclass(cls, enum.Enum):
        return "enum" if cls.__members__ or issubclass(cls, enum.Flag) else None
    if dataclasses.is_dataclass(cls):
        return "dataclass"
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return "named tuple"
    if isinstance(getattr(cls, "__private_attributes__", None), dict) and hasattr(
        cls, "__pydantic_complete__"
    ):
        return "model" if cls.__module__ not in _MODEL_ROOTS else None
    return None
