"""Looks at the system calls of a process, fails one, or kills the process at one: strace does it.

Calls are counted by kind and by thread; a kill comes before the call is made.
"""

import asyncio
import ctypes
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from tests.crash.forking import FORKING, over
from tests.crash.small_run import SmallJob, main

PATIENCE_S: Final = 60.0
_SET_TRACER, _ANYBODY = 0x59616D61, 2**64 - 1  # prctl(2): PR_SET_PTRACER, PR_SET_PTRACER_ANY
# Every call by which a store may change the disk; those that a machine does not have are left out.
WRITE_SIDE: Final = (
    *("write", "pwrite64", "fsync", "fdatasync", "ftruncate", "mkdir", "rmdir"),
    *("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat"),
)
_LINE: Final = re.compile(r"(?P<tid>\d+) +(?P<rest>.*)")
_CALL: Final = re.compile(r"(?P<name>\w+)\((?P<args>.*)\) += (?P<answer>-?\d+).*")
_RESUMED: Final = re.compile(r"<\.\.\. \w+ resumed>(?P<rest>.*)")
_DESCRIPTOR: Final = re.compile(r"\d+<(?P<path>(\\x[0-9a-f]{2})+)>")
_TEXT: Final = re.compile(r'"(?P<text>(\\x[0-9a-f]{2})*)"')
_NUMBER: Final = re.compile(r", (\d+)")
_UNFINISHED: Final = " <unfinished ...>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A system call as it ended: its name, its arguments as strace shows them, and its answer."""

    thread: str
    name: str
    args: str
    answer: int

    @property
    def path(self) -> Path:
        """The file of a call on a descriptor."""
        found = _DESCRIPTOR.match(self.args)
        assert found is not None, self.args[:200]
        return Path(_bytes(found["path"]).decode())

    @property
    def target(self) -> Path:
        """The file that a call changes, given by a descriptor or by its name."""
        return Path(self.data.decode()) if self.name == "unlink" else self.path

    @property
    def data(self) -> bytes:
        """What was written, or the name that a call was given."""
        found = _TEXT.search(self.args)
        assert found is not None, self.args[:200]
        return _bytes(found["text"])

    @property
    def numbers(self) -> list[int]:
        """The numbers behind the descriptor and the data."""
        return [int(number) for number in _NUMBER.findall(_TEXT.sub("", self.args))]

    @property
    def told(self) -> dict[str, Any]:
        """The line by which a node told something, of a call of `writev`."""
        line: dict[str, Any] = json.loads(self.data)
        return line


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


async def run_small(job: SmallJob, *tracing: str) -> int | None:
    """Run a job to its end, traced if options of the tracer are given; returns the exit code."""
    here, there = FORKING.Pipe()
    process = FORKING.Process(target=_when_told, args=(there, job), daemon=True)
    process.start()
    there.close()
    tracer = await _attached(process.pid, tracing) if tracing else None
    here.send_bytes(b"go")
    code = await over(process, PATIENCE_S)
    if tracer is not None:
        await tracer.wait()
    here.close()
    process.close()
    return code


def _when_told(gate: Connection, job: SmallJob) -> None:
    # Where only parents may trace: whoever started this process may have it traced.
    ctypes.CDLL(None).prctl(_SET_TRACER, ctypes.c_ulong(_ANYBODY))
    gate.recv_bytes()
    main(job)


async def _attached(pid: int | None, tracing: Sequence[str]) -> asyncio.subprocess.Process:
    """A tracer that has hold of a process."""
    tracer = await asyncio.create_subprocess_exec(
        *("strace", "-f", "-p", str(pid), *tracing), stderr=subprocess.PIPE
    )
    assert tracer.stderr is not None
    line = await tracer.stderr.readline()
    assert b"attached" in line, line.decode()
    return tracer


def injecting(call: str, fault: str, when: int | str) -> list[str]:
    """Let the n-th call of a kind go wrong: `error=EIO`, or `signal=SIGKILL` before it."""
    return ["-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={when}"]


def recording(log: Path, calls: Sequence[str]) -> list[str]:
    """Write down these calls with all their bytes and the paths of their files."""
    kinds = ",".join(f"?{call}" for call in calls)
    return [*("-xx", "-y", "-s", str(1 << 24), "-o", str(log)), "-e", f"trace={kinds}"]


def recorded(log: Path) -> Iterator[Call]:
    """The calls of a recording in the order in which they ended."""
    begun: dict[str, str] = {}
    for line in log.read_text("ascii").splitlines():
        found = _LINE.fullmatch(line)
        assert found is not None, line[:200]
        thread, rest = found["tid"], found["rest"]
        if rest.endswith(_UNFINISHED):
            begun[thread] = rest.removesuffix(_UNFINISHED)
            continue
        if resumed := _RESUMED.fullmatch(rest):
            rest = begun.pop(thread) + resumed["rest"]
        if call := _CALL.fullmatch(rest):
            answer = int(call["answer"])
            yield Call(thread=thread, name=call["name"], args=call["args"], answer=answer)
