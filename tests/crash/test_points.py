"""No named point of the package is left out of the campaigns."""

import ast
from dataclasses import replace

import pytest

from tests.crash.backends import BACKENDS
from tests.crash.conftest import MakeLife
from tests.crash.forking import over
from tests.crash.points import points_of, points_of_backend, points_of_the_source
from tests.crash.processes import fork, told
from tests.crash.trace import Trace

pytestmark = pytest.mark.crash

# Points that no campaign comes to, each with its reason.
EXPORT = (
    "an export writes a file beside the store: tests/unit/store/test_transfer.py stops it there"
)
NOT_REACHED: dict[str, str] = {
    f"store.export.{act}.{end}": EXPORT
    for act in ("sync", "publish")
    for end in ("before", "after")
}


def test_every_point_is_in_a_campaign_or_excused() -> None:
    """A new point joins a campaign, or it is listed here with a reason; no reason outlives its point."""
    campaigns = {point for backend in BACKENDS for point in points_of_backend(backend)}
    source = set(points_of_the_source())
    assert source - campaigns - set(NOT_REACHED) == set()
    assert set(NOT_REACHED) - source == set()
    assert set(NOT_REACHED) & campaigns == set()


def test_points_are_found_in_the_source() -> None:
    """Literal names are found wherever they are called; the engine and both stores have some."""
    module = ast.parse("def f():\n    failpoint('a.b')\n    raf.failpoint.failpoint('c.d')\n")
    assert set(points_of(module)) == {"a.b", "c.d"}
    rooms = {point.rpartition(".")[0].split(".")[0] for point in points_of_the_source()}
    assert {"engine", "store"} <= rooms


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_script_passes_every_point(backend: str, life: MakeLife) -> None:
    """A process that nobody kills comes to each point of its store, so that each one can kill."""
    one = life(backend, lease_s=0.9, linger_s=0.8)
    process = fork(replace(one.job, names=points_of_backend(backend)))
    await over(process)
    process.close()
    assert told(one.job) == {"outputs": one.model.outputs}
    trace = Trace(one.job.trace, one.job.names)
    passed = set(trace.counts())
    trace.close()
    assert set(points_of_backend(backend)) - passed == set()
