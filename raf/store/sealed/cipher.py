"""Seals and opens parts: AES-256-GCM under a key that is made for each part.

Theory of operation.  Each part gets a random nonce of 192 bits.  HKDF-SHA256 makes of the ring's key
and this nonce a key and a GCM nonce for the one part, so GCM's own limit (2**32 random nonces under
one key) does not count: two parts of one key meet in a nonce only after some 2**80 of them.

Rules of this file: what does not open gives no byte away and says no more than that.
"""

import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from raf.errors import ConfigurationError, FormatVersionError, MissingKeyError, SealedRecordError
from raf.store.sealed import envelope
from raf.store.sealed.envelope import NONCE, VERSION, Part
from raf.store.sealed.keys import KEY_BYTES, KeyRing

_LABEL: Final = b"raf sealed part 1"
_GCM_NONCE: Final = 12


class _Primitives(NamedTuple):
    """What is taken from the library, which loads on first use."""

    aead: Callable[[bytes], Any]
    derive: Callable[[bytes, bytes], bytes]
    mismatch: type[Exception]


def _primitives() -> _Primitives:
    try:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra: loads on first use
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - the same
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - the same
        from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand  # noqa: PLC0415 - the same
    except ImportError as error:
        raise ConfigurationError(
            "encryption needs an extra that is not installed: pip install 'raf-engine[crypto]'"
        ) from error

    def derive(key: bytes, info: bytes) -> bytes:
        return HKDFExpand(SHA256(), KEY_BYTES + _GCM_NONCE, info).derive(key)

    return _Primitives(AESGCM, derive, InvalidTag)


class Cipher:
    """Seals with the current key of a ring and opens with any of them."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys
        self._primitives = _primitives()
        current = keys.find(keys.current)
        assert current is not None  # noqa: S101 - a ring holds its current key
        self._current = current

    def seal(self, part: Part, place: bytes, data: bytes, number: int = 0) -> bytes:
        """The envelope of a part.

        Args:
            part: What it is.
            place: What it is bound to.
            data: The bytes.
            number: What it is in its epoch, 0 where nothing is counted.
        """
        nonce = os.urandom(NONCE)
        header = envelope.header(part, self._keys.current, number, nonce)
        aead, gcm_nonce = self._aead(self._current, nonce)
        sealed: bytes = aead.encrypt(gcm_nonce, data, header + place)
        return header + sealed

    def open(
        self, data: bytes, part: Part, place: bytes, session_id: str, record: str
    ) -> tuple[bytes, int]:
        """The bytes of a part and its number.

        Raises:
            SealedRecordError: It is not sealed, was changed or moved, or its key is another.
            MissingKeyError: Its key is not in the ring.
            FormatVersionError: A newer version wrote it.
        """
        found = envelope.parse(data)
        if found is None:
            why = "it is cut off" if envelope.is_envelope(data) else "it is not sealed"
            raise SealedRecordError(session_id, record, f"{why}, and only sealed ones are taken")
        if found.version > VERSION:
            raise FormatVersionError(found.version, VERSION)
        key = self._keys.find(found.key_id)
        if key is None:
            raise MissingKeyError(session_id, record, found.key_id)
        if found.part != part:
            raise SealedRecordError(session_id, record, "it is sealed as another part")
        aead, gcm_nonce = self._aead(key, found.nonce)
        try:
            return aead.decrypt(gcm_nonce, found.sealed, found.header + place), found.number
        except self._primitives.mismatch:
            why = (
                f"it does not open: it was changed or moved, or its key {found.key_id!r} is "
                "another than the one of this name"
            )
            raise SealedRecordError(session_id, record, why) from None

    def _aead(self, key: bytes, nonce: bytes) -> tuple[Any, bytes]:
        made = self._primitives.derive(key, _LABEL + nonce)
        return self._primitives.aead(made[:KEY_BYTES]), made[KEY_BYTES:]
