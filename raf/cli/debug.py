"""Whether tracebacks are wanted: `raf --debug`, or RAF_DEBUG=1."""

import os

_NAME = "RAF_DEBUG"


def want() -> None:
    """Show tracebacks, here and in processes that are started from here."""
    os.environ[_NAME] = "1"


def wanted() -> bool:
    """Whether an error is to be shown with its traceback."""
    return os.environ.get(_NAME, "0") not in ("", "0")
