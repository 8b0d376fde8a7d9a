"""Names of folders and files: injective, short, plain, and read back as they were written."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raf.store.file import names
from raf.store.file.names import MAX_NAME, folder_name, is_shortened, session_id_of
from raf.store.model import MAX_SESSION_ID
from raf.testing.store_suite.identity import ODD_IDS

ids = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    min_size=1,
    max_size=MAX_SESSION_ID,
)


@pytest.mark.parametrize(
    ("session_id", "name"),
    [
        ("plain-id_09", "plain-id_09"),
        ("Plain", "%50lain"),
        ("..", "%2E%2E"),
        ("../evil", "%2E%2E%2Fevil"),
        ("trailing.", "trailing%2E"),
        ("trailing ", "trailing%20"),
        ("a%2Fb", "a%252%46b"),
        ("~", "%7E"),
        ("é", "%C3%A9"),
        ("con", "%63on"),
        ("lpt1", "%6Cpt1"),
        ("console", "console"),
        ("x" * 200, "x" * 200),
    ],
)
def test_names(session_id: str, name: str) -> None:
    """Small letters, digits, `_` and `-` stay; the rest is escaped byte by byte."""
    assert folder_name(session_id) == name
    assert session_id_of(name) == session_id


@pytest.mark.parametrize("session_id", ["x" * 201, "X" * 67, "\U0001f600" * MAX_SESSION_ID])
def test_long_ids_are_shortened(session_id: str) -> None:
    """Their name keeps the beginning, without half an escape, and ends in a digest."""
    name = folder_name(session_id)
    assert is_shortened(name)
    assert session_id_of(name) is None
    beginning = name.partition("~")[0]
    assert len(beginning) > 130
    start = session_id_of(beginning) if session_id.isascii() else ""
    assert session_id.startswith(start or "")
    assert folder_name(session_id + "y") != name


@given(ids)
def test_names_are_plain_short_and_read_back(session_id: str) -> None:
    """Any id has a name of safe characters that a file system takes on every platform."""
    name = folder_name(session_id)
    assert len(name) <= MAX_NAME
    assert re.fullmatch(r"[a-z0-9_%A-F~-]+", name)
    assert is_shortened(name) or session_id_of(name) == session_id


@given(ids, ids)
def test_two_ids_never_share_a_name(left: str, right: str) -> None:
    """Names differ where ids do, also when case does not count."""
    same = folder_name(left).casefold() == folder_name(right).casefold()
    assert same == (left == right)


def test_odd_ids_stay_apart_without_case() -> None:
    """The suite's odd ids have as many names on a file system that ignores case."""
    assert len({folder_name(name).casefold() for name in ODD_IDS}) == len(set(ODD_IDS))


@pytest.mark.parametrize(
    "name", ["", "A", "a b", "%4", "%zz", "%2f", "%61", "%FF", ".x", "con", "x~y", "é", "x" * 201]
)
def test_foreign_names_are_no_sessions(name: str) -> None:
    """A folder that no id could have made is not taken for one's."""
    assert session_id_of(name) is None


@pytest.mark.parametrize("number", [0, 1, 7, 999_999_999_999, 10**15])
def test_file_names_are_read_back(number: int) -> None:
    """Each kind of file is told by its name, and by no other kind's."""
    made = {
        names.record_position: names.record_name(number),
        names.marker_number: names.marker_name(number),
        names.lease_epoch: names.lease_name(number),
        names.request_seq: names.request_name(number),
        names.temp_epoch: names.temp_name(number, "token"),
        names.generation_epoch: names.generation_name(number),
    }
    for parse in made:
        assert [parse(name) for name in made.values()] == [
            number if other is parse else None for other in made
        ]
    assert names.pack_range(names.pack_name(number, number + 1)) == (number, number + 1)
    assert names.gone_mark(names.gone_name(number, number + 1)) == (number, number + 1)
    for parse_pair in (names.pack_range, names.gone_mark):
        assert not any(map(parse_pair, made.values()))


@pytest.mark.parametrize("name", ["000000000001.rec ", "1.rec", "000000000001.RECORD", "-1.rec"])
def test_other_names_are_no_records(name: str) -> None:
    """A copy, a backup, or a number of another width is not read."""
    assert names.record_position(name) is None
