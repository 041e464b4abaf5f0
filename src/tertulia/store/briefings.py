"""Briefings: posted for somebody else, read by that user, turned into cards of a conversation."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from tertulia import ids
from tertulia.core import errors
from tertulia.core.briefings import BriefingStatus, Draft
from tertulia.core.model import Owner, Principal
from tertulia.store.database import THE_END, Database, Session
from tertulia.store.keys import Key, once
from tertulia.store.wire import Row


class Briefing(Struct, frozen=True):
    """A briefing as its reader sees it."""

    id: UUID
    agent_id: str
    title: str
    summary: str
    priority: str
    briefing_type: str
    impact: str | None
    actions: msgspec.Raw
    context_data: msgspec.Raw | None
    importance_score: float | None
    status: str
    conversation_id: UUID | None
    created_at: datetime
    read_at: datetime | None


class Posted(Struct, frozen=True):
    """What a posted briefing got; `repeated` when one with its key was there before."""

    id: UUID
    created_at: datetime
    repeated: bool


class Started(Struct, frozen=True):
    """Where a briefing is talked about: its card's message, and whether this call added it."""

    conversation: UUID
    message: UUID
    seq: int
    added: bool


class Briefings:
    def __init__(self, database: Database, default_agent: str) -> None:
        self._database = database
        self._default_agent = default_agent

    async def post(self, poster: Principal, agent_id: str, draft: Draft, key: Key | None) -> Posted:
        """Store it for a known user of the poster's tenant."""
        async with self._database.transaction(poster.owner, poster.role) as session:
            return await once(
                session, poster.owner, key, Posted, lambda: self._post(session, agent_id, draft)
            )

    async def _post(self, session: Session, agent_id: str, draft: Draft) -> Posted:
        row = await session.call(
            "post_briefing",
            id=ids.row_id(),
            agent=agent_id,
            default_agent=self._default_agent,
            to_user=draft.user_id,
            title=draft.title,
            summary=draft.summary,
            priority=draft.priority,
            type=draft.briefing_type,
            impact=draft.impact,
            actions=msgspec.json.encode(draft.actions).decode(),
            context=None if draft.context_data is None else msgspec.json.encode(draft.context_data).decode(),
            importance=draft.importance_score,
            dedupe=draft.dedupe_key,
        )
        if refusal := _REFUSALS.get(row["outcome"]):
            raise refusal
        return Posted(row["id"], row["created_at"], row["outcome"] == "repeated")

    async def page(
        self,
        reader: Owner,
        *,
        status: BriefingStatus | None,
        before: tuple[datetime, UUID] | None,
        limit: int,
    ) -> list[Briefing]:
        """One's own, newest first; `before` tells the last one of the page before."""
        moment, name = before or THE_END
        async with self._database.transaction(reader) as session:
            rows = await session.many(
                "briefings_page", **_of(reader), status=status, moment=moment, before=name, limit=limit
            )
        return [_briefing(row) for row in rows]

    async def get(self, reader: Owner, briefing: UUID) -> Briefing:
        return await self._do("briefing_by_id", reader, briefing)

    async def mark_read(self, reader: Owner, briefing: UUID) -> Briefing:
        """Read now, if it was not before; what was done with it stays as it is."""
        return await self._do("read_briefing", reader, briefing)

    async def settle(
        self, reader: Owner, briefing: UUID, status: Literal["actioned", "dismissed"]
    ) -> Briefing:
        return await self._do("settle_briefing", reader, briefing, status=status)

    async def delete(self, reader: Owner, briefing: UUID) -> None:
        """Delete the briefing; its cards stay where they are."""
        await self._do("delete_briefing", reader, briefing)

    async def _do(self, query: str, reader: Owner, briefing: UUID, **given: str) -> Briefing:
        async with self._database.transaction(reader) as session:
            row = await session.one(query, **_of(reader), id=briefing, **given)
        if row is None:
            raise errors.BriefingNotFound
        return _briefing(row)

    async def start(self, reader: Owner, briefing: UUID) -> Started:
        """Its card in the standing conversation with its agent, both made if they are not there."""
        row = await self._database.one(
            "start_conversation",
            **_of(reader),
            briefing=briefing,
            conversation=ids.conversation_id(),
            session=ids.session_credential(),
            message=ids.row_id(),
        )
        if row["outcome"] == "not_found":
            raise errors.BriefingNotFound
        return Started(row["conversation"], row["message"], row["seq"], row["added"])


_REFUSALS: dict[str, type[errors.TertuliaError]] = {
    "forbidden": errors.MayNotPost,
    "no_agent": errors.AgentNotFound,
    "no_user": errors.UserNotFound,
}


def _of(owner: Owner) -> dict[str, str]:
    return {"tenant": owner.tenant, "user": owner.user}


def _briefing(row: Row) -> Briefing:
    values: dict[str, Any] = {name: row[name] for name in Briefing.__struct_fields__}
    context: str | None = values["context_data"]
    values["actions"] = msgspec.Raw(values["actions"].encode())
    values["context_data"] = None if context is None else msgspec.Raw(context.encode())
    return Briefing(**values)
