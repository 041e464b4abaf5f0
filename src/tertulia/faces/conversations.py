"""`/api/conversations`: read one, stop its answer, delete it, change one's mind."""

import asyncio
import time
from typing import Annotated, Any, Literal
from uuid import UUID

from litestar import delete, get, post
from litestar.params import Parameter
from msgspec import Struct

from tertulia.core import errors
from tertulia.faces import body as reading
from tertulia.faces.gate import Signed
from tertulia.faces.openapi import refuses
from tertulia.faces.paging import Limit, seq_cursor
from tertulia.queue.hints import Hint, Hints
from tertulia.store.conversations import Conversation, Conversations, StoredMessage, StoredTurn

_ABORT_PATIENCE = 5.0


class ConversationPage(Struct, frozen=True, rename="camel"):
    """A conversation with one page of its messages, in their order, and the turns that go with them."""

    conversation: Conversation
    messages: list[StoredMessage]
    turns: list[StoredTurn]
    before: str | None = None
    after: str | None = None


class Aborted(Struct, frozen=True):
    """Which turns were stopped, as they ended."""

    status: Literal["GENERATION_ABORTED", "NOTHING_TO_ABORT"]
    turns: list[StoredTurn]


class Deleted(Struct, frozen=True, rename="camel"):
    """Hidden now, erased when that many seconds have passed."""

    restorable_for_seconds: float
    status: Literal["deleted"] = "deleted"


class Restored(Struct, frozen=True):
    status: Literal["restored"] = "restored"


_REFUSED = refuses(errors.ConversationNotFound)

Cursor = Annotated[str | None, Parameter(description="a cursor from an earlier page")]


@get(
    "/api/conversations/{conversation_id:str}",
    responses=_REFUSED,
    tags=["conversations"],
    summary="Read a conversation",
)
async def read_conversation(
    request: Signed, conversation_id: str, limit: Limit = 50, before: Cursor = None, after: Cursor = None
) -> ConversationPage:
    """The newest messages; `before` and `after` in the answer lead to the pages beside it."""
    if before is not None and after is not None:
        raise errors.InvalidRequest("Give `before` or `after`, not both.")
    conversations: Conversations = request.app.state.conversations
    history = await conversations.history(
        request.user.owner,
        _name(conversation_id),
        before=seq_cursor(before),
        after=seq_cursor(after),
        limit=limit,
    )
    messages = history.messages
    return ConversationPage(
        history.conversation,
        messages,
        history.turns,
        before=str(messages[0].seq) if messages and (history.more or after is not None) else None,
        after=str(messages[-1].seq) if messages and (history.more or before is not None) else None,
    )


@post(
    "/api/conversations/{conversation_id:str}/abort",
    status_code=200,
    responses=_REFUSED,
    tags=["conversations"],
    summary="Stop the answer",
)
async def abort(request: Signed, conversation_id: str) -> Aborted:
    """Stop what is being answered now; what was said until then is kept. Answers once it has stopped."""
    conversations: Conversations = request.app.state.conversations
    hints: Hints = request.app.state.hints
    owner = request.user.owner
    turns = await conversations.request_abort(owner, _name(conversation_id))
    if not turns:
        return Aborted("NOTHING_TO_ABORT", [])
    hints.tell(Hint(turns=turns))
    return Aborted("GENERATION_ABORTED", await _ends(conversations, owner, turns))


async def _ends(conversations: Conversations, owner: Any, turns: list[UUID]) -> list[StoredTurn]:
    patience = time.monotonic() + _ABORT_PATIENCE
    pause = 0.01
    while time.monotonic() < patience:
        await asyncio.sleep(pause)
        pause = min(pause * 1.6, 0.25)
        ended = await conversations.ended(owner, turns)
        if ended is not None:
            return ended
    return []


@delete(
    "/api/conversations/{conversation_id:str}",
    status_code=200,
    responses=_REFUSED,
    tags=["conversations"],
    summary="Delete a conversation",
)
async def delete_conversation(request: Signed, conversation_id: str) -> Deleted:
    """Hide it at once and stop its answer; it is erased a little later, and can be brought back until then."""
    conversations: Conversations = request.app.state.conversations
    hints: Hints = request.app.state.hints
    name = _name(conversation_id)
    turns = await conversations.hide(request.user.owner, name)
    hints.tell(Hint(turns=turns, owner=request.user.owner, forget=name))
    return Deleted(request.app.state.settings.delete_seconds)


@post(
    "/api/conversations/{conversation_id:str}/restore",
    status_code=200,
    responses=refuses(errors.ConversationNotFound, errors.Conflict),
    tags=["conversations"],
    summary="Undo a deletion",
)
async def restore_conversation(request: Signed, conversation_id: str) -> Restored:
    """Bring a deleted conversation back, while that is still possible."""
    conversations: Conversations = request.app.state.conversations
    await conversations.bring_back(request.user.owner, _name(conversation_id))
    return Restored()


def _name(text: str) -> UUID:
    name = reading.uuid(text)
    if name is None:
        raise errors.ConversationNotFound
    return name


ROUTES = [read_conversation, abort, delete_conversation, restore_conversation]
