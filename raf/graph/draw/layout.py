"""Where boxes stand and lines run: a layered layout; pure.

Theory of operation: boxes lie in rows, each below all that lead to it.  Between two rows of boxes
is a row for labels.  A line passes every row between its ends through a place of its own, so it
crosses no box and its label covers nothing.  A row's order is the mean of its neighbours, swept
down and up a few times, keeping the order with the fewest crossings.  Across, each thing goes as
near to the middle of its neighbours as the order and the widths allow.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

GAP = 26.0
SWEEPS = 8


@dataclass(frozen=True, slots=True)
class Way:
    """A line to lay out: its ends, by number, and the width of its label (0: none)."""

    source: int
    target: int
    label: float = 0.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows of every box, centres across, and for each way the places where it passes rows.

    Box rows have even numbers, label rows odd ones.
    """

    rows: Mapping[int, int]
    across: Mapping[int, float]
    passes: Sequence[Sequence[tuple[int, float]]]
    width: float


def lay_out(widths: Sequence[float], ways: Sequence[Way]) -> Layout:
    """Place boxes of these widths, numbered from 0, joined by ways that close no cycle."""
    row = _rows(len(widths), ways)
    width = dict(enumerate(widths))
    chains: list[list[int]] = []
    for way in ways:
        chain = [way.source]
        for level in range(row[way.source] + 1, row[way.target]):
            place = len(width)
            width[place] = max(way.label if level == row[way.source] + 1 else 0.0, 6.0)
            row[place] = level
            chain.append(place)
        chains.append([*chain, way.target])
    links = [pair for chain in chains for pair in pairwise(chain)]
    ordered = _order(row, links)
    across = _spread(ordered, width, links)
    left = min((across[n] - width[n] / 2 for n in width), default=0.0)
    across = {n: x - left for n, x in across.items()}
    return Layout(
        rows={box: row[box] for box in range(len(widths))},
        across={box: across[box] for box in range(len(widths))},
        passes=[[(row[n], across[n]) for n in chain[1:-1]] for chain in chains],
        width=max((across[n] + width[n] / 2 for n in width), default=0.0),
    )


def _rows(count: int, ways: Iterable[Way]) -> dict[int, int]:
    """Two rows below the lowest of all that lead there; what nothing leads to is on top."""
    after: defaultdict[int, list[int]] = defaultdict(list)
    open_ways = [0] * count
    for way in ways:
        after[way.source].append(way.target)
        open_ways[way.target] += 1
    row = dict.fromkeys(range(count), 0)
    ready = [box for box in range(count) if not open_ways[box]]
    for box in ready:  # grows while it is walked
        for target in after[box]:
            row[target] = max(row[target], row[box] + 2)
            open_ways[target] -= 1
            if not open_ways[target]:
                ready.append(target)
    return row


_Links = Sequence[tuple[int, int]]
_Neighbours = Mapping[int, Sequence[int]]


def _neighbours(links: _Links) -> tuple[_Neighbours, _Neighbours]:
    above: defaultdict[int, list[int]] = defaultdict(list)
    below: defaultdict[int, list[int]] = defaultdict(list)
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    return above, below


def _order(row: Mapping[int, int], links: _Links) -> list[list[int]]:
    """The things of each row, from left to right."""
    rows: list[list[int]] = [[] for _ in range(max(row.values(), default=-1) + 1)]
    for thing, level in row.items():
        rows[level].append(thing)
    above, below = _neighbours(links)
    best, fewest = [list(things) for things in rows], _crossings(rows, below)
    place = {n: x for things in rows for n, x in _places(things)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        towards = above if down else below
        for things in rows if down else reversed(rows):
            wished = {n: _mean([place[m] for m in towards.get(n, ())], place[n]) for n in things}
            things.sort(key=wished.__getitem__)
            place.update(_places(things))
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest = [list(things) for things in rows], crossings
        if not fewest:
            break
    return best


def _places(things: Sequence[int]) -> list[tuple[int, float]]:
    """How far right each thing is in its row, from 0 to 1."""
    return [(n, (i + 0.5) / len(things)) for i, n in enumerate(things)]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(rows: Sequence[Sequence[int]], below: _Neighbours) -> int:
    """How often lines cross between one row and the next."""
    crossings = 0
    for upper, lower in pairwise(rows):
        place = {n: i for i, n in enumerate(lower)}
        ends = [e for n in upper for e in sorted(place[m] for m in below.get(n, ()))]
        crossings += sum(a > b for i, a in enumerate(ends) for b in ends[i + 1 :])
    return crossings


def _spread(
    rows: Sequence[Sequence[int]], width: Mapping[int, float], links: _Links
) -> dict[int, float]:
    """The centre of each thing across."""
    above, below = _neighbours(links)
    across: dict[int, float] = {}
    for things in rows:
        across |= _fit(things, dict.fromkeys(things, 0.0), width)
    for sweep in range(2 * SWEEPS):
        down = sweep % 2 == 0
        for things in rows if down else reversed(rows):
            towards = above if down else below
            wished = {n: _mean([across[m] for m in towards.get(n, ())], across[n]) for n in things}
            across |= _fit(things, wished, width)
    return across


def _fit(
    things: Sequence[int], wished: Mapping[int, float], width: Mapping[int, float]
) -> dict[int, float]:
    """The places nearest to those wished that keep the order and the gaps.

    Things that would overlap are joined into a block, which goes to the mean of their wishes.
    """
    offsets: list[float] = []
    for n in things:
        before = offsets[-1] + width[things[len(offsets) - 1]] / 2 if offsets else -GAP
        offsets.append(before + GAP + width[n] / 2)
    blocks: list[tuple[float, int]] = []
    for n, offset in zip(things, offsets, strict=True):
        mean, count = wished[n] - offset, 1
        while blocks and blocks[-1][0] > mean:
            left, members = blocks.pop()
            mean = (left * members + mean * count) / (members + count)
            count += members
        blocks.append((mean, count))
    bases = [mean for mean, count in blocks for _ in range(count)]
    return {n: base + offset for n, base, offset in zip(things, bases, offsets, strict=True)}
