"""Whether a failed attempt is tried again, and after how long; pure.

Rules of this file:
- An error of the calling code (`UsageError`) is never tried again, nor an effect in doubt: it
  would fail alike.
- The nominal delay grows by the policy's factor up to its bound.  Full jitter draws evenly from
  zero to the nominal delay; whether the wait is held in the step or leaves it is decided by the
  nominal delay, so that chance does not shape the run.
"""

from dataclasses import dataclass
from typing import Final

from raf.errors import EffectInDoubtError, UsageError
from raf.topology.workflow import RetryPolicy

HELD_IN_STEP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Again:
    """Try again after `delay_s`; in the step, or out of it when the nominal delay is long."""

    delay_s: float
    in_step: bool


def nominal_delay(policy: RetryPolicy, failures: int) -> float:
    """The delay before the next attempt without jitter, in seconds; `failures` is 1 or more."""
    try:
        grown = policy.backoff_s * policy.factor ** (failures - 1)
    except OverflowError:
        return policy.max_backoff_s
    return min(grown, policy.max_backoff_s)


def decide(
    policy: RetryPolicy, failures: int, error: Exception, *, elapsed_s: float, chance: float
) -> Again | None:
    """What follows the failure with this count; None gives the invocation up.

    Args:
        policy: The node's policy.
        failures: Failed attempts so far, this one included.
        error: What the attempt raised.
        elapsed_s: Seconds since the first failure.
        chance: A number in [0, 1) for jitter.
    """
    if failures >= policy.attempts or isinstance(error, UsageError | EffectInDoubtError):
        return None
    if not isinstance(error, policy.on):
        return None
    nominal = nominal_delay(policy, failures)
    delay = nominal * chance if policy.jitter == "full" else nominal
    if policy.total_s is not None and elapsed_s + delay > policy.total_s:
        return None
    return Again(delay, nominal <= HELD_IN_STEP_S)
