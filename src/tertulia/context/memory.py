"""The context in this process's memory: the default."""

from tertulia import ids
from tertulia.clock import now
from tertulia.context.codec import decode, encode
from tertulia.context.journal import Journal, Name
from tertulia.context.limits import Clock, ContextLimits
from tertulia.context.shelf import Shelf
from tertulia.core.model import ContextConversation, ContextMessage, Owner


class MemoryConversationStore:
    """The conversations of one owner on the shelf."""

    def __init__(self, shelf: Shelf, owner: Owner) -> None:
        self._shelf = shelf
        self._owner = owner

    async def create(self, conversation_id: str | None = None) -> str:
        made = str(ids.conversation_id()) if conversation_id is None else conversation_id
        self._shelf.create(Name(self._owner, made))
        return made

    async def get(self, conversation_id: str) -> ContextConversation | None:
        record = self._shelf.find(Name(self._owner, conversation_id))
        if record is None:
            return None
        messages = tuple(map(decode, record.messages))
        return ContextConversation(conversation_id, record.created_at, record.updated_at, messages)

    async def add_message(
        self, conversation_id: str, *messages: ContextMessage, after: int | None = None
    ) -> None:
        name = Name(self._owner, conversation_id)
        if after is not None and self._shelf.reach(name) != after:
            self._shelf.remove(name)
            return
        newest = max((message.seq for message in messages), default=0)
        self._shelf.append(name, [encode(message) for message in messages], newest)

    async def get_history(self, conversation_id: str, limit: int | None = None) -> list[ContextMessage]:
        record = self._shelf.find(Name(self._owner, conversation_id))
        texts = list(record.messages) if record else []
        return [
            decode(text) for text in (texts if limit is None else texts[max(0, len(texts) - max(0, limit)) :])
        ]

    async def delete(self, conversation_id: str) -> None:
        self._shelf.remove(Name(self._owner, conversation_id))


class MemoryContextStores:
    """One shelf for all owners; it is gone with the process, and rebuilt from the log."""

    def __init__(self, limits: ContextLimits, clock: Clock = now) -> None:
        self._journal = Journal("in-memory", limits.memory_warning)
        self._shelf = Shelf(limits, clock, self._journal)

    def open(self, owner: Owner) -> MemoryConversationStore:
        return MemoryConversationStore(self._shelf, owner)

    async def sweep(self) -> int:
        return self._shelf.sweep()

    async def report(self) -> None:
        self._journal.report(*self._shelf.usage)

    async def close(self) -> None:
        self._shelf.clear()
