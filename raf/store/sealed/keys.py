"""The keys of a sealed store: which seals, which open, and where they come from.

Rules of this file: no key is in a `repr`, a log or an error, and none is pickled; what cannot be read
is named by its place, never shown.
"""

import base64
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn, Self

from raf.errors import ConfigurationError
from raf.store.sealed.envelope import MAX_KEY_ID

KEY_BYTES: Final = 32
KEYS_VARIABLE: Final = "RAF_KEYS"
KEY_FILE_VARIABLE: Final = "RAF_KEY_FILE"
_KEY_ID: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_KEY_ID}}}")
_URL_SAFE: Final = str.maketrans("-_", "+/")
_FORM: Final = "id:base64,id:base64 (the first one seals; 32 bytes each)"


class KeyRing:
    """Keys by id: the current one seals new records, all of them open old ones.

    Args:
        keys: 32 random bytes under each id; an id is 1 to 24 of the characters `A-Z a-z 0-9 _ . -`
            and stands in every record, so it must tell nothing.
        current: The id of the key that seals.

    Raises:
        ConfigurationError: An id or a key cannot be used, or `current` names no key.

    Example:
        >>> KeyRing({"2026-01": bytes(32), "2025-01": bytes(32)}, current="2026-01")
        KeyRing(current='2026-01', others=['2025-01'])
    """

    __slots__ = ("_keys", "current")

    def __init__(self, keys: Mapping[str, bytes], *, current: str) -> None:
        if not isinstance(keys, Mapping):
            raise ConfigurationError(f"keys maps ids to keys; a {type(keys).__name__} does not")
        for place, (key_id, key) in enumerate(keys.items(), 1):
            if type(key_id) is not str or not _KEY_ID.fullmatch(key_id):
                raise ConfigurationError(
                    f"the id of key {place} cannot be used: an id is 1 to {MAX_KEY_ID} of the "
                    "characters A-Z a-z 0-9 _ . -"
                )
            if type(key) is not bytes or len(key) != KEY_BYTES:
                raise ConfigurationError(f"key {key_id!r} is not {KEY_BYTES} bytes long")
        if current not in keys:
            raise ConfigurationError(f"the current key {current!r} is not in the ring")
        self._keys = dict(keys)
        self.current = current

    @classmethod
    def from_text(cls, text: str, source: str = "the text") -> Self:
        """The ring of `id:base64,id:base64`; the first key is the current one.

        Args:
            text: Keys apart by commas or line ends; a line that begins with `#` says nothing.
            source: What the text is called, for errors.

        Raises:
            ConfigurationError: It does not read so; the text is not shown.
        """
        if type(text) is not str:
            raise ConfigurationError(f"{source} is no text: write {_FORM}")
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        entries = [entry.strip() for entry in ",".join(lines).split(",")]
        keys: dict[str, bytes] = {}
        for place, entry in enumerate(filter(None, entries), 1):
            key_id, colon, encoded = entry.partition(":")
            key = _decoded(encoded)
            if not colon or len(key) != KEY_BYTES:
                raise ConfigurationError(f"key {place} of {source} cannot be read: write {_FORM}")
            if key_id in keys:
                raise ConfigurationError(f"key {place} of {source} has the id of another")
            keys[key_id] = key
        if not keys:
            raise ConfigurationError(f"{source} holds no key: write {_FORM}")
        return cls(keys, current=next(iter(keys)))

    @classmethod
    def from_env(cls, variable: str = KEYS_VARIABLE) -> Self:
        """The ring that an environment variable holds, as `from_text` reads it.

        Raises:
            ConfigurationError: It is not set, or cannot be read.
        """
        text = os.environ.get(variable) if type(variable) is str else None
        if text is None:
            raise ConfigurationError(f"{variable} is not set: write {_FORM}")
        return cls.from_text(text, variable)

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The ring that a file holds, one key a line, as `from_text` reads it.

        Raises:
            ConfigurationError: The file or a key in it cannot be read.
        """
        try:
            text = Path(path).read_text(encoding="ascii")
        except UnicodeDecodeError:
            raise ConfigurationError(
                f"the key file {path} cannot be read: it is no ASCII text"
            ) from None
        except (OSError, TypeError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it names no file"
            raise ConfigurationError(f"the key file {path} cannot be read: {why}") from None
        return cls.from_text(text, f"the key file {path}")

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all keys, the current one first."""
        return (self.current, *(key_id for key_id in self._keys if key_id != self.current))

    def find(self, key_id: str) -> bytes | None:
        """The key of an id."""
        return self._keys.get(key_id)

    def __repr__(self) -> str:
        others = [key_id for key_id in self.ids if key_id != self.current]
        return f"KeyRing(current={self.current!r}, others={others!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key ring is not pickled: its keys would be in the bytes")


def _decoded(encoded: str) -> bytes:
    """What base64 in either alphabet stands for; nothing when it is none."""
    try:
        return base64.b64decode(encoded.translate(_URL_SAFE).encode("ascii"), validate=True)
    except ValueError:  # what it says may be of the key: it goes no further
        return b""


def ring_of_environment() -> KeyRing | None:
    """The ring that `RAF_KEYS` holds or `RAF_KEY_FILE` names; None when neither is set.

    Raises:
        ConfigurationError: Both are set, or one is empty or cannot be read.
    """
    keys, path = os.environ.get(KEYS_VARIABLE), os.environ.get(KEY_FILE_VARIABLE)
    for variable, value in ((KEYS_VARIABLE, keys), (KEY_FILE_VARIABLE, path)):
        if value is not None and not value.strip():
            # A secret that did not arrive must not mean that records are written in clear.
            raise ConfigurationError(f"{variable} is set and empty: set it, or unset it")
    if keys is not None and path is not None:
        raise ConfigurationError(
            f"{KEYS_VARIABLE} and {KEY_FILE_VARIABLE} are both set: keep one of them"
        )
    if path is not None:
        return KeyRing.from_file(path)
    return None if keys is None else KeyRing.from_env()
