"""A process that sees every effect: the outside world of a campaign, which no kill reaches.

It listens on a socket, writes down each idempotency key that it is told, with who told it and when,
syncs, and only then answers.  So what a killed process had done to the world is known for certain.
"""

import asyncio
import json
import os
import shutil
import socket
import tempfile
import time
from asyncio import StreamReader, StreamWriter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.crash.forking import FORKING, POLL_S, over


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One action: its idempotency key, the process that did it, and when (steady seconds)."""

    key: str
    pid: int
    at: float


def tell(path: str, key: str) -> None:
    """Do something outside: returns when the witness has it on its disk."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(path)
        line.sendall(json.dumps({"key": key, "pid": os.getpid()}).encode() + b"\n")
        line.recv(1)


class Witness:
    """Starts the process, ends it, and reads what it wrote.

    Example:
        >>> async def f():  # doctest: +SKIP
        ...     async with Witness() as witness:
        ...         tell(witness.path, "key")
        ...         return witness.seen()
    """

    def __init__(self) -> None:
        # The path of a socket must be short.
        self._folder = Path(tempfile.mkdtemp(prefix="raf-"))
        self.path = str(self._folder / "socket")
        self._log = self._folder / "seen"
        self._process = FORKING.Process(target=_watch, args=(self.path, self._log), daemon=True)

    async def __aenter__(self) -> Self:
        """Start it."""
        self._process.start()
        while not self._log.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(POLL_S)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self._process.kill()
        await over(self._process)
        self._process.close()
        shutil.rmtree(self._folder)

    def seen(self) -> list[Seen]:
        """Everything that was told, in order."""
        return [Seen(**json.loads(line)) for line in self._log.read_bytes().splitlines()]


def _watch(path: str, log: Path) -> None:
    asyncio.run(_serve(path, log))


async def _serve(path: str, log: Path) -> None:
    draft = log.with_suffix(".new")
    with draft.open("ab", buffering=0) as file:

        async def write_down(reader: StreamReader, writer: StreamWriter) -> None:
            line = await reader.readline()
            if line.endswith(b"\n"):
                told = {**json.loads(line), "at": time.monotonic()}
                file.write(json.dumps(told).encode() + b"\n")
                os.fsync(file.fileno())
                writer.write(b".")
            writer.close()

        server = await asyncio.start_unix_server(write_down, path)
        draft.replace(log)  # it listens from now on
        await server.serve_forever()
