"""What the errors of the server and of the link mean in `raf`'s words; pure.

Rules of this file: no error of `redis` reaches a caller; what may pass by itself (a server that
restarts, loads or is busy, a lost link) is told apart from what a person must mend.
"""

import socket
from urllib.parse import urlsplit

import redis.exceptions as said

from raf.errors import CorruptRecordError, RafError, StoreFullError, StoreUnavailableError

# First words of the server's errors that pass by themselves.
_PASSING = ("LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN")
_FULL = ("OOM", "MISCONF")
_DAMAGED = ("RAFDAMAGED", "WRONGTYPE")
_LINK = (said.ConnectionError, said.TimeoutError, OSError)
_NOT_LINK = (said.AuthenticationError, said.AuthorizationError, said.BusyLoadingError)


def first_word(error: Exception) -> str:
    """The word that classes an error of the server."""
    return getattr(error, "status_code", None) or str(error).partition(" ")[0]


def is_lost_link(error: Exception) -> bool:
    """Whether the answer did not arrive, so that what was asked may have been done."""
    return isinstance(error, _LINK) and not isinstance(error, _NOT_LINK)


def never_left(error: Exception) -> bool:
    """Whether no connection was made, so that nothing was sent."""
    cause = error.__cause__ or error.__context__
    return any(isinstance(one, (ConnectionRefusedError, socket.gaierror)) for one in (error, cause))


def passes(error: Exception) -> bool:
    """Whether the same may succeed a moment later."""
    return is_lost_link(error) or first_word(error) in _PASSING


def translate(
    error: Exception, url: str, *, session_id: str = "", waited_s: float = 0, sent: bool = True
) -> RafError:
    """The error that a caller gets.

    Args:
        error: What the client raised.
        url: The store, for the message.
        session_id: Whose operation failed; empty when it was nobody's.
        waited_s: How long it was tried again.
        sent: Whether a try may have reached the server.
    """
    reason, word = _reason(error), first_word(error)
    if word in _FULL:
        return StoreFullError(url, reason)
    if session_id and any(mark in reason for mark in _DAMAGED):
        return CorruptRecordError(session_id, "of the session's keys", reason)
    if word == "READONLY":
        return StoreUnavailableError(url, f"it is a replica, name its primary: {reason}")
    if is_lost_link(error):
        tried = f" (tried for {waited_s:.0f} s)" if waited_s >= 1 else ""
        outcome = "whether it was done is open" if sent else "nothing was sent"
        place = urlsplit(url).netloc
        return StoreUnavailableError(
            url,
            f"no answer{tried}, {outcome}: {reason}: check that the server runs at {place} and can "
            "be reached",
        )
    return StoreUnavailableError(url, reason)


def _reason(error: Exception) -> str:
    word = getattr(error, "status_code", None)
    text = str(error) or type(error).__name__
    return f"{word} {text}" if word and not text.startswith(word) else text
