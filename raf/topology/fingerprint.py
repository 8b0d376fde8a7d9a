"""The fingerprint of a topology, and the words for a difference between two; pure.

Rules of this file:
- The canonical form is plain JSON data that holds everything of a graph that can change a run, and
  nothing else.  Equal topologies have equal canonical forms, in every process.
- A field added to the model changes every fingerprint: leave it out here while it has its default.
- The fingerprint is the SHA-256 of the canonical JSON, behind a prefix that names the format.
- A manifest is the canonical form plus what only explains or informs: payload types, the fields of
  classes, and digests of the code behind condition and reducer names.  These never change the
  fingerprint.
- `differences` is empty for equal canonical forms, and only for these.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final, TypeAlias

from raf.topology.model import (
    DirectEdge,
    Edge,
    FallbackEdge,
    FanInEdge,
    FanOutEdge,
    LoopEdge,
    NodeSpec,
    SwitchEdge,
    Topology,
)
from raf.topology.workflow import Condition, NodeCode
from raf.values.registry import TypeTable, default_tag
from raf.values.retyped import field_types

PREFIX: Final = "raf1:"
FORMAT: Final = 1

Json: TypeAlias = dict[str, Any]


def canonical(topology: Topology) -> Json:
    """The topology as plain JSON data, in canonical order."""
    return {
        "format": FORMAT,
        "name": topology.name,
        "start": topology.start,
        "nodes": {node.name: _spec(node) for node in topology.nodes},
        "edges": [_edge(edge) for edge in topology.edges],
        "state": [asdict(key) for key in topology.state],
    }


def _spec(node: NodeSpec) -> Json:
    return {name: value for name, value in asdict(node).items() if name != "name"}


def _edge(edge: Edge) -> Json:
    return {"kind": _KINDS[type(edge)], **_plain(asdict(edge))}


def _plain(value: Any) -> Any:
    """Tuples as lists, as JSON reads them back."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


_KINDS: Final = {
    DirectEdge: "direct",
    SwitchEdge: "switch",
    FanOutEdge: "fan-out",
    FanInEdge: "fan-in",
    LoopEdge: "loop",
    FallbackEdge: "fallback",
}


def digest_of(canonical_form: Json) -> str:
    """The fingerprint of a canonical form: `raf1:` and 64 hexadecimal digits."""
    text = json.dumps(canonical_form, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return PREFIX + hashlib.sha256(text.encode("ascii")).hexdigest()


def fingerprint(topology: Topology) -> str:
    """The fingerprint of a topology; equal for equal topologies only.

    Example:
        >>> from raf.topology.model import NodeSpec, Topology
        >>> only = Topology(name="w", start="a", nodes=(NodeSpec(name="a"),), edges=())
        >>> fingerprint(only)[:5]
        'raf1:'
    """
    return digest_of(canonical(topology))


def manifest(
    topology: Topology,
    *,
    nodes: Mapping[str, NodeCode],
    conditions: Mapping[str, Condition],
    reducers: Mapping[str, str],
    types: TypeTable | None = None,
) -> Json:
    """What is kept of a graph so that a later difference can be named.

    Args:
        topology: The graph.
        types: The classes that stored values may hold, for the types of their fields.
        nodes: The code of each node, for its payload types.
        conditions: The code of conditions, for the digests of their sources.
        reducers: Digest of the source of each named reducer.
    """
    return {
        "topology": canonical(topology),
        "payloads": {
            name: {
                "takes": annotation_text(nodes[name].payload.annotation),
                "returns": annotation_text(nodes[name].returns),
            }
            for name in sorted(nodes)
        },
        "conditions": {name: conditions[name].source_digest for name in sorted(conditions)},
        "reducers": {name: reducers[name] for name in sorted(reducers)},
        "classes": {} if types is None else _classes(types),
    }


def _classes(types: TypeTable) -> Json:
    """The types of the fields of each class, by the tag under which it is stored."""
    found = {}
    for cls in types.classes:
        if fields := field_types(cls):
            texts = {name: annotation_text(fields[name]) for name in sorted(fields)}
            found[types.tag_of(cls) or default_tag(cls)] = texts
    return {tag: found[tag] for tag in sorted(found)}


def annotation_text(annotation: Any) -> str:
    """An annotation as people read it, without anything that changes from process to process."""
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        module, name = annotation.__module__, annotation.__qualname__
        return name if module == "builtins" else f"{module}.{name}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(annotation))


def changed_code(saved: Json, current: Json) -> tuple[str, ...]:
    """Names of conditions and reducers whose source changed under the same name, sorted."""
    changed = set()
    for kind in ("conditions", "reducers"):
        before, after = saved.get(kind, {}), current.get(kind, {})
        changed |= {
            name
            for name in before.keys() & after.keys()
            if before[name] and after[name] and before[name] != after[name]
        }
    return tuple(sorted(changed))


def changed_fields(
    saved: Mapping[str, Any], current: Mapping[str, Any]
) -> dict[str, frozenset[str]]:
    """Fields whose declared type changed while their class kept its tag and version, by tag."""
    before, after = saved.get("classes", {}), current.get("classes", {})
    changed = {
        tag: frozenset(
            name
            for name in before[tag].keys() & after[tag].keys()
            if before[tag][name] != after[tag][name]
        )
        for tag in before.keys() & after.keys()
    }
    return {tag: names for tag, names in changed.items() if names}


def differences(saved: Json, current: Json) -> tuple[str, ...]:
    """What tells two manifests' graphs apart, each difference in words; empty when nothing does.

    Args:
        saved: The manifest that a session was saved under.
        current: The manifest of the code at hand.
    """
    if "topology" not in saved:
        return ("the session holds no description of its graph",)
    before, after = saved["topology"], current["topology"]
    return (
        *_values("", before, after, ("format", "name", "start")),
        *_nodes(before["nodes"], after["nodes"]),
        *_edges(before["edges"], after["edges"]),
        *_state(before["state"], after["state"]),
    )


_Shown: TypeAlias = str | int | bool | list[Any] | None


def _show(value: _Shown) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_show(item) for item in value) + "]"
    return repr(value) if isinstance(value, str) else str(value)


def _values(where: str, before: Json, after: Json, names: Iterable[str]) -> list[str]:
    return [
        f"{where}{name} {_show(before.get(name))} became {_show(after.get(name))}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def _nodes(before: Json, after: Json) -> list[str]:
    said = [f"node {name!r} was removed" for name in sorted(before.keys() - after.keys())]
    said += [f"node {name!r} was added" for name in sorted(after.keys() - before.keys())]
    for name in sorted(before.keys() & after.keys()):
        fields = sorted(before[name].keys() | after[name].keys())
        said += _values(f"node {name!r}: ", before[name], after[name], fields)
    return said


def _state(before: list[Json], after: list[Json]) -> list[str]:
    old = {(key["scope"], key["key"]): key for key in before}
    new = {(key["scope"], key["key"]): key for key in after}
    said = [f"{_state_name(old[key])} was removed" for key in old if key not in new]
    said += [f"{_state_name(new[key])} was added" for key in new if key not in old]
    for key, was in old.items():
        if key in new:
            said += _values(f"{_state_name(was)}: ", was, new[key], ("reducer",))
    return said


def _state_name(key: Json) -> str:
    where = "of each node" if key["scope"] is None else f"of scope {key['scope']!r}"
    return f"state {key['key']!r} {where}"


def _edges(before: list[Json], after: list[Json]) -> list[str]:
    old, new = _by_place(before), _by_place(after)
    said = []
    for place in sorted(old.keys() | new.keys(), key=repr):
        gone = [edge for edge in old[place] if edge not in new[place]]
        come = [edge for edge in new[place] if edge not in old[place]]
        if len(gone) == len(come) == 1:
            said += _changed(gone[0], come[0])
        else:
            said += [f"{_name(edge)}{_with(edge)} was removed" for edge in gone]
            said += [f"{_name(edge)}{_with(edge)} was added" for edge in come]
    return said


def _by_place(edges: list[Json]) -> defaultdict[tuple[str, ...], list[Json]]:
    """Edges by what they are found again by, when something of them changed."""
    places: defaultdict[tuple[str, ...], list[Json]] = defaultdict(list)
    for edge in edges:
        kind = edge["kind"]
        fixed = _FIXED.get(kind, ("source", "target"))
        places[kind, *(edge[end] for end in fixed)].append(edge)
    return places


_FIXED = {
    "switch": ("source",),
    "fan-out": ("source",),
    "fallback": ("source",),
    "fan-in": ("target",),
}


def _name(edge: Json) -> str:
    match edge["kind"]:
        case "direct":
            return f"edge {edge['source']} -> {edge['target']}"
        case "fan-in":
            return f"barrier {'+'.join(edge['sources'])}>{edge['target']}"
        case "loop" | "fallback":
            return f"{edge['kind']} {edge['source']}>{edge['target']}"
        case kind:
            return f"{kind} after {edge['source']!r}"


def _with(edge: Json) -> str:
    """What tells apart edges of one name."""
    match edge["kind"]:
        case "direct" if edge["condition"]:
            return f" (when {edge['condition']!r})"
        case "switch":
            return f" (cases {_show(edge['cases'])}, default {edge['default']!r})"
        case "fan-out":
            return f" (to {_show(edge['targets'])})"
        case _:
            return ""


def _changed(before: Json, after: Json) -> list[str]:
    if before["kind"] == "direct":
        return [_condition_changed(before, after)]
    fields = [name for name in before if name in after and name not in ("kind", "source")]
    return _values(f"{_name(before)}: ", before, after, fields)


def _condition_changed(before: Json, after: Json) -> str:
    old, new = before["condition"], after["condition"]
    place = f"{before['source']!r} to {before['target']!r}"
    if not old:
        return f"condition {new!r} was added on the way from {place}"
    if not new:
        return f"condition {old!r} on the way from {place} was removed"
    return f"condition {old!r} on the way from {place} was replaced by {new!r}"
