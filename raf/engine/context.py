"""The context that a node gets: one attempt's reads, writes, sends and effects.

Nothing done here reaches the session by itself: the attempt's `Result` is applied with its step, and
a failed attempt leaves only its recorded effects.
"""

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from raf.engine.journal import OpenStep
from raf.engine.plan import Invocation
from raf.engine.result import EFFECT, INTENT, EffectRecord, Sent
from raf.errors import (
    ConfigurationError,
    DuplicateEffectKeyError,
    EffectChangedError,
    EffectInDoubtError,
    EffectNotAwaitedError,
    UndeclaredTargetError,
)
from raf.events import Happening, Kind
from raf.state.view import Scope, StateAccess
from raf.values.codec import decode, encode
from raf.values.registry import TypeTable


class Surroundings(Protocol):
    """What an attempt needs of the run around it."""

    session_id: str
    run_id: str
    nonce: str
    types: TypeTable
    open_step: OpenStep

    async def before_effect(self) -> None:
        """Return when everything before this moment is durable and the lease holds."""

    async def record(self, entry: list[Any]) -> None:
        """Make a journal entry durable."""

    async def in_thread(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Call a sync function in a thread."""

    def show_live(self, invocation: Invocation, attempt: int, value: Any) -> None:
        """Show a live event."""

    def targets_of(self, node: str) -> tuple[str, ...]:
        """The nodes that edges of this node lead to."""


@dataclass(slots=True)
class Left:
    """What an attempt has done so far."""

    sends: list[Sent] = field(default_factory=list)
    outputs: list[bytes] = field(default_factory=list)
    events: list[Happening] = field(default_factory=list)


class NodeContext:
    """The engine's side of `raf.Context`."""

    def __init__(
        self,
        around: Surroundings,
        invocation: Invocation,
        access: StateAccess,
        *,
        step: int,
        attempt: int,
    ) -> None:
        self.session_id = around.session_id
        self.run_id = around.run_id
        self.step = step
        self.node = invocation.node
        self.attempt = attempt
        self.message = invocation.number
        self.path = invocation.message.path
        self.left = Left()
        self.access = access
        self.on_heartbeat: Callable[[], None] | None = None
        self._sent_at = invocation.sent_at
        self._around = around
        self._invocation = invocation
        self._open_step = around.open_step
        self._keys: set[str] = set()
        self._running: dict[str, Coroutine[Any, Any, Any]] = {}
        self._closed = False

    @property
    def state(self) -> Scope:
        """The node's own scope."""
        return self.access.mutable_own

    def scope(self, name: str) -> Scope:
        """A shared scope."""
        return self.access.mutable_scope(name)

    def _check_open(self) -> None:
        if self._closed:
            raise self._too_late()
        self._check_step()

    def _check_step(self) -> None:
        # A node that did not stop when it was told to must not reach into a later step or run.
        if self._around.open_step is not self._open_step:
            raise self._too_late()

    def _too_late(self) -> ConfigurationError:
        return ConfigurationError(
            f"node {self.node!r} used its context after it had ended: await what it starts"
        )

    def send(self, payload: Any, to: str | None = None) -> None:
        """Send along the node's edges; `to` picks one declared target."""
        self._check_open()
        targets = self._around.targets_of(self.node)
        if to is not None and to not in targets:
            raise UndeclaredTargetError(self.node, to, targets)
        encoded = encode(payload, self._around.types, where=f"payload sent by {self.node!r}")
        self.left.sends.append(Sent(encoded, to))

    def output(self, value: Any) -> None:
        """Add to the run's outputs."""
        self._check_open()
        encoded = encode(value, self._around.types, where=f"output of {self.node!r}")
        self.left.outputs.append(encoded)

    def emit(self, event: Any, live: bool = False) -> None:  # noqa: FBT001, FBT002 - public name
        """Show a value to readers of the session."""
        self._check_open()
        encoded = encode(event, self._around.types, where=f"event of {self.node!r}")
        if live:
            shown = decode(encoded, self._around.types)
            self._around.show_live(self._invocation, self.attempt, shown)
        else:
            happening = Happening(Kind.CUSTOM, self.node, self.message, {}, encoded)
            self.left.events.append(happening)

    def heartbeat(self) -> None:
        """Start the idle timeout anew."""
        if self.on_heartbeat is not None:
            self.on_heartbeat()

    def now(self) -> float:
        """UTC seconds of the commit that sent this invocation's message."""
        return self._sent_at

    def _derive(self, purpose: str, key: str) -> bytes:
        parts = [self._around.nonce, self.run_id, str(self.message), purpose, key]
        data = "\x00".join(parts).encode("utf-8", "surrogatepass")
        return hashlib.sha256(data).digest()

    def uuid(self, key: str) -> str:
        """An id derived from the invocation and the key."""
        digits = self._derive("uuid", key).hex()
        variant = "89ab"[int(digits[16], 16) & 3]
        third, fourth = f"4{digits[13:16]}", f"{variant}{digits[17:20]}"
        return f"{digits[:8]}-{digits[8:12]}-{third}-{fourth}-{digits[20:32]}"

    def random(self, key: str) -> float:
        """A number in [0, 1) derived from the invocation and the key."""
        return int.from_bytes(self._derive("random", key)[:7]) / (1 << 56)

    def idempotency_key(self, key: str) -> str:
        """A name for an outside action, equal in all attempts."""
        return self._derive("effect", key).hex()[:40]

    def effect(
        self,
        key: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        on_doubt: Literal["retry", "fail"] = "retry",
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Run an outside action once and record its result; see `raf.Context`.

        The key is taken when the effect is made, so that one that nobody awaits is found.
        """
        self._check_open()
        if type(key) is not str or not key:
            raise ConfigurationError(f"an effect's key is text, not {key!r:.80}")
        if on_doubt not in ("retry", "fail"):
            raise ConfigurationError(f'on_doubt is "retry" or "fail", not {on_doubt!r:.80}')
        if key in self._keys:
            raise DuplicateEffectKeyError(self.node, key)
        self._keys.add(key)
        made = self._effect(key, fn, args, kwargs, on_doubt == "fail")
        self._running[key] = made
        return made

    async def _effect(
        self,
        key: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        intent: bool,  # noqa: FBT001 - private, named at its one call
    ) -> Any:
        try:
            digest = self._digest(key, args, kwargs)
            known = self._open_step.effects_of(self.message).get(key)
            if known is not None and known.digest != digest:
                raise EffectChangedError(self.node, key)
            if known is not None and known.result is not None:
                return decode(known.result, self._around.types)
            if known is not None and intent:
                raise EffectInDoubtError(self.node, key, self.idempotency_key(key))
            return await self._run_effect(key, digest, fn, args, kwargs, intent)
        finally:
            self._running.pop(key, None)

    def _digest(self, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        where = f"argument of effect {key!r}"
        named = sorted(kwargs.items())
        encoded = encode([list(args), named], self._around.types, where=where)
        return hashlib.sha256(encoded).digest()[:16]

    async def _run_effect(
        self,
        key: str,
        digest: bytes,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        intent: bool,  # noqa: FBT001 - private, named at its one call
    ) -> Any:
        await self._around.before_effect()
        recorded = self._open_step.effects_of(self.message)
        if intent:
            await self._around.record([INTENT, self.message, key, digest])
            recorded[key] = EffectRecord(digest, None)
        try:
            value = await self._call(fn, args, kwargs)
        except Exception:
            if intent:  # the action itself said that it failed: nothing is in doubt
                self._check_step()
                await self._around.record([INTENT, self.message, key, b""])
                del recorded[key]
            raise
        encoded = encode(value, self._around.types, where=f"result of effect {key!r}")
        self._check_step()
        await self._around.record([EFFECT, self.message, key, digest, encoded])
        recorded[key] = EffectRecord(digest, encoded)
        return decode(encoded, self._around.types)

    async def _call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if inspect.iscoroutinefunction(fn):
            return await fn(*args, **kwargs)
        value = await self._around.in_thread(lambda: fn(*args, **kwargs))
        return await value if isinstance(value, Awaitable) else value

    def close(self) -> None:
        """End the attempt: nothing may be added any more.

        Raises:
            EffectNotAwaitedError: An effect of this attempt is still running.
            UnsavedChangeError: A model from state was changed and not assigned.
        """
        self.abort()
        if self._running:
            for made in self._running.values():
                if inspect.getcoroutinestate(made) == inspect.CORO_CREATED:
                    made.close()  # nobody awaited it: the error says so, no warning is needed
            raise EffectNotAwaitedError(self.node, tuple(sorted(self._running)))
        self.access.check_unsaved()

    def abort(self) -> None:
        """End the attempt, whatever it left."""
        self._closed = True
        self.access.close()
