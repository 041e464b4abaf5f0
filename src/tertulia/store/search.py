"""Finding one's own messages again, by what they say."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from tertulia.core.model import Owner
from tertulia.store.database import Database


class Hit(Struct, frozen=True):
    """A message that says what was looked for: its text, and the same with the words found between two marks."""

    message_id: UUID
    conversation_id: UUID
    seq: int
    role: str
    content_type: str
    agent_id: str | None
    created_at: datetime
    said: str
    marked: str | None
    rank: float


class Search:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def messages(self, owner: Owner, text: str, *, limit: int, offset: int) -> list[Hit]:
        """The best first; of equals, the newest."""
        async with self._database.transaction(owner) as session:
            rows = await session.many("search_messages", text=text, limit=limit, offset=offset)
        return [Hit(**dict(row.items())) for row in rows]
