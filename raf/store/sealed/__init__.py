"""A store that encrypts what another keeps: envelopes, the keys for them, and the store."""

from raf.store.sealed.keys import KeyRing
from raf.store.sealed.store import SealedStore, keys_in_use, sealed_by_environment

__all__ = ["KeyRing", "SealedStore", "keys_in_use", "sealed_by_environment"]
