"""Cut and flipped bytes in every piece of a small session, on disk: the right answer or a named error.

A piece is a file of the file store, or a column of bytes in a row of SQLite.  After the look comes
the repair: whatever was damaged, the session is intact again, goes on, and ends as it should.
"""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from raf import CheckpointConfig, Context, Workflow, WorkflowEngine
from raf.errors import CheckpointError, RafError
from tests.unit.engine.stage import collects, fan, passes

CONFIG = CheckpointConfig(full_snapshot_interval=3)
ALL_OF_IT = (pytest.mark.slow, pytest.mark.timeout(3600))
# Columns of bytes, and where the rows of the session's number are.
COLUMNS = {"records": ("body", "events", "run_id"), "requests": ("request_id", "kind", "body")}
OURS = {"records": ("key", "key >> 32 = ?"), "requests": ("seq", "session = ?")}
FAULTY = 5

Piece: TypeAlias = tuple[Any, ...]


@dataclass
class World:
    """What stands outside: whether the fault of `c` is mended."""

    mended: bool = False


def workflow(world: World) -> Workflow:
    """A fan of three with effects, of which one arm fails on 5 until it is mended."""

    def arm(name: str) -> Callable[[Context, int], Any]:
        async def work(ctx: Context, value: int) -> int:
            ctx.scope("s")[name] = value
            await ctx.effect("act", passes, value)
            if name == "c" and value == FAULTY and not world.mended:
                raise ValueError("not yet")
            return value + 2

        return work

    arms = {name: arm(name) for name in "abc"}
    return fan("torn", passes, arms, collects).build()


async def live(url: str) -> None:
    """A session with a finished run, a request, a failed run, and its journal; and another one."""
    async with WorkflowEngine(workflow(World()), url, checkpoints=CONFIG) as engine:
        await engine.run(1, "s", run_id="one")
        await engine.pin("s", 1)
        await engine.run(FAULTY, "s", run_id="two", check=False)
        await engine.run(1, "other", run_id="one")


class Files:
    """The pieces of a file store; `tests/unit/store/test_file.py` damages every byte of each."""

    least = 13

    def __init__(self, folder: Path) -> None:
        self.root = folder / "runs"
        self.url = f"file:{self.root}"

    def pieces(self) -> list[Piece]:
        """Every file of the session."""
        found = (path for path in (self.root / "s").rglob("*") if path.is_file())
        return sorted((path.relative_to(self.root),) for path in found)

    def read(self, piece: Piece) -> bytes:
        return Path(self.root / piece[0]).read_bytes()

    def write(self, piece: Piece, data: bytes) -> None:
        (self.root / piece[0]).write_bytes(data)


class Rows:
    """The pieces of a SQLite store."""

    least = 1

    def __init__(self, folder: Path) -> None:
        self.path = folder / "runs.db"
        self.url = f"sqlite:{self.path}?synchronous=normal"

    def _do(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def pieces(self) -> list[Piece]:
        """Every column of bytes that is not empty, of the session's rows."""
        found: list[Piece] = []
        for table, columns in COLUMNS.items():
            key, ours = OURS[table]
            for column in columns:
                there = f"SELECT {key} FROM {table} WHERE {ours} AND length({column}) > 0"
                found += [(table, column, key) for (key,) in self._do(there, self._number())]
        return found

    def _number(self) -> int:
        [[number]] = self._do("SELECT number FROM sessions WHERE id = 's'")
        return int(number)

    def read(self, piece: Piece) -> bytes:
        table, column, at = piece
        key, ours = OURS[table]
        where = f"SELECT {column} FROM {table} WHERE {key} = ? AND {ours}"
        return bytes(self._do(where, at, self._number())[0][0])

    def write(self, piece: Piece, data: bytes) -> None:
        table, column, at = piece
        key, ours = OURS[table]
        where = f"UPDATE {table} SET {column} = ? WHERE {key} = ? AND {ours}"
        self._do(where, data, at, self._number())


Place: TypeAlias = Files | Rows


@pytest.fixture(params=[Files, Rows], ids=["file", "sqlite"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A store with the session in it."""
    made: Place = request.param(tmp_path)
    await live(made.url)
    return made


def damages(data: bytes, every: int) -> Iterator[bytes]:
    """Cut off before, and flipped at, every n-th byte; 0: emptied, and flipped in the middle."""
    yield b""
    for at in range(0, len(data), every) if every else (len(data) // 2,):
        yield data[:at]
        yield data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


async def answers(engine: WorkflowEngine) -> list[object]:
    """What a caller can ask of the session, each answer or its error."""

    async def events() -> object:
        _, found = await engine.manager.events("s", after=0, limit=1000)
        return [(event.number, event.what) for event in found]

    async def run() -> object:
        return await engine.manager.run_record("s", "one")

    async def state() -> object:
        return await engine.state("s")

    async def restored() -> object:
        found = await engine.manager.restore("s")
        return None if found is None else (found.journal, found.requests)

    async def infos() -> object:
        return [(info.commit, info.finished_run) for info in await engine.history("s")]

    found: list[object] = []
    for question in (events, run, state, restored, infos):
        try:
            found.append(await question())
        except RafError as error:
            found.append(error)
    return found


@pytest.mark.parametrize("every", [0, pytest.param(1, marks=ALL_OF_IT)])
async def test_the_right_answer_or_an_error_that_names_it(place: Place, every: int) -> None:
    """Whatever byte is damaged: verify finds it, no answer is another one, other sessions go on.

    Unseen are only a lease (it costs the name of the holder) and the requests of SQLite: their rows
    have no checksum.
    """
    async with WorkflowEngine(workflow(World()), place.url, checkpoints=CONFIG) as engine:
        right = await answers(engine)
        assert not [answer for answer in right if isinstance(answer, RafError)]
        assert (await engine.manager.verify("s")).intact
        for piece in place.pieces() if every else place.pieces()[::2]:
            unseen = "lease-" in str(piece[0]) or piece[0] == "requests"
            data = place.read(piece)
            for turn, damaged in enumerate(damages(data, every and max(every, place.least))):
                place.write(piece, damaged)
                if turn % 50 < 3:
                    assert not (await engine.manager.verify("s")).intact or unseen, piece
                for answer, known in zip(await answers(engine), right, strict=True):
                    if isinstance(answer, RafError):
                        assert isinstance(answer, CheckpointError), (piece, answer)
                        assert "'s'" in str(answer), (piece, answer)
                    else:
                        assert answer == known or "run_id" in piece, piece
            place.write(piece, data)
            assert (await engine.manager.verify("other")).intact
        assert await answers(engine) == right


def kinds_of_damage(data: bytes, few: bool) -> list[bytes]:
    """Emptied; and cut or flipped in each part of a frame."""
    places = [0, 4, 10, 25, len(data) // 2, len(data) - 1]
    flipped = [
        data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :] for at in places if at < len(data)
    ]
    return [b""] if few else [b"", data[:-1], data[: len(data) // 2], *flipped]


async def repaired(engine: WorkflowEngine, backup: Path) -> None:
    """Repair the session if there is something to repair, and let both runs end."""
    plan = await engine.manager.repair("s")
    if plan.findings:
        done = await engine.manager.repair(
            "s", apply=True, reason="torn", backup=backup if plan.anew else None
        )
        assert done.left == (), done
        assert done.checkpoint
    unfinished = (await engine.manager.head("s")).summary
    runs = [("one", 1, [[3, 3, 3]]), ("two", FAULTY, [[7, 7, 7]])]
    if unfinished.status != "completed" and unfinished.run_id == "two":
        runs.reverse()  # if the result of the first is lost, it runs anew, behind the open one
    for run_id, given, outputs in runs:
        result = await engine.run(given, "s", run_id=run_id, check=False)
        if result.status == "failed":  # what is lost is that it had failed, and it is told again
            result = await engine.resume("s")
        assert result.outputs == outputs
    assert (await engine.manager.verify("s")).intact
    head = await engine.manager.head("s")
    _, events = await engine.manager.events("s", after=0, limit=1000)
    assert [event.number for event in events] == [*range(1, head.events + 1)]


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=ALL_OF_IT)])
async def test_every_piece_can_be_repaired(place: Place, tmp_path: Path, few: bool) -> None:
    """Each piece emptied (and cut, and flipped): repaired it verifies, resumes, and ends right."""
    root = tmp_path / "store"
    whole = tmp_path / "whole"
    root.mkdir()
    for name in ("runs", "runs.db", "runs.db-wal", "runs.db-shm"):
        if (tmp_path / name).exists():
            (tmp_path / name).rename(root / name)
    shutil.copytree(root, whole)
    pieces = [piece for piece in type(place)(root).pieces() if "lease-" not in str(piece[0])]
    for piece in pieces[::6] if few else pieces:
        for damaged in kinds_of_damage(type(place)(whole).read(piece), few):
            shutil.rmtree(root)
            shutil.copytree(whole, root)
            copy = type(place)(root)
            copy.write(piece, damaged)
            world = World(mended=True)
            async with WorkflowEngine(workflow(world), copy.url, checkpoints=CONFIG) as engine:
                await repaired(engine, root / "backup.raf")
