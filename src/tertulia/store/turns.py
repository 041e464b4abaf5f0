"""Turns in the database: taken, recorded, ended; each write asks whether the lease still holds."""

from datetime import timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec

from tertulia import ids
from tertulia.core.agents import profile
from tertulia.core.model import ContentType, ContextMessage, Owner, Role
from tertulia.core.turns import Ending, Terminal, Turn
from tertulia.store.database import Database
from tertulia.store.messages import context_message
from tertulia.store.wire import Row


class Written(NamedTuple):
    """How writing an end went: where the reply is in the log, and whether the conversation has more turns.

    `stale`: another worker holds the lease now. `aborting`: an abort came first and must be obeyed. `unwritable`:
    the database refuses it for what it holds. With `more` the lease is kept; `hidden` conversations are deleted ones.
    """

    outcome: Literal["ended", "stale", "aborting", "unwritable"]
    seq: int = 0
    more: bool = False
    hidden: bool = False


class Turns:
    """The mailbox as one worker sees it; `worker` is that process's own id."""

    def __init__(self, database: Database, worker: UUID, lease: float) -> None:
        self._database = database
        self._worker = worker
        self._lease = timedelta(seconds=lease)

    async def take(self, owner: Owner, conversation: UUID) -> Turn | Literal["held", "gone", "nothing"]:
        """Lease the conversation and begin its next turn; the lease is given back when there is none."""
        row = await self._database.one(
            "take_turn",
            tenant=owner.tenant,
            user=owner.user,
            conversation=conversation,
            owner=self._worker,
            lease=self._lease,
        )
        return _turn(row, owner, conversation) if row["outcome"] == "taken" else row["outcome"]

    async def steps(self, turn: Turn) -> list[ContextMessage]:
        """What earlier attempts recorded of this turn: tool calls and their results."""
        async with self._database.transaction(turn.owner) as session:
            rows = await session.many("steps_of_turn", tenant=turn.owner.tenant, turn=turn.id)
        return [context_message(row) for row in rows]

    async def record_step(
        self,
        turn: Turn,
        role: Role,
        kind: ContentType,
        content: dict[str, Any],
        structured: dict[str, Any] | None,
    ) -> bool:
        """Keep a step, so that a later attempt goes on after it. False: the lease is lost."""
        row = await self._database.one(
            "record_step",
            **self._fence(turn),
            message=ids.row_id(),
            role=role.value,
            content_type=kind.value,
            content=_json(content),
            structured=_json(structured),
        )
        return row["seq"] is not None

    async def keep_partial(self, turn: Turn, text: str) -> bool:
        row = await self._database.one("keep_partial", **self._fence(turn), text=text)
        return bool(row["kept"])

    async def finish(self, turn: Turn, ending: Ending, terminal: Terminal, facts: dict[str, Any]) -> Written:
        """Write the end, reply and outbox in one transaction; `facts` are for the record of how it came about."""
        answer = ending.answer
        row = await self._database.one(
            "finish_turn",
            **self._fence(turn),
            status=ending.status.value,
            code=ending.error.code if ending.error else None,
            error=str(ending.error) if ending.error else None,
            reply=ending.reply,
            content=_json(answer.text) if answer else None,
            structured=_json(answer.structured_data) if answer else None,
            actions=_json(answer.actions or None) if answer else None,
            model=facts.get("model"),
            usage=_json(facts.get("usage") or None),
            trace=_json(facts),
            terminal=_json(terminal),
            partial=ending.partial,
        )
        return Written(row["outcome"], row["seq"] or 0, bool(row["more"]), bool(row["hidden"]))

    async def release(self, turn: Turn) -> None:
        """Give the turn back untouched, for another worker."""
        fence = self._fence(turn)
        del fence["turn"]
        await self._database.one("release_lease", **fence)

    async def renew(self, held: dict[UUID, str]) -> set[UUID]:
        """Extend the leases of these conversations (id → tenant); yields those that are still ours."""
        rows = await self._database.many(
            "renew_leases",
            owner=self._worker,
            conversations=list(held),
            tenants=list(held.values()),
            lease=self._lease,
        )
        return {row["id"] for row in rows}

    async def aborting(self, running: dict[UUID, str]) -> set[UUID]:
        """Those of these turns (id → tenant) that somebody asked to stop."""
        rows = await self._database.many(
            "aborting_turns", turns=list(running), tenants=list(running.values())
        )
        return {row["id"] for row in rows}

    def _fence(self, turn: Turn) -> dict[str, Any]:
        return {
            "tenant": turn.owner.tenant,
            "user": turn.owner.user,
            "conversation": turn.conversation,
            "owner": self._worker,
            "epoch": turn.epoch,
            "turn": turn.id,
        }


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _turn(row: Row, owner: Owner, conversation: UUID) -> Turn:
    return Turn(
        id=row["turn"],
        owner=owner,
        conversation=conversation,
        handle=row["handle"],
        message=row["message"],
        content=msgspec.json.decode(row["content"], type=str),
        said_at=row["said_at"],
        queued_at=row["queued_at"],
        trigger_seq=row["trigger_seq"],
        agent_id=row["agent_id"],
        attempt=row["attempt"],
        tries=row["tries"],
        epoch=row["epoch"],
        context_until=row["context_until"],
        context_tail=row["context_tail"],
        card_seq=row["card_seq"],
        aborting=row["aborting"],
        partial=row["partial"],
        timezone=row["timezone"],
        profile=profile(row["profile"]) if row["profile"] else None,
    )
