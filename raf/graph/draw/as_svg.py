"""A workflow as an SVG picture, by our own layout and without any system package; pure.

Rules of this file:
- Text of the user's is escaped wherever it stands; the picture holds no script, link or font.
- Equal workflows and overlays give equal pictures, byte for byte.
- Loops run back on the right, each in a lane of its own, the inner ones nearer.
"""

import html
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from raf.graph.draw.layout import Layout, Way, lay_out
from raf.graph.draw.picture import Box, Line, Overlay, Picture, picture
from raf.topology.workflow import Workflow

MARGIN = 28.0
BOX_ROW = 46.0
LABEL_ROW = 64.0
LANE = 22.0
LONGEST = 48

INK, SOFT, PAPER = "#253044", "#66728a", "#ffffff"
PLAIN = ("#f4f7fc", "#5b6f94")
COLOURS = {
    "done": ("#e6f5ec", "#1f8f55"),
    "running": ("#e5effd", "#2b6cd4"),
    "failed": ("#fde8e8", "#cf3f3f"),
    "waiting": ("#fff4d9", "#b97f00"),
    "pending": ("#f1edfb", "#7358c4"),
    "idle": ("#fafafa", "#b4bac4"),
}
_FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def svg(workflow: Workflow, overlay: Overlay | None = None) -> str:
    """The graph as a picture.

    A dot with an arrow marks the start, a double frame an output, a dark pill what a fan-in waits
    for; dashed lines on the right are loops, dotted ones fallbacks.

    Args:
        workflow: What to draw.
        overlay: How nodes of a session stand, by node name; names of other graphs are left out.

    Returns:
        A whole SVG document.
    """
    drawn = picture(workflow, overlay)
    page = _page(drawn)
    used = {box.state.status for box in drawn.boxes if box.state is not None}
    legend = [status for status in COLOURS if status in used]
    height = page.height + (26.0 if legend else 0.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{page.width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {page.width:.0f} {height:.0f}" role="img" font-family="{_FONT}">',
        f"<title>{html.escape(drawn.title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
        *_lines(page),
        *(part for number in range(len(drawn.boxes)) for part in _box(page, number)),
        *_legend(legend, page.height),
        "</svg>",
    ]
    return "\n".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    """The lane of a loop: how far right it runs, and how far from the boxes it turns."""

    line: Line
    lane: float
    turn: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """A picture with a place for everything."""

    drawn: Picture
    forward: Sequence[Line]
    layout: Layout
    loops: Sequence[_Loop]
    width: float
    height: float

    def middle(self, row: int) -> float:
        """The middle of a row, from the top of the page."""
        return MARGIN + 16.0 + BOX_ROW / 2 + row * (BOX_ROW + LABEL_ROW) / 2

    def centre(self, number: int) -> tuple[float, float]:
        """The centre of a box."""
        return MARGIN + self.layout.across[number], self.middle(self.layout.rows[number])


def _page(drawn: Picture) -> _Page:
    forward = [line for line in drawn.lines if line.style != "loop"]
    ways = [Way(line.source, line.target, _label_width(line.label)) for line in forward]
    layout = lay_out([_size(box)[0] for box in drawn.boxes], ways)
    loops, right = _lanes(drawn, layout)
    title_width = _text_width(drawn.title, 12.0) + 2 * MARGIN
    rows = max(layout.rows.values(), default=0)
    return _Page(
        drawn=drawn,
        forward=forward,
        layout=layout,
        loops=loops,
        width=max(right, title_width),
        height=2 * MARGIN + 16.0 + BOX_ROW + rows * (BOX_ROW + LABEL_ROW) / 2 + 10.0,
    )


def _lanes(drawn: Picture, layout: Layout) -> tuple[list[_Loop], float]:
    """A lane for each loop, shared by loops that lie apart, and where the page ends."""
    spans = [
        (layout.rows[line.source] - layout.rows[line.target], layout.rows[line.target], line)
        for line in drawn.lines
        if line.style == "loop"
    ]
    spans.sort(key=lambda span: span[:2])
    lanes: list[list[tuple[int, int, Line]]] = []
    for length, top, line in spans:
        for lane in lanes:
            if all(top > t + n or top + length < t for n, t, _ in lane):
                lane.append((length, top, line))
                break
        else:
            lanes.append([(length, top, line)])
    loops, x = [], MARGIN + layout.width
    for number, lane in enumerate(lanes):
        x += LANE
        turn = 9.0 + 5.0 * (number % 4)
        loops += [_Loop(line=line, lane=x, turn=turn) for _, _, line in lane]
        x += max(_label_width(line.label) for _, _, line in lane)
    return loops, x + MARGIN


def _text_width(text: str, size: float) -> float:
    """About how wide a text is: fonts differ, so it is meant to be a little too much."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * (0.58 * (len(text) - wide) + 1.05 * wide)


def _label_width(label: str) -> float:
    return _text_width(_short(label), 11.0) + 10.0 if label else 0.0


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _size(box: Box) -> tuple[float, float]:
    if box.is_barrier:
        return _text_width(box.label, 11.0) + 22.0, 20.0
    notes = _text_width(_short(" · ".join(box.notes)), 10.0)
    words = _text_width(_short(box.label), 13.5)
    return max(words, notes, 44.0) + 28.0, BOX_ROW if box.notes else 34.0


def _box(page: _Page, number: int) -> Iterator[str]:
    box, (x, y) = page.drawn.boxes[number], page.centre(number)
    width, height = _size(box)
    left, top = x - width / 2, y - height / 2
    if box.is_barrier:
        yield _rect(left, top, width, height, f'rx="10" fill="{INK}"')
        yield _text(x, y + 4, box.label, f'font-size="11" fill="{PAPER}" text-anchor="middle"')
        return
    state = box.state
    fill, stroke = PLAIN if state is None else COLOURS[state.status]
    thick = 2.2 if state is not None and state.status in ("running", "failed") else 1.4
    said = (
        box.label if state is None else f"{box.label}: {state.status}, called {state.count} times"
    )
    yield f"<g><title>{html.escape(said)}</title>"
    frame = f'fill="{fill}" stroke="{stroke}" stroke-width="{thick}" rx="7"'
    if box.is_output:
        outer = f'fill="none" stroke="{stroke}" rx="10"'
        yield _rect(left - 3.5, top - 3.5, width + 7, height + 7, outer)
    yield _rect(left, top, width, height, frame)
    words = f'font-size="13.5" font-weight="600" fill="{INK}" text-anchor="middle"'
    yield _text(x, y + (-2 if box.notes else 5), _short(box.label), words)
    if box.notes:
        notes = f'font-size="10" fill="{SOFT}" text-anchor="middle"'
        yield _text(x, y + 13, _short(" · ".join(box.notes)), notes)
    if box.is_start:
        yield f'<circle cx="{x:.1f}" cy="{top - 26:.1f}" r="5" fill="{INK}"/>'
        yield _path(f"M{x:.1f} {top - 21:.1f} V{top - 6:.1f}", INK) + _head(x, top, INK)
    if state is not None and state.count > 1:
        yield from _badge(left + width, top, state.count, stroke)
    yield "</g>"


def _badge(x: float, y: float, count: int, colour: str) -> Iterator[str]:
    width = _text_width(f"×{count}", 10.0) + 10.0
    yield _rect(x - width / 2, y - 8, width, 16, f'rx="8" fill="{colour}"')
    style = f'font-size="10" font-weight="700" fill="{PAPER}" text-anchor="middle"'
    yield _text(x, y + 3.5, f"×{count}", style)


def _lines(page: _Page) -> Iterator[str]:
    labels: list[str] = []
    for line, passes in zip(page.forward, page.layout.passes, strict=True):
        colour, dash = (SOFT, "2 4") if line.style == "fallback" else (INK, "")
        points = [(MARGIN + x, page.middle(row)) for row, x in passes]
        yield _curve(page, line, points, colour, dash)
        if line.label and points:
            labels.append(_label(*points[0], line.label, "middle"))
    for loop in page.loops:
        yield _back(page, loop)
        (_, low), (_, high) = page.centre(loop.line.source), page.centre(loop.line.target)
        labels.append(_label(loop.lane + 5, (low + high) / 2, loop.line.label, "start"))
    yield from labels


def _curve(
    page: _Page, line: Line, points: Sequence[tuple[float, float]], colour: str, dash: str
) -> str:
    """A line that leaves each point straight down, so that it bends softly between rows."""
    x, y = page.centre(line.source)
    y += _size(page.drawn.boxes[line.source])[1] / 2 + _frame(page.drawn.boxes[line.source])
    end_x, end_y = page.centre(line.target)
    end_y -= _size(page.drawn.boxes[line.target])[1] / 2 + _frame(page.drawn.boxes[line.target])
    steps = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in [*points, (end_x, end_y - 6)]:
        half = (y + to_y) / 2
        steps.append(f"C{x:.1f} {half:.1f} {to_x:.1f} {half:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return _path(" ".join(steps), colour, dash) + _head(end_x, end_y, colour)


def _back(page: _Page, loop: _Loop) -> str:
    """A way back: out below its source, up a lane on the right, in above its target."""
    source, target = page.drawn.boxes[loop.line.source], page.drawn.boxes[loop.line.target]
    (x, y), (to_x, to_y) = page.centre(loop.line.source), page.centre(loop.line.target)
    (width, height), (to_width, to_height) = _size(source), _size(target)
    x, to_x = x + width / 2 - 14, to_x + to_width / 2 - 14
    y += height / 2 + _frame(source)
    to_y -= to_height / 2 + _frame(target)
    low, high, lane, r = y + loop.turn, to_y - loop.turn, loop.lane, 7.0
    way = (
        f"M{x:.1f} {y:.1f} V{low - r:.1f} Q{x:.1f} {low:.1f} {x + r:.1f} {low:.1f} "
        f"H{lane - r:.1f} Q{lane:.1f} {low:.1f} {lane:.1f} {low - r:.1f} V{high + r:.1f} "
        f"Q{lane:.1f} {high:.1f} {lane - r:.1f} {high:.1f} H{to_x + r:.1f} "
        f"Q{to_x:.1f} {high:.1f} {to_x:.1f} {high + r:.1f} V{to_y - 4:.1f}"
    )
    return _path(way, "#8a4fbf", "5 4") + _head(to_x, to_y, "#8a4fbf")


def _frame(box: Box) -> float:
    """How far the second frame of an output stands out."""
    return 4.0 if box.is_output else 0.0


def _legend(statuses: Sequence[str], top: float) -> Iterator[str]:
    x = MARGIN
    for status in statuses:
        fill, stroke = COLOURS[status]
        yield _rect(x, top - 4, 14, 14, f'rx="4" fill="{fill}" stroke="{stroke}"')
        yield _text(x + 20, top + 7, status, f'font-size="11" fill="{SOFT}"')
        x += 34 + _text_width(status, 11.0)


def _rect(x: float, y: float, width: float, height: float, style: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {style}/>'


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{html.escape(words)}</text>'


def _label(x: float, y: float, words: str, anchor: str) -> str:
    """Words on a line, on a ground that covers the line behind them."""
    width = _label_width(words) - 6.0
    left = x - width / 2 if anchor == "middle" else x - 2
    ground = _rect(left, y - 7, width, 14, f'fill="{PAPER}"')
    style = f'font-size="11" fill="{SOFT}" text-anchor="{anchor}"'
    whole = f"<title>{html.escape(words)}</title>"
    return f"<g>{whole}{ground}{_text(x, y + 4, _short(words), style)}</g>"


def _path(way: str, colour: str, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="{way}" fill="none" stroke="{colour}" stroke-width="1.4"{dashed}/>'


def _head(x: float, y: float, colour: str) -> str:
    """The head of an arrow that points down to (x, y)."""
    return f'<path d="M{x - 4:.1f} {y - 8:.1f} L{x:.1f} {y:.1f} L{x + 4:.1f} {y - 8:.1f} Z" fill="{colour}"/>'
