"""What a turn is shown: from the hot context where it is up to date, else from the log."""

from datetime import datetime

from msgspec import UNSET

from tertulia.context.port import ContextStores, ConversationStore
from tertulia.core.model import ContextMessage, Role
from tertulia.core.turns import Answer, Turn
from tertulia.store.messages import Messages


class Recall:
    """Reads and feeds the context; the log remains the truth, and `last_seq` tells whether the context is behind."""

    def __init__(self, stores: ContextStores, messages: Messages, window: int, held: int) -> None:
        self._stores = stores
        self._messages = messages
        self._window = window
        self._hot = window <= held

    async def before(self, turn: Turn) -> list[ContextMessage]:
        """The newest messages before the turn's own, as they were when it first started."""
        store, name = self._stores.open(turn.owner), str(turn.conversation)
        known = await store.get(name) if self._hot and turn.attempt == 1 else None
        if known is not None and known.last_seq == turn.context_tail:
            return list(known.messages[-self._window :])
        if turn.context_tail == 0 and known is None:
            await store.create(name)
            return []
        history = await self._messages.window(
            turn.owner, turn.conversation, turn.context_until, turn.trigger_seq, self._window
        )
        if self._hot:
            await _replace(store, name, history)
        return history

    async def add(self, turn: Turn, answer: Answer | None, reply_seq: int, at: datetime) -> None:
        """Take in the message and its answer, once both are in the log."""
        if not self._hot:
            return
        store, name = self._stores.open(turn.owner), str(turn.conversation)
        if turn.trigger_seq < turn.context_tail and turn.attempt > 1:
            await store.delete(name)  # an answer out of order: the log knows its place
            return
        asked = ContextMessage(Role.USER, turn.content, turn.said_at, seq=turn.trigger_seq)
        if answer is None:
            await store.add_message(name, asked)
            return
        said = ContextMessage(Role.ASSISTANT, answer.text, at, answer.structured_data or UNSET, seq=reply_seq)
        await store.add_message(name, asked, said)


async def _replace(store: ConversationStore, name: str, history: list[ContextMessage]) -> None:
    await store.delete(name)
    if history:
        await store.add_message(name, *history)
    else:
        await store.create(name)
