"""Analysts, editor and critic: exact counts, and a loop that ends where its goal is met."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raf.cli.demo
from raf.cli.demo.analysts import (
    find_names,
    find_structure,
    find_themes,
    find_tone,
    reading_ease,
)
from raf.cli.demo.desk import Draft, Measure, Outline, judge, judged, make_outline, revise
from raf.cli.demo.newsroom import PASSES, build, is_good
from raf.cli.demo.reading import take_apart
from raf.engine.engine import WorkflowEngine

TEXTS = sorted((Path(raf.cli.demo.__file__).parent / "texts").glob("[!R]*.md")) + sorted(
    (Path(__file__).parents[4] / "examples" / "texts").glob("[!R]*.md")
)


def outline_of(text: str) -> Outline:
    parts = take_apart(text)
    return make_outline(parts, find_themes(parts), find_structure(parts))


def passes(outline: Outline) -> tuple[Draft, list[Measure]]:
    """The loop of editor and critic, without the engine."""
    draft = Draft()
    measures: list[Measure] = []
    while not is_good(draft) and len(measures) < PASSES:
        draft = revise(outline, draft)
        measures.append(judge(outline, draft))
        draft = judged(draft, measures[-1])
    return draft, measures


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_the_shipped_texts_meet_the_goal(path: Path) -> None:
    """On each document that is shipped the summary is revised several times, and becomes good."""
    outline = outline_of(path.read_text(encoding="utf-8"))
    draft, measures = passes(outline)
    last = measures[-1]
    assert is_good(draft)
    assert len(measures) > 2
    assert last.coverage >= outline.goal
    assert last.words <= outline.most_words
    assert last.mean <= outline.most_mean


@given(st.lists(st.text("ab cde. fgh! ij", min_size=1, max_size=60), min_size=1, max_size=8))
def test_the_loop_always_ends_in_a_draft(paragraphs: list[str]) -> None:
    """For any document there is a last draft with a sentence, and dropped ones do not come back."""
    try:
        outline = outline_of("\n\n".join(paragraphs))
    except ValueError:
        return
    draft, measures = passes(outline)
    assert len(measures) <= PASSES
    assert draft.chosen or draft.dropped
    assert not set(draft.chosen) & set(draft.dropped)


def test_what_analysts_find() -> None:
    """Counts are exact, and names are what the text never writes small."""
    parts = take_apart(
        'Grey doors open. "Good doors," said Anna. A grey door is no wonder in New York.\n\n'
        "In 1865 Anna cried: bad doors!"
    )
    themes = find_themes(parts)
    assert themes.counts["door"] == 4
    assert sum(themes.weights.values()) == pytest.approx(1.0, abs=1e-4)
    tone = find_tone(parts)
    assert (tone.bright, tone.dark) == (2, 2)
    assert tone.course == (1.0, -1.0)
    structure = find_structure(parts)
    assert (structure.paragraphs, structure.sentences, structure.words) == (2, 4, 21)
    names = find_names(parts)
    assert names.names == {"Anna": 2, "New York": 1}
    assert names.numbers == ("1865",)
    assert names.quotes == 1


def test_reading_ease_is_for_latin_letters() -> None:
    """It has no meaning where syllables cannot be counted."""
    assert reading_ease(["检查点和快照。"]) is None
    easy, hard = reading_ease(["The cat sat."]), reading_ease(["Incomprehensibilities abound."])
    assert easy is not None
    assert hard is not None
    assert easy > hard


async def test_the_workflow_reports() -> None:
    """The nine agents, run as a workflow, write a report whose course is that of the loop."""
    text = TEXTS[0].read_text(encoding="utf-8")
    async with WorkflowEngine(build()) as engine:
        result = await engine.run(text, "s")
    assert result.status == "completed"
    report = str(result.output)
    assert report.startswith("# Review: ")
    assert report.count("  pass ") == len(passes(outline_of(text))[1])
    assert "good enough" in report
