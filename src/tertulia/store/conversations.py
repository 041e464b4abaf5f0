"""Conversations as their owner sees them: looked up, read in pages, hidden, brought back."""

from datetime import datetime
from typing import Literal
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct

from tertulia import ids
from tertulia.core.errors import (
    Conflict,
    ConversationBusy,
    ConversationNotFound,
    TertuliaError,
    TooManyRequests,
    TooManyTurns,
    TurnNotFound,
    TurnNotRetryable,
)
from tertulia.core.model import ContentType, OpenTurns, Owner
from tertulia.store.database import Database
from tertulia.store.keys import Key, once
from tertulia.store.wire import Row

_END = 2**62  # after every message there can be


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
    briefing_id: UUID | None = None


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


class Opened(Struct, frozen=True, rename="camel"):
    """A conversation that was looked for, and whether it had to be made."""

    conversation: Conversation
    created: bool


class Retried(Struct, frozen=True):
    """A turn that is queued again, or is still under way."""

    conversation: UUID
    message: UUID
    handle: str


class Untold(Struct, frozen=True):
    """An end of a turn that may not be in the event logs yet: `terminal` as it was stored."""

    conversation: UUID
    attempt: int
    epoch: int
    terminal: str


class Conversations:
    """Reads and changes conversations for the user who asks."""

    def __init__(self, database: Database, limits: OpenTurns) -> None:
        self._database = database
        self._limits = limits

    async def history(
        self,
        owner: Owner,
        conversation: UUID,
        *,
        before: int | None,
        after: int | None,
        limit: int,
        kinds: tuple[ContentType, ...] = tuple(ContentType),
    ) -> History:
        """The newest messages before `before` (or after `after`), in the order of the log."""
        found = await self.get(owner, conversation)
        rows = await self._database.many(
            "read_page",
            **_of(owner),
            conversation=conversation,
            before=_END if before is None else before,
            after=after,
            limit=limit + 1,
            kinds=list(kinds),
        )
        more, rows = len(rows) > limit, rows[:limit]
        asked = [row["id"] for row in rows if row["role"] == "user"]
        turns = await self._database.many("read_turns", **_of(owner), messages=asked) if asked else []
        messages = [_message(row) for row in (rows if after is not None else reversed(rows))]
        return History(found, messages, [_turn(row) for row in turns], more)

    async def get(self, owner: Owner, conversation: UUID) -> Conversation:
        rows = await self._database.many("read_conversation", **_of(owner), conversation=conversation)
        if not rows:
            raise ConversationNotFound
        return _conversation(rows[0])

    async def whose(self, owner: Owner, conversation: UUID) -> Literal["mine", "foreign", "none"]:
        """Whose it is within one's own tenant; another tenant's is none."""
        async with self._database.transaction(owner) as session:
            row = await session.call("whose_conversation", conversation=conversation)
        return row["whose"]

    async def standing(self, owner: Owner, agent_id: str) -> Conversation:
        """The one conversation of this user with this agent, made if there is none yet."""
        row = await self._database.one("open_standing", **_of(owner), agent=agent_id, **_fresh())
        return await self.get(owner, row["conversation"])

    async def open(
        self, owner: Owner, *, agent_id: str | None, handle: str | None, title: str | None, key: Key | None
    ) -> Opened:
        """A new conversation; but the one that is there, with that agent or under that handle."""
        async with self._database.transaction(owner) as session:

            async def make() -> Opened:
                given = {"agent": agent_id} if agent_id else {"handle": handle, "title": title}
                query = "open_standing" if agent_id else "open_handle"
                row = await session.call(query, **_of(owner), **given, **_fresh())
                rows = await session.many("read_conversation", **_of(owner), conversation=row["conversation"])
                return Opened(_conversation(rows[0]), row["created"])

            return await once(session, owner, key, Opened, make)

    async def page(
        self, owner: Owner, *, before: tuple[datetime, UUID] | None, limit: int
    ) -> list[Conversation]:
        """One's own, the last active first; `before` tells the last one of the page before."""
        active, name = before or (None, None)
        async with self._database.transaction(owner) as session:
            rows = await session.many(
                "conversations_page", **_of(owner), active=active, before=name, limit=limit
            )
        return [_conversation(row) for row in rows]

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
            rows = await session.many(
                "newest_turns", tenant=owner.tenant, conversation=conversation, limit=limit
            )
        return [_turn(row) for row in reversed(rows)]

    async def hide(self, owner: Owner, conversation: UUID) -> list[UUID]:
        """Delete it, for all to see; yields the turns that were asked to stop."""
        row = await self._database.one("hide_conversation", **_of(owner), conversation=conversation)
        if not row["hidden"]:
            raise ConversationNotFound
        return row["stopped"]

    async def bring_back(self, owner: Owner, conversation: UUID) -> None:
        """Undo the deletion, while there is still something to undo."""
        try:
            async with self._database.transaction(owner) as session:
                row = await session.one(
                    "bring_back_conversation", tenant=owner.tenant, conversation=conversation
                )
        except asyncpg.UniqueViolationError as error:
            raise Conflict("A new conversation has taken this one's place meanwhile.") from error
        if row is None:
            raise ConversationNotFound

    async def request_abort(self, owner: Owner, conversation: UUID, turn: UUID | None) -> list[UUID]:
        """Ask this turn to stop, or what is being answered now; yields the turns that were asked."""
        await self.get(owner, conversation)
        async with self._database.transaction(owner) as session:
            rows = await session.many("request_abort", **_of(owner), conversation=conversation, turn=turn)
        return [row["turn"] for row in rows]

    async def ended(self, owner: Owner, turns: list[UUID]) -> list[StoredTurn] | None:
        """The turns, once all of them have ended."""
        async with self._database.transaction(owner) as session:
            rows = await session.many("turns_by_id", tenant=owner.tenant, turns=turns)
        found = [_turn(row) for row in rows]
        return None if any(turn.status in ("queued", "running", "waiting") for turn in found) else found

    async def untold_end(self, owner: Owner, turn: UUID) -> Untold | None:
        """What this turn has not told yet, as far as the database knows."""
        row = await self._database.one("untold_end", **_of(owner), turn=turn)
        if not row["terminal"]:
            return None
        return Untold(row["conversation_id"], row["attempt"], row["epoch"], row["terminal"])

    async def retry(self, owner: Owner, turn: UUID) -> Retried:
        """Queue a failed or aborted turn again; what it had said is gone then."""
        limits = self._limits
        row = await self._database.one(
            "retry_turn",
            **_of(owner),
            turn=turn,
            conversation_limit=limits.per_conversation,
            user_limit=limits.per_user,
        )
        if refusal := _REFUSALS.get(row["outcome"]):
            raise refusal(retry_after=5 if issubclass(refusal, TooManyRequests) else None)
        return Retried(row["conversation"], row["message"], row["handle"])


_REFUSALS: dict[str, type[TertuliaError]] = {
    "not_found": TurnNotFound,
    "not_retryable": TurnNotRetryable,
    "conversation_busy": ConversationBusy,
    "user_busy": TooManyTurns,
}


def _of(owner: Owner) -> dict[str, str]:
    return {"tenant": owner.tenant, "user": owner.user}


def _fresh() -> dict[str, object]:
    """For a conversation that may have to be made."""
    return {"conversation": ids.conversation_id(), "session": ids.session_credential()}


def _raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())


def _message(row: Row) -> StoredMessage:
    name, seq, role, kind, content, created, turn, agent, structured, actions, briefing = row
    return StoredMessage(
        name,
        seq,
        role,
        kind,
        msgspec.Raw(content.encode()),
        created,
        turn,
        agent,
        _raw(structured),
        _raw(actions),
        briefing,
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
