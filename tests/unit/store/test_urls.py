"""What a store's URL means, and what is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from raf.errors import ConfigurationError
from raf.store.memory import MemoryStore
from raf.store.sqlite import SqliteStore
from raf.store.urls import open_store
from raf.testing import ManualClock


def test_a_store_is_returned_as_it_is() -> None:
    """A store passes through untouched."""
    store = MemoryStore()
    assert open_store(store) is store


def test_memory() -> None:
    """Each memory URL is a place of its own, with the clock handed in."""
    clock = ManualClock()
    store = open_store("memory:", clock=clock)
    assert isinstance(store, MemoryStore)
    assert store.clock is clock
    assert open_store("memory:") is not store


@pytest.mark.parametrize(
    ("url", "path", "shown"),
    [
        ("sqlite:runs.db", "runs.db", "sqlite:runs.db"),
        ("SQLite:runs.db", "runs.db", "sqlite:runs.db"),
        ("sqlite:a b/r:1.db", "a b/r:1.db", "sqlite:a b/r:1.db"),
        ("sqlite:/var/x.db", "/var/x.db", "sqlite:/var/x.db"),
        ("sqlite:x.db?synchronous=full", "x.db", "sqlite:x.db"),
        ("sqlite:x.db?synchronous=normal", "x.db", "sqlite:x.db?synchronous=normal"),
        ("sqlite:x.db?synchronous=NORMAL", "x.db", "sqlite:x.db?synchronous=normal"),
        ("sqlite:x.db?", "x.db", "sqlite:x.db"),
    ],
)
def test_sqlite(url: str, path: str, shown: str) -> None:
    """The path is taken as written; the store names itself by a URL that opens it."""
    store = open_store(url)
    assert isinstance(store, SqliteStore)
    assert store.path == Path(path).absolute()
    assert store.url == shown
    assert open_store(store.url).url == shown


def test_file(tmp_path: Path) -> None:
    """A folder names a file store."""
    from raf.store.file import FileStore

    assert isinstance(open_store(f"file:{tmp_path}"), FileStore)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "memory:"),
        ("runs.db", "sqlite:runs.db"),
        ("mysql://u:secret@h/db", "memory: | file:DIR | sqlite:PATH"),
        ("memory:x", "nothing behind the colon"),
        ("sqlite:", "sqlite:PATH"),
        ("sqlite:?synchronous=full", "sqlite:PATH"),
        ("sqlite::memory:", "memory:"),
        ("sqlite:///runs.db", "sqlite:/runs.db"),
        ("sqlite://", "ambiguous"),
        ("sqlite:x.db?synchronous=off", "full or normal"),
        ("sqlite:x.db?mode=ro", "no option mode"),
        ("sqlite:x.db?nonsense", "do not read"),
        ("sqlite:x.db?synchronous=full&synchronous=normal", "given twice"),
        ("file:", "file:DIR"),
        ("file:x?a=b", "no option a"),
        ("postgresql:u:secret@h/db", "postgresql://USER@HOST"),
        ("postgresql://u:secret@h/db?nonsense=1", "options of libpq"),
        ("postgres://u:secret@h/db?schema=pg_x", "small letters"),
        ("redis://:secret@h/name", "database"),
    ],
)
def test_what_is_refused(url: str, says: str) -> None:
    """A wrong URL is an error that says the right form and shows no password."""
    with pytest.raises(ConfigurationError) as caught:
        open_store(url)
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


def test_something_else_is_refused() -> None:
    """What is neither text nor a store is named by its type."""
    with pytest.raises(ConfigurationError, match="not PosixPath"):
        open_store(Path("x"))  # type: ignore[arg-type]


def test_backends_load_on_first_use() -> None:
    """Asking for one store loads no other backend."""
    code = (
        "import sys; from raf.store.urls import open_store; open_store('memory:');"
        "print([m for m in sys.modules if m.startswith(('sqlite3', 'raf.store.'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sqlite" not in done.stdout
    assert "raf.store.file" not in done.stdout
