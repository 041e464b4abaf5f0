"""Server-sent events: the events of a session as they come, for clients that only listen.

`id:` is the event's cursor, `event:` its type, `data:` the same JSON as on the WebSocket.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from tertulia.core.errors import TertuliaError
from tertulia.core.events import Failure, type_of, with_cursor
from tertulia.core.statuses import http_status
from tertulia.events.log import Cursor
from tertulia.events.relay import Subscription
from tertulia.faces.transport import hang_up

_KEEP_ALIVE = 15.0
_BYTES = 262_144  # of events that wait to be sent
_DOUBT = 2.0  # seconds after which one who may have missed something looks whether the turn has ended
_HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]

Check = Callable[[], Awaitable[list[bytes]]]


def frame(cursor: Cursor, event: bytes) -> bytes:
    """An event of a log as a client reads it."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (
        (place := str(cursor)).encode(),
        type_of(event),
        with_cursor(place, event),
    )


def place(cursor: Cursor) -> bytes:
    """Where the client is now, without an event: what it would resume from."""
    return b"retry: 2000\nid: %b\n\n" % str(cursor).encode()


def _farewell(error: TertuliaError) -> bytes:
    """Why a stream ends before its time: an event without a place, since the log knows nothing of it."""
    data = Failure(code=error.code, message=str(error), status=http_status(error), temporary=error.temporary)
    return b'event: error\ndata: {"type":"error","data":%b}\n\n' % msgspec.json.encode(data)


class Listener:
    """What one client is yet to be sent: bounded, and filled again from the log once there is room.

    With `turn` only events of that turn are taken, and its end is the end of all.
    """

    def __init__(self, room: int, turn: str | None = None) -> None:
        self._room = room
        self._wanted = b'"turnId":"%b"' % turn.encode() if turn else None
        self._frames: list[bytes] = []
        self._bytes = 0
        self._woken = asyncio.Event()
        self._full = False
        self.subscription: Subscription | None = None
        self.cursor: Cursor | None = None
        self.doubtful = False
        self.ended = False
        self.closed = False

    def take(self, cursor: Cursor, event: bytes) -> bool:
        """An event of the log; False when no more should come until what is there has been sent."""
        kind = type_of(event)
        self.cursor = cursor
        if kind == b"resync":
            self.doubtful = True
        elif self._wanted and self._wanted not in event:
            return True
        self._frames.append(frame(cursor, event))
        self._bytes += len(self._frames[-1])
        self.ended = self.ended or bool(self._wanted and kind == b"turn_end")
        self._full = len(self._frames) >= self._room or self._bytes >= _BYTES
        self._woken.set()
        return not self._full

    def drain(self) -> bytes:
        """What is to be sent now."""
        self._woken.clear()
        found = b"".join(self._frames)
        self._frames.clear()
        self._bytes = 0
        if self._full:
            self._full = False
            if self.subscription:
                self.subscription.resume()
        return found

    async def wait(self, patience: float) -> bool:
        """Until there is something to do; False when nothing came in time."""
        try:
            async with asyncio.timeout(patience):
                return await self._woken.wait()
        except TimeoutError:
            return False

    def close(self, why: TertuliaError | None = None) -> None:
        """End the stream after what is there, and after saying why, if there is something to say."""
        if why and not self.closed:
            self._frames.append(_farewell(why))
        self.closed = True
        self._woken.set()


class EventStream(ASGIResponse):
    """Sends what the listener takes until the turn has ended, the client has left or we are told to close.

    `check` yields the end of the turn from the database, in case the log lost it. `left` is called at the end.
    """

    def __init__(
        self, listener: Listener, *, hello: bytes, check: Check | None, deadline: float,
        left: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        super().__init__()
        self._listener = listener
        self._hello = hello
        self._check = check
        self._deadline = deadline
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        leaving = asyncio.ensure_future(_departure(receive))
        leaving.add_done_callback(lambda _: self._listener.close())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEAD})
            await self._stream(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            hang_up(scope)  # the client does not read
        finally:
            leaving.cancel()
            await self._left()

    async def _stream(self, send: Send) -> None:
        listener, looked = self._listener, 0.0
        await self._send(send, self._hello)
        while True:
            over = listener.ended or listener.closed  # more may come while we send
            chunk = listener.drain()
            await self._send(send, chunk)
            if over:
                return
            if chunk and not listener.doubtful:
                continue
            woken = chunk or await listener.wait(_DOUBT if listener.doubtful and self._check else _KEEP_ALIVE)
            if not woken:
                await self._send(send, b": keep-alive\n\n")
            if not self._check or (woken and not listener.doubtful) or time.monotonic() - looked < _DOUBT:
                continue
            looked = time.monotonic()
            if ends := await self._check():
                rest = listener.drain()  # what came while we asked; the end may be in it
                await self._send(send, rest if listener.ended else rest + b"".join(ends))
                return

    async def _send(self, send: Send, body: bytes) -> None:
        if body:
            async with asyncio.timeout(self._deadline):
                await send({"type": "http.response.body", "body": body, "more_body": True})


async def _departure(receive: Receive) -> None:
    """Until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
