"""Bytes to values: the hooks of one decoding, and what they have seen.

Rules of this file
    1. A mark that heads a list is taken off when the list ends; one that stands anywhere else is
       damage, and is found by counting.
    2. In a read-only reading, what stands inside a class instance stays plain: each reader gets an
       instance of its own.
"""

from typing import Any

import msgpack

from raf.errors import UndecodableError
from raf.values.classes import Plan
from raf.values.forms import FORMS, FROZENSET, SET, TUPLE, Form
from raf.values.prepared import Prepared
from raf.values.readonly import seal_dict, seal_list, seal_set
from raf.values.retyped import check_upgraded
from raf.values.scalars import FORM
from raf.values.spans import FORM_HEAD


class Reader:
    """The hooks of one decoding, and what they have seen.

    A mark that is met opens a form, the end of its list closes it; a mark that heads no list stays
    open, which only damage does.
    """

    __slots__ = ("_inside", "_marked", "_open", "_readonly", "models", "prepared")

    def __init__(self, prepared: Prepared, *, readonly: bool) -> None:
        self.prepared = prepared
        self._readonly = readonly
        self._open = 0
        self._inside = 0  # class instances being read: what they hold stays plain
        self._marked = True
        self.models = False

    def read(self, data: bytes) -> Any:
        """The value of the bytes."""
        # Without a mark in its one spelling, `decode` asks no reader: then there is none for us too.
        self._marked = FORM_HEAD in data
        value = msgpack.unpackb(
            data,
            ext_hook=self._ext,
            list_hook=self._list,
            object_hook=self._dict if self._readonly else None,
            strict_map_key=False,
            unicode_errors="surrogatepass",
        )
        if self._open:
            raise UndecodableError("a mark stands where a value belongs")
        return value

    def _ext(self, code: int, payload: bytes) -> Any:
        if code != FORM:
            return self.prepared.single(code, payload)
        form = FORMS.get(payload) if self._marked else None
        if form is None:
            raise UndecodableError(f"unknown form {payload!r}")
        self._open += 1
        self._inside += form.instance
        return form

    def _dict(self, items: dict[Any, Any]) -> Any:
        return items if self._inside else seal_dict(items)

    def _list(self, items: list[Any]) -> Any:
        form = items[0] if items else None
        if type(form) is not Form:
            return seal_list(items) if self._readonly and not self._inside else items
        self._open -= 1
        del items[0]
        if form is TUPLE:
            return tuple(items)
        if form is SET or form is FROZENSET:
            return self._set(items, form)
        return self._instance(items, form)

    def _set(self, items: list[Any], form: Form) -> Any:
        made = frozenset(items) if form is FROZENSET else set(items)
        if len(made) != len(items):
            raise UndecodableError("an item stands twice in a set")
        if form is SET and self._readonly and not self._inside:
            return seal_set(made)
        return made

    def _instance(self, items: list[Any], form: Form) -> Any:
        self._inside -= form.instance
        plan = self.prepared.plan(items[0] if items else None)
        if not isinstance(plan, Plan) or (plan.form is not form and not plan.takes(form)):
            raise UndecodableError(f"{plan.tag} was stored as a {form.name} and is none now")
        if not plan.shareable:
            self.models = True
        if not plan.way.steps:
            return plan.build(items[1:])
        parts = plan.upgraded(items[1:])
        made = plan.build(parts)
        check_upgraded(plan, parts[0])
        return made
