"""What happens in a conversation, as events: one union here, encoded once; faces only pass them on.

An event on the wire is `{"cursor", "type", "conversationId", "turnId", "attempt", "agentId", "timestamp", "data"}`.
The cursor is given by the event log. What is pushed to a user (not to a session) carries its fields at the top.
"""

from datetime import datetime
from typing import Any, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import Struct


class _Data(Struct, frozen=True, rename="camel", omit_defaults=True):
    type: ClassVar[str]


class MessageStart(_Data, frozen=True):
    """An attempt begins. One with a higher `attempt` discards what came before it."""

    type = "message_start"
    message_id: UUID
    model: str


class TextDelta(_Data, frozen=True):
    type = "text_delta"
    text: str


class ToolUseStart(_Data, frozen=True):
    type = "tool_use_start"
    tool_call_id: str
    tool_name: str


class ToolUseStop(_Data, frozen=True):
    type = "tool_use_stop"
    tool_call_id: str
    tool_name: str
    input: dict[str, Any]


class ToolResult(_Data, frozen=True, omit_defaults=False):
    type = "tool_result"
    tool_call_id: str
    result: str
    is_error: bool = False


class MessageComplete(_Data, frozen=True):
    """The whole answer: whoever missed deltas has it all here."""

    type = "message_complete"
    message_id: UUID
    text: str
    structured_data: dict[str, Any] | None = None
    actions: list[dict[str, Any]] = []
    usage: dict[str, int] | None = None
    stop_reason: str = "end_turn"


class Failure(_Data, frozen=True):
    type = "error"
    code: str
    message: str
    status: int
    temporary: bool = False


class TurnEnd(_Data, frozen=True):
    """The one last event of a turn."""

    type = "turn_end"
    status: str
    message_id: UUID
    code: str | None = None


class UserMessage(_Data, frozen=True):
    type = "conversation:user_message"
    message_id: UUID
    message: str
    mentions: list[str] = []


class CardAdded(_Data, frozen=True):
    """A briefing has become a card of the conversation."""

    type = "conversation:briefing_card"
    message_id: UUID
    briefing_id: UUID


Data = (
    MessageStart
    | TextDelta
    | ToolUseStart
    | ToolUseStop
    | ToolResult
    | MessageComplete
    | Failure
    | TurnEnd
    | UserMessage
    | CardAdded
)


class Event(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One entry of a session's event log."""

    type: str
    conversation_id: UUID
    timestamp: datetime
    data: Data
    turn_id: UUID | None = None
    attempt: int | None = None
    agent_id: str | None = None


class Reply(Struct, frozen=True, tag_field="type", tag="message"):
    """Pushed to a user when an agent has answered, wherever that user is looking."""

    content: str
    session_id: str
    actions_taken: list[dict[str, Any]]
    message_id: UUID
    turn_id: UUID
    conversation_id: UUID
    timestamp: datetime
    topic: Literal["user"] = "user"


class Failed(Struct, frozen=True, tag_field="type", tag="error"):
    """Pushed to a user when a turn ended without an answer."""

    content: str
    session_id: str
    code: str
    message_id: UUID
    turn_id: UUID
    conversation_id: UUID
    timestamp: datetime
    topic: Literal["user"] = "user"


class Notified(Struct, frozen=True, tag_field="type", tag="notification"):
    """Pushed to a user for whom a notification was stored."""

    id: UUID
    from_user_id: str
    to_user_id: str
    message: str
    created_at: datetime
    read: bool = False
    topic: Literal["user"] = "user"


class Briefed(Struct, frozen=True, tag_field="type", tag="briefing"):
    """Pushed to a user for whom a briefing was posted."""

    id: UUID
    agent_id: str
    title: str
    summary: str
    priority: str
    briefing_type: str
    created_at: datetime
    status: str = "new"
    topic: Literal["user"] = "user"


Push = Reply | Failed | Notified | Briefed

_encoder = msgspec.json.Encoder()


def encode(event: Event | Push) -> bytes:
    """The event as stored in a log: a JSON object to which only the cursor is added later."""
    return _encoder.encode(event)


def type_of(encoded: bytes) -> bytes:
    """The type of an encoded event: it always comes first."""
    return encoded[9 : encoded.index(b'"', 9)]


def with_cursor(cursor: str, encoded: bytes) -> bytes:
    """The event as a client gets it."""
    return b'{"cursor":"%b",%b' % (cursor.encode(), encoded[1:])
