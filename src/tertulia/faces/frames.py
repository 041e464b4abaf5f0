"""What a client may say on `/ws`, and our short answers; events come as they are in the log."""

from typing import Any, Literal

import msgspec
from msgspec import Struct


class Auth(Struct, frozen=True, tag_field="type", tag="auth", forbid_unknown_fields=True):
    """The first frame of a client that could not send its token with the request."""

    token: str


class Subscribe(Struct, frozen=True, tag_field="type", tag="subscribe", forbid_unknown_fields=True, rename="camel"):
    """Listen to a session (by its credential), or once more to one's own pushes, after a cursor."""

    session_id: str | None = None
    topic: Literal["user"] | None = None
    after_cursor: str | None = None
    token: str | None = None


class Unsubscribe(Struct, frozen=True, tag_field="type", tag="unsubscribe", forbid_unknown_fields=True, rename="camel"):
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

decoder = msgspec.json.Decoder(Frame)
_encoder = msgspec.json.Encoder()


def frame(kind: str, **fields: Any) -> bytes:
    return _encoder.encode({"type": kind, **fields})


def error(code: str, message: str, **fields: Any) -> bytes:
    """A refusal of one frame, in the fields that chat clients look for."""
    return frame("error", code=code, content=message, **fields)
