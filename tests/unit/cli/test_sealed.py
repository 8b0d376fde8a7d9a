"""With keys in the environment, commands write sealed records and read them again."""

import asyncio
import base64
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raf.cli import app
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
        found = await manager.verify("s")
        assert found.sealed
        assert not found.intact
        assert "2026-01" in found.findings[0].why
        with pytest.raises(MissingKeyError, match=r"record commit \d+ is encrypted"):
            await manager.repair("s")


def raf(*words: str) -> tuple[int, str]:
    """Run a command; its exit code and all that it says."""
    result = CliRunner().invoke(app, words)
    return result.exit_code, " ".join(result.output.split())


def test_a_missing_key_is_not_told_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verify and import say that the key is missing, with and without another ring."""
    url, there = url_of(tmp_path), f"file:{tmp_path / 'there'}"
    monkeypatch.delenv("RAF_KEY_FILE", raising=False)
    monkeypatch.setenv("RAF_KEYS", KEYS)

    async def run() -> None:
        async with Opened(flow(), url, None, None, "50").engine() as engine:
            await engine.run("a text", "s")

    asyncio.run(run())
    assert raf("export", "s", "--to", str(tmp_path / "x.raf"), "--store", url)[0] == 0
    other = f"2027-01:{base64.b64encode(bytes(range(32))).decode()}"
    for keys in (None, other):
        if keys is None:
            monkeypatch.delenv("RAF_KEYS")
        else:
            monkeypatch.setenv("RAF_KEYS", keys)
        code, said = raf("verify", "--store", url)
        assert (code, "not at hand" in said, "damaged" in said) == (2, True, False), said
    code, said = raf("import", str(tmp_path / "x.raf"), "--store", there)
    assert (code, "not checked" in said, "damaged" in said) == (0, True, False), said
    monkeypatch.setenv("RAF_KEYS", KEYS)
    assert raf("verify", "--store", there)[0] == 0
