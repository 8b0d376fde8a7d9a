"""When a full snapshot is due, and which checkpoints go; pure.

Rules of this file:
- A full is due when the chain has `interval` members, counted from what is stored.  With "auto" it
  is due when the deltas since the last full outweigh it, after at least 10 and at most
  min(1000, max_checkpoints) links, so that the bytes written stay linear in the work.
- Whole chains are judged: the newest three stay.  Of older ones checkpoints go, the oldest chain
  first and the newest record first within it, while more than `max_checkpoints` remain and no pin
  holds them.  So at any moment what is left of a chain is its beginning, and no delta loses its base.
- A pin of a commit holds its chain up to that commit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raf.checkpoint.config import AUTO_LEAST, AUTO_MOST, KEPT_CHAINS, CheckpointConfig
from raf.store.model import RecordInfo


@dataclass(slots=True)
class ChainSize:
    """How long and heavy the open chain is: members, bytes of its full, bytes of its deltas."""

    members: int = 0
    full_bytes: int = 0
    delta_bytes: int = 0

    def add(self, size: int, *, full: bool) -> None:
        """Count one more checkpoint; a full begins a new chain."""
        if full:
            self.members, self.full_bytes, self.delta_bytes = 1, size, 0
        else:
            self.members += 1
            self.delta_bytes += size


def full_is_due(chain: ChainSize, config: CheckpointConfig) -> bool:
    """Whether the next checkpoint is to be a full."""
    if chain.members == 0:
        return True
    if config.interval is not None:
        return chain.members >= config.interval
    if chain.members > min(AUTO_MOST, config.max_checkpoints):
        return True
    return chain.members > AUTO_LEAST and chain.delta_bytes > chain.full_bytes


def chains(kept: Iterable[RecordInfo]) -> list[list[RecordInfo]]:
    """Commits that still have a checkpoint, given oldest first, by chain."""
    found: list[list[RecordInfo]] = []
    for info in kept:
        if info.full or not found:
            found.append([])
        found[-1].append(info)
    return found


def to_prune(
    kept: Sequence[RecordInfo], pins: Iterable[int], config: CheckpointConfig
) -> list[int]:
    """Positions of the checkpoints to drop, in the order in which they must go."""
    held = set(pins)
    found = chains(kept)
    left = len(kept)
    positions: list[int] = []
    for chain in found[:-KEPT_CHAINS]:
        for info in reversed(chain):
            if left <= config.max_checkpoints or info.commit in held:
                break
            positions.append(info.position)
            left -= 1
    return positions
