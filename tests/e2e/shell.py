"""The command line as a person has it: real processes, a folder of their own, and a gate.

The gate is a named pipe that a node reads: opening it for writing returns when the node is at work,
and closing it lets the node go on.  So a test meets a run in mid-step without waiting for a clock.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
IN_TIME_S = 60

FLOWS = '''
"""Workflows for the tests of the command line."""

import asyncio
import os
from pathlib import Path

from raf import Context, LoopOptions, WorkflowBuilder


async def first(ctx: Context, text: str) -> str:
    ctx.state["seen"] = text
    ctx.scope("desk")["raw"] = b"\\x00"
    ctx.scope("desk")["odd"] = float("nan")
    ctx.scope("desk")["set"] = {2, 1}
    return text


async def gated(ctx: Context, text: str) -> str:
    if gate := os.environ.get("RAF_TEST_GATE"):
        await asyncio.to_thread(Path(gate).read_bytes)
    return text + "!"


async def last(text: str) -> str:
    return text.upper()


def fails(text: str) -> str:
    if not Path("mended").exists():
        raise ValueError("not mended yet")
    return text


def grow(number: int) -> int:
    return number + 1


def line(name: str, *nodes: object) -> WorkflowBuilder:
    builder = WorkflowBuilder(name).set_start("n0")
    for number, node in enumerate(nodes):
        builder.add_node(f"n{number}", node)
        if number:
            builder.add_edge(f"n{number - 1}", f"n{number}")
    return builder


flow = line("flow", first, gated, last).build()
other = line("other", first).build()
bad = line("bad", first, fails).build()
long = line("long", grow, grow, grow).build()


def make():
    return flow
'''
CHANGED = "\nflow = line('flow', first, gated, last, last).build()\n"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document of standard output."""
        return json.loads(self.out)


@dataclass(slots=True)
class Shell:
    """A working folder with `flows.py` and a store in it."""

    folder: Path
    store: str = "sqlite:raf.db"
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "flows.py").write_text(FLOWS)

    def change_the_graph(self) -> None:
        """From now on `flows:flow` is another graph of the same name."""
        (self.folder / "flows.py").write_text(FLOWS + CHANGED)

    def start(self, *arguments: str, gate: Path | None = None) -> subprocess.Popen[str]:
        """A command that goes on beside the test."""
        env = {k: v for k, v in os.environ.items() if k not in ("RAF_STORE", "RAF_DEBUG")}
        env |= {"PYTHONPATH": str(ROOT), "RAF_STORE": self.store, "PYTHONUNBUFFERED": "1"}
        if gate is not None:
            env["RAF_TEST_GATE"] = str(gate)
        return subprocess.Popen(
            [sys.executable, "-m", "raf", *arguments],
            cwd=self.folder,
            env=env | self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def raf(self, *arguments: str) -> Ended:
        """A command, waited for, in a process of its own: forked, so that it begins at once."""
        return forked(arguments, self.folder, {"RAF_STORE": self.store, **self.env})

    @contextmanager
    def held(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], "Gate"]]:
        """A command that is in the middle of its gated step."""
        gate = Gate(self.folder)
        process = self.start(*arguments, gate=gate.path)
        try:
            gate.wait_for_it()
            yield process, gate
        finally:
            gate.open()
            if process.poll() is None:
                process.kill()
            process.communicate()


_SERVER: list[subprocess.Popen[str]] = []


def forked(arguments: tuple[str, ...], folder: Path, env: dict[str, str]) -> Ended:
    """A command in a process that is forked from one that has loaded `raf` already."""
    if not _SERVER:
        server = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "forks.py")],
            cwd=ROOT,
            env={k: v for k, v in os.environ.items() if k not in ("RAF_STORE", "RAF_DEBUG")}
            | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(server.communicate)
        _SERVER.append(server)
    server = _SERVER[0]
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as answers:
        out, err = Path(answers) / "out", Path(answers) / "err"
        wanted = [list(arguments), str(folder), env, str(out), str(err)]
        server.stdin.write(f"{json.dumps(wanted)}\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return Ended(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))


class Gate:
    """A named pipe; see the top of this file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gate"
        self.path.unlink(missing_ok=True)
        os.mkfifo(self.path)
        self._writing: int | None = None

    def wait_for_it(self) -> None:
        """Return when the node is at work."""
        self._writing = os.open(self.path, os.O_WRONLY)

    def open(self) -> None:
        """Let the node go on."""
        if self._writing is not None:
            os.close(self._writing)
            self._writing = None


def ended(process: subprocess.Popen[str]) -> Ended:
    """Wait for the end of a command."""
    out, err = process.communicate(timeout=IN_TIME_S)
    return Ended(process.returncode, out, err)


def told(process: subprocess.Popen[str], number: signal.Signals) -> str:
    """Send a signal, and return what the command says to it."""
    process.send_signal(number)
    assert process.stderr is not None
    return process.stderr.readline()
