"""A line between a process and a backend, on which things go wrong when told."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self


class Proxy:
    """Passes TCP on to a Unix socket.

    `silent` passes nothing at all, either way; `cut` resets all lines. `lose_answer_to` cuts, once, the line
    on which these bytes were sent, when the backend answers.
    """

    def __init__(self, backend: Path) -> None:
        self._backend = backend
        self._lines: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.silent = False
        self.lose_answer_to = b""

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[Self]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield self
        finally:
            self.cut()
            self._server.close()

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        for writer in self._lines:
            writer.transport.abort()
        self._lines.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        backend_reader, backend_writer = await asyncio.open_unix_connection(self._backend)
        self._lines |= {writer, backend_writer}
        lost = asyncio.Event()
        await asyncio.gather(
            self._ask(reader, backend_writer, lost), self._answer(backend_reader, writer, lost)
        )
        self._lines -= {writer, backend_writer}

    async def _ask(
        self, client: asyncio.StreamReader, backend: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await client.read(65_536):
                if self.lose_answer_to and self.lose_answer_to in data:
                    self.lose_answer_to = b""
                    lost.set()
                await self._hand_over(data, backend)
        backend.close()

    async def _answer(
        self, backend: asyncio.StreamReader, client: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await backend.read(65_536):
                if lost.is_set():
                    client.transport.abort()  # the backend has done it, and the client never hears
                    break
                await self._hand_over(data, client)
        client.close()

    async def _hand_over(self, data: bytes, target: asyncio.StreamWriter) -> None:
        if not self.silent:
            target.write(data)
            await target.drain()
