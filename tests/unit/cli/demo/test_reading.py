"""Documents taken apart: Markdown's marks go, sentences and words stay."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raf.cli.demo.reading import take_apart, term, terms, words


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. Grey came. He sat.", ["Dr. Grey came.", "He sat."]),
        ('"Oh!" she said. "Why?" He left.', ['"Oh!" she said.', '"Why?"', "He left."]),
        ("It is 3.14 in all. Yes.", ["It is 3.14 in all.", "Yes."]),
        ("- one item\n- another", ["one item another"]),
        ("Wrapped\nover lines.", ["Wrapped over lines."]),
        ("A [link](http://x.y) and *stress*.", ["A link and stress."]),
        ("Keep session_id as it is.", ["Keep session_id as it is."]),
        ("Before.\n\n```python\ncode()\n```\n\nAfter.", ["Before.", "After."]),
        ("| a | b |\n| - | - |\n\nText.", ["Text."]),
        ("---\ntitle: x\n---\nText.", ["Text."]),
        ("\ufeffText.\r\n\r\nMore.", ["Text.", "More."]),
        ("第一句。第二句！还有？", ["第一句。", "第二句！", "还有？"]),
        ("no end", ["no end"]),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    """Where a sentence ends, and what of Markdown is no text."""
    assert take_apart(text).sentences == sentences


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# A *Title*\n\nText.", "A Title"),
        ("A Title\n=======\n\nText.", "A Title"),
        ("Text first. More.", "Text first."),
    ],
)
def test_the_title(text: str, title: str) -> None:
    """The first heading, or else the first sentence."""
    assert take_apart(text).title == title


@pytest.mark.parametrize("text", ["", "   \n\n", "...", "```\ncode\n```", "# Only a heading"])
def test_without_a_sentence_there_is_no_document(text: str) -> None:
    """What cannot be worked on is told."""
    with pytest.raises(ValueError, match="no sentence"):
        take_apart(text)


@given(st.text(st.characters(), max_size=400))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text breaks the reader; every sentence has a word."""
    try:
        parts = take_apart(text)
    except ValueError:
        return
    assert all(words(sentence) for sentence in parts.sentences)


@pytest.mark.parametrize(
    ("word", "counted"),
    [
        ("Doors", "door"),
        ("Alice’s", "alice"),
        ("cities", "city"),
        ("glass", "glass"),
        ("the", ""),
        ("don't", ""),
        ("ox", ""),
        ("检查", "检查"),
    ],
)
def test_terms(word: str, counted: str) -> None:
    """Plurals and genitives are one term, small words none."""
    assert term(word) == counted


def test_scripts_without_blanks() -> None:
    """Chinese is read in pairs of signs."""
    assert words("检查点 a") == ["检查", "查点", "a"]
    found: Any = terms("检查点和检查点")
    assert found.count("检查") == 2
