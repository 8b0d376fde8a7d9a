"""The source tree as the house tests look at it."""

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_OURS = {"build", "dist", "__pycache__"}


def files() -> list[Path]:
    """Every file that belongs to the project, tracked or about to be, relative to the root."""
    if (ROOT / ".git").exists():
        listing = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        found = [Path(name) for name in listing.split("\0") if name]
        return sorted(path for path in found if (ROOT / path).is_file())
    walked = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return sorted(path for path in walked if not _is_left_over(path))


def _is_left_over(path: Path) -> bool:
    hidden = path.parts[0].startswith(".") and path.parts[0] != ".ci" and len(path.parts) > 1
    return hidden or any(part in NOT_OURS or part.endswith(".egg-info") for part in path.parts)


def modules(*folders: str) -> list[Path]:
    """The Python files below these folders, relative to the root."""
    return [path for path in files() if path.suffix == ".py" and path.parts[0] in folders]


def text(path: Path) -> str:
    """The text of a file of the tree."""
    return (ROOT / path).read_text(encoding="utf-8")


def parse(path: Path) -> ast.Module:
    """The syntax tree of a module of the tree."""
    return ast.parse(text(path), filename=str(path))


def dotted(node: ast.expr) -> str:
    """`a.b.c` for a name or an attribute of names, else the empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""
