"""How answers are shown: tables and facts for people, one JSON document for machines.

Rules of this file:
- Answers go to standard output, everything else (hints, progress, errors) to standard error.
- On a terminal tables are drawn and coloured; in a pipe they are plain text, one row a line.
- The drawing library is loaded when a terminal is there to be drawn on.
"""

import os
import signal
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

from raf.cli.exits import ExitCode
from raf.cli.jsonable import as_json, harmless, words

Rows = Iterable[Sequence[Any]]

_PLAIN = str.maketrans("┌┐└┘├┤┬┴┼─│▼◀→✓▸✗…·×", "+++++++++-|v<>*>x..x")


def _print(text: str) -> None:
    """Print a line of the answer."""
    try:
        print(text)
    except BrokenPipeError:
        leave_the_pipe()


def flush() -> None:
    """Send what was printed on its way."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        leave_the_pipe()


def leave_the_pipe() -> NoReturn:
    """End as whoever writes to a pipe without a reader does, and without a complaint."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(ExitCode.BY_SIGNAL + signal.SIGPIPE)


def is_terminal(stream: TextIO) -> bool:
    """Whether a person looks at the stream."""
    return stream.isatty()


def answer(data: Any, *, as_document: bool, show: Callable[[], None]) -> None:
    """Print the answer of a command: `data` as a JSON document, or what `show` prints."""
    if as_document:
        _print(as_json(data, indent=2))
    else:
        show()


def line(data: Any) -> None:
    """Print one JSON document on a line of its own, at once."""
    _print(as_json(data))
    flush()


def say(text: str = "") -> None:
    """Print text of ours or a value, without signs that a terminal would obey."""
    _print(harmless(text))


def drawing(drawn: str) -> None:
    """Print a drawing; where standard output knows no lines, in plain signs."""
    try:
        drawn.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        drawn = drawn.translate(_PLAIN)
    say(drawn)


def hint(text: str) -> None:
    """Tell the person something that is not the answer."""
    print(harmless(text), file=sys.stderr, flush=True)


def table(headers: Sequence[str], rows: Rows, *, none: str) -> None:
    """Print rows under headers.

    Args:
        headers: Names of the columns; values under `status` are coloured by what they say.
        rows: Values; text stands as it is, other values in JSON.
        none: What to print when there is no row.
    """
    found = [[words(value) for value in row] for row in rows]
    if not found:
        _print(none)
    elif is_terminal(sys.stdout):
        from raf.cli.drawn import draw_table  # noqa: PLC0415 - for terminals only

        draw_table(headers, found)
    else:
        for row in aligned([list(headers), *found]):
            _print(row)


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print names with their values, one a line."""
    found = [(name, words(value)) for name, value in pairs]
    if is_terminal(sys.stdout):
        from raf.cli.drawn import draw_facts  # noqa: PLC0415 - for terminals only

        draw_facts(found)
        return
    for row in aligned([[f"{name}:", value] for name, value in found]):
        _print(row)


def heading(text: str) -> None:
    """Print a heading above what follows."""
    _print("")
    if is_terminal(sys.stdout):
        from raf.cli.drawn import draw_heading  # noqa: PLC0415 - for terminals only

        draw_heading(harmless(text))
    else:
        _print(harmless(text))


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal's standard error while long work goes on; call what it yields per part."""
    if total <= 1 or not is_terminal(sys.stderr):
        yield lambda: None
        return
    from raf.cli.drawn import draw_progress  # noqa: PLC0415 - for terminals only

    with draw_progress(what, total) as advance:
        yield advance


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines whose columns begin under each other, two blanks apart."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text + " " * (wide - width(text)) for text, wide in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def width(text: str) -> int:
    """How many cells of a terminal a text takes."""
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in text
    )
