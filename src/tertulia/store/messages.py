"""Messages in the durable log: accepted, read in pages, shown to a model."""

from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from msgspec import UNSET, Struct

from tertulia import ids
from tertulia.core import errors
from tertulia.core.model import ContentType, ContextMessage, OpenTurns, Owner, Role, ToolUse, TurnStatus
from tertulia.store.database import Database
from tertulia.store.group import GroupCommit
from tertulia.store.keys import Key
from tertulia.store.wire import Row


class Submission(Struct, frozen=True):
    """A message that somebody wants to have accepted."""

    content: str
    agent_id: str | None = None
    handle: str | None = None
    named: UUID | None = None
    create: bool = True
    key: Key | None = None


class Accepted(Struct, frozen=True):
    """What an accepted message got; `repeated` when the same request had been accepted before."""

    conversation: UUID
    handle: str
    message: UUID
    turn: UUID
    seq: int
    repeated: bool


class Replied(Struct, frozen=True):
    """The reply of a turn."""

    id: UUID
    content: msgspec.Raw
    created_at: datetime
    structured_data: msgspec.Raw | None = None
    actions: msgspec.Raw | None = None


class Answered(Struct, frozen=True):
    """Where a turn stands, and the reply once there is one."""

    turn_id: UUID
    agent_id: str
    status: TurnStatus
    attempt: int
    code: str | None
    error: str | None
    partial: str | None
    model: str | None
    usage: msgspec.Raw | None
    reply: Replied | None


class Asked(Struct, frozen=True):
    """A message that somebody sent, with what became of it."""

    id: UUID
    conversation: UUID
    handle: str
    content: msgspec.Raw
    created_at: datetime
    turns: list[Answered]


class Messages:
    """Reads and writes the log for the user who asks."""

    def __init__(self, database: Database, default_agent: str, limits: OpenTurns) -> None:
        self._database = database
        self._default_agent = default_agent
        self._limits = limits
        self._accepting = GroupCommit(database, "accept_message")

    async def accept(self, owner: Owner, submission: Submission) -> Accepted:
        """Store message and turn in one transaction, making the conversation when it is new."""
        try:
            row = await self._accepting.one(_place(owner, submission), **self._arguments(owner, submission))
        except asyncpg.PostgresError as error:
            raise _refusal(error) or error from error
        if kind := _REFUSALS.get(row["outcome"]):
            raise _refused(kind)
        return Accepted(
            conversation=row["conversation"],
            handle=row["handle"],
            message=row["message"],
            turn=row["turn"],
            seq=row["seq"],
            repeated=row["outcome"] == "repeated",
        )

    async def is_known(self, owner: Owner, key: Key) -> bool:
        """Whether something was accepted with this key."""
        async with self._database.transaction(owner) as session:
            row = await session.call(
                "known_key", tenant=owner.tenant, user=owner.user, route=key.route, key=key.text
            )
        return bool(row["known"])

    def _arguments(self, owner: Owner, submission: Submission) -> dict[str, Any]:
        return {
            "tenant": owner.tenant,
            "user": owner.user,
            "named": submission.named,
            "handle": submission.handle,
            "create": submission.create,
            "conversation": ids.conversation_id(),
            "session": ids.session_credential(),
            "message": ids.row_id(),
            "turn": ids.row_id(),
            "agent": submission.agent_id,
            "default": self._default_agent,
            "content": msgspec.json.encode(submission.content).decode(),
            "route": submission.key and submission.key.route,
            "key": submission.key and submission.key.text,
            "hash": submission.key and submission.key.body_hash,
            "conversation_limit": self._limits.per_conversation,
            "user_limit": self._limits.per_user,
        }

    async def asked(self, owner: Owner, message: UUID) -> Asked:
        """A message with its turns and their replies."""
        async with self._database.transaction(owner) as session:
            row = await session.one("message_by_id", tenant=owner.tenant, message=message)
            if row is None:
                raise errors.MessageNotFound
            turns = await session.many("turns_of_message", tenant=owner.tenant, message=message)
        return Asked(
            row["id"], row["conversation_id"], row["session_id"], msgspec.Raw(row["content"].encode()),
            row["created_at"], [_answered(turn) for turn in turns],
        )  # fmt: skip

    async def window(
        self, owner: Owner, conversation: UUID, until: int, trigger: int, limit: int
    ) -> list[ContextMessage]:
        """The newest messages before the trigger, as far as the turn's first attempt saw the log."""
        async with self._database.transaction(owner) as session:
            rows = await session.many(
                "context_window",
                tenant=owner.tenant,
                conversation=conversation,
                until=until,
                trigger=trigger,
                limit=limit,
            )
        return [context_message(row) for row in rows]


def _place(owner: Owner, submission: Submission) -> str:
    """The conversation that will be locked, as far as it can be told beforehand."""
    return f"{owner.tenant}/{owner.user}/{submission.named or submission.handle}"


def _answered(row: Row) -> Answered:
    reply = row["reply_id"] and Replied(
        row["reply_id"], _raw(row["reply"]) or msgspec.Raw(b"null"), row["replied_at"], _raw(row["structured"]),
        _raw(row["actions"]),
    )  # fmt: skip
    return Answered(
        turn_id=row["id"],
        agent_id=row["agent_id"],
        status=TurnStatus(row["status"]),
        attempt=row["attempt"],
        code=row["code"],
        error=row["error"],
        partial=row["partial"],
        model=row["model"],
        usage=_raw(row["usage"]),
        reply=reply,
    )


def _raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())


_REFUSALS: dict[str, type[errors.TertuliaError]] = {
    "not_found": errors.ConversationNotFound,
    "no_agent": errors.AgentNotFound,
    "conversation_busy": errors.ConversationBusy,
    "user_busy": errors.TooManyTurns,
    "conflict": errors.IdempotencyConflict,
}


def _refusal(error: asyncpg.PostgresError) -> errors.TertuliaError | None:
    kind = _REFUSALS.get(str(error)) if getattr(error, "sqlstate", "") == "TT001" else None
    return None if kind is None else _refused(kind)


def _refused(kind: type[errors.TertuliaError]) -> errors.TertuliaError:
    return kind(retry_after=5) if issubclass(kind, errors.TooManyRequests) else kind()


_tools = msgspec.json.Decoder(tuple[ToolUse, ...])


def context_message(row: Row) -> ContextMessage:
    structured = row["structured"]
    return ContextMessage(
        role=Role(row["role"]),
        content=msgspec.json.decode(row["content"]),
        timestamp=row["created_at"],
        structured_data=UNSET if structured is None else msgspec.json.decode(structured),
        content_type=ContentType(row["content_type"]),
        seq=row["seq"],
        tools=_tools.decode(row["tools"]) if row["tools"] else (),
    )
