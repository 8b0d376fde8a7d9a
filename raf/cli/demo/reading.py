"""From a text or Markdown file to paragraphs, sentences and words; pure.

Rules of this file: the same text gives the same parts everywhere.  Scripts without blanks between
words (Chinese, Japanese) are read in pairs of signs, which is enough to count what recurs.
"""

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$")
_RULED = re.compile(r"^(.+)\n(?:=+|-{3,})$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_MARKS = re.compile(r"\*{1,3}|`+|(?<!\w)_{1,3}(?=\S)|(?<=\S)_{1,3}(?!\w)|<[^>\n]{1,80}>")
_BULLET = re.compile(r"^\s*(?:[-*+>]|\d{1,3}[.)])\s+")
_END = re.compile(r"""(?<=[.!?])["'”’)\]]*\s+(?=["'“‘(\[]*[A-Z0-9])|(?<=[。！？])[”』」）]*""")
_SHORT = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|vs|etc|e\.g|i\.e|No|Fig|[A-Z])\.$")
_WORD = re.compile(r"[\u3400-\u9fff\u3040-\u30ff]+|[^\W\d_]+(?:['’-][^\W\d_]+)*")
_NO_BLANKS = re.compile(r"[\u3400-\u9fff\u3040-\u30ff]")
LONGEST_LINE = 4_000
SHORTEST = 3


@dataclass(frozen=True, slots=True)
class Parts:
    """A document, taken apart: paragraphs of sentences."""

    title: str
    headings: tuple[str, ...]
    paragraphs: tuple[tuple[str, ...], ...]

    @property
    def sentences(self) -> list[str]:
        """All sentences, in order."""
        return [sentence for paragraph in self.paragraphs for sentence in paragraph]


def take_apart(text: str) -> Parts:
    """The parts of a text or Markdown document.

    Raises:
        ValueError: There is no sentence in it.
    """
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    text = _FENCE.sub("\n", _without_front_matter(text))
    text = _RULED.sub(r"# \1", text)
    headings: list[str] = []
    paragraphs: list[tuple[str, ...]] = []
    for block in re.split(r"\n\s*\n", text):
        lines = []
        for line in block.splitlines():
            if heading := _HEADING.match(line.strip()):
                headings.append(_plain(heading.group(1)))
            elif not line.lstrip().startswith("|"):
                lines.append(_BULLET.sub("", line))
        if sentences := _sentences(_plain(" ".join(lines))):
            paragraphs.append(sentences)
    if not paragraphs:
        raise ValueError("there is no sentence in the document")
    title = headings[0] if headings else paragraphs[0][0]
    return Parts(title[:80], tuple(headings), tuple(paragraphs))


def _without_front_matter(text: str) -> str:
    if text.startswith("---\n") and (end := text.find("\n---\n", 4)) > 0:
        return text[end + 5 :]
    return text


def _plain(text: str) -> str:
    """Text without the marks of Markdown."""
    return re.sub(r"\s+", " ", _MARKS.sub("", _LINK.sub(r"\1", text))).strip()


def _sentences(text: str) -> tuple[str, ...]:
    """The sentences of a paragraph; what has no word is left out."""
    found: list[str] = []
    for piece in _cut(text):
        if found and _SHORT.search(found[-1]):
            found[-1] = f"{found[-1]} {piece}"
        else:
            found.append(piece)
    return tuple(piece for piece in found if _WORD.search(piece))


def _cut(text: str) -> list[str]:
    begin, pieces = 0, []
    for end in _END.finditer(text):
        pieces.append(text[begin : end.end()].strip())
        begin = end.end()
    pieces.append(text[begin:].strip())
    return [piece[:LONGEST_LINE] for piece in pieces if piece]


def words(text: str) -> list[str]:
    """The words of a text as they stand."""
    found: list[str] = []
    for match in _WORD.finditer(text):
        word = match.group()
        if _NO_BLANKS.match(word):
            found += [word[i : i + 2] for i in range(max(1, len(word) - 1))]
        else:
            found.append(word)
    return found


_STOP_WORDS = """
a about above after again against all also always am among an and any are as at away be became
because been before began begun being below between both but by came can cannot come could did
do does doing done down during each either else ever every few first for found from further gave
get getting give go goes going gone got had has have having he her here hers herself him himself
his how however i if in indeed into is it its itself just knew know last least let like look
looked made make many may me might mine more most much must my myself near never next no nor not
nothing now of off often on once one only onto or other others ought our ours out over own part
perhaps put quite rather really round said saw say see seemed seen set shall she should since so
some soon still such than that the their them themselves then there these they thing things
think this those though thought through till time to together told too took tried try two under
until up upon us use used very was way we well went were what when where whether which while who
whom whose why will with within without would yes yet you your yours
"""
_STOP = frozenset(_STOP_WORDS.split())


def term(word: str) -> str:
    """The word as it is counted: in small letters, without plural or genitive; empty: not counted."""
    word = word.lower().replace("’", "'").removesuffix("'s")
    if _NO_BLANKS.match(word):
        return word if len(word) > 1 else ""
    if len(word) < SHORTEST or word in _STOP or "'" in word:
        return ""
    stem = word
    if word.endswith("ies"):
        stem = word[:-3] + "y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        stem = word[:-1]
    return stem if len(stem) >= SHORTEST else word


def terms(text: str) -> list[str]:
    """The counted words of a text, in order."""
    return [counted for word in words(text) if (counted := term(word))]
