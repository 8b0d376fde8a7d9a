"""What a process was doing when it was killed, for the histogram of a campaign."""

from collections import Counter
from typing import Final

from tests.crash.look import Sight
from tests.crash.trace import open_brackets

BEFORE_COMMIT: Final = "before a commit"
AFTER_COMMIT: Final = "after a commit"
COMPACTION: Final = "compaction"
BEFORE_CLAIM: Final = "before the claim"
BEFORE_ENTRY: Final = "before the entry"
BESIDE: Final = "another session"
RENEWAL: Final = "renewal"
BETWEEN: Final = "between"

# The first that fits counts: what a store does stands before what the engine or a node does.
_BY_STEM: Final = (
    ("prune", "prune"),
    ("renew", RENEWAL),
    ("release", "release"),
    ("request", "request"),
    ("claim", "claim"),
    ("commit", BEFORE_COMMIT),
    ("append", "journal"),
    ("effect", "effect"),
    ("node", "node"),
    ("step", "step"),
)
# What is done with other sessions only.
_BESIDE: Final = ("delete", "adopt", "claim_due")
# Every kill has a phase; these must not be without one.
PHASES: Final = (
    BEFORE_ENTRY,
    *dict.fromkeys(phase for _, phase in _BY_STEM),
    AFTER_COMMIT,
    COMPACTION,
    BESIDE,
)


def stem_of(point: str) -> str:
    """A point without its end: `store.file.link` of `store.file.link.before`."""
    return point.rpartition(".")[0]


def phase_of(point: str, counts: Counter[str], sight: Sight, *, landed: bool) -> str:
    """The phase of a kill.

    Args:
        point: The point that killed; empty for a random moment.
        counts: The points that the process had passed.
        sight: What the store shows afterwards.
        landed: Whether the step of the last node that started is committed.
    """
    if sight.commit < 0:
        return BEFORE_ENTRY
    stems = open_brackets(counts)
    if counts["engine.step.before_run"] > counts["engine.step.after_run"]:
        stems.add("engine.step")
    if point:
        stems.add(stem_of(point))
    if sight.aside or any(word in stem for stem in stems for word in _BESIDE):
        return BESIDE
    words = {word for stem in stems for word in stem.split(".")}
    phase = next((phase for word, phase in _BY_STEM if word in words), BETWEEN)
    if phase != BEFORE_COMMIT:
        return phase
    if (landed and sight.is_full) or (not landed and sight.full_is_next):
        return COMPACTION
    return AFTER_COMMIT if landed else BEFORE_COMMIT
