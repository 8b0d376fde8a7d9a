"""With keys in the environment, commands write sealed records and read them again."""

import base64
from pathlib import Path

import pytest

from raf.cli.places import existing, opened
from raf.cli.running import Opened
from raf.errors import MissingKeyError
from raf.store.sealed import SealedStore, keys_in_use
from tests.unit.cli.sessions import flow, url_of

KEYS = f"2026-01:{base64.b64encode(bytes(32)).decode()}"


def all_bytes(folder: Path) -> bytes:
    """What stands in the files of a folder."""
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_the_environment_seals_what_commands_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is sealed on disk, commands with the key read and check it, others hear which is missing."""
    url = url_of(tmp_path)
    monkeypatch.delenv("RAF_KEY_FILE", raising=False)
    monkeypatch.setenv("RAF_KEYS", KEYS)
    async with Opened(flow(), url, None, None, "50").engine() as engine:
        await engine.run("a very secret text", "s")
    stored = all_bytes(tmp_path)
    assert b"secret" not in stored
    assert b"desk" not in stored
    async with opened(url) as manager:
        assert (await manager.verify("s")).intact
        loaded = await manager.load_full_state("s")
        assert loaded is not None
        assert loaded[1]["::desk"]["note"] == {"text": "a very secret text", "stars": 0}
    async with existing(url) as store:
        assert not isinstance(store.beneath, SealedStore)
        assert set(await keys_in_use(store)) == {"2026-01"}
    monkeypatch.delenv("RAF_KEYS")
    async with opened(url) as manager:
        assert [head.summary.status async for head in manager.heads()] == ["completed"]
        with pytest.raises(MissingKeyError, match="RAF_KEYS"):
            await manager.restore("s")
        assert "2026-01" in (await manager.verify("s")).findings[0].why
