"""Emptied, flipped, lost and foreign rows and values on a server: the right answer or a named error."""

from pathlib import Path
from typing import Any

import pytest

from raf import WorkflowEngine
from raf.errors import CheckpointError, CorruptRecordError, RafError
from tests.servers.pieces import Piece, Pieces, Values, pieces_of
from tests.servers.places import SERVERS_ONLY, backend_of
from tests.unit.checkpoint.test_torn_records import (
    CONFIG,
    World,
    answers,
    live,
    repaired,
    workflow,
)

LONG = (pytest.mark.slow, pytest.mark.timeout(900))


def is_frame(piece: Piece) -> bool:
    """Whether a value of Redis holds the store's own fields, without which it cannot read a session."""
    return any(kind in str(piece[0]) for kind in (":commit:", ":journal:", ":inbox:"))


def has_no_checksum(piece: Piece) -> bool:
    """Requests, and the clear fields beside a part: `verify` compares what it can, a read does not."""
    return piece[0] == "requests" or "run_id" in piece or is_frame(piece)


def harm(pieces: Pieces, piece: Piece, how: str) -> None:
    """Empty, flip or lose a piece."""
    data = pieces.read(piece)
    middle = len(data) // 2
    if how == "lost":
        pieces.lose(piece)
    elif how == "emptied":
        pieces.write(piece, b"")
    else:
        pieces.write(piece, data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :])


@SERVERS_ONLY
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=LONG)])
@pytest.mark.parametrize("how", ["emptied", pytest.param("flipped", marks=pytest.mark.slow)])
async def test_the_right_answer_or_an_error_that_names_it(place: str, how: str, every: int) -> None:
    """Whatever record is damaged: no answer is another one, and other sessions go on."""
    await live(place)
    pieces = pieces_of(place)
    async with WorkflowEngine(workflow(World()), place, checkpoints=CONFIG) as engine:
        right = await answers(engine)
        for piece in pieces.of("s")[::every]:
            data = pieces.read(piece)
            harm(pieces, piece, how)
            if not has_no_checksum(piece):
                assert not (await engine.manager.verify("s")).intact, piece
            for answer, known in zip(await answers(engine), right, strict=True):
                if isinstance(answer, RafError):
                    assert isinstance(answer, CheckpointError), (piece, answer)
                    assert "'s'" in str(answer), (piece, answer)
                else:
                    assert answer == known or has_no_checksum(piece), piece
            assert (await engine.manager.verify("other")).intact
            assert (await engine.run(1, "other", run_id="one")).status == "completed"
            assert len([head async for head in engine.manager.heads()]) == 2
            pieces.write(piece, data)
        assert await answers(engine) == right


@SERVERS_ONLY
@pytest.mark.slow
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=LONG)])
@pytest.mark.parametrize("how", ["emptied", "lost"])
async def test_every_piece_can_be_repaired(
    place: str, tmp_path: Path, how: str, every: int
) -> None:
    """Each record emptied or lost: repaired the session verifies, resumes, and ends right."""
    await live(place)
    count = len(pieces_of(place).of("s"))
    world = World()
    async with WorkflowEngine(workflow(world), place, checkpoints=CONFIG) as engine:
        for number in range(0, count, every):
            await engine.delete("s")
            await engine.delete("other")
            world.mended = False
            await live(place)
            world.mended = True
            pieces, backup = pieces_of(place), tmp_path / f"{number}.raf"
            piece = pieces.of("s")[number]
            harm(pieces, piece, how)
            await repaired(engine, backup)


HEADS: dict[str, list[tuple[str, Any]]] = {
    "postgres": [
        ("summary", "'{'"), ("created_at", "'NaN'"), ("status", "'completed'"), ("wake_at", "'inf'"),
    ],
    "redis": [("summary", b"{"), ("created_at", b"nan?"), ("events", b"x"), ("journal_from", b""), ("queue", b"x"), ("wants", b"never")],
}  # fmt: skip


@SERVERS_ONLY
@pytest.mark.parametrize(
    ("field", "by"), [("commit", -1), ("commit", -3), ("events", -1), ("journal_from", 1)]
)
async def test_a_head_that_is_older_than_its_records_hides_nothing(
    place: str, tmp_path: Path, field: str, by: int
) -> None:
    """No read, no write and no run goes by it; a repair makes it as the records are."""
    world = World()
    column = {"commit": "commit_number"} if backend_of(place) == "postgres" else {}
    await live(place)
    async with WorkflowEngine(workflow(world), place, checkpoints=CONFIG) as engine:
        before = await engine.manager.head("s")
        assert before.position > before.journal_from  # its step is open
        world.mended = True
        pieces_of(place).set_head("s", column.get(field, field), getattr(before, field) + by)
        for call in (
            engine.state("s"),
            engine.run(1, "s", run_id="two"),
            engine.resume("s"),
            engine.fork("s", "t"),
            engine.edit("s", lambda _: None, reason="r"),
        ):
            with pytest.raises(CorruptRecordError, match="of the session's head"):
                await call
        assert not (await engine.manager.verify("s")).intact
        await repaired(engine, tmp_path / "s.raf")
        assert (await engine.manager.head("s")).commit > before.commit


@SERVERS_ONLY
async def test_a_journal_row_that_is_told_to_be_another_is_named(place: str) -> None:
    """One damaged row is one damaged session: a look at the whole store goes on."""
    await live(place)
    pieces_of(place).call_it_a_commit("s")
    async with WorkflowEngine(workflow(World()), place, checkpoints=CONFIG) as engine:
        found = [
            await engine.manager.verify(head.session_id) async for head in engine.manager.heads()
        ]
        assert {each.session_id: each.intact for each in found} == {"other": True, "s": False}
        with pytest.raises(CorruptRecordError, match="'s'"):
            await engine.resume("s")


@pytest.mark.parametrize("place", ["redis"], indirect=True)
async def test_what_is_left_of_a_session_without_a_head_meets_no_new_one(place: str) -> None:
    """The keys of a session hang on its name: nobody begins anew over them."""
    await live(place)
    pieces = pieces_of(place)
    assert isinstance(pieces, Values)
    pieces.drop_head("s")
    async with WorkflowEngine(workflow(World()), place, checkpoints=CONFIG) as engine:
        for call in (engine.run(1, "s"), engine.state("s"), engine.submit(1, "s")):
            with pytest.raises(CorruptRecordError, match="head is gone"):
                await call
        assert not (await engine.manager.verify("s")).intact
        assert (await engine.manager.verify("other")).intact


@SERVERS_ONLY
async def test_a_damaged_head_is_listed_and_repaired(place: str, tmp_path: Path) -> None:
    """It ends no list, no read answers from it, and a repair makes it whole again."""
    world = World()
    pieces = pieces_of(place)
    async with WorkflowEngine(workflow(world), place, checkpoints=CONFIG) as engine:
        for field, value in HEADS[backend_of(place)]:
            world.mended = False
            await live(place)
            world.mended = True
            pieces.set_head("s", field, value)
            heads = {head.session_id: head async for head in engine.manager.heads()}
            assert heads["s"].summary.status == "damaged", field
            assert heads["other"].summary.status != "damaged"
            with pytest.raises(CorruptRecordError, match="'s'"):
                await engine.resume("s")
            assert not (await engine.manager.verify("s")).intact
            await repaired(engine, tmp_path / f"{field}.raf")
            await engine.delete("s")
            await engine.delete("other")


@SERVERS_ONLY
async def test_a_record_of_another_session_is_refused(place: str) -> None:
    """A checkpoint under another session's name is named, and never taken for its own."""
    await live(place)
    pieces = pieces_of(place)
    theirs = {piece[-1]: piece for piece in pieces.of("other") if is_body(piece)}
    async with WorkflowEngine(workflow(World()), place, checkpoints=CONFIG) as engine:
        for piece in pieces.of("s"):
            if not is_body(piece) or piece[-1] not in theirs:
                continue
            data = pieces.read(piece)
            pieces.write(piece, pieces.read(theirs[piece[-1]]))
            assert not (await engine.manager.verify("s")).intact, piece
            with pytest.raises(CorruptRecordError, match="'s'"):
                await engine.state("s", int(piece[-1]))
            pieces.write(piece, data)
        assert (await engine.manager.verify("s")).intact


def is_body(piece: Piece) -> bool:
    """Whether a piece is the body of a checkpoint."""
    return piece[:2] == ("commits", "body") or ":body:" in str(piece[0])
