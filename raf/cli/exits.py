"""What the command says to the shell when it ends; pure.

Rules of this file: the numbers are a promise (`docs/reference/cli.md`), so none changes its meaning.
The first class of a row decides; rows go from the particular to the general.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from raf.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    CommitError,
    EventsGoneError,
    LeaseLostError,
    MissingKeyError,
    NothingToResumeError,
    RafError,
    RunError,
    RunInputMismatchError,
    RunUnfinishedError,
    SessionBusyError,
    SessionNotFoundError,
    StoreError,
    TopologyChangedError,
    WorkflowMismatchError,
)


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    BUSY = 4
    MISMATCH = 5
    DAMAGED = 6
    STORE = 7
    PAUSED = 8
    CANCELLED = 9
    FAULT = 70
    BY_SIGNAL = 128  # and the signal's number: 130 for SIGINT, 143 for SIGTERM


_OF_ERRORS: Final[tuple[tuple[type[RafError], ExitCode], ...]] = (
    (SessionNotFoundError, ExitCode.NOT_FOUND),
    (CheckpointNotFoundError, ExitCode.NOT_FOUND),
    (NothingToResumeError, ExitCode.NOT_FOUND),
    (EventsGoneError, ExitCode.NOT_FOUND),
    (SessionBusyError, ExitCode.BUSY),
    (RunUnfinishedError, ExitCode.BUSY),
    (LeaseLostError, ExitCode.BUSY),
    (RunInputMismatchError, ExitCode.MISMATCH),
    (WorkflowMismatchError, ExitCode.MISMATCH),
    (TopologyChangedError, ExitCode.MISMATCH),
    (CommitError, ExitCode.STORE),
    (MissingKeyError, ExitCode.USAGE),
    (CheckpointError, ExitCode.DAMAGED),
    (StoreError, ExitCode.STORE),
    (RunError, ExitCode.FAILED),
    (RafError, ExitCode.USAGE),
)

_OF_STATUS: Final[Mapping[str, ExitCode]] = {
    "completed": ExitCode.OK,
    "failed": ExitCode.FAILED,
    "cancelled": ExitCode.CANCELLED,
}


def code_of_error(error: RafError) -> ExitCode:
    """The exit code of an error."""
    return next(code for kind, code in _OF_ERRORS if isinstance(error, kind))


def code_of_status(status: str) -> ExitCode:
    """The exit code of an outcome; every pausing one is `PAUSED`."""
    return _OF_STATUS.get(status, ExitCode.PAUSED)
