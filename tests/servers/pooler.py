"""A Postgres pooler in transaction mode: each transaction of a client goes to another connection.

Rules of this file: it knows just enough of the protocol.  It greets a client by itself, forwards what
comes up to a Sync as one batch, and gives the server's connection away again when the server says
that no transaction is open.  Before each batch it forgets what a session would have kept (DISCARD
ALL), so whoever leans on a session fails here.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator

SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
DISCARD = b"Q" + struct.pack("!I", 4 + len(b"DISCARD ALL\0")) + b"DISCARD ALL\0"
GREETING = b"R" + struct.pack("!II", 8, 0)
IDLE = b"I"

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def message(reader: asyncio.StreamReader) -> bytes:
    """One message with its type and length."""
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!I", head[1:])
    return head + await reader.readexactly(length - 4)


class Pooler:
    """Stands before a server; `port` is where clients come in, `trips` counts their round trips."""

    def __init__(self, host: str, port: int, *, user: str = "postgres") -> None:
        self._to = (host, port)
        self._user = user
        self._free: list[Ends] = []
        self._all: list[Ends] = []
        self._settings = b""
        self.port = 0
        self.trips = 0
        self.used: list[int] = []  # which connection each transaction got

    async def _connect(self) -> Ends:
        ends = await asyncio.open_connection(*self._to)
        words = {"user": self._user, "database": self._user, "client_encoding": "utf8"}
        text = b"".join(f"{k}\0{v}\0".encode() for k, v in words.items()) + b"\0"
        ends[1].write(struct.pack("!II", len(text) + 8, 196608) + text)
        settings = b""
        while (answer := await message(ends[0]))[:1] != b"Z":
            if answer[:1] == b"S":
                settings += answer
        self._settings = settings
        self._all.append(ends)
        return ends

    async def _another(self) -> Ends:
        # The one that rested longest, and never the only one: the next transaction goes elsewhere.
        while len(self._free) < 2:
            self._free.append(await self._connect())
        ends = self._free.pop(0)
        ends[1].write(DISCARD)
        while (await message(ends[0]))[:1] != b"Z":
            pass
        self.used.append(self._all.index(ends))
        return ends

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client to its end."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._greet(reader, writer)
            while True:
                ends = await self._transaction(reader, writer)
                self._free.append(ends)
        writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (length,) = struct.unpack("!I", await reader.readexactly(4))
            (code,) = struct.unpack("!I", (await reader.readexactly(length - 4))[:4])
            if code not in (SSL_REQUEST, GSS_REQUEST):
                break
            writer.write(b"N")
        if not self._settings:
            self._free.append(await self._connect())
        key = b"K" + struct.pack("!III", 12, 0, 0)
        writer.write(GREETING + self._settings + key + b"Z" + struct.pack("!I", 5) + IDLE)

    async def _transaction(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Ends:
        batch = await self._batch(reader)
        ends = await self._another()
        while True:
            ends[1].write(batch)
            status = b""
            while not status:
                answer = await message(ends[0])
                writer.write(answer)
                status = answer[5:6] if answer[:1] == b"Z" else b""
            await writer.drain()
            if status == IDLE:
                return ends
            batch = await self._batch(reader)

    async def _batch(self, reader: asyncio.StreamReader) -> bytes:
        """What a client sends until it waits for an answer."""
        batch = b""
        while True:
            sent = await message(reader)
            if sent[:1] == b"X":
                raise ConnectionResetError
            batch += sent
            if sent[:1] in (b"S", b"Q"):
                self.trips += 1
                return batch

    def close(self) -> None:
        """Leave the server."""
        for _, writer in self._all:
            writer.close()


@contextlib.asynccontextmanager
async def pooler(host: str, port: int) -> AsyncIterator[Pooler]:
    """A pooler before this server, gone at the end."""
    between = Pooler(host, port)
    server = await asyncio.start_server(between.serve, host, 0)
    between.port = server.sockets[0].getsockname()[1]
    try:
        yield between
    finally:
        server.close()
        between.close()
        await asyncio.sleep(0)
