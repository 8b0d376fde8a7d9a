"""What `import raf` costs and touches: it loads nothing that the user has not asked for."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import tree

LATE = {"networkx", "typer", "click", "rich"}
EXTRAS = {
    "anthropic",
    "cryptography",
    "fastapi",
    "httpx",
    "httpx2",
    "openai",
    "opentelemetry",
    "prometheus_client",
    "psycopg",
    "redis",
    "starlette",
    "uvicorn",
}
FOR_TESTS = {"_pytest", "hypothesis", "pytest"}


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tree.ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return {name.partition(".")[0] for name in json.loads(run.stdout.splitlines()[-1])}


def test_import_raf_is_light() -> None:
    """`import raf` loads no graph library, no command line, no optional extra and no test tool."""
    assert loaded_by("import raf") & (LATE | EXTRAS | FOR_TESTS) == set()


def test_every_public_name_is_light() -> None:
    """Touching every public name loads no optional extra and no test tool either."""
    everything = "import raf\nfor name in raf.__all__: getattr(raf, name)"
    assert loaded_by(everything) & (EXTRAS | FOR_TESTS) == set()


def through_the_front_door(module: ast.Module) -> list[str]:
    """The names that a module takes from the package's front door instead of from a room."""
    names: list[str] = []
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module == "raf":
            names += [alias.name for alias in node.names if not is_room(alias.name)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name == "raf"]
    return names


def is_room(name: str) -> bool:
    """Whether `raf.name` is a module or a package."""
    folder = tree.ROOT / "raf"
    return (folder / f"{name}.py").is_file() or (folder / name).is_dir()


@pytest.mark.parametrize("path", tree.modules("raf"), ids=str)
def test_rooms_do_not_use_the_front_door(path: Path) -> None:
    """Inside the house names come from their rooms: `raf/__init__.py` lies above every floor."""
    if path != Path("raf/__init__.py"):
        assert through_the_front_door(tree.parse(path)) == []
