"""What Postgres's errors mean in `raf`'s words; pure.

Rules of this file: no error of psycopg reaches a caller; the SQLSTATE decides.  What passes by itself
is tried again; what the server said about a value, a right or the room is told at once.
"""

import psycopg

from raf.errors import RafError, StoreBusyError, StoreFullError, StoreUnavailableError

# The server is away, starting, stopping or out of connections; or it chose us to give way.
_PASSING = frozenset({"57P01", "57P02", "57P03", "53300", "40001", "40P01", "25P03", "57P05"})
_CONNECTION = "08"  # the class of broken connections
_FULL = frozenset({"53100", "54000", "53400"})
_LOGIN = "28"
# A refused login comes without a state: what a server says while it starts, stops or is crowded.
_STARTING = ("starting up", "shutting down", "recovery", "too many clients", "not yet accepting")
_HINTS = {
    "25006": "it may only be read, as a standby: name the primary",
    "3D000": "make the database first (createdb), or name another one",
    "3F000": "the schema was dropped while it was in use: open the store again",
    "42P01": "the tables were dropped while they were in use: open the store again",
    "42501": "the role lacks a right: let it own the schema (CREATE SCHEMA NAME AUTHORIZATION ROLE)",
    "53200": "the server is out of memory",
    "57014": "a time limit of the server (statement_timeout) ended the statement",
}


def is_passing(error: psycopg.Error) -> bool:
    """Whether trying again on another connection may help."""
    state = error.sqlstate
    if state is None:  # libpq or the pool said it: there was no answer of a server
        return isinstance(error, psycopg.OperationalError)
    return state in _PASSING or state.startswith(_CONNECTION)


def is_starting(error: psycopg.Error) -> bool:
    """Whether the server is there and will take connections soon."""
    if error.sqlstate is not None:
        return is_passing(error)
    return is_passing(error) and any(words in str(error) for words in _STARTING)


def translate(error: psycopg.Error, url: str, *, waited_s: float = 0.0) -> RafError:
    """The error that a caller gets.

    Args:
        error: What psycopg raised.
        url: The store, for the message.
        waited_s: How long it was tried.
    """
    state = error.sqlstate or ""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    said = "; ".join(lines) or type(error).__name__
    if state == "55P03":
        return StoreBusyError(url, waited_s)
    if state in _FULL:
        return StoreFullError(url, said)
    if state.startswith(_LOGIN):
        said += ": check the user and the password of the URL, and the server's pg_hba.conf"
    elif state in _HINTS:
        said += f": {_HINTS[state]}"
    elif is_passing(error):
        tried = f" (tried for {waited_s:.0f} s)" if waited_s >= 1 else ""
        said += f"{tried}: check that the server runs and can be reached, and the URL's names and password"
    return StoreUnavailableError(url, f"{said} (SQLSTATE {state})" if state else said)
