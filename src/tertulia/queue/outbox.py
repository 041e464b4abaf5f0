"""The ends of turns on their way from their row into the event logs; the sweeper finishes what a crash leaves."""

import asyncio
import contextlib
from typing import Any
from uuid import UUID

import msgspec

from tertulia.core.errors import Unavailable
from tertulia.core.model import Owner
from tertulia.core.turns import Terminal, Turn
from tertulia.events.log import EventLog, session_log, user_log
from tertulia.store.database import Database

_CLEAR_AFTER = 0.2


class Outbox:
    """Publishes ends, each once however often it is tried, and then clears them from their rows in batches."""

    def __init__(self, database: Database, events: EventLog) -> None:
        self._database = database
        self._events = events
        self._sent: list[tuple[str, UUID, int]] = []
        self._clearing: asyncio.Task[None] | None = None

    async def publish(self, turn: Turn, last: Terminal) -> None:
        """Tell session and user of the end; when Redis is away, the sweeper will."""
        with contextlib.suppress(Unavailable):
            await self.send(turn.owner, turn.conversation, turn.id, turn.attempt, turn.epoch, last)

    async def send(
        self, owner: Owner, conversation: UUID, turn: UUID, attempt: int, epoch: int, last: Terminal
    ) -> None:
        """`epoch` is that of the end, or a newer one: no words of an older lease may follow it."""
        once = f"{turn}:{attempt}"
        told = [
            self._events.begin(
                session_log(owner.tenant, conversation),
                [bytes(raw) for raw in last.session],
                once,
                epoch=epoch,
            ),
            self._events.begin(user_log(owner), [bytes(raw) for raw in last.user], once),
        ]
        for future in told:
            await future
        self._sent.append((owner.tenant, turn, attempt))
        if self._clearing is None:
            self._clearing = asyncio.create_task(self._clear_soon())

    async def drain(self) -> None:
        """Clear what is left."""
        if self._clearing:
            await self._clearing

    async def _clear_soon(self) -> None:
        await asyncio.sleep(_CLEAR_AFTER)
        self._clearing = None
        sent, self._sent = self._sent, []
        with contextlib.suppress(Unavailable):  # then they are sent once more, which changes nothing
            tenants, turns, attempts = map(list, zip(*sent, strict=True))
            await self._database.many("terminals_sent", tenants=tenants, turns=turns, attempts=attempts)


def stored_terminal(text: str) -> Terminal:
    """The events of an end as they were kept in the turn's row."""
    kept: dict[str, list[dict[str, Any]]] = msgspec.json.decode(text)
    return Terminal(*([_again(event) for event in kept[log]] for log in ("session", "user")))


def _again(event: dict[str, Any]) -> msgspec.Raw:
    """As it was encoded first: the database keeps no order of keys, and `type` comes before all others."""
    return msgspec.Raw(msgspec.json.encode({"type": event["type"], **event}))
