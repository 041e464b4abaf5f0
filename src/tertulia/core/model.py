"""The nouns of the system, as frozen data."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType


class Owner(NamedTuple):
    """Whose data is meant: a user of a tenant. Nothing is read or written without one."""

    tenant: str
    user: str


class Principal(Struct, frozen=True):
    """Who makes a request, as the token says."""

    tenant: str
    user: str
    role: Literal["user", "agent", "admin"] = "user"
    name: str | None = None
    email: str | None = None
    timezone: str | None = None
    expires_at: float = 0.0

    @property
    def owner(self) -> Owner:
        return Owner(self.tenant, self.user)


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class ContentType(StrEnum):
    TEXT = "text"
    BRIEFING_CARD = "briefing_card"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"


class TurnStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    SILENT = "silent"
    FAILED = "failed"
    ABORTED = "aborted"

    @property
    def ended(self) -> bool:
        return self not in (TurnStatus.QUEUED, TurnStatus.RUNNING, TurnStatus.WAITING)


class ToolUse(Struct, frozen=True):
    """A call an agent made and what came of it: one never goes anywhere without the other."""

    call: dict[str, Any]
    result: str


class ContextMessage(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One message as the model's context keeps it: what was said, by whom, when, with which structured data.

    `seq` is the message's place in the durable log; a store that lacks the newest one is behind.
    `content` is text for `text` messages and a JSON object for the other content types.
    `tools` is what the agent did before it said this.
    """

    role: Role
    content: str | dict[str, Any]
    timestamp: datetime
    structured_data: dict[str, Any] | UnsetType = UNSET
    content_type: ContentType = ContentType.TEXT
    seq: int = 0
    tools: tuple[ToolUse, ...] = ()


class ContextConversation(Struct, frozen=True, rename="camel"):
    """A conversation as the context keeps it."""

    id: str
    created_at: datetime
    updated_at: datetime
    messages: tuple[ContextMessage, ...] = ()

    @property
    def last_seq(self) -> int:
        """How far into the durable log this reaches; 0 for a conversation that has no messages."""
        return max((message.seq for message in self.messages), default=0)


class OpenTurns(NamedTuple):
    """How many turns may wait for their ends: in a conversation, and of a user (0: as many as they like)."""

    per_conversation: int
    per_user: int
