"""`/conversations`: the one standing conversation with each agent, its messages, and answers as they come."""

import asyncio
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from tertulia.accept import Reception
from tertulia.core import errors
from tertulia.core.agents import is_agent_id
from tertulia.core.model import ContentType, Owner
from tertulia.faces import body as reading
from tertulia.faces.body import IdempotencyKey
from tertulia.faces.gate import Signed
from tertulia.faces.messages import Queued, queued
from tertulia.faces.openapi import BODY, refuses, takes
from tertulia.faces.paging import Cursor, Limit, Span
from tertulia.faces.streams import Streams
from tertulia.store.agents import Directory
from tertulia.store.conversations import Conversation, Conversations, StoredMessage
from tertulia.store.messages import Accepted, Submission

_SHOWN = (ContentType.TEXT, ContentType.BRIEFING_CARD)


class StandingConversation(Struct, frozen=True):
    """A conversation with an agent. `sessionId` is the credential for listening to it: keep it secret."""

    id: UUID
    user_id: str
    agent_id: str | None
    session_id: str = msgspec.field(name="sessionId")
    title: str | None
    started_at: datetime
    last_message_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Message(Struct, frozen=True):
    """A message of it: `content` is text, or a structure where `content_type` says so."""

    id: UUID
    conversation_id: UUID
    seq: int
    role: str
    content_type: str
    content: Any
    created_at: datetime
    turn_id: UUID | None
    agent_id: str | None
    structured_data: Any
    briefing_id: UUID | None


class MessagePage(Struct, frozen=True):
    """In the order they were said; `before` and `after` lead to the pages beside this one."""

    messages: list[Message]
    before: str | None = None
    after: str | None = None


class Say(Struct, frozen=True, forbid_unknown_fields=True):
    """What to say, and to whom if not to the conversation's own agent."""

    content: Annotated[str, Meta(description="the text", extra_json_schema={"minLength": 1})]
    agent_id: str | None = None


@get(
    "/conversations/{agent_id:str}",
    responses=refuses(errors.AgentNotFound, errors.ConversationNotFound, errors.Forbidden),
    tags=["standing conversations"],
    summary="Your conversation with an agent",
)
async def standing_conversation(request: Signed, agent_id: str) -> StandingConversation:
    """The one conversation you have with this agent, made if there is none yet. A conversation's id works too."""
    return _standing(request.user.owner, await _own(request, agent_id))


@get(
    "/conversations/{conversation_id:str}/messages",
    responses=refuses(errors.AgentNotFound, errors.ConversationNotFound, errors.Forbidden),
    tags=["standing conversations"],
    summary="Read its messages",
)
async def read_messages(
    request: Signed, conversation_id: str, limit: Limit = 50, before: Cursor = None, after: Cursor = None
) -> MessagePage:
    """Texts and briefing cards in the order they came, the newest page first. An agent's id works too."""
    span = Span.of(before, after)
    name = (await _own(request, conversation_id)).id
    conversations: Conversations = request.app.state.conversations
    history = await conversations.history(
        request.user.owner, name, before=span.before, after=span.after, limit=limit, kinds=_SHOWN
    )
    return MessagePage([_message(name, message) for message in history.messages], *span.beside(history))


@post(
    "/conversations/{conversation_id:str}/messages",
    status_code=200,
    operation_class=takes(Say, {"content": "为什么会这样？"}),
    responses={
        **refuses(
            errors.MessageContentRequired, errors.MessageTooLong, errors.ConversationNotFound, errors.Forbidden,
            errors.AgentNotFound, errors.IdempotencyConflict, *BODY, errors.ConversationBusy,
            errors.TooManyTurns, errors.TooManyConnections,
        ),
        200: ResponseSpec(
            str, media_type="text/event-stream", generate_examples=False,  # type: ignore[arg-type]
            description="The events of the answer, as they come, until its end.",
        ),
        202: ResponseSpec(
            Queued, generate_examples=False, description="Stored, for a client that asked not to wait."
        ),
    },
    tags=["standing conversations"],
    summary="Say something, and hear the answer as it comes",
)  # fmt: skip
async def say(
    request: Signed,
    conversation_id: str,
    body: bytes,
    idempotency_key: IdempotencyKey = None,
    prefer: Annotated[
        str | None, Parameter(header="Prefer", description="`respond-async`: 202 instead of a stream")
    ] = None,
) -> ASGIApp:
    """Server-sent events of this message's answer. Leaving does not stop it: come back to
    `GET /api/conversations/{id}/events` with the last `id:` you saw, or repeat this request with its key.
    An agent's id works in place of the conversation's."""
    sent = reading.decode(body, Say)
    name, owner = await _named(request, conversation_id), request.user.owner
    submission = Submission(
        content=sent.content,
        agent_id=sent.agent_id,
        named=name,
        create=False,
        key=reading.key(f"POST /conversations/{name}/messages", idempotency_key, body),
    )
    reception: Reception = request.app.state.reception
    streams: Streams = request.app.state.streams

    async def accept() -> "tuple[Accepted, asyncio.Future[Any] | None]":
        return await reception.accept_and_show(owner, submission)

    try:
        if _wants_no_stream(prefer):
            return _accepted(await reception.accept(owner, submission))
        return await streams.of_message(request.user, accept)
    except errors.ConversationNotFound:
        await _refuse(request, name)
        raise


def _wants_no_stream(prefer: str | None) -> bool:
    return prefer is not None and "respond-async" in {
        each.split(";")[0].strip().lower() for each in prefer.split(",")
    }


def _accepted(accepted: Accepted) -> ASGIResponse:
    return ASGIResponse(
        body=msgspec.json.encode(queued(accepted)),
        status_code=202,
        media_type="application/json",
        headers={"Preference-Applied": "respond-async"},
    )


async def _own(request: Signed, text: str) -> Conversation:
    """One's own conversation; another's of the same tenant is forbidden, and nothing more is said of it."""
    conversations: Conversations = request.app.state.conversations
    name = await _named(request, text)
    try:
        return await conversations.get(request.user.owner, name)
    except errors.ConversationNotFound:
        await _refuse(request, name)
        raise


async def _refuse(request: Signed, name: UUID) -> None:
    conversations: Conversations = request.app.state.conversations
    if await conversations.whose(request.user.owner, name) == "foreign":
        raise errors.Forbidden


async def _named(request: Signed, text: str) -> UUID:
    """The conversation that is meant: by its own id, or by the id of the agent (never a UUID) that it is with."""
    if (name := reading.uuid(text)) is not None:
        return name
    if not is_agent_id(text):
        raise errors.AgentNotFound
    owner = request.user.owner
    directory: Directory = request.app.state.directory
    conversations: Conversations = request.app.state.conversations
    await directory.get(owner, text)
    return (await conversations.standing(owner, text)).id


def _standing(owner: Owner, found: Conversation) -> StandingConversation:
    return StandingConversation(
        id=found.id,
        user_id=owner.user,
        agent_id=found.agent_id,
        session_id=found.session_id,
        title=found.title,
        started_at=found.started_at,
        last_message_at=found.last_message_at,
        created_at=found.created_at,
        updated_at=found.updated_at,
    )


def _message(conversation: UUID, message: StoredMessage) -> Message:
    return Message(
        id=message.id,
        conversation_id=conversation,
        seq=message.seq,
        role=message.role,
        content_type=message.content_type,
        content=message.content,
        created_at=message.created_at,
        turn_id=message.turn_id,
        agent_id=message.agent_id,
        structured_data=message.structured_data,
        briefing_id=message.briefing_id,
    )


ROUTES = [standing_conversation, read_messages, say]
