"""The store on a Valkey or Redis server: one server, many machines (extra `redis`)."""

from raf.store.redis.store import RedisStore

__all__ = ["RedisStore"]
