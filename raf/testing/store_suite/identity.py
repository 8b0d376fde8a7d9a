"""Session ids: whatever text they are, they stay apart and inside the store."""

from pathlib import Path

import pytest

from raf.errors import InvalidSessionIdError
from raf.store.model import MAX_SESSION_ID, Select
from raf.store.port import Store
from raf.testing.clock import ManualClock
from raf.testing.store_suite.base import (
    LEASE_S,
    SuiteBase,
    bodies,
    live_owner,
    must_read,
    new_session,
)

ODD_IDS = (
    "../evil",
    "..",
    ".",
    "/etc/passwd",
    "a/b",
    "a:b",
    "a_b",
    "a.b",
    "a\\b",
    "A:B",
    "a%2Fb",
    "a%2fb",
    "a%b",
    "a*b?",
    "'; DROP TABLE sessions; --",
    "\u00e9",
    "e\u0301",
    "trailing.",
    "trailing ",
    "trailing",
    " trailing",
    "new\nline",
    "\u2028",
    "\U0001f600",
    "\U0001f469\u200d\U0001f4bb",
    "CON",
    "con",
    "-rf",
    "~",
    "x" * 300,
    "x" * 299 + "y",
    "x" * MAX_SESSION_ID,
    "\U0001f600" * MAX_SESSION_ID,
    "\u00df",
    "SS",
    "ss",
    "\u0130",
    "i",
)


class IdentityTests(SuiteBase):
    """Ids as keys."""

    async def test_odd_ids_stay_apart(self, store: Store, tmp_path: Path) -> None:
        """Each odd id is a session of its own, keeps its own data, and is listed as it is."""
        outside = set(tmp_path.parent.iterdir())
        for name in ODD_IDS:
            pen = await new_session(store, name, commits=1)
            await pen.write(body=name.encode())
            await store.request(name, "r", "signal", name.encode())
        for name in ODD_IDS:
            reading = await must_read(store, name)
            assert reading.head.session_id == name
            assert bodies(reading) == [b"body 0", name.encode()]
            assert [request.body for request in reading.requests] == [name.encode()]
        assert [head.session_id for head in await store.scan()] == sorted(ODD_IDS)
        assert set(tmp_path.parent.iterdir()) == outside

    @pytest.mark.parametrize(
        "name",
        ["", "a\x00b", "\ud800", "x\udfffy", "x" * (MAX_SESSION_ID + 1)],
        ids=["empty", "nul", "surrogate", "surrogate inside", "too long"],
    )
    async def test_ids_that_cannot_be_stored(
        self, store: Store, clock: ManualClock, name: str
    ) -> None:
        """They are refused wherever they are named, and nothing is made."""
        with pytest.raises(InvalidSessionIdError):
            await store.claim(name, live_owner(clock), lease_s=LEASE_S, create=True)
        with pytest.raises(InvalidSessionIdError):
            await store.request(name, "r", "signal", b"")
        with pytest.raises(InvalidSessionIdError):
            await store.read(name, Select())
        assert await store.scan() == []
