"""Finding one's own messages again, by what they say."""

import asyncio
from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct

from tertulia.core.errors import Unavailable
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


_AT_ONCE = 4  # so that whoever searches leaves connections to everybody else
_LONGEST = "3s"


class Search:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def messages(self, owner: Owner, text: str, *, limit: int, offset: int) -> list[Hit]:
        """The best first; of equals, the newest."""
        async with self._free, self._database.transaction(owner) as session:
            await session.one("take_at_most", time=_LONGEST)
            try:
                rows = await session.many("search_messages", text=text, limit=limit, offset=offset)
            except asyncpg.QueryCanceledError as error:
                raise Unavailable("That takes too long to find. Look for something rarer.") from error
        return [Hit(**dict(row.items())) for row in rows]
