"""Names of scopes: a node's own (private) one, and shared ones.

Rules of this file:
- A shared scope is known by its name alone: every node that names it sees the same keys.
- In text a private scope is the node's name and a shared one `::name`; colons and per cent signs
  inside a name are escaped, so no two scopes share a text.
- The older form `node::name`, in which a shared scope carries a node, is read and means `::name`.
"""

from dataclasses import dataclass


def _escape(name: str) -> str:
    return name.replace("%", "%25").replace(":", "%3A")


def _unescape(text: str) -> str:
    return text.replace("%3A", ":").replace("%25", "%")


@dataclass(frozen=True, slots=True, eq=False)
class ScopeKey:
    """Names a scope; equal keys name the same scope.

    Example:
        >>> ScopeKey.shared("editor", "chat") == ScopeKey.shared("writer", "chat")
        True
        >>> str(ScopeKey.private("a::b"))
        'a%3A%3Ab'
    """

    node_id: str
    scope_name: str | None = None

    @classmethod
    def private(cls, node_id: str) -> "ScopeKey":
        """The node's own scope."""
        return cls(node_id)

    @classmethod
    def shared(cls, node_id: str, scope_name: str) -> "ScopeKey":
        """A shared scope; `node_id` says who names it and does not matter."""
        return cls(node_id, scope_name)

    @classmethod
    def parse(cls, text: str) -> "ScopeKey":
        """The scope that a text names, in this form or the older one."""
        node, separator, name = text.partition("::")
        if separator:
            return cls(_unescape(node), _unescape(name))
        return cls(_unescape(text))

    @property
    def is_shared(self) -> bool:
        """Whether any node may name this scope."""
        return self.scope_name is not None

    def __str__(self) -> str:
        """The text that checkpoints use."""
        if self.scope_name is None:
            return _escape(self.node_id)
        return f"::{_escape(self.scope_name)}"

    def __eq__(self, other: object) -> bool:
        """Equal when both name the same scope."""
        return isinstance(other, ScopeKey) and str(self) == str(other)

    def __hash__(self) -> int:
        """Agrees with `==`."""
        return hash(str(self))
