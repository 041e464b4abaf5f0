"""The protocols of uvicorn, with the bounds that they lack: no client makes us keep much for it."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

_HEAD_BYTES = 65_536
_FRAGMENTS = 1024
_HANG_UP = "tertulia.hang_up"

_TOO_LARGE = b'{"error":{"code":"HEADERS_TOO_LARGE","message":"The address or headers are too large."}}'
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_TOO_LARGE), _TOO_LARGE)
)


def hang_up(scope: Mapping[str, Any]) -> None:
    """Cut the client's line at once. Closing it would wait for the client to read what it has been sent."""
    scope["extensions"][_HANG_UP]["now"]()


class _Corked:
    """A transport that keeps the head of an answer until its body comes, or this round of the event loop ends.

    uvicorn writes them one after the other, which costs a system call and a packet more for each small answer.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 "):
            self._head = data
            self._loop.call_soon(self._uncork)
            return
        self.transport.write(data)

    def close(self) -> None:
        self._uncork()
        self.transport.close()

    def _uncork(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self.transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


class BoundedHttp(HttpToolsProtocol):
    """Gives up a client whose address and headers do not come to an end, and sends small answers in one piece."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, _Corked(transport, self.loop))

    _in_head = True
    _head = 0  # what was received of it, in whole chunks

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {_HANG_UP: {"now": self.transport.abort}}

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > _HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_REFUSAL)
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._head = True, 0
        super().on_message_complete()


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """Answers no pings while the client does not read, and takes no message that is cut into crumbs."""

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # the pong: the client has unread ones, and any of them will do

    def handle_cont(self, event: Frame) -> None:
        super().handle_cont(event)
        if len(self.frames) > _FRAGMENTS:
            self.conn.fail(1008, "Too many fragments.")
            self.handle_parser_exception()
