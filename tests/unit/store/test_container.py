"""The export file: every damage is found by name, and what is well made and wrong is refused."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raf import WorkflowEngine
from raf.errors import ExportFileError, FormatVersionError, RafError
from raf.store.container import MisfitError, Packer, Unpacker, frame_size
from raf.store.memory import MemoryStore
from raf.store.model import Reading, Record
from raf.store.record import HEADER, VERSION_AT, Content, pack
from raf.store.transfer import WHOLE, dump, load, whole
from tests.unit.engine.stage import line


async def each(*names: str) -> AsyncIterator[str]:
    """The names, as an export asks for them."""
    for name in names:
        yield name


def works(value: int) -> int:
    """A node that fails on 5."""
    if value == FAULTY:
        raise ValueError("not yet")
    return value


FAULTY = 5
WORKFLOW = line("moving", {"before": works, "work": works}).build()


async def small_file(folder: Path) -> tuple[Path, list[Reading]]:
    """An export of two small sessions, and what it holds."""
    path = folder / "small.raf"
    async with MemoryStore() as here:
        async with WorkflowEngine(WORKFLOW, here) as engine:
            await engine.run(1, "a")
            await engine.pin("a", 0)
            await engine.run(FAULTY, "b", check=False)
        await dump(here, each("a", "b"), path)
        return path, [await whole(here, "a"), await whole(here, "b")]


def unpacked(data: bytes) -> list[Reading]:
    """The sessions of a file's bytes."""
    unpacker, found = Unpacker(), []
    while data:
        frame, data = (
            data[: frame_size(data[: HEADER.size])],
            data[frame_size(data[: HEADER.size]) :],
        )
        if (session := unpacker.take(frame)) is not None:
            found.append(session)
    unpacker.check_finished()
    return found


def frames_of(data: bytes) -> Iterator[bytes]:
    while data:
        size = frame_size(data[: HEADER.size])
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize(
    "every", [131, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
)
async def test_every_damaged_byte_is_found_and_nothing_is_imported(
    every: int, tmp_path: Path
) -> None:
    """Cut off at, or flipped at, every byte: an error that names the file and the place."""
    path, sessions = await small_file(tmp_path)
    data = path.read_bytes()
    assert unpacked(data) == [replace(s, head=replace(s.head, held=None)) for s in sessions]
    async with MemoryStore() as there:
        damaged = [data[:at] for at in range(0, len(data), every)]
        damaged += [
            data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
            for at in range(0, len(data), every)
        ]
        for bad in (*damaged, data + b"\0", data * 2):
            path.write_bytes(bad)
            with pytest.raises(ExportFileError, match=r"small\.raf"):
                await load(there, path)
        assert await there.scan() == []


async def test_frames_that_are_missing_moved_or_doubled_are_found(tmp_path: Path) -> None:
    """Each frame is right alone: what was taken out, put twice or elsewhere is found all the same."""
    path, _ = await small_file(tmp_path)
    frames = list(frames_of(path.read_bytes()))
    assert len(frames) > 10
    for place in range(len(frames)):
        without = frames[:place] + frames[place + 1 :]
        doubled = frames[: place + 1] + frames[place:]
        swapped = [*frames[:place], *reversed(frames[place : place + 2]), *frames[place + 2 :]]
        for changed in (without, doubled, swapped if place + 1 < len(frames) else without):
            with pytest.raises(MisfitError):
                unpacked(b"".join(changed))


async def test_whole_sessions_that_are_missing_or_moved_are_found(tmp_path: Path) -> None:
    """Each session is whole alone: the end of the file tells of all of them, in their order."""
    path, _ = await small_file(tmp_path)
    begin, *frames, end = frames_of(path.read_bytes())
    at = 1 + next(place for place, frame in enumerate(frames) if frame[5] == Content.SESSION_END)
    one, two = frames[:at], frames[at:]
    assert len(unpacked(b"".join([begin, *one, *two, end]))) == 2
    for sessions in ([], one, two, [*two, *one]):
        with pytest.raises(MisfitError):
            unpacked(b"".join([begin, *sessions, end]))


async def test_newer_and_foreign_files_are_refused_by_name(tmp_path: Path) -> None:
    """A later format says its number; what is no export says so."""
    path, _ = await small_file(tmp_path)
    data = path.read_bytes()
    later = pack(Content.EXPORT, {"format": 2, "created_at": 0.0, "more": 1})
    async with MemoryStore() as there:
        path.write_bytes(later + data)
        with pytest.raises(FormatVersionError, match="export format 2"):
            await load(there, path)
        path.write_bytes(data[:VERSION_AT] + b"\x09" + b"from a later version")
        with pytest.raises(ExportFileError):
            await load(there, path)
        for foreign in (b"", b"SQLite format 3\0" * 9, pack(Content.RECORD, {}), b"PK\3\4" + data):
            path.write_bytes(foreign)
            with pytest.raises(ExportFileError, match=r"small\.raf"):
                await load(there, path)
        assert await there.scan() == []


def repacked(session: Reading) -> bytes:
    """A file whose every frame is right, whatever the session says."""
    packer = Packer()
    return b"".join([packer.begin(0.0), *packer.session(session), packer.end()])


async def test_a_file_that_is_well_made_and_wrong_is_refused(tmp_path: Path) -> None:
    """Right checksums around values that do not fit: nothing is built of them."""
    _, [session, _] = await small_file(tmp_path)
    head, first = session.head, session.log[1]
    bad: Any = replace  # values of types that the fields do not have
    wrong: list[Reading] = [
        replace(session, head=bad(head, commit="1")),
        replace(session, head=replace(head, session_id="")),
        replace(session, head=bad(head, session_id=7)),
        replace(session, head=replace(head, events=2**70 % 2**63)),
        replace(session, head=replace(head, summary=bad(head.summary, step=None))),
        replace(session, log=session.log[:-1]),
        replace(session, log=(*session.log, session.log[-1])),
        replace(session, inbox=()),
        replace(session, log=(replace(first, info=bad(first.info, full=1)), *session.log[1:])),
        replace(session, log=(*session.log[:1], Record(info=first.info), *session.log[2:])),
    ]
    assert unpacked(repacked(session)) == [replace(session, head=replace(head, held=None))]
    for each_wrong in wrong:
        with pytest.raises(MisfitError):
            unpacked(repacked(each_wrong))


@given(
    st.binary(max_size=300),
    st.sampled_from(Content),
    st.dictionaries(st.text(), st.integers(-(2**63), 2**63)),
)
def test_any_bytes_are_refused_or_read(data: bytes, content: Content, meta: dict[str, Any]) -> None:
    """Whatever a file holds: one error of ours, and no other."""
    begun = Packer().begin(0.0)
    for bad in (data, begun + data, begun + pack(content, meta, body=data), pack(content, meta)):
        with suppress(MisfitError, RafError):
            unpacked(bad)


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=8))
def test_any_change_of_a_right_file_is_found(place: int, change: bytes) -> None:
    """Bytes put over any place of a right file are found, or they are the same bytes."""
    right = repacked(SMALL)
    at = place % len(right)
    changed = right[:at] + change + right[at + len(change) :]
    if changed[: len(right)] == right and len(changed) == len(right):
        return
    with pytest.raises(MisfitError):
        unpacked(changed)


def _small() -> Reading:
    async def make() -> Reading:
        async with MemoryStore() as store:
            async with WorkflowEngine(WORKFLOW, store) as engine:
                await engine.run(1, "a")
            reading = await store.read("a", WHOLE)
            assert reading is not None
            return reading

    return asyncio.run(make())


SMALL = _small()
