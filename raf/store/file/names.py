"""Names of folders and files; pure.

Rules of this file:
- Two session ids never share a folder, also on file systems that ignore case or normalise text, and
  no id leads out of the root.
- A name is at most 200 bytes of ASCII.
- A name with a leading dot is never a session and never a record.

Theory of operation.  Of an id the characters a-z, 0-9, `_` and `-` stand for themselves; every other
byte of its UTF-8 is `%` and two capital digits, capitals too.  An id whose name would be too long
is the beginning of that name, `~`, and the SHA-256 of the id; no short name holds a `~`.  A name that
Windows keeps for a device has its first letter escaped.
"""

import hashlib
import re
from urllib.parse import unquote_to_bytes

MAX_NAME = 200
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(10))]
)
_DIGEST = 64
_ESCAPE = 3
_SHORT = re.compile(r"(?:[a-z0-9_-]|%[0-9A-F]{2})+")
_LONG = re.compile(r"(?:[a-z0-9_-]|%[0-9A-F]{2})+~[0-9a-f]{64}")

FORMAT_FILE = ".format"
QUEUE_LOCK = ".queue"
LEASES = "leases"
INBOX = "inbox"
TEMP = ".tmp-"
NEW = ".new-"
TRASH = ".trash-"

_DIGITS = 12
_PACK = re.compile(r"(\d{12,})-(\d{12,})\.pack")
_MARKER = re.compile(r"marker-(\d{8,})")
_LEASE = re.compile(r"lease-(\d{8,})")
_REQUEST = re.compile(r"(\d{12,})\.req")
_TEMP = re.compile(r"\.tmp-(\d+)-.+")
_GENERATION = re.compile(r"s(\d{8,})")
_GONE = re.compile(r"gone-(\d{8,})-(\d{12,})")


def folder_name(session_id: str) -> str:
    """The name of a session's folder.

    Args:
        session_id: A valid id: no lone surrogates, not empty.

    Example:
        >>> folder_name("team/Alpha-1")
        'team%2F%41lpha-1'
    """
    data = session_id.encode("utf-8")
    parts = [chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data]
    if session_id in _DEVICES:
        parts[0] = f"%{data[0]:02X}"
    name = "".join(parts)
    if len(name) <= MAX_NAME:
        return name
    beginning = name[: MAX_NAME - 1 - _DIGEST]
    cut = beginning.rfind("%")
    if cut > len(beginning) - _ESCAPE:  # an escape is kept whole or not at all
        beginning = beginning[:cut]
    return f"{beginning}~{hashlib.sha256(data).hexdigest()}"


def session_id_of(name: str) -> str | None:
    """The id that a folder's name spells out; None for a shortened or a foreign name."""
    if not _SHORT.fullmatch(name):
        return None
    try:
        session_id = unquote_to_bytes(name).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return session_id if folder_name(session_id) == name else None


def is_shortened(name: str) -> bool:
    """Whether a folder's name is that of a long id, which only the files inside spell out."""
    return _LONG.fullmatch(name) is not None


def record_name(position: int) -> str:
    """The file of the record at a position."""
    return f"{position:012d}.rec"


def pack_name(first: int, last: int) -> str:
    """The file that keeps what pruning left of commits from one position to another."""
    return f"{first:012d}-{last:012d}.pack"


def marker_name(number: int) -> str:
    """The file that says what pruning took; the highest number counts."""
    return f"marker-{number:08d}"


def lease_name(epoch: int) -> str:
    """The lease file of an epoch."""
    return f"lease-{epoch:08d}"


def request_name(seq: int) -> str:
    """The file of a request."""
    return f"{seq:012d}.req"


def temp_name(epoch: int, token: str) -> str:
    """A file that is being written under an epoch."""
    return f"{TEMP}{epoch}-{token}"


def generation_name(epoch: int) -> str:
    """The folder of a session whose first epoch is this; each new session of a name has its own."""
    return f"s{epoch:08d}"


def gone_name(epoch: int, position: int) -> str:
    """The tombstone of a session: the highest epoch and position it had."""
    return f"gone-{epoch:08d}-{position:012d}"


def record_position(name: str) -> int | None:
    """The position of a record's file, None for another file."""
    stem = name[:-4]  # by hand: a folder may hold thousands, and each reading lists them
    if name[-4:] != ".rec" or len(stem) < _DIGITS or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem)


def pack_range(name: str) -> tuple[int, int] | None:
    """The first and last position of a pack's file, None for another file."""
    return _pair(_PACK, name)


def marker_number(name: str) -> int | None:
    """The number of a marker, None for another file."""
    return _number(_MARKER, name)


def lease_epoch(name: str) -> int | None:
    """The epoch of a lease file, None for another file."""
    return _number(_LEASE, name)


def request_seq(name: str) -> int | None:
    """The number of a request's file, None for another file."""
    return _number(_REQUEST, name)


def temp_epoch(name: str) -> int | None:
    """The epoch under which a temporary file was begun, None for another file."""
    return _number(_TEMP, name)


def generation_epoch(name: str) -> int | None:
    """The first epoch of a session's folder, None for another name."""
    return _number(_GENERATION, name)


def gone_mark(name: str) -> tuple[int, int] | None:
    """Epoch and position of a tombstone, None for another file."""
    return _pair(_GONE, name)


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    match = pattern.fullmatch(name)
    return int(match[1]) if match else None


def _pair(pattern: re.Pattern[str], name: str) -> tuple[int, int] | None:
    match = pattern.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None
