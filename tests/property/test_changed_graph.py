"""A session moves to another graph anywhere in its life, and ends as if it had always been there.

Random workflows are crashed at random points, as in `test_parity`.  Then their nodes get other names
and the session is migrated, or a part of the graph changes and the session goes on where that is
compatible.  The oracle, which knows of no change, says what must come out.
"""

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any
from unittest import mock
from zlib import crc32

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raf import WorkflowEngine
from raf.checkpoint.delta import as_ops
from raf.engine import engine as engine_module
from raf.errors import GraphError, TopologyChangedError
from raf.store.model import Select
from tests.property import description as say
from tests.property import lives
from tests.property.description import Data
from tests.property.lives import SESSION, Crash, How, Settings, Story
from tests.property.test_parity import Watched, count, counted, examples, interpreted
from tests.property.workflows import build, descriptions, plain_node

pytestmark = pytest.mark.timeout(3600)  # a long campaign takes its time

NEW_NAME = re.compile(
    r"(?<![A-Za-z])([a-z])m(?![A-Za-z])"
)  # `a` becomes `am`, which keeps its place
ENDS = ("source", "target", "default", "sources", "targets", "cases")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of nodes fail on purpose."""
    log = logging.getLogger("raf")
    level = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)


def in_old_names(value: Any) -> Any:
    """Anything that JSON can say, or pairs of it, with the old names of all nodes."""
    if isinstance(value, str):
        return NEW_NAME.sub(r"\1", value)
    if isinstance(value, dict):
        return {in_old_names(key): in_old_names(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(in_old_names, value))
    return value


def nameless_stir(*parts: Any) -> int:
    """What nodes do must not hang on their new names."""
    return crc32(json.dumps(in_old_names(list(parts))).encode())


@contextmanager
def nameless() -> Iterator[None]:
    """Nodes do the same under either name."""
    with mock.patch.object(say, "stir", nameless_stir):
        yield


def renamed(d: Data, names: dict[str, str]) -> Data:
    """The same workflow with other names of nodes."""

    def to(value: Any) -> Any:
        if isinstance(value, list):
            return [to(part) for part in value]
        return names.get(value, value) if isinstance(value, str) else value

    other: Data = deepcopy(d)
    other |= {"start": to(d["start"]), "outputs": to(d["outputs"])}
    other["nodes"] = {to(name): node for name, node in other["nodes"].items()}
    for node in other["nodes"].values():
        node |= {"fallback": to(node["fallback"]), "sends": to(node["sends"])}
    for edge in other["edges"]:
        edge |= {end: to(edge[end]) for end in ENDS if end in edge}
        if edge["kind"] == "loop" and not edge["named"]:
            edge["variable"] = f"__loop_{edge['source']}"
    return other


# -- a session moves -----------------------------------------------------------------------------


async def _migrated(story: Story, d: Data, mapping: dict[str, str]) -> tuple[list[Any], list[Any]]:
    """Move the session to the graph of `d`; returns its body before and behind."""
    store = story.store()
    with mock.patch.object(engine_module, "this_owner", lives._gone_owner):
        engine = WorkflowEngine(build(d, story.world), store, checkpoints=story.config())
    async with engine:
        head = await store.read(SESSION, Select())
        if head is None or head.head.commit < 0:
            return [], []
        [planned] = await engine.plan_migration(SESSION, mapping)
        before = await engine.manager.restore(SESSION)
        await engine.migrate(SESSION, mapping, reason="new names")
        behind = await engine.manager.restore(SESSION)
        assert before is not None
        assert behind is not None
        assert planned.verdict in ("equal", "compatible", "moves", "finished")
        if planned.next:
            assert {number for _, number in planned.next} == set(behind.snapshot.pending)
        assert behind.snapshot.sent_at == before.snapshot.sent_at
        assert (await engine.manager.verify(SESSION)).intact
        return body(before), body(behind)


def body(restored: Any) -> list[Any]:
    """What decides how the session goes on, but for the graph's fingerprint and the journal."""
    restored.snapshot.fingerprint = ""
    restored.snapshot.kept.clear()
    return [*as_ops(restored.snapshot)]


def move(story: Story, d: Data, mapping: dict[str, str]) -> tuple[list[Any], list[Any]]:
    """Migrate between two lives; the next one runs the new code."""
    bodies = asyncio.run(_migrated(story, d, mapping))
    story.d, story.workflow = d, build(d, story.world)
    return bodies


def ends_as(story: Story, oracle: Watched) -> None:
    """Events, state and result are those that the oracle tells, under whatever names."""
    events, state = story.seen()
    assert in_old_names(events) == oracle.events
    expected = {place: value for place, value in oracle.flow.state.items() if value is not None}
    assert {in_old_names(place): value for place, value in state.items()} == expected
    for result in story.results[-1:]:
        assert (result.status, result.outputs, result.steps) == oracle.results()[-1]
    assert story.world.wrongs == []


@st.composite
def moves(draw: st.DrawFn) -> tuple[Data, Settings, list[Crash], list[set[str]]]:
    """A workflow, how it is kept, how two lives end, and which nodes are renamed behind each."""
    d = draw(descriptions())
    kept: dict[str, Any] = {
        "durability": draw(st.sampled_from(["sync", "sync", "async", "exit"])),
        "interval": draw(st.sampled_from([1, 3, 50])),
    }
    # Three losses would give an invocation up.
    hows: list[How] = draw(
        st.sampled_from([["kill", "kill"], ["kill", "cancel"], ["cancel", "kill"]])
    )
    crashes = [Crash(phase="", nth=draw(st.integers(1, 60)), how=how) for how in hows]
    names = st.sets(st.sampled_from(sorted(d["nodes"])))
    return d, Settings(**kept), crashes, [draw(names), draw(names)]


def test_a_session_that_moved_ends_as_if_it_had_not() -> None:
    """Crashed anywhere, given other names, crashed and renamed again: events, state, outputs agree.

    No node whose result was kept runs again, no recorded effect is repeated, and the new body is the
    old one under other names: the way back gives the old one to the byte.
    """

    @examples(0.12)
    @given(moves())
    def holds(example: tuple[Data, Settings, list[Crash], list[set[str]]]) -> None:
        d, settings, crashes, renames = example
        with nameless():
            oracle = interpreted(d, keeps=settings.durability != "exit")
            story, now = Story(d=d, settings=settings), dict[str, str]()
            for crash, chosen in zip(crashes, renames, strict=True):
                if story.live(crash):
                    break
                names = {name: f"{name}m" for name in sorted(chosen)}
                mapping = {now.get(name, name): names.get(name, name) for name in d["nodes"]}
                before, behind = move(story, renamed(d, names), mapping)
                back = {new: old for old, new in mapping.items()}
                _, again = move(story, renamed(d, now), back)
                assert again == before
                move(story, renamed(d, names), mapping)
                if mapping == {name: name for name in mapping}:
                    assert behind == before
                now = names
            else:
                assert story.live()
            ends_as(story, oracle)
        count(seen, ["renamed"] if now else [])

    with counted("renamed") as seen:
        holds()


# -- a graph changes where nothing is ------------------------------------------------------------


@st.composite
def changes(draw: st.DrawFn, d: Data) -> Data:
    """The workflow with one thing changed that a run which meets it must show."""
    other: Data = deepcopy(d)
    name = draw(st.sampled_from(sorted(d["nodes"])))
    edges = other["edges"]
    match draw(st.sampled_from(["node", "node", "node", "added", "added", "edge", "loop", "wait"])):
        case "node":
            other["nodes"][name] |= {"version": "2", "outputs": 3, "silent": 0}
        case "added":
            other["nodes"]["zz"] = plain_node() | {"outputs": 1}
            edge = {"kind": "direct", "source": name, "target": "zz", "when": None}
            edges.append(edge)
        case "edge" if edges:
            edges.remove(draw(st.sampled_from(edges)))
        case "loop" if loops := [edge for edge in edges if edge["kind"] == "loop"]:
            draw(st.sampled_from(loops))["max"] += 1
        case _ if joins := [edge for edge in edges if edge["kind"] == "fan_in"]:
            joined = draw(st.sampled_from(joins))
            joined["wait"] = 1 if joined["wait"] == "all" else "all"
    assume(other != d)
    return other


@st.composite
def changed(draw: st.DrawFn) -> tuple[Data, Data, Crash]:
    """A workflow, what becomes of it, and how its first life ends."""
    d = draw(descriptions())
    d["inputs"] = d["inputs"][:1]  # another run would run the new graph from its start
    return d, draw(changes(d)), Crash(phase="", nth=draw(st.integers(8, 80)), how="kill")


def test_a_compatible_change_changes_nothing_that_is_under_way() -> None:
    """Where the engine takes a change for compatible, the run ends as the old graph's would.

    The other sessions are refused, and left as they were.
    """

    @examples(0.3)
    @given(changed())
    def holds(example: tuple[Data, Data, Crash]) -> None:
        d, other, crash = example
        oracle, story = interpreted(d), Story(d=d)
        assume(not story.live(crash))
        try:
            story.workflow = build(other, story.world)
        except GraphError:
            assume(False)
        allowing = partial(WorkflowEngine, on_change="compatible")
        with mock.patch.object(lives, "WorkflowEngine", allowing):
            try:
                assert story.live()
            except TopologyChangedError:
                count(seen, ["refused"])
                return
        ends_as(story, oracle)
        count(seen, ["compatible"])

    with counted("refused", "compatible") as seen:
        holds()
