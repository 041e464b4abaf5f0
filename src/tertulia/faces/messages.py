"""`/api/messages`: send a message and be told later (202), ask what became of it, try a failed turn again."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from litestar import get, post
from msgspec import Meta, Struct

from tertulia.accept import Reception
from tertulia.core import errors
from tertulia.core.model import TurnStatus
from tertulia.faces import body as reading
from tertulia.faces.body import IdempotencyKey
from tertulia.faces.gate import Signed
from tertulia.faces.openapi import BODY, refuses, takes
from tertulia.store.messages import Accepted, Answered, Asked, Messages, Replied, Submission


class SendMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A message for an agent. `session_id` is your own name for the conversation; a new one begins a new one."""

    content: Annotated[
        str, Meta(description="the text, 1 to 10,000 characters", extra_json_schema={"minLength": 1})
    ]
    session_id: Annotated[
        Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 200})] | None,
        Meta(description="your name for the conversation, or its id"),
    ] = None
    agent_id: Annotated[str | None, Meta(description="who should answer; the tenant's agent by default")] = (
        None
    )


class Queued(Struct, frozen=True):
    """The message is stored and will be answered."""

    status: Literal["queued"]
    message_id: UUID
    turn_id: UUID
    session_id: str
    conversation_id: UUID


class MessageState(Struct, frozen=True):
    """What became of a message. `status` sums its turns up; `reply` is the first one there is."""

    message_id: UUID
    session_id: str
    conversation_id: UUID
    content: Any
    created_at: datetime
    status: TurnStatus
    turns: list[Answered]
    reply: Replied | None = None


@post(
    "/api/messages",
    status_code=202,
    operation_class=takes(SendMessage, {"content": "Which way to the sea?", "session_id": "my-trip"}),
    responses=refuses(
        errors.MessageContentRequired,
        errors.MessageTooLong,
        errors.AgentNotFound,
        errors.IdempotencyConflict,
        *BODY,
        errors.ConversationBusy,
        errors.TooManyTurns,
    ),
    tags=["messages"],
    summary="Send a message",
)
async def send_message(request: Signed, body: bytes, idempotency_key: IdempotencyKey = None) -> Queued:
    """Store the message, answer 202 at once; the reply comes over `/ws` or from `GET /api/messages/{id}`."""
    sent = reading.decode(body, SendMessage)
    submission = Submission(
        content=sent.content,
        agent_id=sent.agent_id,
        handle=sent.session_id,
        named=reading.uuid(sent.session_id) if sent.session_id else None,
        key=reading.key("POST /api/messages", idempotency_key, body),
    )
    reception: Reception = request.app.state.reception
    return queued(await reception.accept(request.user.owner, submission))


def queued(accepted: Accepted) -> Queued:
    return Queued(
        status="queued",
        message_id=accepted.message,
        turn_id=accepted.turn,
        session_id=accepted.handle,
        conversation_id=accepted.conversation,
    )


@get(
    "/api/messages/{message_id:str}",
    responses=refuses(errors.MessageNotFound),
    tags=["messages"],
    summary="What became of a message",
)
async def message_state(request: Signed, message_id: str) -> MessageState:
    """Its state (`queued`, `running`, `waiting`, `done`, `silent`, `failed`, `aborted`) and the reply."""
    messages: Messages = request.app.state.messages
    name = reading.uuid(message_id)
    if name is None:
        raise errors.MessageNotFound
    return _state(await messages.asked(request.user.owner, name))


def _state(asked: Asked) -> MessageState:
    open_turns = [turn.status for turn in asked.turns if not turn.status.ended]
    return MessageState(
        message_id=asked.id,
        session_id=asked.handle,
        conversation_id=asked.conversation,
        content=asked.content,
        created_at=asked.created_at,
        status=(open_turns or [turn.status for turn in asked.turns] or [TurnStatus.DONE])[0],
        turns=asked.turns,
        reply=next((turn.reply for turn in asked.turns if turn.reply), None),
    )


@post(
    "/api/turns/{turn_id:str}/retry",
    status_code=202,
    responses=refuses(
        errors.TurnNotFound, errors.TurnNotRetryable, errors.ConversationBusy, errors.TooManyTurns
    ),
    tags=["messages"],
    summary="Try a failed turn again",
)
async def retry_turn(request: Signed, turn_id: str) -> Queued:
    """Queue a failed or aborted turn again; one that is already under way is left alone."""
    reception: Reception = request.app.state.reception
    name = reading.uuid(turn_id)
    if name is None:
        raise errors.TurnNotFound
    retried = await reception.retry(request.user.owner, name)
    return Queued("queued", retried.message, name, retried.handle, retried.conversation)


ROUTES = [send_message, message_state, retry_turn]
