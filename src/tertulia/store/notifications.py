"""Notifications: written by whoever sends, read by whoever receives."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from tertulia.clock import now
from tertulia.core.errors import NotificationNotFound
from tertulia.core.model import Owner
from tertulia.store.database import THE_END, Database
from tertulia.store.wire import Row


class Notification(Struct, frozen=True):
    """A note for one user, from another (or oneself), left by an agent."""

    id: UUID
    from_user_id: str
    to_user_id: str
    message: str
    created_at: datetime
    read: bool = False
    read_at: datetime | None = None


class Notifications:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def send(self, sender: Owner, to_user: str, message: str, name: UUID) -> Notification | None:
        """Store it for a known user of the sender's tenant, once per id; None when there is no such user."""
        async with self._database.transaction(sender) as session:
            known = await session.one("known_user", user=to_user)
            if known is None or not known["known"]:
                return None
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
