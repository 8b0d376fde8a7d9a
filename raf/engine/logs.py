"""The fields that every log record of a run carries, for formatters and log stores."""

from typing import Any


def about(
    session_id: str, run_id: str, step: int, *, epoch: int = 0, attempt: int = 0
) -> dict[str, Any]:
    """The `extra` of a log call; payloads and state never go into a log.

    Args:
        session_id: The session.
        run_id: The run.
        step: The step in flight.
        epoch: The owner's epoch; 0 when nothing is stored.
        attempt: The attempt of a node; 0 outside one.
    """
    return {
        "raf_session": session_id,
        "raf_run": run_id,
        "raf_step": step,
        "raf_epoch": epoch,
        "raf_attempt": attempt,
    }
