"""`/api/conversations`: list them, make one, read one, listen to it, stop its answer, delete it, change one's mind."""

from typing import Annotated, Literal
from uuid import UUID

from litestar import Response, delete, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter
from litestar.types import ASGIApp
from msgspec import Struct

from tertulia.core import errors
from tertulia.core.agents import is_agent_id
from tertulia.core.text import client_handle, title_text
from tertulia.events.log import Cursor as Place
from tertulia.faces import body as reading
from tertulia.faces.body import IdempotencyKey
from tertulia.faces.gate import Signed
from tertulia.faces.openapi import BODY, refuses, takes
from tertulia.faces.paging import Cursor, Limit, Span, WrongCursor, at_moment, moment_cursor
from tertulia.faces.streams import Streams
from tertulia.queue.hints import Hint, Hints
from tertulia.stopping import Stopping
from tertulia.store.agents import Directory
from tertulia.store.conversations import Conversation, Conversations, StoredMessage, StoredTurn


class ConversationPage(Struct, frozen=True, rename="camel"):
    """A conversation with one page of its messages, in their order, and the turns that go with them."""

    conversation: Conversation
    messages: list[StoredMessage]
    turns: list[StoredTurn]
    before: str | None = None
    after: str | None = None


class Abort(Struct, frozen=True, forbid_unknown_fields=True):
    """Which turn is to be stopped, if not what is being answered now."""

    turn_id: UUID | None = None


class Aborted(Struct, frozen=True):
    """Which turns were stopped, as they ended. `ABORT_REQUESTED`: they were asked to, and will end soon."""

    status: Literal["GENERATION_ABORTED", "NOTHING_TO_ABORT", "ABORT_REQUESTED"]
    turns: list[StoredTurn]


class Deleted(Struct, frozen=True, rename="camel"):
    """Hidden now, erased when that many seconds have passed."""

    restorable_for_seconds: float
    status: Literal["deleted"] = "deleted"


class Restored(Struct, frozen=True):
    status: Literal["restored"] = "restored"


_REFUSED = refuses(errors.ConversationNotFound)


class ConversationList(Struct, frozen=True):
    """The last active first. `next` is the cursor of the following page."""

    conversations: list[Conversation]
    next: str | None = None


class NewConversation(Struct, frozen=True, forbid_unknown_fields=True):
    """With `agent_id`, the standing one with that agent; else one of its own, under your own name if you give one."""

    agent_id: str | None = None
    session_id: str | None = None
    title: str | None = None


@get("/api/conversations", responses=refuses(), tags=["conversations"], summary="List your conversations")
async def list_conversations(request: Signed, limit: Limit = 50, cursor: Cursor = None) -> ConversationList:
    """Your conversations, the last active first."""
    conversations: Conversations = request.app.state.conversations
    found = await conversations.page(request.user.owner, before=moment_cursor(cursor), limit=limit + 1)
    page = found[:limit]
    last = page[-1] if len(found) > limit else None
    return ConversationList(
        page, at_moment(last.last_message_at or last.created_at, last.id) if last else None
    )


@post(
    "/api/conversations",
    operation_class=takes(NewConversation, {"title": "A trip to the sea"}),
    responses={
        **refuses(errors.AgentNotFound, errors.IdempotencyConflict, *BODY),
        200: ResponseSpec(Conversation, generate_examples=False, description="It was there already."),
    },
    tags=["conversations"],
    summary="Begin a conversation",
)
async def make_conversation(
    request: Signed, body: bytes, idempotency_key: IdempotencyKey = None
) -> Response[Conversation]:
    """A new conversation (201), or the one you have with that agent or under that name (200)."""
    wanted = reading.decode(body, NewConversation)
    owner = request.user.owner
    if wanted.agent_id is not None:
        if wanted.session_id is not None or wanted.title is not None:
            raise errors.InvalidRequest(
                "With agent_id, neither session_id nor title: it is the standing one."
            )
        directory: Directory = request.app.state.directory
        if not is_agent_id(wanted.agent_id):
            raise errors.AgentNotFound
        await directory.get(owner, wanted.agent_id)
    if wanted.session_id is not None:
        client_handle(wanted.session_id, "session_id")
    conversations: Conversations = request.app.state.conversations
    opened = await conversations.open(
        owner,
        agent_id=wanted.agent_id,
        handle=wanted.session_id,
        title=None if wanted.title is None else title_text(wanted.title),
        key=reading.key("POST /api/conversations", idempotency_key, body),
    )
    return Response(opened.conversation, status_code=201 if opened.created else 200)


@get(
    "/api/conversations/{conversation_id:str}/events",
    responses={
        **refuses(errors.ConversationNotFound, errors.TooManyConnections),
        200: ResponseSpec(
            str, media_type="text/event-stream", generate_examples=False,  # type: ignore[arg-type]
            description="Everything that happens in the conversation, until you leave.",
        ),
    },
    tags=["conversations"],
    summary="Listen to a conversation",
)  # fmt: skip
async def listen(
    request: Signed,
    conversation_id: str,
    last_event_id: Annotated[
        str | None, Parameter(header="Last-Event-ID", description="the last `id:` you saw")
    ] = None,
    after: Cursor = None,
) -> ASGIApp:
    """Server-sent events. Come back with the last `id:` you saw to get what came after it, or `resync` when that
    is gone; `after` is for clients that cannot set a header."""
    conversations: Conversations = request.app.state.conversations
    streams: Streams = request.app.state.streams
    seen = last_event_id or after
    place = Place.parse(seen) if seen else None
    if seen and place is None:
        raise WrongCursor
    name = (await conversations.get(request.user.owner, _name(conversation_id))).id
    return await streams.of_conversation(request.user, name, place)


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
    conversations: Conversations = request.app.state.conversations
    span = Span.of(before, after)
    history = await conversations.history(
        request.user.owner, _name(conversation_id), before=span.before, after=span.after, limit=limit
    )
    return ConversationPage(history.conversation, history.messages, history.turns, *span.beside(history))


@post(
    "/api/conversations/{conversation_id:str}/abort",
    status_code=200,
    operation_class=takes(Abort, {}, required=False),
    responses=refuses(errors.ConversationNotFound, errors.TurnNotFound, *BODY),
    tags=["conversations"],
    summary="Stop the answer",
)
async def abort(request: Signed, conversation_id: str, body: bytes) -> Aborted:
    """Stop what is being answered now, or the turn that the body names; what was said until then is kept. Answers
    once it has stopped. Naming the turn makes it safe to ask again: no other will be stopped."""
    wanted = reading.decode(body, Abort) if body else Abort()
    stopping: Stopping = request.app.state.stopping
    stopped = await stopping.stop(request.user.owner, _name(conversation_id), wanted.turn_id)
    if not stopped.asked:
        return Aborted("NOTHING_TO_ABORT", [])
    return Aborted("GENERATION_ABORTED" if stopped.ended else "ABORT_REQUESTED", stopped.ended)


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


ROUTES = [
    list_conversations, make_conversation, read_conversation, listen, abort, delete_conversation, restore_conversation,
]  # fmt: skip
