"""Drawings: everything of the graph is in them, and nothing of the user's becomes markup."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import pytest

from raf.graph.builder import WorkflowBuilder
from raf.graph.draw import DrawState, mermaid, svg
from raf.graph.draw.joins import called_per_message
from raf.graph.draw.layout import GAP, Way, lay_out
from raf.graph.draw.picture import PER_MESSAGE, picture
from raf.graph.names import named
from raf.graph.options import LoopOptions
from raf.topology.workflow import Workflow
from tests.golden.workflows import every

SVG = "{http://www.w3.org/2000/svg}"


async def work(payload: Any) -> Any:
    return payload


def ok(payload: Any) -> bool:
    return bool(payload)


def fine(payload: Any) -> bool:
    return bool(payload)


def builder(names: str = "abcde") -> WorkflowBuilder:
    made = WorkflowBuilder("w").set_start(names[0])
    for name in names:
        made.add_node(name, work)
    return made


def story() -> Workflow:
    """Every kind of edge once."""
    return (
        builder("abcdef")
        .add_node("plan b", work)
        .add_agent_node("g", work, version="7", on_failure="skip")
        .add_node("h", work, fallback="plan b")
        .add_fan_out("a", ["b", "c"], choose=ok)
        .add_fan_in(["b", "c"], "d", wait=1)
        .add_switch("d", [(ok, "e"), (fine, "f")], "g")
        .add_edge("e", "h", when=fine)
        .add_loop("d", "a", LoopOptions(3, until=ok, on_limit="stop"))
        .build()
    )


def words(text: str) -> list[str]:
    """Every text element of a picture."""
    return [element.text or "" for element in ET.fromstring(text).iter(f"{SVG}text")]


def test_mermaid_says_everything() -> None:
    """Nodes, barriers, labels, loops, marks: line by line."""
    assert mermaid(story()).splitlines() == [
        "flowchart TD",
        '  start((" ")) --> n0',
        '  n0["a"]',
        '  n1["b"]',
        '  n2["c"]',
        '  n3["d"]',
        '  n4["e"]',
        '  n5["f"]',
        '  n5 --> output((("output")))',
        '  n6["g<br/><small>agent</small><br/><small>version 7</small><br/>'
        '<small>skipped on failure</small>"]',
        '  n6 --> output((("output")))',
        '  n7["h"]',
        '  n7 --> output((("output")))',
        '  n8["plan b"]',
        '  n8 --> output((("output")))',
        '  n9{{"1 of 2"}}',
        '  n0 -->|"ok?"| n1',
        '  n0 -->|"ok?"| n2',
        "  n1 --> n9",
        "  n2 --> n9",
        "  n9 --> n3",
        '  n3 -.->|"at most 3, until ok, then stop"| n0',
        '  n3 -->|"1: ok"| n4',
        '  n3 -->|"2: fine"| n5',
        '  n3 -->|"else"| n6',
        '  n4 -->|"fine"| n7',
        '  n7 -.->|"on failure"| n8',
    ]


def test_mermaid_overlay() -> None:
    """How a session's nodes stand is drawn as classes; strangers are left out."""
    text = mermaid(
        story(),
        {"a": DrawState("done", 2), "b": DrawState("failed"), "stranger": DrawState("idle")},
    )
    assert 'n0["a<br/><small>2 times</small>"]' in text
    assert "class n0 done" in text
    assert "class n1 failed" in text
    assert "idle" not in text


def test_svg_says_everything() -> None:
    """Every name, label and note is in the picture, which is well-formed."""
    said = words(svg(story()))
    for word in [
        *"abcdef",
        "plan b",
        "agent · version 7 · skipped on failure",
        "1 of 2",
        "ok?",
        "1: ok",
        "2: fine",
        "else",
        "fine",
        "at most 3, until ok, then stop",
        "on failure",
    ]:
        assert word in said, word


def test_svg_overlay() -> None:
    """Colours, counts and a legend of what is used; names of other graphs are left out."""
    overlay = {"a": DrawState("done", 3), "b": DrawState("waiting"), "zzz": DrawState("failed", 9)}
    said = words(svg(story(), overlay))
    assert "×3" in said
    assert "×9" not in said
    assert [word for word in said if word in ("done", "waiting", "failed")] == ["done", "waiting"]


EVIL = [
    "</text><script>alert(1)</script>",
    '" onload="x',
    "a & b < c",
    "]]>",
    "'); drop",
    "#quot;",
    "`x`",
    "|]})",
    "%%{init: {}}%%",
    "click n0 call x()",
    "end",
    "1. first",
    "- item",
    "分析🙂",
]


@pytest.mark.parametrize("name", EVIL)
def test_names_never_become_markup(name: str) -> None:
    """A name in a node, a condition or the title is text in both kinds of drawing."""
    name = name.replace(">", "〉")
    made = WorkflowBuilder(name).set_start("s").add_node("s", work).add_node(name, work)
    built = made.add_edge("s", name, when=named(name, ok)).build()
    picture_of = ET.fromstring(svg(built))
    allowed = {"svg", "title", "rect", "g", "text", "path", "circle"}
    assert {element.tag.removeprefix(SVG) for element in picture_of.iter()} <= allowed
    assert not any(key.startswith("on") for e in picture_of.iter() for key in e.attrib)
    assert name in words(svg(built))
    flow = mermaid(built).splitlines()
    assert len(flow) == 6
    quoted = [part for line in flow for part in re.findall(r'"([^"]*)"', line)]
    assert all(re.fullmatch(r"[\w ,:?#;]*|output", part) for part in quoted)


def test_conditions_with_markup_are_text() -> None:
    """A condition may be named with angle brackets, which node names may not hold."""
    made = builder("ab").add_edge("a", "b", when=named('</text><b a="', ok)).build()
    assert '</text><b a="' in words(svg(made))
    assert "<b" not in mermaid(made).replace("<br", "")


@pytest.mark.parametrize("name", sorted(every()))
def test_pictures_are_the_same_each_time(name: str) -> None:
    """Equal workflows give equal drawings."""
    assert svg(every()[name]) == svg(every()[name])
    assert mermaid(every()[name]) == mermaid(every()[name])


def test_notebooks_draw_by_themselves() -> None:
    """A built workflow offers its picture and a line of text."""
    built = story()
    bundle = built._repr_mimebundle_()
    assert bundle["image/svg+xml"] == svg(built)
    assert bundle["text/plain"].startswith("Workflow('w', 9 nodes, raf1:")


def test_boxes_do_not_overlap_and_lines_go_down() -> None:
    """In each row boxes keep a gap; every line leads to a lower row."""
    drawn = picture(every()["wide"])
    widths = [60.0 + 10 * number for number in range(len(drawn.boxes))]
    lines = [line for line in drawn.lines if line.style != "loop"]
    layout = lay_out(widths, [Way(line.source, line.target, 50.0) for line in lines])
    for row in set(layout.rows.values()):
        row_of = sorted((layout.across[n], widths[n]) for n in layout.rows if layout.rows[n] == row)
        for (left, width), (right, other) in pairwise(row_of):
            assert right - left >= (width + other) / 2 + GAP - 1e-6
    assert all(layout.rows[line.source] < layout.rows[line.target] for line in lines)
    assert min(layout.across[n] - widths[n] / 2 for n in layout.across) >= -1e-6


def test_a_wide_and_deep_graph_is_drawn() -> None:
    """A hundred branches, and a chain of a hundred nodes."""
    made = WorkflowBuilder("big").set_start("s").add_node("s", work)
    names = [f"n{i:03}" for i in range(100)]
    for name in names:
        made.add_node(name, work)
    wide = made.add_fan_out("s", names).build()
    assert len(words(svg(wide))) == 101
    for one, other in pairwise(names):
        made.add_edge(one, other)
    assert len(words(svg(made.build()))) > 101


JOINS: list[tuple[Any, str]] = [
    (lambda b: b.add_fan_out("a", ["b", "c"]).add_edge("b", "d").add_edge("c", "d"), "d"),
    (lambda b: b.add_edge("a", "b").add_edge("a", "c").add_edge("b", "c").add_edge("b", "d"), "c"),
    (lambda b: b.add_fan_out("a", ["b", "c", "d"]).add_fan_in(["b", "c"], "d"), ""),
    (lambda b: b.add_fan_out("a", ["b", "c"]).add_fan_in(["b", "c"], "d"), ""),
    (
        lambda b: b.add_switch("a", [(ok, "b")], "c").add_edge("b", "d").add_edge("c", "d"),
        "",
    ),
    (lambda b: b.add_fan_out("a", ["b", "c", "d"]).add_edge("a", "d"), "d"),
    (lambda b: b.add_edge("a", "b").add_edge("b", "c").add_edge("c", "d"), ""),
    (
        lambda b: (
            b.add_edge("a", "b")
            .add_edge("b", "c")
            .add_edge("c", "d")
            .add_loop("d", "b", LoopOptions(2))
        ),
        "",
    ),
]


@pytest.mark.parametrize(("arrange", "called"), JOINS)
def test_nodes_called_for_each_message_say_so(arrange: Any, called: str) -> None:
    """Where plain edges meet on ways that may both be taken; not behind a switch or a barrier."""
    built = arrange(builder("abcd")).build()
    assert called_per_message(built.topology) == frozenset(called)
    assert (PER_MESSAGE in "".join(words(svg(built)))) is bool(called)
