"""A named place in the code where a test may stop the world.

`failpoint("store.sqlite.commit.before")` does nothing in production: one global is looked at.  The
test kit (`raf.testing`) sets the hook, which may kill the process, raise, or count.
"""

from collections.abc import Callable

_hook: Callable[[str], None] | None = None


def failpoint(name: str) -> None:
    """Pass a named point; calls the hook when one is set."""
    if _hook is not None:
        _hook(name)


def set_hook(hook: Callable[[str], None] | None) -> None:
    """Set the hook for all failpoints of this process, or remove it with None."""
    global _hook  # noqa: PLW0603 - one switch for the whole process is the purpose
    _hook = hook
