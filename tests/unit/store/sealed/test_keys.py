"""The ring of keys: where it comes from, what it refuses, and that it tells nothing."""

import base64
import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from raf.errors import ConfigurationError
from raf.store.memory import MemoryStore
from raf.store.sealed import KeyRing, SealedStore, sealed_by_environment

KEY, OTHER = bytes(range(32)), bytes(range(224, 256))
TEXT = f"new:{base64.b64encode(OTHER).decode()},old:{base64.b64encode(KEY).decode()}"


def ring_is_read(ring: KeyRing) -> None:
    """The first key seals, and each id has its key."""
    assert ring.current == "new"
    assert ring.ids == ("new", "old")
    assert (ring.find("new"), ring.find("old"), ring.find("none")) == (OTHER, KEY, None)


def test_a_ring_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`id:base64,id:base64`: the first key is the current one."""
    monkeypatch.setenv("RAF_KEYS", TEXT)
    ring_is_read(KeyRing.from_env())


def test_a_ring_of_a_file(tmp_path: Path) -> None:
    """One key a line, comments and empty lines between; both alphabets of base64 are read."""
    path = tmp_path / "keys"
    url_safe = base64.urlsafe_b64encode(OTHER).decode()
    path.write_text(f"# ours\n\nnew:{url_safe}\nold:{base64.b64encode(KEY).decode()}\n")
    ring_is_read(KeyRing.from_file(path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "new",
        "new:",
        "new:AAAA",
        f"new:{base64.b64encode(KEY).decode()}x",
        f"{base64.b64encode(KEY).decode()}",
        f":{base64.b64encode(KEY).decode()}",
        f"a b:{base64.b64encode(KEY).decode()}",
        f"{'x' * 25}:{base64.b64encode(KEY).decode()}",
        f"{TEXT},new:{base64.b64encode(KEY).decode()}",
        f"new:{base64.b64encode(KEY).decode()},old:\ud800",
    ],
)
def test_a_slip_is_told_without_the_key(text: str) -> None:
    """What does not read is an error that shows no part of what was given."""
    with pytest.raises(ConfigurationError) as caught:
        KeyRing.from_text(text)
    told = f"{caught.value!r}{caught.value}{caught.value.__cause__!r}"
    assert not any(word in told for word in text.replace(",", ":").split(":") if len(word) > 8)


def test_a_key_of_another_length_is_refused() -> None:
    """Keys have 32 bytes, and the current one is in the ring."""
    for keys, current in (
        ({"a": b"short"}, "a"),
        ({"a": "x" * 32}, "a"),
        ({"a": KEY}, "b"),
        ({}, "a"),
        (None, "a"),
        ({5: KEY}, 5),
    ):
        with pytest.raises(ConfigurationError):
            KeyRing(keys, current=current)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [None, 5, b"a"])
def test_what_is_no_source_is_told(source: Any) -> None:
    """By a typed error, whatever was meant."""
    for read in (KeyRing.from_text, KeyRing.from_env, KeyRing.from_file):
        with pytest.raises(ConfigurationError):
            read(source)


def test_a_missing_source_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable, no file, or a file of other bytes: the error names it."""
    monkeypatch.delenv("RAF_KEYS", raising=False)
    with pytest.raises(ConfigurationError, match="RAF_KEYS is not set"):
        KeyRing.from_env()
    with pytest.raises(ConfigurationError, match="no-such-file"):
        KeyRing.from_file(tmp_path / "no-such-file")
    (tmp_path / "binary").write_bytes(b"\xff\xfe" + KEY)
    with pytest.raises(ConfigurationError, match="no ASCII"):
        KeyRing.from_file(tmp_path / "binary")


def test_a_ring_tells_nothing() -> None:
    """Neither its text nor that of the store on it has a byte of a key, and it is not pickled."""
    ring = KeyRing({"new": OTHER, "old": KEY}, current="new")
    assert repr(ring) == "KeyRing(current='new', others=['old'])"
    assert f"{ring}" == repr(ring)
    told = repr(SealedStore(MemoryStore(), ring).__dict__)
    assert repr(OTHER)[2:-1] not in told
    assert repr(KEY)[2:-1] not in told.replace("\\\\", "\\")
    with pytest.raises(TypeError, match="not pickled"):
        copy.copy(ring)  # by the protocol of pickling


def test_the_environment_decides_for_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without keys the store is as it was; with them sealed; with two sources an error."""
    store = MemoryStore()
    monkeypatch.delenv("RAF_KEYS", raising=False)
    monkeypatch.delenv("RAF_KEY_FILE", raising=False)
    assert sealed_by_environment(store) is store
    monkeypatch.setenv("RAF_KEYS", TEXT)
    assert isinstance(sealed_by_environment(store), SealedStore)
    (tmp_path / "keys").write_text(TEXT)
    monkeypatch.setenv("RAF_KEY_FILE", str(tmp_path / "keys"))
    with pytest.raises(ConfigurationError, match="both set"):
        sealed_by_environment(store)
    monkeypatch.delenv("RAF_KEYS")
    assert isinstance(sealed_by_environment(store), SealedStore)


@pytest.mark.parametrize("variable", ["RAF_KEYS", "RAF_KEY_FILE"])
@pytest.mark.parametrize("value", ["", " \n"])
def test_an_empty_variable_never_means_clear(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set and empty is an error that names the variable: nothing is written unsealed."""
    monkeypatch.delenv("RAF_KEYS", raising=False)
    monkeypatch.delenv("RAF_KEY_FILE", raising=False)
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=f"{variable} is set and empty"):
        sealed_by_environment(MemoryStore())


def test_without_the_extra_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library is not installed, the error names the extra."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ConfigurationError, match=r"raf-engine\[crypto\]"):
        SealedStore(MemoryStore(), KeyRing({"a": KEY}, current="a"))
