"""How often a full snapshot is written, and how many checkpoints stay."""

from dataclasses import dataclass
from typing import Final, Literal, Self

from raf.errors import ConfigurationError

KEPT_CHAINS: Final = 3
AUTO_LEAST: Final = 10
AUTO_MOST: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """The settings of a checkpoint manager.

    Args:
        full_snapshot_interval: Members of a chain (the full and its deltas), 1 or more; or "auto":
            a full when the deltas since the last one outweigh it.
        max_checkpoints: So many checkpoints stay, 1 or more; the newest three chains and pinned
            ones stay in any case.  A larger interval than this is cut to it, so that no kept delta
            can lose its base.
        enabled: False keeps nothing: a run lives in memory only and cannot be resumed.

    Raises:
        ConfigurationError: A value is out of its range.

    Example:
        >>> CheckpointConfig(full_snapshot_interval=100, max_checkpoints=50).interval
        50
    """

    full_snapshot_interval: int | Literal["auto"] = 50
    max_checkpoints: int = 100
    enabled: bool = True

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        interval = self.full_snapshot_interval
        if interval != "auto" and not _is_count(interval):
            raise ConfigurationError(
                f'full_snapshot_interval is a whole number of 1 or more, or "auto", not {interval!r}'
            )
        if not _is_count(self.max_checkpoints):
            raise ConfigurationError(
                f"max_checkpoints is a whole number of 1 or more, not {self.max_checkpoints!r}"
            )
        if not isinstance(self.enabled, bool):
            raise ConfigurationError(f"enabled is True or False, not {self.enabled!r}")

    @classmethod
    def disabled(cls) -> Self:
        """Keep nothing."""
        return cls(enabled=False)

    @property
    def interval(self) -> int | None:
        """The members of a chain that are really used; None with "auto"."""
        if self.full_snapshot_interval == "auto":
            return None
        return min(self.full_snapshot_interval, self.max_checkpoints)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1
