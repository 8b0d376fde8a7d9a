"""`raf edit`: which key is meant, and what its value becomes."""

from pathlib import Path
from typing import Any

import pytest

from raf.checkpoint.manager import CheckpointManager
from raf.cli.editing import editor_for, read_changes
from raf.cli.places import caretaker, opened
from raf.errors import ConfigurationError, PayloadTypeError
from raf.topology.workflow import Workflow
from tests.unit.cli.sessions import fill, flow, url_of


async def edited(
    folder: Path, assign: list[str], delete: list[str], code: Workflow | None = None
) -> dict[str, dict[str, Any]]:
    """The state of `good` behind an edit."""
    await fill(url_of(folder))
    async with opened(url_of(folder)) as manager, caretaker(manager, "good", code) as engine:
        found = await load(manager)
        change = editor_for(engine, found[0], read_changes(assign, delete))
        await engine.edit("good", change, reason="a test")
        assert (await manager.verify("good")).intact
        return (await load(manager))[1]


async def load(manager: CheckpointManager) -> tuple[Any, dict[str, dict[str, Any]]]:
    found = await manager.load_full_state("good")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("assign", "scope", "key", "value"),
    [
        ("write.seen=7", "write", "seen", 7),
        ("write.more={}", "write", "more", {}),
        ('::desk.tags=["x"]', "::desk", "tags", ["x"]),
        ("::new.key=null", "::new", "key", None),
        ("::a.b.c.d=2", "::a.b", "c.d", 2),
        ('write.a="x=y.z"', "write", "a", "x=y.z"),
    ],
)
async def test_without_the_code(
    assign: str, scope: str, key: str, value: Any, tmp_path: Path
) -> None:
    """Plain values are put in place; a dot in a name that is there is no hindrance."""
    assert (await edited(tmp_path, [assign], []))[scope][key] == value


async def test_a_key_goes(tmp_path: Path) -> None:
    """A deleted key is gone, and its scope with its last key."""
    state = await edited(tmp_path, [], ["write.seen", "::desk.tags"])
    assert "write" not in state
    assert "tags" not in state["::desk"]


@pytest.mark.parametrize(
    ("assign", "delete", "says"),
    [
        ([], [], "nothing to change"),
        (["write.seen"], [], "has no value"),
        (["write.seen=draft"], [], "no JSON"),
        (["seen=1"], [], "names no key"),
        ([".seen=1"], [], "names no key"),
        (["writer.seen=1"], [], "no node of that name"),
        ([], ["write.nothing"], "there is no 'write.nothing'"),
        (["::desk.note={}"], [], "holds an instance of a class: name the code"),
        (["::desk.log=[]"], [], "holds an instance of a class: name the code"),
    ],
)
async def test_what_is_refused(
    assign: list[str], delete: list[str], says: str, tmp_path: Path
) -> None:
    """A key that is not there and a type that only the code knows are told, and nothing changes."""
    with pytest.raises(ConfigurationError, match=says):
        await edited(tmp_path, assign, delete)


async def test_with_the_code_types_are_made(tmp_path: Path) -> None:
    """JSON becomes the declared class; a key with a reducer is replaced, not added to."""
    assign = ['::desk.note={"text": "new", "stars": 5}', '::desk.log=[{"text": "one"}]']
    state = await edited(tmp_path, assign, [], flow())
    assert state["::desk"]["note"] == {"text": "new", "stars": 5}
    assert state["::desk"]["log"] == [{"text": "one", "stars": 0}]


async def test_with_the_code_types_are_held(tmp_path: Path) -> None:
    """What does not fit the declared type is refused by its path."""
    with pytest.raises(PayloadTypeError, match="note"):
        await edited(tmp_path, ['::desk.note={"txt": "new"}'], [], flow())
