"""What a node sees: the protocol of the context that the engine hands to it.

Rooms above the ground that work inside a node (models, tools, agents) use this protocol and need no
engine.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol


class Scope(Protocol):
    """One scope of the state as a node uses it; `raf.state.view.Scope` is the real one.

    Reading gives the value as of the step's start plus this invocation's own writes; containers are
    read-only.  On a key with a reducer an assignment is a contribution.
    """

    def __getitem__(self, key: str, /) -> Any:
        """The value of a key; `KeyError` when it is absent."""

    def __setitem__(self, key: str, value: Any, /) -> None:
        """Set the key."""

    def __delitem__(self, key: str, /) -> None:
        """Remove the key."""

    def __contains__(self, key: object, /) -> bool:
        """Whether the scope holds the key."""

    def __iter__(self) -> Iterator[str]:
        """The keys, sorted."""

    def __len__(self) -> int:
        """How many keys the scope holds."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""

    def append(self, key: str, item: Any) -> None:
        """Add one item to the list under the key; costs the item."""

    def extend(self, key: str, items: Iterable[Any]) -> None:
        """Add items to the list under the key; costs the items."""

    def update(self, key: str, changes: Mapping[Any, Any]) -> None:
        """Set some keys of the dict under the key; costs the changes."""


class Context(Protocol):
    """The node's side of one invocation.

    Everything here is decided by the checkpoint, the message and recorded results, so that a node
    that runs again after a crash sees the same.
    """

    session_id: str
    run_id: str
    step: int
    node: str
    attempt: int
    message: int
    path: tuple[tuple[str, int], ...]

    @property
    def state(self) -> Scope:
        """The node's own scope."""

    def scope(self, name: str) -> Scope:
        """A shared scope."""

    def send(self, payload: Any, to: str | None = None) -> None:
        """Send along the node's edges, as a return value is; `to` picks one declared target.

        Raises:
            UndeclaredTargetError: No declared edge leads to `to`.
            NotSerializableError: The payload cannot be stored.
        """

    def output(self, value: Any) -> None:
        """Add to the run's outputs; shown after the step's commit."""

    def effect(
        self,
        key: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        on_doubt: Literal["retry", "fail"] = "retry",
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Run an outside action once and record its result; await it.

        A recorded result is returned and the action not repeated: after a crash, after a failed
        attempt, and when the failed run is resumed.  If the process dies while the action runs, it
        may run again ("retry"), or is reported ("fail").  Give the receiver `idempotency_key(key)`
        so that it can tell a repeat.

        Args:
            key: Names the effect within this invocation.
            fn: Sync or async function; sync ones run in a thread.
            args: Compared by their encoded form; bind clients with `functools.partial`.
            on_doubt: What to do when it was begun and its result is unknown.
            kwargs: Compared as `args` are.

        Returns:
            The result, as it would come from the record.

        Raises:
            DuplicateEffectKeyError: The key was used in this attempt already.
            ConfigurationError: The key is no text, or `on_doubt` is neither word.
            EffectChangedError: The recorded effect had other arguments.
            EffectInDoubtError: Begun before a crash, with on_doubt="fail"; not run.
            NotSerializableError: An argument or the result cannot be stored.
        """

    def emit(self, event: Any, live: bool = False) -> None:  # noqa: FBT001, FBT002 - public name
        """Show a value to readers of the session: durable with the step, or live at once."""

    def heartbeat(self) -> None:
        """Tell that the node is alive: starts the idle timeout anew."""

    def now(self) -> float:
        """UTC seconds of the commit that sent this invocation's message; equal on a re-run."""

    def uuid(self, key: str) -> str:
        """An id derived from the invocation and the key; equal on a re-run."""

    def random(self, key: str) -> float:
        """A number in [0, 1) derived from the invocation and the key; equal on a re-run."""

    def idempotency_key(self, key: str) -> str:
        """A name for an outside action, equal in all attempts, other in every other invocation."""
