"""Conversations as their owner sees them: looked up, read in pages, hidden, brought back."""

from datetime import datetime
from typing import Literal
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct

from tertulia.core.errors import Conflict, ConversationNotFound, TurnNotFound, TurnNotRetryable
from tertulia.core.model import Owner
from tertulia.store.database import Database, Session
from tertulia.store.wire import Row


class StoredMessage(Struct, frozen=True, rename="camel"):
    """A message of the log, its JSON parts as the database gave them."""

    id: UUID
    seq: int
    role: str
    content_type: str
    content: msgspec.Raw
    created_at: datetime
    turn_id: UUID | None = None
    agent_id: str | None = None
    structured_data: msgspec.Raw | None = None
    actions: msgspec.Raw | None = None


class StoredTurn(Struct, frozen=True, rename="camel"):
    """A turn as history shows it: failed ones too."""

    id: UUID
    message_id: UUID
    agent_id: str
    status: str
    attempt: int
    created_at: datetime
    code: str | None = None
    error: str | None = None
    partial: str | None = None
    ended_at: datetime | None = None


class Conversation(Struct, frozen=True, rename="camel"):
    """A conversation's own facts. `session_id` is the credential for listening to it."""

    id: UUID
    session_id: str
    handle: str
    title: str | None
    status: str
    started_at: datetime
    last_message_at: datetime | None
    created_at: datetime
    updated_at: datetime
    last_seq: int
    agent_id: str | None = None


class History(Struct, frozen=True):
    """A page of a conversation."""

    conversation: Conversation
    messages: list[StoredMessage]
    turns: list[StoredTurn]
    more: bool


class Retried(Struct, frozen=True):
    conversation: UUID
    message: UUID
    handle: str


class Conversations:
    def __init__(self, database: Database, queued_limit: int) -> None:
        self._database = database
        self._queued_limit = queued_limit

    async def history(
        self, owner: Owner, conversation: UUID, *, before: int | None, after: int | None, limit: int
    ) -> History:
        """The newest messages before `before` (or after `after`), in the order of the log."""
        async with self._database.transaction(owner) as session:
            found = await self._get(session, owner, conversation)
            messages = await self._page(session, owner, conversation, before, after, limit + 1)
            asked = [row["id"] for row in messages if row["role"] == "user"]
            turns = await session.many("turns_of_messages", tenant=owner.tenant, messages=asked)
        more = len(messages) > limit
        if after is None:
            messages = messages[:limit][::-1]
        return History(
            found, [_message(row) for row in messages[:limit]], [_turn(row) for row in turns], more
        )

    async def _get(self, session: Session, owner: Owner, conversation: UUID) -> Conversation:
        row = await session.one("conversation_by_id", tenant=owner.tenant, conversation=conversation)
        if row is None:
            raise ConversationNotFound
        return _conversation(row)

    async def _page(
        self, session: Session, owner: Owner, conversation: UUID, before: int | None, after: int | None, limit: int
    ) -> list[Row]:
        if after is not None:
            return await session.many(
                "page_after", tenant=owner.tenant, conversation=conversation, after=after, limit=limit
            )
        newest = 2**62 if before is None else before
        return await session.many(
            "page_before", tenant=owner.tenant, conversation=conversation, before=newest, limit=limit
        )

    async def of_session(self, owner: Owner, session_id: str) -> UUID | None:
        """The conversation that this credential opens, if it is the owner's."""
        if "\x00" in session_id:  # nothing that PostgreSQL stores has one, nor takes it as a parameter
            return None
        async with self._database.transaction(owner) as session:
            row = await session.one("conversation_by_session", tenant=owner.tenant, session=session_id)
        return row["id"] if row else None

    async def newest_turns(self, owner: Owner, conversation: UUID, limit: int) -> list[StoredTurn]:
        """How the last turns stand, the newest last."""
        async with self._database.transaction(owner) as session:
            rows = await session.many("newest_turns", tenant=owner.tenant, conversation=conversation, limit=limit)
        return [_turn(row) for row in reversed(rows)]

    async def hide(self, owner: Owner, conversation: UUID) -> list[UUID]:
        """Delete it, for all to see; yields the turns that were asked to stop."""
        async with self._database.transaction(owner) as session:
            row = await session.one(
                "hide_conversation", tenant=owner.tenant, user=owner.user, conversation=conversation
            )
        if row is None:
            raise ConversationNotFound
        return row["turns"] or []

    async def bring_back(self, owner: Owner, conversation: UUID) -> None:
        """Undo the deletion, while there is still something to undo."""
        try:
            async with self._database.transaction(owner) as session:
                row = await session.one("bring_back_conversation", tenant=owner.tenant, conversation=conversation)
        except asyncpg.UniqueViolationError as error:
            raise Conflict("A new conversation has taken this one's place meanwhile.") from error
        if row is None:
            raise ConversationNotFound

    async def request_abort(self, owner: Owner, conversation: UUID) -> list[UUID]:
        """Ask what is being answered now to stop; yields the turns that were asked."""
        async with self._database.transaction(owner) as session:
            await self._get(session, owner, conversation)
            rows = await session.many(
                "request_abort", tenant=owner.tenant, user=owner.user, conversation=conversation
            )
        return [row["turn"] for row in rows]

    async def ended(self, owner: Owner, turns: list[UUID]) -> list[StoredTurn] | None:
        """The turns, once all of them have ended."""
        async with self._database.transaction(owner) as session:
            rows = await session.many("turns_by_id", tenant=owner.tenant, turns=turns)
        found = [_turn(row) for row in rows]
        return None if any(turn.status in ("queued", "running", "waiting") for turn in found) else found

    async def retry(self, owner: Owner, turn: UUID) -> Retried:
        """Queue a failed or aborted turn again."""
        row = await self._database.one(
            "retry_turn", tenant=owner.tenant, user=owner.user, turn=turn, limit=self._queued_limit
        )
        outcome: Literal["accepted", "not_found", "not_retryable"] = row["outcome"]
        if outcome == "not_found":
            raise TurnNotFound
        if outcome == "not_retryable":
            raise TurnNotRetryable
        return Retried(row["conversation"], row["message"], row["handle"])


def _raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())


def _message(row: Row) -> StoredMessage:
    return StoredMessage(
        id=row["id"],
        seq=row["seq"],
        role=row["role"],
        content_type=row["content_type"],
        content=msgspec.Raw(row["content"].encode()),
        created_at=row["created_at"],
        turn_id=row["turn_id"],
        agent_id=row["agent_id"],
        structured_data=_raw(row["structured"]),
        actions=_raw(row["actions"]),
    )


def _turn(row: Row) -> StoredTurn:
    return StoredTurn(**{name: row[name] for name in StoredTurn.__struct_fields__})


def _conversation(row: Row) -> Conversation:
    return Conversation(
        id=row["id"],
        session_id=row["session_id"],
        handle=row["external_key"] or str(row["id"]),
        title=row["title"],
        status=row["status"],
        started_at=row["started_at"],
        last_message_at=row["last_message_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        last_seq=row["last_seq"],
        agent_id=row["agent_id"],
    )

