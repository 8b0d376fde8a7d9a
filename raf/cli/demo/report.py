"""The report of the demo's newsroom, as Markdown; pure."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from raf.cli.demo.analysts import Names, Structure, Themes, Tone
from raf.cli.demo.desk import Draft, Measure, Outline
from raf.cli.demo.reading import Parts

WIDTH = 96
BARS = "▁▂▃▄▅▆▇█"


def write_report(desk: Mapping[str, Any], draft: Draft) -> str:
    """The report.

    Args:
        desk: The shared scope of the newsroom: parts, findings, outline, measures.
        draft: The last draft.
    """
    parts: Parts = desk["parts"]
    outline: Outline = desk["outline"]
    findings: dict[str, Any] = desk["findings"]
    measures: list[Measure] = list(desk["measures"])
    chosen = draft.chosen if draft.verdict == "good" else draft.best or draft.chosen
    summary = " ".join(_whole(outline.sentences[place].text) for place in chosen)
    lines = [
        f"# Review: {parts.title}",
        "",
        *textwrap.wrap(summary, WIDTH, break_long_words=False),
        "",
        *_themes(findings["themes"]),
        *_tone(findings["tone"]),
        *_structure(findings["structure"]),
        *_names(findings["names"]),
        *_course(outline, measures, draft),
    ]
    return "\n".join(lines)


def _whole(sentence: str) -> str:
    """A sentence without a quotation mark whose other half stands in another sentence."""
    if sentence.count('"') % 2:
        return sentence[1:] if sentence.startswith('"') else sentence.removesuffix('"')
    return sentence


def _item(name: str, text: str) -> Iterator[str]:
    yield from textwrap.wrap(f"- {name}: {text}", WIDTH, subsequent_indent="  ")


def _themes(themes: Themes) -> Iterator[str]:
    shown = ", ".join(f"{each} {themes.counts[each]}" for each in list(themes.weights)[:8])
    yield from _item("themes", shown or "none")
    if themes.phrases:
        yield from _item("phrases", ", ".join(themes.phrases))


def _tone(tone: Tone) -> Iterator[str]:
    course = "".join(BARS[round((value + 1) / 2 * (len(BARS) - 1))] for value in tone.course[:60])
    yield from _item("tone", f"{tone.bright} bright words, {tone.dark} dark ones")
    yield f"  by paragraph, dark to bright: {course}"


def _structure(structure: Structure) -> Iterator[str]:
    ease = "" if structure.ease is None else f", reading ease {structure.ease:g}"
    yield from _item(
        "structure",
        f"{structure.words} words in {structure.sentences} sentences and {structure.paragraphs} "
        f"paragraphs, {structure.mean:g} words a sentence, at most {structure.longest}{ease}",
    )
    if structure.openings:
        yield from _item("openings that recur", ", ".join(structure.openings))


def _names(names: Names) -> Iterator[str]:
    shown = ", ".join(f"{name} {count}" for name, count in names.names.items())
    yield from _item("names", shown or "none")
    if names.quotes:
        longest = textwrap.shorten(names.longest_quote, 120, placeholder=" …")
        yield from _item("said aloud", f"{names.quotes} times, the longest: “{longest}”")


def _course(outline: Outline, measures: list[Measure], draft: Draft) -> Iterator[str]:
    end = "good enough" if draft.verdict == "good" else "the limit of passes; the best is kept"
    yield from _item(
        "summary",
        f"{len(measures)} passes until {end} (asked for: {outline.goal:.0%} of the themes in at most "
        f"{outline.most_words} words, {outline.most_mean:g} words a sentence)",
    )
    for number, measure in enumerate(measures, start=1):
        yield (
            f"  pass {number:>2}: {measure.coverage:>4.0%} of the themes, {measure.words:>3} words in "
            f"{measure.sentences} sentences: {measure.verdict}"
        )
