"""Which store, session and checkpoint a command means."""

from pathlib import Path

import pytest

from raf.cli.places import caretaker, commit_in, existing, find, opened
from raf.errors import (
    CheckpointNotFoundError,
    ConfigurationError,
    InvalidSessionIdError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from tests.unit.cli.sessions import fill, url_of


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_looking_makes_no_store(scheme: str, tmp_path: Path) -> None:
    """A mistyped place is told, and nothing is made there."""
    place = tmp_path / "typo"
    with pytest.raises(StoreUnavailableError, match="nothing in that place"):
        existing(f"{scheme}:{place}")
    assert not place.exists()


def test_memory_is_nobody_elses() -> None:
    """A store in memory cannot hold what another process left."""
    with pytest.raises(ConfigurationError, match="gone with its process"):
        existing("memory:")


async def test_a_name_is_a_session_or_a_checkpoint(tmp_path: Path) -> None:
    """A session of exactly the name comes first, since ids may hold an `@`."""
    await fill(url_of(tmp_path))
    async with opened(url_of(tmp_path)) as manager:
        assert await find(manager, "good") == ("good", None)
        assert await find(manager, "good@1") == ("good", 1)
        assert await find(manager, "a@b@1") == ("a@b@1", None)
        assert await find(manager, "a@b@1@0") == ("a@b@1", 0)
        for name in ("nobody", "nobody@1", "a@b", "good@x", "@1", "../x"):
            with pytest.raises(SessionNotFoundError):
                await find(manager, name)
        for name in ("", "x" * 600, "a\x00b"):
            with pytest.raises(InvalidSessionIdError):
                await find(manager, name)


async def test_a_checkpoint_is_named_twice_over(tmp_path: Path) -> None:
    """By its number or its whole id; another session's and one to come are refused."""
    await fill(url_of(tmp_path))
    async with opened(url_of(tmp_path)) as manager:
        assert await commit_in(manager, "good", "1") == 1
        assert await commit_in(manager, "good", "good@1") == 1
        for name in ("failing@1", "99", "-1", "one", "good@"):
            with pytest.raises(CheckpointNotFoundError):
                await commit_in(manager, "good", name)


async def test_looking_after_needs_no_code(tmp_path: Path) -> None:
    """The graph that the session holds is enough, and the session stays its workflow's."""
    await fill(url_of(tmp_path))
    async with opened(url_of(tmp_path)) as manager:
        before = await manager.head("failing")
        async with caretaker(manager, "failing") as engine:
            assert await engine.cancel("failing") == "cancelled"
            await engine.pin("failing", 1)
        after = await manager.head("failing")
        restored = await manager.restore("failing")
        assert after.summary.workflow == before.summary.workflow == "notes"
        assert after.summary.fingerprint == before.summary.fingerprint
        assert restored is not None
        assert restored.snapshot.pins == {1}
        assert (await manager.verify("failing")).intact
        with pytest.raises(SessionNotFoundError):
            async with caretaker(manager, "nobody"):
                pass
