"""Each benchmark runs once at size 1: it measures what it says, whatever the figures are."""

import json

import pytest

from benchmarks.__main__ import CONCERNS, main
from benchmarks.rows import SMALLEST, Row, table


@pytest.mark.parametrize("concern", CONCERNS)
def test_runs_at_size_one(concern: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table comes first, the last line is JSON, and every floor that is named was measured."""
    main([concern], size=SMALLEST)

    *shown, last = capsys.readouterr().out.splitlines()
    told = json.loads(last)
    rows = [Row(**row) for row in told["rows"]]
    assert shown[:-1] == table(rows).splitlines()
    assert {row.floor for row in rows} - {""} <= {row.case for row in rows}
    assert all(row.value > 0 for row in rows)
    assert set(told) >= {"python", "cores", "versions", "seed", "size"}


def test_an_unknown_concern_is_refused() -> None:
    """A name that no benchmark has ends the command with an error."""
    with pytest.raises(SystemExit):
        main(["speed of light"])


def test_the_table_shows_ratios() -> None:
    """A row with a floor says how many times the floor it is."""
    rows = [
        Row(concern="c", case="least", value=2.0, unit="ms"),
        Row(concern="c", case="ours", value=5.0, unit="ms", floor="least"),
    ]
    assert "2.50 x least" in table(rows)
