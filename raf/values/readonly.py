"""Plain containers as state hands them out: readable everywhere, changeable nowhere.

Rules of this file
    1. The three classes are real subclasses of list, dict and set, so that json, msgpack, pydantic
       and `isinstance` take them without a word.
    2. Every method that changes the container raises `ReadOnlyError`, and the container stays as it
       was.
    3. Whatever makes a new container (slices, operators, `copy`, `deepcopy`, pickling) makes a
       plain, mutable one.

Theory of operation
    A read-only container may be handed to any number of readers, since none can change it.  Its
    class is filled through the base class (`seal_list` and its like), past the refusing methods;
    the metaclass makes `ReadOnlyList(items)` do the same, so that `__init__` can refuse as well: a
    second `__init__` on a list would empty it.  C code that writes into any list without asking it
    (`heapq.heappush`, `list.append(value, item)`) cannot be stopped by a subclass.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from raf.errors import ReadOnlyError

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class _Sealing(type):
    """Makes calls of the class fill it through its base, past the refusing `__init__`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        base: Any = cls.__mro__[1]
        sealed = base.__new__(cls)
        base.__init__(sealed, *args, **kwargs)
        return sealed


class ReadOnlyList(list[T], metaclass=_Sealing):
    """A list that refuses every change in place; slices, `+` and copies are plain lists.

    Raises:
        ReadOnlyError: from every method that would change it; it is left as it was.

    Example:
        >>> ReadOnlyList([1, 2]) + [3]
        [1, 2, 3]
    """

    __slots__ = ()

    def __copy__(self) -> list[T]:
        """A plain, mutable list of the same items."""
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[T]:
        """A plain, mutable list of deep copies."""
        return copy.deepcopy(list(self), memo)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Another process gets a plain list."""
        return (list, (list(self),))


class ReadOnlyDict(dict[K, V], metaclass=_Sealing):
    """A dict that refuses every change in place; `|` and copies are plain dicts.

    Raises:
        ReadOnlyError: from every method that would change it; it is left as it was.

    Example:
        >>> ReadOnlyDict({"a": 1}) | {"b": 2}
        {'a': 1, 'b': 2}
    """

    __slots__ = ()

    def __copy__(self) -> dict[K, V]:
        """A plain, mutable dict of the same entries."""
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[K, V]:
        """A plain, mutable dict of deep copies."""
        return copy.deepcopy(dict(self), memo)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Another process gets a plain dict."""
        return (dict, (dict(self),))

    @classmethod
    def fromkeys(cls, keys: Iterable[Any], value: Any = None, /) -> dict[Any, Any]:
        """A plain dict, as `dict.fromkeys` gives."""
        return dict.fromkeys(keys, value)


class ReadOnlySet(set[T], metaclass=_Sealing):
    """A set that refuses every change in place; operators and copies give plain sets.

    Raises:
        ReadOnlyError: from every method that would change it; it is left as it was.

    Example:
        >>> ReadOnlySet({1}) | {2}
        {1, 2}
    """

    __slots__ = ()

    def copy(self) -> set[T]:
        """A plain, mutable set of the same items."""
        return set(self)

    def __copy__(self) -> set[T]:
        """A plain, mutable set of the same items."""
        return set(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> set[T]:
        """A plain, mutable set of deep copies."""
        return copy.deepcopy(set(self), memo)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Another process gets a plain set."""
        return (set, (set(self),))


def _refusal(container: str, method: str) -> Callable[..., NoReturn]:
    """A method that refuses with the remedy."""

    def refuse(_self: Any, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise ReadOnlyError(container=container, method=method)

    refuse.__name__ = method
    refuse.__qualname__ = f"{container}.{method}"
    refuse.__doc__ = "Refused: the container is read-only."
    return refuse


MUTATORS: dict[type, tuple[str, ...]] = {
    ReadOnlyList: (
        *("__init__", "__setitem__", "__delitem__", "__iadd__", "__imul__"),
        *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"),
    ),
    ReadOnlyDict: (
        *("__init__", "__setitem__", "__delitem__", "__ior__"),
        *("clear", "pop", "popitem", "setdefault", "update"),
    ),
    ReadOnlySet: (
        *("__init__", "__ior__", "__iand__", "__isub__", "__ixor__"),
        *("add", "discard", "remove", "pop", "clear", "update"),
        *("intersection_update", "difference_update", "symmetric_difference_update"),
    ),
}

for _container, _methods in MUTATORS.items():
    for _method in _methods:
        setattr(_container, _method, _refusal(_container.__mro__[1].__name__, _method))


_new_list, _fill_list = list.__new__, list.extend
_new_dict, _fill_dict = dict.__new__, dict.update
_new_set, _fill_set = set.__new__, set.update


def seal_list(items: Iterable[T]) -> ReadOnlyList[T]:
    """A read-only list of the items, without the cost of a call of the class."""
    sealed: ReadOnlyList[T] = _new_list(ReadOnlyList)
    _fill_list(sealed, items)
    return sealed


def seal_dict(items: dict[K, V]) -> ReadOnlyDict[K, V]:
    """A read-only dict of the entries, in their order."""
    sealed: ReadOnlyDict[K, V] = _new_dict(ReadOnlyDict)
    _fill_dict(sealed, items)
    return sealed


def seal_set(items: Iterable[T]) -> ReadOnlySet[T]:
    """A read-only set of the items."""
    sealed: ReadOnlySet[T] = _new_set(ReadOnlySet)
    _fill_set(sealed, items)
    return sealed
