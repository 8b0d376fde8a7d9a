"""The input of a run, from the command line, a file or a pipe; and names that are led to others."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raf.errors import ConfigurationError, PayloadTypeError
from raf.topology.workflow import Workflow


def read_input(
    workflow: Workflow, text: str | None, file: Path | None, json_text: str | None
) -> Any:
    """What the start node gets.

    Text (given, or of a file) is taken as it is where the start node takes text; where it does not,
    the text is read as JSON.  `--input-json` is always JSON.

    Args:
        workflow: Its start node says what it takes.
        text: INPUT.
        file: `--input-file`; `-` is standard input.
        json_text: `--input-json`.

    Raises:
        ConfigurationError: None or several were given, a file cannot be read, or it is no JSON.
        PayloadTypeError: The start node takes something else.
    """
    given = [part for part in (text, file, json_text) if part is not None]
    if len(given) != 1:
        many = "only one of" if given else "one of"
        raise ConfigurationError(f"give {many} INPUT, --input-file and --input-json")
    if json_text is not None:
        return _json(json_text, "--input-json")
    said = text if text is not None else _read(file)
    shape = workflow.nodes[workflow.topology.start].payload
    try:
        shape.fit(said, "input")
    except PayloadTypeError as error:
        try:
            return json.loads(said)
        except ValueError:
            raise error from None
    return said


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{what} is no JSON: {error}") from error


def _read(file: Path | None) -> str:
    if file is None or str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{str(file)!r} cannot be read as text: {error}") from error


def json_value(text: str, what: str) -> Any:
    """A value given as JSON; text that is no JSON is refused, since quotes are easily lost.

    Raises:
        ConfigurationError: It is no JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        hint = f"""; for text, write {what}='"{text}"'""" if text.isprintable() else ""
        raise ConfigurationError(f"the value of {what} is no JSON: {error}{hint}") from error


def read_mapping(said: Sequence[str]) -> dict[str, str]:
    """Old names with their new ones, of OLD=NEW.

    Raises:
        ConfigurationError: One is not of that form, or names an old name again.
    """
    mapping: dict[str, str] = {}
    for each in said:
        old, equals, new = each.partition("=")
        if not (old and equals and new):
            raise ConfigurationError(f"--map {each!r} leads nowhere: write OLD=NEW")
        if old in mapping:
            raise ConfigurationError(f"--map names {old!r} twice")
        mapping[old] = new
    return mapping
