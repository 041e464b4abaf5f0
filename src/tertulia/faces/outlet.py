"""The sending side of one WebSocket: a bounded buffer, one sender, and a deadline for each frame."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from litestar.exceptions import WebSocketDisconnect

_BYTES = 262_144  # of frames that wait to be sent


class Outlet:
    """Frames on their way to one client. A client that does not read for `deadline` seconds is given up.

    There is a task only while there is something to send, so an idle socket costs none.
    """

    def __init__(
        self, send: Callable[[str], Awaitable[None]], *, room: int, deadline: float,
        drained: Callable[[], None], stuck: Callable[[], None],
    ) -> None:  # fmt: skip
        self._send = send
        self._room = room
        self._deadline = deadline
        self._drained = drained
        self._stuck = stuck
        self._frames: deque[tuple[bytes, bool]] = deque()
        self._bytes = 0
        self._answers = 0
        self._answer_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._full = False
        self._closed = False

    def answer(self, frame: bytes) -> bool:
        """Take an answer to what the client said; False when it has very many of them unread."""
        self._answers += 1
        self._answer_bytes += len(frame)
        self.put(frame, is_answer=True)
        return self._answers <= self._room and self._answer_bytes <= _BYTES

    def put(self, frame: bytes, *, is_answer: bool = False) -> bool:
        """Take a frame; False when no more should come until the buffer has drained."""
        if self._closed:
            return False
        self._frames.append((frame, is_answer))
        self._bytes += len(frame)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        self._full = self._full or len(self._frames) >= self._room or self._bytes >= _BYTES
        return not self._full

    async def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        self._frames.clear()
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def flush(self) -> None:
        """Wait until everything has been handed over."""
        if self._task:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._frames:
                frame, is_answer = self._frames.popleft()
                self._bytes -= len(frame)
                if is_answer:
                    self._answers -= 1
                    self._answer_bytes -= len(frame)
                async with asyncio.timeout(self._deadline):
                    await self._send(frame.decode())
                if self._full and len(self._frames) <= self._room // 2 and self._bytes <= _BYTES // 2:
                    self._full = False
                    self._drained()
        except (TimeoutError, OSError, RuntimeError, WebSocketDisconnect):
            self._closed = True
            self._frames.clear()
            self._stuck()
        finally:
            self._task = None
