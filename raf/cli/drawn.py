"""What is drawn on a terminal: tables, facts, bars.  Loads the drawing library; see `screen`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

STYLES = {
    "completed": "green",
    "intact": "green",
    "running": "cyan",
    "submitted": "cyan",
    "interrupted": "yellow",
    "sleeping": "yellow",
    "waiting": "yellow",
    "limited": "yellow",
    "drained": "yellow",
    "cancelled": "dim",
    "failed": "red",
    "damaged": "red",
    "added": "green",
    "removed": "red",
    "changed": "yellow",
    "equal": "green",
    "DIFFERENT": "bold red",
    "cut off": "red",
    "kept": "green",
    "ran again": "yellow",
}
NUMBERS = ("step", "steps", "commit", "events", "size", "checkpoints", "fulls", "message", "number")


def _cell(text: str) -> Text:
    return Text(text, style=STYLES.get(text, "") or STYLES.get(text.partition(":")[0], ""))


def draw_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Draw rows under headers, long values folded."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for header in headers:
        right = header in NUMBERS
        drawn.add_column(
            Text(header),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right,
        )
    for row in rows:
        drawn.add_row(*map(_cell, row))
    Console(highlight=False).print(drawn)


def draw_facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Draw names with their values."""
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs:
        drawn.add_row(Text(name), _cell(value))
    Console(highlight=False).print(drawn)


def draw_heading(text: str) -> None:
    """Draw a heading."""
    Console(highlight=False).print(Text(text, style="bold underline"))


@contextmanager
def draw_progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error that goes when it is done."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
