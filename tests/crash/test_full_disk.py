"""A disk that is really full: a small file system, filled up to some bytes while a session runs."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.backends import EMBEDDED, url_of
from tests.crash.small_parity import goes_on, small_model
from tests.crash.small_run import FAILED, SmallJob, lines_of
from tests.crash.system_calls import run_small

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(300)]

SIZE = 1 << 20
PAGE = 4096
TOLD = {"CommitError", "StoreFullError", "StoreUnavailableError"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one mebibyte; only root can have one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path, free: int) -> Path:
    """Leave so many bytes."""
    ballast = disk / "ballast"
    room = shutil.disk_usage(disk).free - free
    ballast.write_bytes(bytes(max(0, room)))
    return ballast


@pytest.mark.parametrize("backend", EMBEDDED)
async def test_a_full_disk_at_every_page(
    backend: str, small_disk: Path, tmp_path: Path, campaign: str
) -> None:
    """What was kept can be read, the run stops with a typed error, and goes on when there is room."""
    told = tmp_path / "told"
    model_folder = tmp_path / "model"
    for folder in (told, model_folder):
        folder.mkdir()
    model = await small_model(model_folder, SmallJob(folder=str(model_folder), url=""))
    errors: set[str] = set()
    for pages in range(0, 120, 1 if campaign == "long" else 5):
        place = small_disk / "store"
        place.mkdir()
        job = SmallJob(folder=str(told), url=url_of(backend, place))
        job.told.unlink(missing_ok=True)
        ballast = fill(small_disk, pages * PAGE)
        code = await run_small(job)
        end = lines_of(job)[-1]
        error = str(end.get("error", ""))
        assert (code, bool(error)) in [(0, False), (FAILED, True)], end
        assert error in {"", *TOLD}, end
        errors.add(error)
        ballast.unlink()
        await goes_on(job, model)
        shutil.rmtree(place)
    assert {"", "CommitError"} <= errors
