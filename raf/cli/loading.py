"""From MODULE:WORKFLOW on the command line to a workflow."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from raf.errors import ConfigurationError, RafError
from raf.graph.builder import WorkflowBuilder
from raf.topology.workflow import Workflow

_FORM = "write MODULE:WORKFLOW, such as app.flows:review or flows.py:review"


def load_workflow(reference: str) -> Workflow:
    """The workflow that a reference names.

    Args:
        reference: `pkg.module:name`, found from the working folder on, or `path/file.py:name`,
            which is imported by its stem with its folder in front of the path.  The name may have
            dots, and may be a function without arguments that makes the workflow.

    Raises:
        ConfigurationError: There is no such module, file or name, or it is something else.
        RafError: What building the workflow raised.
    """
    place, colon, name = reference.rpartition(":")
    if not colon or not place or not name:
        raise ConfigurationError(f"{reference!r} names no workflow: {_FORM}")
    module = _module(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"{place} has no {name!r}; {_there(module)}")
        found = getattr(found, part)
    return _workflow(reference, found)


def _there(module: ModuleType) -> str:
    names = sorted(n for n, value in vars(module).items() if isinstance(value, Workflow))
    return f"workflows there: {', '.join(names)}" if names else "there is no workflow in it"


def _module(place: str) -> ModuleType:
    if place.endswith(".py") or "/" in place:
        return _from_file(Path(place))
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.util.find_spec(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise _broken(place, error) from error
        found = None
    except (ImportError, ValueError) as error:
        raise _broken(place, error) from error
    if found is None:
        hint = f"; for the file, write {place}.py" if Path(f"{place}.py").exists() else ""
        raise ConfigurationError(
            f"there is no module {place!r} in the working folder or among what is installed{hint}"
        )
    return _imported(place, place)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigurationError(f"there is no file {str(path)!r}: {_FORM}")
    path = path.resolve()
    known = sys.modules.get(path.stem)
    if known is not None and Path(getattr(known, "__file__", None) or "?").resolve() != path:
        raise ConfigurationError(
            f"{path.name} has the name of a module that is loaded already: rename the file, or "
            "write it as pkg.module:name"
        )
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    return _imported(path.stem, str(path))


def _imported(name: str, place: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except RafError:
        raise  # a graph that cannot be built says what is wrong with it
    except Exception as error:
        raise _broken(place, error) from error


def _broken(place: str, error: Exception) -> ConfigurationError:
    why = f"{type(error).__name__}: {error}"
    return ConfigurationError(
        f"{place} cannot be imported: {why} (raf --debug shows where it happens)"
    )


def _workflow(reference: str, found: Any) -> Workflow:
    if isinstance(found, Workflow):
        return found
    if isinstance(found, WorkflowBuilder):
        raise ConfigurationError(f"{reference} is a builder: name what its build() returns")
    if not callable(found):
        raise ConfigurationError(f"{reference} is {type(found).__name__}, not a workflow")
    try:
        made = found()
    except RafError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ConfigurationError(
            f"{reference}() made no workflow: {why} (a factory takes no arguments; raf --debug "
            "shows where it happens)"
        ) from error
    if not isinstance(made, Workflow):
        raise ConfigurationError(f"{reference}() returned {type(made).__name__}, not a workflow")
    return made
