"""Stopping an answer: whoever is at it is asked to stop; one that nobody is at yet is ended here."""

import asyncio
import time
from uuid import UUID

from msgspec import Struct

from tertulia import clock, ids
from tertulia.core.errors import TurnNotFound
from tertulia.core.model import Owner
from tertulia.core.statuses import http_status
from tertulia.core.turns import Turn, aborted, terminal
from tertulia.queue.hints import Hint, Hints
from tertulia.queue.outbox import Outbox
from tertulia.queue.publisher import Publisher
from tertulia.store.conversations import Conversations, StoredTurn
from tertulia.store.turns import Turns

_PATIENCE = 5.0
_GRACE = 0.3  # seconds for a worker to hear of it


class Stopped(Struct, frozen=True):
    """The turns that were asked to stop, as they ended; `asked` is empty where there was nothing to stop."""

    asked: list[UUID]
    ended: list[StoredTurn]


class Stopping:
    """`turns` are a worker's, under a name of our own."""

    def __init__(
        self, conversations: Conversations, turns: Turns, outbox: Outbox, hints: Hints, publisher: Publisher
    ) -> None:
        self._conversations = conversations
        self._turns = turns
        self._outbox = outbox
        self._hints = hints
        self._publisher = publisher

    async def stop(self, owner: Owner, conversation: UUID, turn: UUID | None) -> Stopped:
        """Stop this turn, or what is being answered now; once that has ended. To ask again changes nothing."""
        asked = await self._conversations.request_abort(owner, conversation, turn)
        if asked:
            self._hints.tell(Hint(turns=asked))
            return Stopped(asked, await self._wait(owner, conversation, asked))
        if turn is None:
            return Stopped([], [])
        ended = await self._conversations.ended(owner, [turn])
        if not ended:
            raise TurnNotFound
        return Stopped([turn], ended)

    async def _wait(self, owner: Owner, conversation: UUID, asked: list[UUID]) -> list[StoredTurn]:
        began, pause, tried = time.monotonic(), 0.01, False
        while (waited := time.monotonic() - began) < _PATIENCE:
            await asyncio.sleep(pause)
            pause = min(pause * 1.6, 0.25)
            ended = await self._conversations.ended(owner, asked)
            if ended is not None:
                return ended
            if waited > _GRACE and not tried:
                tried = True
                await self._end_here(owner, conversation)
        return []

    async def _end_here(self, owner: Owner, conversation: UUID) -> None:
        """End the conversation's next turn if it is to be stopped and no worker holds the lease."""
        taken = await self._turns.take(owner, conversation)
        if isinstance(taken, str):
            return
        try:
            if taken.aborting:
                await self._end(taken)
        finally:
            await self._turns.release(taken)
            self._publisher.wake(owner, conversation, taken.message)

    async def _end(self, turn: Turn) -> None:
        ending = aborted(turn.partial or "", ids.row_id())
        status = http_status(ending.error) if ending.error else 200
        last = terminal(turn, ending, status, clock.now())
        written = await self._turns.finish(turn, ending, last, {})
        if written.outcome == "ended":
            await self._outbox.publish(turn, last)
