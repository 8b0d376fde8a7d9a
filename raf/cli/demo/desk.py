"""What the editor and the critic do at their desk; pure.

Theory of operation.  A summary is a choice of sentences from the document.  The editor changes one
sentence a pass: it adds the one that brings the most of the uncovered themes for its length, takes
out the one that brings the least ("cut"), or the longest ("shorten").  The critic measures; the
summary is good enough when it covers enough of the themes, is short enough, and its sentences are
no longer than the document's.
"""

from dataclasses import dataclass, replace

from raf.cli.demo.analysts import Structure, Themes
from raf.cli.demo.reading import Parts, terms, words

GOAL = 0.75
SHARE = 0.12
LEAST, MOST = 70, 180


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence that may be chosen: its place, its length, and the themes it covers."""

    place: int
    text: str
    length: int
    themes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """What editor and critic work by: the sentences, the weights of themes, and the goals."""

    sentences: tuple[Sentence, ...]
    weights: dict[str, float]
    most_words: int
    most_mean: float
    goal: float = GOAL


@dataclass(frozen=True, slots=True)
class Draft:
    """A summary on its way.

    Args:
        chosen: The places of its sentences.
        dropped: Places that were taken out again; they do not come back.
        verdict: What the critic asks for: "add", "cut", "shorten", or "good".
        best: The places of the best draft so far that was short enough; and its coverage.
        best_coverage: How much of the themes that draft covers, 0 to 1.
    """

    chosen: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    verdict: str = "add"
    best: tuple[int, ...] = ()
    best_coverage: float = 0.0


@dataclass(frozen=True, slots=True)
class Measure:
    """What the critic measured in one pass."""

    sentences: int
    words: int
    mean: float
    coverage: float
    verdict: str


def make_outline(parts: Parts, themes: Themes, structure: Structure) -> Outline:
    """The outline of a document, from what the analysts found."""
    sentences = tuple(
        Sentence(
            place, text, len(words(text)), tuple(sorted(set(terms(text)) & set(themes.weights)))
        )
        for place, text in enumerate(parts.sentences)
    )
    return Outline(
        sentences=sentences,
        weights=themes.weights,
        most_words=max(LEAST, min(MOST, round(structure.words * SHARE))),
        most_mean=structure.mean,
    )


def revise(outline: Outline, draft: Draft) -> Draft:
    """The editor's pass: one sentence more or less, as the critic asked; the only one is replaced."""
    if draft.verdict in ("cut", "shorten") and draft.chosen:
        if draft.verdict == "cut":
            worst = min(draft.chosen, key=lambda place: (_loss(outline, draft, place), -place))
        else:
            worst = max(draft.chosen, key=lambda place: (outline.sentences[place].length, place))
        chosen = tuple(place for place in draft.chosen if place != worst)
        draft = replace(draft, chosen=chosen, dropped=(*draft.dropped, worst))
        if chosen:
            return draft
    covered = _covered(outline, draft.chosen)
    taken = {*draft.chosen, *draft.dropped}
    free = [s for s in outline.sentences if s.place not in taken]
    if not free:
        return draft
    best = max(free, key=lambda s: (_gain(outline, covered, s), -s.place))
    return replace(draft, chosen=tuple(sorted((*draft.chosen, best.place))))


def _gain(outline: Outline, covered: set[str], sentence: Sentence) -> float:
    """How much of the uncovered themes a sentence brings, for its length: long ones say more."""
    return _new(outline, covered, sentence) / float((10 + sentence.length) ** 0.7)


def _loss(outline: Outline, draft: Draft, place: int) -> float:
    """How much coverage goes with a sentence, for each of its words."""
    others = _covered(outline, tuple(other for other in draft.chosen if other != place))
    sentence = outline.sentences[place]
    return _new(outline, others, sentence) / max(1, sentence.length)


def _new(outline: Outline, covered: set[str], sentence: Sentence) -> float:
    return sum(outline.weights[theme] for theme in sentence.themes if theme not in covered)


def _covered(outline: Outline, chosen: tuple[int, ...]) -> set[str]:
    return {theme for place in chosen for theme in outline.sentences[place].themes}


def judged(draft: Draft, measure: Measure) -> Draft:
    """The draft with the critic's verdict on it."""
    draft = replace(draft, verdict=measure.verdict)
    if measure.verdict in ("add", "good") and measure.coverage > draft.best_coverage:
        return replace(draft, best=draft.chosen, best_coverage=measure.coverage)
    return draft


def judge(outline: Outline, draft: Draft) -> Measure:
    """The critic's pass: measure, and say what is to be done."""
    lengths = [outline.sentences[place].length for place in draft.chosen]
    covered = _covered(outline, draft.chosen)
    coverage = round(sum(outline.weights[theme] for theme in covered), 4)
    mean = round(sum(lengths) / max(1, len(lengths)), 2)
    if sum(lengths) > outline.most_words:
        verdict = "cut"
    elif mean > outline.most_mean and len(outline.sentences) > 1:
        verdict = "shorten"
    else:
        whole = len(lengths) == len(outline.sentences)
        verdict = "good" if coverage >= outline.goal or whole else "add"
    return Measure(len(lengths), sum(lengths), mean, coverage, verdict)
