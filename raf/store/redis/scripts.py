"""The Lua scripts of this store, read from the folder `lua` beside this file; pure but for that.

Rules of this file: a script is known to the server by the SHA-1 of its text, so another version of
`raf` on the same server has other scripts and neither disturbs the other.
"""

import hashlib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Script:
    """A script as the server knows it."""

    name: str
    text: str

    @property
    def sha(self) -> str:
        """The name by which `EVALSHA` calls it."""
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


def _text(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")


_PRELUDE = _text("prelude")


def _script(name: str) -> Script:
    return Script(name, _PRELUDE + _text(name))


IDENTIFY = Script("identify", _text("identify"))
ADOPT = _script("adopt")
APPEND = _script("append")
CLAIM = _script("claim")
CLAIM_DUE = _script("claim_due")
COMMIT = _script("commit")
DELETE = _script("delete")
NOW = _script("now")
PRUNE = _script("prune")
READ = _script("read")
RELEASE = _script("release")
RENEW = _script("renew")
REQUEST = _script("request")
SCAN = _script("scan")
