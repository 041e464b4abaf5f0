"""What the rest of the system knows of the context: a store of five methods, and where to open it."""

from typing import Protocol

from tertulia.core.model import ContextConversation, ContextMessage, Owner


class ConversationStore(Protocol):
    """The conversations of one owner. What nobody touched for the time to live is absent, swept or not."""

    async def create(self, conversation_id: str | None = None) -> str:
        """Begin an empty conversation, under a new UUID v4 when no id is given; leave an existing one be."""
        ...

    async def get(self, conversation_id: str) -> ContextConversation | None:
        """The conversation with the messages it still holds, or None."""
        ...

    async def add_message(
        self, conversation_id: str, *messages: ContextMessage, after: int | None = None
    ) -> None:
        """Append, all or none, and restart the time to live; the oldest give way, an unknown id is made.

        With `after`, only to what ends at that place in the log; what does not is forgotten instead, since it would
        have a gap.
        """
        ...

    async def get_history(self, conversation_id: str, limit: int | None = None) -> list[ContextMessage]:
        """The last `limit` messages (all that are held by default), oldest first; none for an unknown id."""
        ...

    async def delete(self, conversation_id: str) -> None:
        """Forget the conversation; an unknown id is fine."""
        ...


class ContextStores(Protocol):
    """Where the stores of all owners come from; the limits count over all of them."""

    def open(self, owner: Owner) -> ConversationStore:
        """The store of this owner, who sees nobody else's conversations."""
        ...

    async def sweep(self) -> int:
        """Delete what has expired, log each, and say how many there were."""
        ...

    async def report(self) -> None:
        """Log the storage mode, how many conversations there are and about how much memory they take."""
        ...

    async def close(self) -> None:
        """Let go of what this process holds."""
        ...
