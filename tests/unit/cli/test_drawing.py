"""What `raf graph --session` draws over the graph."""

from pathlib import Path

import pytest

from raf.checkpoint.restore import StoredEvent
from raf.cli.drawing import overlay_of
from raf.cli.places import opened
from raf.graph.draw import DrawState
from tests.unit.cli.sessions import fill, flow, url_of


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        ("good", {"write": DrawState("done", 1), "check": DrawState("done", 1)}),
        ("failing", {"write": DrawState("done", 1), "check": DrawState("failed", 0)}),
    ],
)
async def test_how_nodes_stand(
    session: str, expected: dict[str, DrawState], tmp_path: Path
) -> None:
    """A node that completed is done, the one that failed the run has failed."""
    await fill(url_of(tmp_path))
    async with opened(url_of(tmp_path)) as manager:
        restored = await manager.restore(session)
        _, events = await manager.events(session)
    assert restored is not None
    assert overlay_of(flow(), restored, events, alive=False) == expected


@pytest.mark.parametrize(("alive", "status"), [(True, "running"), (False, "pending")])
async def test_what_comes_next(alive: bool, status: str, tmp_path: Path) -> None:
    """At an older checkpoint the node that comes next is running only while somebody runs it."""
    await fill(url_of(tmp_path))
    async with opened(url_of(tmp_path)) as manager:
        restored = await manager.restore("good", 1)
        _, events = await manager.events("good")
    assert restored is not None
    until: list[StoredEvent] = [event for event in events if event.commit <= 1]
    states = overlay_of(flow(), restored, until, alive=alive)
    assert states["write"] == DrawState("done", 1)
    assert states["check"].status == status
