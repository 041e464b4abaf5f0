"""A load generator that costs little: HTTP/1.1 and WebSocket by hand, over asyncio streams."""

import asyncio
import base64
import json
import os
import struct
import sys
import time
from typing import Any, Self, cast
from urllib.parse import urlsplit


def request(method: str, path: str, token: str | None = None, body: bytes = b"") -> bytes:
    """A whole keep-alive request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", f"Content-Length: {len(body)}"]
    if body:
        lines.append("Content-Type: application/json")
    if token:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Http(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._buffer = b""
        self._waiter: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, url: str) -> Self:
        where = urlsplit(url)
        _, protocol = await asyncio.get_running_loop().create_connection(cls, where.hostname, where.port)
        return protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, blank, rest = self._buffer.partition(b"\r\n\r\n")
        if not blank or self._waiter is None:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(rest) >= length:
            self._buffer = b""
            waiter, self._waiter = self._waiter, None
            waiter.set_result(head[9:12] + rest)

    async def ask(self, whole: bytes) -> tuple[int, bytes]:
        """The status and the body."""
        assert self._transport is not None
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(whole)
        answer = await self._waiter
        return int(answer[:3]), answer[3:]

    def close(self) -> None:
        if self._transport:
            self._transport.close()


class Stream:
    """One request whose answer is a stream of server-sent events, on a connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> Self:
        where = urlsplit(url)
        return cls(*await asyncio.open_connection(where.hostname, where.port, limit=1_048_576))

    async def ask(self, whole: bytes) -> bytes:
        """The whole stream, to its end."""
        self._writer.write(whole)
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head[:20], head
        parts: list[bytes] = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readexactly(2)
        return b"".join(parts)


class Ws:
    """One WebSocket client; text frames only."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._pump = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, url: str, token: str) -> Self:
        where = urlsplit(url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=65_536)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(
            f"GET /ws HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in head, head
        return cls(reader, writer)

    def say(self, **frame: Any) -> None:
        data = json.dumps(frame).encode()
        size = (
            bytes([0x80 | len(data)])
            if len(data) < 126
            else bytes([0x80 | 126]) + struct.pack("!H", len(data))
        )
        self._writer.write(b"\x81" + size + b"\0\0\0\0" + data)  # a mask of zeros changes nothing

    async def frame(self) -> bytes:
        frame = await self._frames.get()
        assert frame, "the socket was closed"
        return frame

    async def _read(self) -> None:
        """Always reading, so that pings are answered also while nobody waits for a frame."""
        try:
            await self._take_frames()
        except (OSError, asyncio.IncompleteReadError) as error:
            print("a socket was closed", repr(error), file=sys.stderr)
            self._frames.put_nowait(b"")

    async def _take_frames(self) -> None:
        while True:
            first, second = await self._reader.readexactly(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack("!H", await self._reader.readexactly(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", await self._reader.readexactly(8))
            data = await self._reader.readexactly(length)
            if first & 0x0F == 1:
                self._frames.put_nowait(data)
            if first & 0x0F == 8:
                print("the server closes", data, file=sys.stderr)
            if first & 0x0F == 9:
                self._writer.write(bytes([0x8A, 0x80 | len(data)]) + b"\0\0\0\0" + data)

    async def until(self, kind: bytes) -> bytes:
        """The next frame of a type; types are looked for as text, which is cheap."""
        wanted = b'"type":"' + kind + b'"'
        while wanted not in (frame := await self.frame()):
            pass
        return frame

    def close(self) -> None:
        self._pump.cancel()
        self._writer.close()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


async def at_times(times: list[float], work: Any) -> list[Any]:
    """Start `work(index)` at each of these seconds from now, however the others are doing."""
    began = time.perf_counter()
    tasks: list[asyncio.Task[Any]] = []
    for index, at in enumerate(times):
        await asyncio.sleep(max(0.0, began + at - time.perf_counter()))
        tasks.append(asyncio.create_task(work(index)))
    return await asyncio.gather(*tasks)
