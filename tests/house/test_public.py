"""The public names: `raf.__all__` is the border, and every name on it stands in the reference."""

import ast
import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

import raf
from tests.house import tree

API = Path("docs/reference/api.md")


def public() -> list[str]:
    """The public names without dunders."""
    return [name for name in raf.__all__ if not name.startswith("__")]


def test_all_is_sorted_and_unique() -> None:
    """The list is sorted and holds no name twice."""
    assert list(raf.__all__) == sorted(set(raf.__all__))
    assert public()


@pytest.mark.parametrize("name", public())
def test_every_public_name_can_be_imported(name: str) -> None:
    """Each name on the list is an attribute of the package, and it is documented where it lives."""
    value = getattr(raf, name)
    if callable(value):
        assert (value.__doc__ or "").strip(), f"raf.{name} has no docstring"


@pytest.mark.parametrize("name", public())
def test_every_public_name_is_in_the_reference(name: str) -> None:
    """Each name has a heading, or the first cell of a table row, in the API reference."""
    heading = re.compile(rf"^#{{2,5}} .*\b{name}\b|^\| *`(?:raf\.)?{name}\b", re.MULTILINE)
    assert heading.search(tree.text(API)), f"{API} has no heading or row for `{name}`"


def test_the_stub_says_what_the_package_does() -> None:
    """Type checkers read `__init__.pyi`: it names the same objects from the same modules."""
    stub = ast.parse(tree.text(Path("raf/__init__.pyi")))
    told = {
        alias.asname: (node.module, alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert told == vars(raf)["_HOME"]


def test_types_are_shipped() -> None:
    """The marker that lets a type checker read our annotations is part of the package."""
    assert (tree.ROOT / "raf" / "py.typed").is_file()


def test_one_version() -> None:
    """The version of the project is the installed one and the newest entry of the changelog."""
    version = tomllib.loads(tree.text(Path("pyproject.toml")))["project"]["version"]
    entries = re.findall(r"^## \[(.+?)\]", tree.text(Path("docs/changelog.md")), re.MULTILINE)
    released = [entry for entry in entries if entry != "Unreleased"]
    assert entries[0] == "Unreleased"
    assert not released or released[0] == version
    assert importlib.metadata.version("raf-engine") == version
    assert getattr(raf, "__version__", version) == version
