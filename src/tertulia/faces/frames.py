"""What a client may say on `/ws`, and our short answers; events come as they are in the log."""

from datetime import datetime
from typing import Literal, cast
from uuid import UUID

import msgspec
from msgspec import Struct

from tertulia.faces import body as reading
from tertulia.store.conversations import StoredTurn


class Auth(Struct, frozen=True, tag_field="type", tag="auth", forbid_unknown_fields=True):
    """The first frame of a client that could not send its token with the request."""

    token: str


class Subscribe(
    Struct, frozen=True, tag_field="type", tag="subscribe", forbid_unknown_fields=True, rename="camel"
):
    """Listen to a session (by its credential), or once more to one's own pushes, after a cursor."""

    session_id: str | None = None
    topic: Literal["user"] | None = None
    after_cursor: str | None = None
    token: str | None = None


class Unsubscribe(
    Struct, frozen=True, tag_field="type", tag="unsubscribe", forbid_unknown_fields=True, rename="camel"
):
    session_id: str


class Say(Struct, frozen=True, tag_field="type", tag="message", forbid_unknown_fields=True):
    """Send a message, as `POST /api/messages` does."""

    content: str
    session_id: str | None = None
    agent_id: str | None = None
    idempotency_key: str | None = None


class Ping(Struct, frozen=True, tag_field="type", tag="ping"):
    """Asks for a `pong`, for clients that cannot send WebSocket pings."""


Frame = Auth | Subscribe | Unsubscribe | Say | Ping


class Connected(Struct, frozen=True, tag_field="type", tag="connected"):
    """You are signed in, and what is addressed to you comes from here on."""

    user_id: str
    tenant_id: str
    cursor: str


class Subscribed(Struct, frozen=True, tag_field="type", tag="subscribed", rename="camel"):
    """The events of the session come after this cursor."""

    session_id: str
    cursor: str


class Accepted(Struct, frozen=True, tag_field="type", tag="accepted"):
    """A message of yours is stored and will be answered."""

    message_id: UUID
    turn_id: UUID
    session_id: str
    conversation_id: UUID
    status: Literal["queued"] = "queued"


class Pong(Struct, frozen=True, tag_field="type", tag="pong"):
    timestamp: datetime


class Error(Struct, frozen=True, tag_field="type", tag="error"):
    """A frame of yours was refused; `content` is for people, in the field that chat clients look for."""

    code: str
    content: str
    session_id: str | None = None


class Standing(Struct, frozen=True):
    """How the newest turns of a conversation stand; empty where a user's own pushes are meant."""

    turns: list[StoredTurn] = []


class Resync(Struct, frozen=True, tag_field="type", tag="resync", rename="camel"):
    """Something between is gone from the log: read the conversation anew, and go on from this cursor."""

    timestamp: datetime
    data: Standing
    conversation_id: UUID | None = None


Answer = Connected | Subscribed | Accepted | Pong | Error

encode = msgspec.json.Encoder().encode


def decode(text: str) -> Frame:
    """What the client says, read as strictly as the body of a request."""
    return reading.decode(text.encode(), cast(type[Frame], Frame))
