"""The protocols of uvicorn, with the bounds that they lack: no client makes us keep much for it."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

_HEAD_BYTES = 65_536
_REQUEST_SECONDS = 60.0  # for a whole request to come
_FAREWELL_SECONDS = 10.0  # for what was sent last to be read
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
        """Close once all is sent; a client that does not read it is not waited for long."""
        self._uncork()
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._loop.call_later(_FAREWELL_SECONDS, self.transport.abort)

    def _uncork(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self.transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


class BoundedHttp(HttpToolsProtocol):
    """Gives up a client whose request does not come to its end, and sends small answers in one piece."""

    _in_head = True
    _head = 0  # what was received of it, in whole chunks
    _trailers = 0
    _whole = False  # whether the last request has come to its end
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, _Corked(transport, self.loop))
        self._wait_for_the_rest()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_longer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._whole = False
        self.scope["extensions"] = {_HANG_UP: {"now": self.transport.abort}}

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > _HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_REFUSAL)
            self.transport.close()
        elif not self._whole:
            self._wait_for_the_rest()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)
            return
        self._trailers += len(name) + len(value)  # nobody reads what comes after a body
        if self._trailers > _HEAD_BYTES:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._head, self._trailers, self._whole = True, 0, 0, True
        self._wait_no_longer()
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._wait_no_longer()
        super().handle_websocket_upgrade()

    def _wait_for_the_rest(self) -> None:
        """From the first part of a request on: most come in one piece, and then there is no clock to set."""
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(_REQUEST_SECONDS, self.transport.abort)

    def _wait_no_longer(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """Answers no pings while the client does not read, and takes no message that is cut into crumbs."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            cast(dict[str, Any], self.scope)["extensions"][_HANG_UP] = {"now": self.transport.abort}

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
