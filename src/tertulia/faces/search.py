"""`/api/search`: one's own messages, by what they say."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from litestar import get
from litestar.params import Parameter
from msgspec import Struct

from tertulia.core import errors
from tertulia.core.search import excerpt
from tertulia.core.text import storable
from tertulia.faces.gate import Signed
from tertulia.faces.openapi import refuses
from tertulia.store.search import Hit, Search

_DEEPEST = 10_000


class Found(Struct, frozen=True):
    """A message that says it: an excerpt, and where in it the words are, as pairs of first and last place + 1."""

    message_id: UUID
    conversation_id: UUID
    seq: int
    role: str
    content_type: str
    agent_id: str | None
    created_at: datetime
    excerpt: str
    highlights: list[tuple[int, int]]


class SearchPage(Struct, frozen=True):
    """Best first. `next` is the cursor of the following page."""

    results: list[Found]
    next: str | None = None


@get("/api/search", responses=refuses(), tags=["conversations"], summary="Search your messages")
async def search_messages(
    request: Signed,
    q: Annotated[str, Parameter(description="what to look for: words, or Chinese as it is written")],
    limit: Annotated[int, Parameter(ge=1, le=50, description="how many, 1 to 50")] = 20,
    cursor: Annotated[str | None, Parameter(description="`next` of the page before")] = None,
) -> SearchPage:
    """What you and your agents said. A message is found a moment after its answer has ended."""
    if not q.strip() or len(q) > 200 or not storable(q):
        raise errors.InvalidRequest("q: 1 to 200 characters to look for.")
    offset = _offset(cursor)
    search: Search = request.app.state.search
    hits = await search.messages(request.user.owner, q, limit=limit + 1, offset=offset)
    more = len(hits) > limit and offset + limit <= _DEEPEST
    return SearchPage([_found(hit, q) for hit in hits[:limit]], str(offset + limit) if more else None)


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 5 and int(cursor) <= _DEEPEST):
        raise errors.InvalidRequest("That cursor is not one of ours. Leave it out to begin with the best.")
    return int(cursor)


def _found(hit: Hit, q: str) -> Found:
    text, highlights = excerpt(hit.said, hit.marked, q)
    return Found(
        message_id=hit.message_id,
        conversation_id=hit.conversation_id,
        seq=hit.seq,
        role=hit.role,
        content_type=hit.content_type,
        agent_id=hit.agent_id,
        created_at=hit.created_at,
        excerpt=text,
        highlights=highlights,
    )


ROUTES = [search_messages]
