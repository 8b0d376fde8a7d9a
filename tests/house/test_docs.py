"""The documents hold what the code holds: errors, commands, links, code that parses."""

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

import raf.cli
import raf.errors
from tests.house import tree

README = Path("README.md")
ERRORS = Path("docs/reference/errors.md")
CLI = Path("docs/reference/cli.md")
DECISIONS = Path("docs/explanation/decisions")
README_LINES = 150
TWO_COMMANDS = ("make demo", "make test")

PAGES = [
    path for path in tree.files() if path.suffix == ".md" and not path.parts[0].startswith(".")
]


def tokens(path: Path) -> list[Token]:
    """The parsed blocks of a page."""
    return MarkdownIt("commonmark").enable("table").parse(tree.text(path))


def headings(path: Path) -> list[str]:
    """The texts of the headings of a page, in order, without marks."""
    parsed = tokens(path)
    return [
        parsed[index + 1].content.replace("`", "")
        for index, token in enumerate(parsed)
        if token.type == "heading_open"
    ]


def slug(heading: str) -> str:
    """The anchor that a heading gets on the usual hosts."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def links(path: Path) -> Iterator[str]:
    """The targets of the links and pictures of a page."""
    for token in tokens(path):
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if target:
                yield str(target)


def broken(path: Path) -> Iterator[str]:
    """The relative links of a page that lead nowhere."""
    for link in links(path):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = tree.ROOT / path.parent / name if name else tree.ROOT / path
        if not target.resolve().is_relative_to(tree.ROOT) or not target.exists():
            yield link
        elif anchor and target.suffix == ".md":
            page = target.resolve().relative_to(tree.ROOT)
            if anchor not in map(slug, headings(page)):
                yield link


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_links_resolve(path: Path) -> None:
    """Each relative link of a page leads to a file of the tree, and each anchor to a heading."""
    assert list(broken(path)) == []


def python_blocks(path: Path) -> Iterator[tuple[int, str]]:
    """The fenced Python blocks of a page with the line each begins on."""
    for token in tokens(path):
        if token.type == "fence" and token.info.split()[:1] in (["python"], ["py"]):
            assert token.map is not None
            yield token.map[0] + 1, token.content


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_python_blocks_parse(path: Path) -> None:
    """Each fenced Python block is Python; one that awaits at the top is read as a notebook cell."""
    for line, source in python_blocks(path):
        name = f"{path}:{line}"
        compile(source, name, "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_blocks_say_their_language(path: Path) -> None:
    """Each fenced block says what language it is in, so that a check can read it."""
    assert [t.map for t in tokens(path) if t.type == "fence" and not t.info.strip()] == []


ERROR_CLASSES = [
    name
    for name, value in inspect.getmembers(raf.errors, inspect.isclass)
    if issubclass(value, raf.errors.RafError)
]


@pytest.mark.parametrize("name", ERROR_CLASSES)
def test_every_error_has_a_heading(name: str) -> None:
    """Each error class has a heading of its own in the reference."""
    assert [h for h in headings(ERRORS) if re.search(rf"\b{name}\b", h)], f"{ERRORS}: {name}"


def test_no_error_is_made_up() -> None:
    """The reference has no heading for an error that does not exist."""
    named = {name for heading in headings(ERRORS) for name in re.findall(r"\b\w+Error\b", heading)}
    assert named - set(ERROR_CLASSES) == set()


def commands() -> Iterator[tuple[str, TyperCommand]]:
    """Each command of the command line with its full name, such as `raf show`."""
    waiting: list[tuple[str, object]] = [("raf", get_command(raf.cli.app))]
    while waiting:
        name, command = waiting.pop()
        if isinstance(command, TyperGroup):
            waiting += [(f"{name} {sub}", child) for sub, child in command.commands.items()]
        elif isinstance(command, TyperCommand) and not command.hidden:
            yield name, command


def section(path: Path, title: str) -> str:
    """The text below a heading that begins with a title, up to the next heading of its level."""
    lines = tree.text(path).splitlines()
    parsed = tokens(path)
    opened = [(t, parsed[i + 1]) for i, t in enumerate(parsed) if t.type == "heading_open"]
    for index, (token, content) in enumerate(opened):
        name = content.content.replace("`", "")
        if name == title or name.startswith(f"{title} "):
            assert token.map is not None
            level = int(token.tag[1:])
            later = (t.map[0] for t, _ in opened[index + 1 :] if t.map and int(t.tag[1:]) <= level)
            return "\n".join(lines[token.map[0] : next(later, len(lines))])
    return ""


def test_every_command_and_option_is_in_the_reference() -> None:
    """Each command has a section, and each of its options stands there."""
    missing: list[str] = []
    for name, command in commands():
        text = section(CLI, name)
        if not text:
            missing.append(name)
            continue
        for parameter in command.params:
            if isinstance(parameter, TyperOption) and not parameter.hidden:
                option = max(parameter.opts, key=len)
                if option != "--help" and not re.search(rf"{re.escape(option)}(?![\w-])", text):
                    missing.append(f"{name} {option}")
    assert missing == []


def test_the_readme_is_short_and_begins() -> None:
    """The README fits on a few screens, names its two commands, and speaks Chinese too."""
    text = tree.text(README)
    assert len(text.splitlines()) <= README_LINES
    assert [command for command in TWO_COMMANDS if command not in text] == []
    assert [heading for heading in headings(README) if re.search(r"[\u4e00-\u9fff]", heading)]


def test_decisions_are_numbered_once() -> None:
    """Each record is `NNNN-title.md`, no number is used twice, and the index names each."""
    records = [p.name for p in tree.files() if p.parent == DECISIONS and p.name != "README.md"]
    assert [name for name in records if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", name)] == []
    numbers = Counter(name[:4] for name in records)
    assert [number for number, count in numbers.items() if count > 1] == []
    index = set(links(DECISIONS / "README.md"))
    assert [name for name in records if name not in index] == []


def test_every_page_can_be_reached() -> None:
    """Each page below `docs/` is reached from the index by links."""
    seen: set[Path] = set()
    waiting = [Path("docs/index.md")]
    while waiting:
        page = waiting.pop()
        if page in seen or not (tree.ROOT / page).is_file() or page.suffix != ".md":
            continue
        seen.add(page)
        for link in links(page):
            if not re.match(r"[a-z]+:", link):
                name = unquote(link).partition("#")[0]
                target = (tree.ROOT / page.parent / name).resolve()
                if name and target.is_relative_to(tree.ROOT):
                    waiting.append(target.relative_to(tree.ROOT))
    assert [str(page) for page in PAGES if page.parts[0] == "docs" and page not in seen] == []
