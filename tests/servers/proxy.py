"""A relay between a client and a server that cuts the link at a chosen moment.

Rules of this file: it knows no protocol; what a client sends in one go is taken for one request.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Cut:
    """The n-th request that holds these bytes is cut; `done` says that it happened."""

    n: int
    holding: bytes
    after: bool
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def meets(self, request: bytes) -> bool:
        """Whether this request is the one."""
        if self.n > 0 and self.holding in request:
            self.n -= 1
            return self.n == 0
        return False


class Proxy:
    """Relays connections to a server; `port` is where clients come in."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._cuts: list[Cut] = []
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self.port = 0
        self.connections = 0

    def cut_before(self, n: int = 1, *, holding: bytes = b"") -> Cut:
        """Cut the link instead of passing the n-th request from now: the server never sees it."""
        return self._cut(Cut(n=n, holding=holding, after=False))

    def cut_after_forward(self, n: int = 1, *, holding: bytes = b"") -> Cut:
        """Pass the n-th request from now and cut when the server answers: the reply is lost."""
        return self._cut(Cut(n=n, holding=holding, after=True))

    def _cut(self, cut: Cut) -> Cut:
        self._cuts.append(cut)
        return cut

    def cut_all(self) -> None:
        """Cut every connection there is."""
        for writer in list(self._open):
            writer.close()

    async def end(self) -> None:
        """Cut every connection and return when all are closed."""
        self.cut_all()
        await asyncio.gather(*self._serving)

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection to its end, in a task."""
        self.connections += 1
        task = asyncio.create_task(self._relay(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(*self._to)
        except OSError:
            writer.close()
            return
        ends = {writer, to_server}
        self._open |= ends
        lost: list[Cut] = []  # the next answer of the server is for nobody
        up = asyncio.create_task(self._up(reader, to_server, lost))
        down = asyncio.create_task(self._down(from_server, writer, lost))
        try:
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            self._open -= ends
            for end in ends:
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _up(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: list[Cut]
    ) -> None:
        while request := await reader.read(1 << 20):
            for cut in [cut for cut in self._cuts if cut.meets(request)]:
                self._cuts.remove(cut)
                if not cut.after:
                    cut.done.set()
                    return
                lost.append(cut)
            writer.write(request)
            await writer.drain()

    async def _down(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: list[Cut]
    ) -> None:
        while answer := await reader.read(1 << 20):
            if lost:
                lost[0].done.set()
                return
            writer.write(answer)
            await writer.drain()


@contextlib.asynccontextmanager
async def proxy(host: str, port: int) -> AsyncIterator[Proxy]:
    """A relay to this server, closed at the end with all its connections."""
    relay = Proxy(host, port)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        await relay.end()
