"""What the tests of this folder share."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.crash.backends import url_of
from tests.crash.life import Life
from tests.crash.points import points_of_backend
from tests.crash.script import Job
from tests.crash.unbroken import unbroken

MakeLife: TypeAlias = Callable[..., Life]


@pytest.fixture
async def life(tmp_path: Path) -> MakeLife:
    """Makes a session on a store: `life("file", lease_s=1.0)`; other names are those of `Job`."""
    model = await unbroken(1, tmp_path)

    def make(backend: str, **options: object) -> Life:
        folder = tmp_path / backend
        folder.mkdir()
        job = Job(
            folder=str(folder),
            url=url_of(backend, folder),
            seed=1,
            names=points_of_backend(backend),
            **options,  # type: ignore[arg-type]
        )
        return Life(job=job, backend=backend, model=model)

    return make
