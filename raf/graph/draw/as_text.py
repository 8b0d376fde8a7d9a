"""A workflow as lines of text, for a terminal; pure.

Rules of this file:
- Boxes stand where the layout puts them, and lines run between rows at right angles.  Lines share
  a bar only where each of its ends leads to each other, so that a bar is never read wrongly.
- A loop runs up on the right where nothing is in its way; every loop, and every condition, stands
  below the drawing in words too.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from raf.graph.draw.layout import Layout, Way, lay_out
from raf.graph.draw.picture import Box, Line, Overlay, Picture, picture
from raf.topology.workflow import Workflow

UNIT = 10.0  # the layout counts in points: so many are one sign
UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
SIGNS: Mapping[int, str] = {
    UP: "│",
    DOWN: "│",
    UP | DOWN: "│",
    LEFT: "─",
    RIGHT: "─",
    LEFT | RIGHT: "─",
    DOWN | RIGHT: "┌",
    DOWN | LEFT: "┐",
    UP | RIGHT: "└",
    UP | LEFT: "┘",
    UP | DOWN | RIGHT: "├",
    UP | DOWN | LEFT: "┤",
    LEFT | RIGHT | DOWN: "┬",
    LEFT | RIGHT | UP: "┴",
    UP | DOWN | LEFT | RIGHT: "┼",
}
MARKS = {"done": "✓", "running": "▸", "failed": "✗", "waiting": "…", "pending": "·", "idle": " "}


def text(workflow: Workflow, overlay: Overlay | None = None) -> str:
    """The graph as text.

    Args:
        workflow: What to draw.
        overlay: How nodes of a session stand, by node name; names of other graphs are left out.

    Returns:
        Lines of equal-width signs: a drawing, and below it loops and conditions in words.

    Example:
        >>> from raf.graph.builder import WorkflowBuilder
        >>> one = WorkflowBuilder("w").add_node("a", str.upper).set_start("a").build()
        >>> print(text(one))
        ┌───┐
        │ a │
        └───┘
    """
    drawn = picture(workflow, overlay)
    page = _page(drawn)
    for box in range(len(drawn.boxes)):
        _draw_box(page, box)
    _draw_channels(page)
    for line in drawn.lines:
        if line.style == "loop":
            _draw_loop(page, line)
    words = [_said(drawn, line) for line in drawn.lines if line.label]
    return "\n".join([*page.canvas.rows(), *([""] if words else []), *words])


@dataclass(slots=True)
class _Canvas:
    """Signs at places; lines are kept as directions, so that they join where they meet."""

    ways: defaultdict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    signs: dict[tuple[int, int], str] = field(default_factory=dict)

    def across(self, y: int, x: int, to_x: int) -> None:
        """A line from one place of a row to another."""
        left, right = sorted((x, to_x))
        for place in range(left, right):
            self.ways[y, place] |= RIGHT
            self.ways[y, place + 1] |= LEFT

    def down(self, x: int, y: int, to_y: int) -> None:
        """A line from one place of a column to another."""
        top, bottom = sorted((y, to_y))
        for place in range(top, bottom):
            self.ways[place, x] |= DOWN
            self.ways[place + 1, x] |= UP

    def write(self, y: int, x: int, words: str) -> None:
        """Signs over whatever is there; a wide one takes two places."""
        for sign in words:
            if unicodedata.combining(sign):
                self.signs[y, x - 1] += sign
                continue
            for place in range(x, x + _cells(sign)):
                self.signs[y, place] = sign if place == x else ""
            x += _cells(sign)

    def rows(self) -> list[str]:
        """All rows, without blanks at their ends."""
        drawn = {place: SIGNS[ways] for place, ways in self.ways.items()} | self.signs
        tall = max((y for y, _ in drawn), default=-1) + 1
        wide = max((x for _, x in drawn), default=-1) + 1
        return ["".join(drawn.get((y, x), " ") for x in range(wide)).rstrip() for y in range(tall)]


def _cells(words: str) -> int:
    """How many places words take."""
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in words
    )


@dataclass(slots=True, kw_only=True)
class _Page:
    """A picture with a place for everything; `tops` and `talls` say where its rows of boxes are."""

    drawn: Picture
    layout: Layout
    forward: Sequence[Line]
    tops: dict[int, int]
    talls: dict[int, int]
    lanes: dict[int, list["_Bar"]]
    canvas: _Canvas = field(default_factory=_Canvas)

    def column(self, box: int) -> int:
        """The middle of a box."""
        return round(self.layout.across[box] / UNIT)

    def left(self, box: int) -> int:
        """Where a box begins."""
        return self.column(box) - _width(self.drawn.boxes[box]) // 2

    def middle(self, row: int) -> int:
        """The line in the middle of a row of boxes."""
        return self.tops[row] + self.talls[row] // 2

    def bottom(self, row: int) -> int:
        """The line below a row of boxes."""
        return self.tops[row] + self.talls[row]


@dataclass(frozen=True, slots=True)
class _Bar:
    """Lines that share one bar between two rows: where they come down, and where they go on."""

    above: tuple[int, ...]
    below: tuple[int, ...]
    ends: tuple[int, ...]  # those of `below` where a box begins

    @property
    def span(self) -> tuple[int, int]:
        """From its leftmost place to its rightmost."""
        return min(self.above + self.below), max(self.above + self.below)


def _label(box: Box) -> str:
    if box.is_barrier:
        return f"( {box.label} )"
    state = box.state
    if state is None:
        return box.label
    times = f" ×{state.count}" if state.count > 1 else ""
    return f"{MARKS[state.status]} {box.label}{times}"


def _width(box: Box) -> int:
    return _cells(_label(box)) + (0 if box.is_barrier else 4)


def _page(drawn: Picture) -> _Page:
    forward = [line for line in drawn.lines if line.style != "loop"]
    ways = [Way(line.source, line.target) for line in forward]
    layout = lay_out([_width(box) * UNIT for box in drawn.boxes], ways)
    page = _Page(drawn=drawn, layout=layout, forward=forward, tops={}, talls={}, lanes={})
    y = 0
    for row in range(0, max(layout.rows.values(), default=0) + 1, 2):
        boxes = [box for number, box in enumerate(drawn.boxes) if layout.rows[number] == row]
        page.tops[row] = y
        page.talls[row] = 1 if all(box.is_barrier for box in boxes) else 3
        page.lanes[row] = _bars(page, row)
        y = page.bottom(row) + max(2, 1 + len(_stacked(page.lanes[row])))
    return page


def _points(page: _Page, number: int) -> list[tuple[int, int]]:
    """The rows of boxes that a line passes, from its source to its target, with its columns."""
    line, rows = page.forward[number], page.layout.rows
    between = [(row, round(x / UNIT)) for row, x in page.layout.passes[number] if row % 2 == 0]
    first = (rows[line.source], page.column(line.source))
    return [first, *between, (rows[line.target], page.column(line.target))]


def _bars(page: _Page, row: int) -> list[_Bar]:
    """The bars below a row of boxes: one for each source, or one for all that lead to the same."""
    targets: defaultdict[int, set[int]] = defaultdict(set)
    ends: set[int] = set()
    for number in range(len(page.forward)):
        points = _points(page, number)
        for place, (at, x) in enumerate(points[:-1]):
            if at == row:
                below = points[place + 1][1]
                targets[x].add(below)
                if place + 2 == len(points):
                    ends.add(below)
    sources: defaultdict[frozenset[int], list[int]] = defaultdict(list)
    for x, found in targets.items():
        sources[frozenset(found)].append(x)
    return [
        _Bar(tuple(sorted(xs)), tuple(sorted(below)), tuple(sorted(below & ends)))
        for below, xs in sources.items()
    ]


def _stacked(bars: Sequence[_Bar]) -> list[list[_Bar]]:
    """Bars on as few heights as keep those apart that would touch."""
    heights: list[list[_Bar]] = []
    for bar in sorted(bars, key=lambda bar: bar.span):
        for height in heights:
            if all(bar.span[0] > other.span[1] + 1 for other in height):
                height.append(bar)
                break
        else:
            heights.append([bar])
    return heights


def _draw_box(page: _Page, number: int) -> None:
    box, canvas, row = page.drawn.boxes[number], page.canvas, page.layout.rows[number]
    words, wide = _label(box), _width(box)
    left, top = page.left(number), page.tops[row]
    if box.is_barrier:
        canvas.write(page.middle(row), left, words)
        canvas.down(page.column(number), top - 1, page.bottom(row))
        return
    canvas.write(top, left, "┌" + "─" * (wide - 2) + "┐")
    canvas.write(top + 1, left, f"│ {words} │")
    canvas.write(top + 2, left, "└" + "─" * (wide - 2) + "┘")


def _draw_channels(page: _Page) -> None:
    """All lines from one row of boxes to the next."""
    rows = page.layout.rows
    barriers = {
        (rows[n], page.column(n)) for n, box in enumerate(page.drawn.boxes) if box.is_barrier
    }
    for row, bars in page.lanes.items():
        if row + 2 not in page.tops:
            continue
        start, end = page.bottom(row), page.tops[row + 2]
        for height, level in enumerate(_stacked(bars)):
            for bar in level:
                _draw_bar(page.canvas, bar, start, start + height, end)
        for x in {x for bar in bars for x in bar.ends if (row + 2, x) not in barriers}:
            page.canvas.write(end - 1, x, "▼")
    for number in range(len(page.forward)):
        for row, x in _points(page, number)[1:-1]:
            page.canvas.down(x, page.tops[row] - 1, page.bottom(row))


def _draw_bar(canvas: _Canvas, bar: _Bar, start: int, height: int, end: int) -> None:
    for x in bar.above:
        canvas.down(x, start - 1, height)
        if canvas.signs.get((start - 1, x)) == "─":
            canvas.write(start - 1, x, "┬")
    canvas.across(height, *bar.span)
    for x in bar.below:
        canvas.down(x, height, end - 1)


def _draw_loop(page: _Page, line: Line) -> None:
    """A lane on the right, where nothing stands between it and its ends."""
    rows, canvas = page.layout.rows, page.canvas
    taken = canvas.signs.keys() | canvas.ways.keys()
    reach = {}
    for end in (line.source, line.target):
        right = page.left(end) + _width(page.drawn.boxes[end])
        middle = page.middle(rows[end])
        if any(y == middle and x >= right for y, x in taken):
            return
        reach[end] = (middle, right)
    (low, x), (high, to_x) = reach[line.source], reach[line.target]
    lane = max(x for y, x in taken if high <= y <= low) + 3
    canvas.across(low, x, lane)
    canvas.across(high, to_x, lane)
    canvas.down(lane, high, low)
    canvas.write(high, to_x, "◀")


def _said(drawn: Picture, line: Line) -> str:
    """A line in words."""
    ends = f"{drawn.boxes[line.source].label} → {drawn.boxes[line.target].label}"
    return f"{'loop ' if line.style == 'loop' else ''}{ends}: {line.label}"
