"""The command line on a Postgres server: a run that is killed, looked at, and continued."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.shell import Shell, ended
from tests.servers.postgres import drop, schema_of, shared_url, with_options


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    schema = schema_of(tmp_path)
    yield Shell(tmp_path, store=with_options(shared_url(), schema=schema))
    drop(shared_url(), schema)


@pytest.mark.slow
def test_a_killed_run_is_continued_by_another_process(shell: Shell) -> None:
    """Killed with SIGKILL in its second step, it goes on there, and equals an unbroken run."""
    with shell.held("run", "flows:flow", "hello", "--session", "s") as (process, _):
        process.kill()
        assert ended(process).code == -signal.SIGKILL
    listed = shell.raf("sessions", "--json").json
    assert [session["session"] for session in listed["sessions"]] == ["s"]
    resumed = shell.raf("resume", "flows:flow", "s", "--json")
    assert resumed.code == 0, resumed.err
    whole = shell.raf("run", "flows:flow", "hello", "--session", "whole", "--json")
    assert resumed.json["result"]["outputs"] == whole.json["result"]["outputs"] == ["HELLO!"]
    again = shell.raf("run", "flows:flow", "hello", "--session", "s", "--json")
    assert (again.code, again.json["result"]["outputs"]) == (0, ["HELLO!"])
    assert shell.raf("verify", "s").code == 0
    assert shell.raf("delete", "s", "--yes").code == 0
