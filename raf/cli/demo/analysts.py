"""What the four analysts find in a document; pure text statistics, no model.

Rules of this file: counts are exact, ties go by the alphabet or the order of the text, so the same
document gives the same findings in every process.
"""

import math
import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from raf.cli.demo.reading import Parts, term, terms, words

TOP = 12
QUOTED = re.compile(r"[\"“]([^\"“”]{2,200})[\"”]|「([^」]{2,200})」")
NUMBER = re.compile(r"\b\d[\d.,:/]*\b")


@dataclass(frozen=True, slots=True)
class Themes:
    """Terms that recur across the document, with their share of the whole weight."""

    weights: dict[str, float]
    counts: dict[str, int]
    phrases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tone:
    """Bright and dark words, and how paragraphs lean from -1 to 1."""

    bright: int
    dark: int
    course: tuple[float, ...]
    brightest: str
    darkest: str


@dataclass(frozen=True, slots=True)
class Structure:
    """Measures of the text; `ease` is the Flesch reading ease, None where it has no meaning."""

    paragraphs: int
    sentences: int
    words: int
    mean: float
    longest: int
    ease: float | None
    openings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """Names with how often they occur, the numbers, and what is said aloud."""

    names: dict[str, int]
    numbers: tuple[str, ...]
    quotes: int
    longest_quote: str


def find_themes(parts: Parts) -> Themes:
    """Terms weighted by how often they occur and over how many paragraphs they are spread."""
    counts: Counter[str] = Counter()
    spread: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    for paragraph in parts.paragraphs:
        found = [each for sentence in paragraph for each in terms(sentence)]
        counts.update(found)
        spread.update(set(found))
        for sentence in paragraph:
            neighbours = pairwise(words(sentence.lower()))
            pairs.update(f"{a} {b}" for a, b in neighbours if term(a) and term(b) and a != b)
    scores = {each: math.sqrt(n) * (1 + math.log(spread[each])) for each, n in counts.items()}
    top = sorted(scores, key=lambda each: (-scores[each], each))[:TOP]
    whole = sum(scores[each] for each in top)
    often = sorted((pair for pair, n in pairs.items() if n > 1), key=lambda p: (-pairs[p], p))
    return Themes(
        weights={each: round(scores[each] / whole, 6) for each in top},
        counts={each: counts[each] for each in top},
        phrases=tuple(often[:5]),
    )


_BRIGHT_WORDS = """
beautiful best better brave bright brightened clear comfort courage dear delight easy fair faith
favour fine free freedom friend friendly full fun funny gain gentle glad good grace great
happiness happy honor honour hope humor humour joy just kind laugh liberty light likely lively
lovely loveliest love merry nice noble peace perfect play pleasant pleasure pretty pride
progress proper proud pure quiet reliable rich right safe safety simple smile sound strong
success sure sweet thank true truth warm wise wonder wonderful worth
"""
_BRIGHT = frozenset(_BRIGHT_WORDS.split())
_DARK_WORDS = """
afraid alas alone anger angry anxious bad bitter blame blind blood broken burn burnt cold cried
cruel cry crying cut danger dark dead death destroy die died difficult disappointment doubt dull
empty enemy error evil fail failed failure fall fallen falling false fault fear fell fight force
frightened grief guilty hard hate hunger hurt ignorant ill impossible injury killing lack lose
loss lost mistake nervous never pain perish poison poor problem risk sad sadly severely shame
sharply sick slippery slow sorrow stupid suffer tear tears terrible tired trouble ugly
unpleasant vain war weak wild worry worse worst wrong
"""
_DARK = frozenset(_DARK_WORDS.split())


def find_tone(parts: Parts) -> Tone:
    """How bright or dark the words are, by a small fixed lexicon."""
    course: list[float] = []
    bright = dark = 0
    best = worst = (0, "")
    for paragraph in parts.paragraphs:
        here = [0, 0]
        for sentence in paragraph:
            found = [word.lower() for word in words(sentence)]
            light = sum(word in _BRIGHT for word in found)
            shade = sum(word in _DARK for word in found)
            here[0] += light
            here[1] += shade
            best = max(best, (light - shade, sentence), key=lambda pair: pair[0])
            worst = min(worst, (light - shade, sentence), key=lambda pair: pair[0])
        bright, dark = bright + here[0], dark + here[1]
        course.append(round((here[0] - here[1]) / max(1, sum(here)), 3))
    return Tone(bright, dark, tuple(course), best[1], worst[1])


def find_structure(parts: Parts) -> Structure:
    """Lengths, reading ease, and openings that recur."""
    sentences = parts.sentences
    lengths = [len(words(sentence)) for sentence in sentences]
    total = sum(lengths)
    openings = Counter(" ".join(words(sentence)[:2]).lower() for sentence in sentences)
    often = sorted((o for o, n in openings.items() if n > 1 and o), key=lambda o: (-openings[o], o))
    return Structure(
        paragraphs=len(parts.paragraphs),
        sentences=len(sentences),
        words=total,
        mean=round(total / len(sentences), 2),
        longest=max(lengths),
        ease=reading_ease(sentences),
        openings=tuple(f"{opening} ×{openings[opening]}" for opening in often[:4]),
    )


def reading_ease(sentences: list[str]) -> float | None:
    """Flesch reading ease: 100 is very easy, 0 very hard; None without Latin letters."""
    found = [word for sentence in sentences for word in words(sentence)]
    if not found or sum(word[0].isascii() for word in found) < len(found) / 2:
        return None
    syllables = sum(
        max(1, len(re.findall(r"[aeiouy]+", word.lower().rstrip("e")))) for word in found
    )
    ease = 206.835 - 1.015 * len(found) / len(sentences) - 84.6 * syllables / len(found)
    return round(ease, 1)


def find_names(parts: Parts) -> Names:
    """Capitalised words that the text never writes small, numbers, and quotations."""
    text = "\n".join(parts.sentences)
    lines = [words(sentence) for sentence in parts.sentences]
    small = {word for line in lines for word in line if word.islower()}
    inside = {word for line in lines for word in line[1:] if word[:1].isupper()}
    names: Counter[str] = Counter()
    for line in lines:
        # Every sentence begins with a capital: its first word counts only if it has one elsewhere.
        begins_small = not line or line[0] not in inside or line[0].lower() in small
        names.update(_runs(line[1:] if begins_small else line, small))
    quotes = ["".join(pair).strip() for pair in QUOTED.findall(text)]
    top = sorted(names, key=lambda name: (-names[name], name))[:8]
    return Names(
        names={name: names[name] for name in top},
        numbers=tuple(dict.fromkeys(NUMBER.findall(text)))[:8],
        quotes=len(quotes),
        longest_quote=max(quotes, key=len, default=""),
    )


def _runs(found: list[str], small: set[str]) -> list[str]:
    """Neighbouring capitalised words of a sentence, where one of them is never written small."""
    runs: list[list[str]] = [[]]
    for word in found:
        if word[:1].isupper() and not word.isupper() and term(word):
            runs[-1].append(word.replace("’", "'").removesuffix("'s"))
        elif runs[-1]:
            runs.append([])
    return [" ".join(run) for run in runs if len(run) > 1 or (run and run[0].lower() not in small)]
