"""Notifications: written by whoever sends, read by whoever receives."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Struct

from tertulia.clock import now
from tertulia.core.errors import NotificationNotFound
from tertulia.core.model import Owner
from tertulia.store.database import THE_END, Database
from tertulia.store.wire import Row

_HOURLY = 60  # from one user to another


class Notification(Struct, frozen=True):
    """A note for one user, from another (or oneself), left by an agent."""

    id: UUID
    from_user_id: str
    to_user_id: str
    message: str
    created_at: datetime
    read: bool = False
    read_at: datetime | None = None


Refusal = Literal["unknown", "flooded"]


class Notifications:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def send(self, sender: Owner, to_user: str, message: str, name: UUID) -> "Notification | Refusal":
        """Store it for a known user of the sender's tenant, once per id, and only so many an hour."""
        async with self._database.transaction(sender) as session:
            may = (await session.call("may_notify", user=to_user, id=name, hourly=_HOURLY))["may"]
            if may != "welcome":
                return may
            await session.one(
                "send_notification",
                tenant=sender.tenant,
                id=name,
                from_user=sender.user,
                to_user=to_user,
                message=message,
            )
        return Notification(name, sender.user, to_user, message, now())

    async def page(
        self, reader: Owner, *, unread: bool, before: tuple[datetime, UUID] | None, limit: int
    ) -> list[Notification]:
        """One's own, newest first; `before` tells the last one of the page before."""
        moment, name = before or THE_END
        async with self._database.transaction(reader) as session:
            rows = await session.many(
                "notifications_page",
                tenant=reader.tenant,
                user=reader.user,
                unread=unread,
                moment=moment,
                before=name,
                limit=limit,
            )
        return [_notification(row) for row in rows]

    async def mark_read(self, reader: Owner, name: UUID) -> Notification:
        """Read now, if it was not before."""
        async with self._database.transaction(reader) as session:
            row = await session.one("mark_notification_read", tenant=reader.tenant, user=reader.user, id=name)
        if row is None:
            raise NotificationNotFound
        return _notification(row)


def _notification(row: Row) -> Notification:
    return Notification(**{name: row[name] for name in Notification.__struct_fields__})
