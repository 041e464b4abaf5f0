"""What a turn is shown: from the hot context where it is up to date, else from the log."""

import contextlib
from datetime import datetime

from msgspec import UNSET

from tertulia.context.port import ContextStores, ConversationStore
from tertulia.core.errors import Unavailable
from tertulia.core.model import ContextConversation, ContextMessage, Role
from tertulia.core.turns import Answer, Turn
from tertulia.store.messages import Messages


class Recall:
    """Reads and feeds the context; the log remains the truth, and `last_seq` tells whether the context is behind.

    A context that cannot be reached is one that knows nothing: it never holds up a turn.
    """

    def __init__(self, stores: ContextStores, messages: Messages, held: int) -> None:
        self._stores = stores
        self._messages = messages
        self._held = held

    async def before(self, turn: Turn, window: int) -> list[ContextMessage]:
        """The newest messages of a window that ends with the turn's own, as they were when it first started."""
        before = window - 1
        if not before:
            return []
        hot = before <= self._held
        store, name = self._stores.open(turn.owner), str(turn.conversation)
        known, reachable = await _get(store, name) if hot and turn.attempt == 1 else (None, True)
        if known is not None and _up_to_date(known, turn):
            return list(known.messages[-before:])
        if turn.context_tail == 0:
            if reachable:
                with contextlib.suppress(Unavailable):
                    await store.create(name)
            return []
        history = await self._messages.window(
            turn.owner, turn.conversation, turn.context_until, turn.trigger_seq, max(before, self._held)
        )
        if hot and reachable:
            with contextlib.suppress(Unavailable):
                await _replace(store, name, history)
        return history[-before:]

    async def add(self, turn: Turn, answer: Answer | None, reply_seq: int, at: datetime) -> None:
        """Take in the message and its answer, once both are in the log, if the context ends just before them."""
        store, name = self._stores.open(turn.owner), str(turn.conversation)
        asked = ContextMessage(Role.USER, turn.content, turn.said_at, seq=turn.trigger_seq)
        said: list[ContextMessage] = []
        if answer is not None:
            structured = answer.structured_data or UNSET
            said.append(
                ContextMessage(Role.ASSISTANT, answer.text, at, structured, seq=reply_seq, tools=answer.tools)
            )
        with contextlib.suppress(Unavailable):
            await store.add_message(name, asked, *said, after=turn.context_tail)

    async def forget(self, turn: Turn) -> None:
        """The conversation has been deleted."""
        with contextlib.suppress(Unavailable):
            await self._stores.open(turn.owner).delete(str(turn.conversation))


def _up_to_date(known: ContextConversation, turn: Turn) -> bool:
    """It ends where the log does, and has the newest card, unless that is older than all it holds.

    (A card may come while a turn runs; then the turn's end is newer than the card, and the context lacks it.)
    """
    if known.last_seq != turn.context_tail:
        return False
    places = [message.seq for message in known.messages]
    return not places or turn.card_seq < min(places) or turn.card_seq in places


async def _get(store: ConversationStore, name: str) -> tuple[ContextConversation | None, bool]:
    """What it knows, and whether it could be asked: one wait for a time-out is enough."""
    try:
        return await store.get(name), True
    except Unavailable:
        return None, False


async def _replace(store: ConversationStore, name: str, history: list[ContextMessage]) -> None:
    await store.delete(name)
    if history:
        await store.add_message(name, *history)
    else:
        await store.create(name)
