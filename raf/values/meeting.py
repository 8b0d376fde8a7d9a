"""Whether what one annotation gives can be what another takes; asked when a graph is built.

Rules of this file
    1. False only when no value of the source fits the target: a wrong False would refuse a graph
       that works, a wrong True only leaves the question to the run.
    2. Unions meet when any of their members do.  Containers meet when their items do: the empty
       list, which fits both list[str] and list[int], is not what anybody declares.
"""

from itertools import product

from raf.values.typenodes import (
    Alias,
    Anything,
    Choice,
    Exactly,
    Items,
    Node,
    OneOf,
    Record,
    Row,
    Ruled,
    Table,
)

_DEEPEST = 50  # levels of recursive aliases that are followed; beyond, the answer is yes


def meet(source: Node, target: Node, depth: int = 0) -> bool:
    """Whether some value of the source could fit, or be built into, the target."""
    if depth > _DEEPEST or isinstance(source, Anything) or isinstance(target, Anything):
        return True
    sources, targets = _members(source), _members(target)
    if sources[0] is not source or targets[0] is not target:
        return any(meet(one, other, depth + 1) for one, other in product(sources, targets))
    if isinstance(source, Choice):
        return _choice(source, target)
    if isinstance(target, Choice):
        return any(source.fits(value) for value in target.values)
    return _structures(source, target, depth)


def _structures(source: Node, target: Node, depth: int) -> bool:
    """Whether two classes or containers could meet."""
    if isinstance(target, Exactly):
        return _into_class(source, target)
    if isinstance(source, Exactly):
        return _out_of_class(source, target)
    return _containers(source, target, depth)


def _members(node: Node) -> tuple[Node, ...]:
    """The members of a union; what an alias or a rule stands for; else the node itself."""
    if isinstance(node, OneOf):
        return node.members
    if isinstance(node, Ruled | Alias):
        return (node.node,)
    return (node,)


def _choice(source: Choice, target: Node) -> bool:
    """Whether one of a few values could fit or be built into the target."""
    if any(target.fits(value) for value in source.values):
        return True
    return isinstance(target, Exactly) and _takes_any(target)


def _into_class(source: Node, target: Exactly) -> bool:
    """Whether a value of the source could be an instance of the target's class."""
    if isinstance(source, Exactly):
        return _classes(source, target)
    if isinstance(source, Table | Record):
        return target.built is not None or issubclass(dict, target.cls)
    if isinstance(source, Row | Items):
        cls = tuple if isinstance(source, Row) else source.cls
        named = target.built == "named tuple"
        return named or _takes_any(target) or issubclass(cls, target.cls)
    return True


def _classes(source: Exactly, target: Exactly) -> bool:
    """Whether an instance of one class could be one of the other."""
    one, other = source.cls, target.cls
    if bool in (one, other):
        return one is other
    if other is float and one is int:
        return True
    if _related(one, other):
        return True
    return _takes_any(target) and source.built is None


def _takes_any(target: Exactly) -> bool:
    """Whether plain data that is no dict can be built into the class: a root model."""
    return getattr(target.cls, "__pydantic_root_model__", False) is True


def _out_of_class(source: Exactly, target: Node) -> bool:
    """Whether an instance of the source's class could be such a container."""
    if isinstance(target, Row):
        return issubclass(source.cls, tuple) or issubclass(tuple, source.cls)
    if isinstance(target, Items | Table):
        if source.cls in (str, bytes):
            return False
        return issubclass(source.cls, target.cls) or issubclass(target.cls, source.cls)
    return issubclass(source.cls, dict)


def _containers(source: Node, target: Node, depth: int) -> bool:
    """Whether a container of one kind could be one of the other."""
    if isinstance(source, Row):
        if isinstance(target, Row):
            return len(source.items) == len(target.items) and all(
                meet(one, other, depth + 1)
                for one, other in zip(source.items, target.items, strict=True)
            )
        return isinstance(target, Items) and _row(source, target, depth)
    if isinstance(target, Row):
        return isinstance(source, Items) and _row(target, source, depth)
    if isinstance(source, Items) and isinstance(target, Items):
        return _related(source.cls, target.cls) and meet(source.item, target.item, depth + 1)
    if isinstance(source, Table) and isinstance(target, Table):
        return (
            _related(source.cls, target.cls)
            and meet(source.key, target.key, depth + 1)
            and meet(source.value, target.value, depth + 1)
        )
    return _records(source, target, depth)


def _row(row: Row, items: Items, depth: int) -> bool:
    """Whether a tuple of fixed length could be, or come from, a container of one type."""
    return issubclass(tuple, items.cls) and all(
        meet(node, items.item, depth + 1) for node in row.items
    )


def _records(source: Node, target: Node, depth: int) -> bool:
    """Whether two nodes, at least one of them a TypedDict, could meet."""
    if isinstance(source, Record) and isinstance(target, Record):
        shared = source.fields.keys() & target.fields.keys()  # reading them fills `required`
        needed = (source.required | target.required) & shared
        return all(meet(source.fields[name], target.fields[name], depth + 1) for name in needed)
    one, other = (source, target) if isinstance(source, Record) else (target, source)
    return isinstance(one, Record) and isinstance(other, Table) and issubclass(dict, other.cls)


def _related(one: type, other: type) -> bool:
    """Whether one class is, or is above, the other."""
    return issubclass(one, other) or issubclass(other, one)
