"""What an agent says and does, on its way into the event log while it happens."""

import asyncio
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from tertulia import clock, failpoints, metrics
from tertulia.core.errors import Unavailable
from tertulia.core.events import Data, MessageStart, TextDelta, ToolResult, ToolUseStart, ToolUseStop, encode
from tertulia.core.model import ContentType, Role
from tertulia.core.turns import Turn
from tertulia.events.log import EventLog, session_log
from tertulia.store.turns import Turns

_KEEP_EVERY = 1.0
_FIRST_WAIT = 0.05
_HOPS = 4  # from the subscription through the relay and the outlet to the socket


class LeaseLost(Exception):
    """Another worker has this conversation now; nothing more may be written."""


class TurnStream:
    """The output of one attempt. Words that come while an append is in flight are joined into one event.

    `lost` is called when the log refuses us because a newer epoch has written.
    """

    def __init__(self, turn: Turn, events: EventLog, turns: Turns, lost: Callable[[], None]) -> None:
        self._turn = turn
        self._events = events
        self._turns = turns
        self._lost = lost
        self._log = session_log(turn.owner.tenant, turn.conversation)
        self._pending: list[Data] = []
        self._words: list[str] = []
        self._said: list[str] = []
        self._sending: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._broken = False
        self._began = self._kept = time.monotonic()
        self.first_word: float | None = None
        self.facts: dict[str, Any] = {}

    @property
    def said(self) -> str:
        return "".join(self._said)

    def start(self, reply: UUID, model: str) -> None:
        self.note(model=model)
        self._put(MessageStart(message_id=reply, model=model))

    def note(self, **facts: object) -> None:
        self.facts |= facts

    async def text(self, delta: str) -> None:
        now = time.monotonic()
        self._said.append(delta)
        self._words.append(delta)
        self._send_soon()
        if self.first_word is None:
            self.first_word = now - self._began
            await self._let_out()
        if now - self._kept > _KEEP_EVERY and (self._keeping is None or self._keeping.done()):
            self._kept = now
            self._keeping = asyncio.create_task(self._keep())

    async def tool_called(self, call: dict[str, Any]) -> None:
        self._put(ToolUseStart(tool_call_id=call["id"], tool_name=call["name"]))
        if not await self._turns.record_step(self._turn, Role.ASSISTANT, ContentType.TOOL_CALL, call, None):
            raise LeaseLost
        stop = ToolUseStop(tool_call_id=call["id"], tool_name=call["name"], input=call["arguments"])
        self._put(stop)
        failpoints.reach("worker.tool_called")

    async def tool_returned(
        self, call_id: str, name: str, result: str, is_error: bool, extra: dict[str, Any]
    ) -> None:
        failpoints.reach("worker.tool_returned")
        content = {"id": call_id, "name": name, "result": result, "isError": is_error} | extra
        structured = extra["structured"]
        if not await self._turns.record_step(
            self._turn, Role.TOOL, ContentType.TOOL_RESULT, content, structured
        ):
            raise LeaseLost
        self._put(ToolResult(tool_call_id=call_id, result=result, is_error=is_error))

    async def settle(self) -> None:
        """Wait until all that was said is in the log."""
        while self._sending and not self._sending.done():
            await asyncio.wait([self._sending])
        if self._keeping:
            await asyncio.wait([self._keeping])

    async def _let_out(self) -> None:
        """Let the first words reach the listeners before the model's next ones are worked on.

        A model's buffered chunks are read without ever waiting, so nothing else would run until the last of them.
        """
        if self._sending:
            await asyncio.wait([self._sending], timeout=_FIRST_WAIT)
        for _ in range(_HOPS):
            await asyncio.sleep(0)

    def _put(self, data: Data) -> None:
        self._join_words()
        self._pending.append(data)
        self._send_soon()

    def _join_words(self) -> None:
        if self._words:
            self._pending.append(TextDelta(text="".join(self._words)))
            self._words.clear()

    def _send_soon(self) -> None:
        if self._sending is None and not self._broken:
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        try:
            while (self._pending or self._words) and not self._broken:
                self._join_words()
                batch, self._pending = self._pending, []
                await self._append(batch)
        finally:
            self._sending = None

    async def _append(self, batch: list[Data]) -> None:
        if isinstance(batch[-1], TextDelta):
            failpoints.reach("worker.before_append")
        at = clock.now()
        try:
            events = [encode(self._turn.event(data, at)) for data in batch]
            ours = await self._events.append(self._log, events, epoch=self._turn.epoch)
        except Unavailable:
            self._broken = True  # listeners get the whole text at the end
            return
        if not ours:
            self._broken = True
            metrics.FENCED.inc()
            self._lost()
        elif self._said:
            failpoints.reach("worker.mid_turn")

    async def _keep(self) -> None:
        try:
            if not await self._turns.keep_partial(self._turn, self.said):
                self._lost()
        except Unavailable:
            return  # the end of the turn will tell whether the database is back
