"""`/api/notifications`: what agents left for one, and marking it read."""

from litestar import get, patch
from msgspec import Struct

from tertulia.core import errors
from tertulia.faces import body as reading
from tertulia.faces.gate import Signed
from tertulia.faces.openapi import refuses
from tertulia.faces.paging import Cursor, Limit, at_moment, moment_cursor
from tertulia.store.notifications import Notification, Notifications


class NotificationPage(Struct, frozen=True):
    """Newest first. `next` is the cursor of the following page."""

    notifications: list[Notification]
    next: str | None = None


@get("/api/notifications", responses=refuses(), tags=["notifications"], summary="List your notifications")
async def list_notifications(
    request: Signed,
    unread: bool = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> NotificationPage:
    """Those sent to you, newest first; `unread=true` leaves out what you have read."""
    notifications: Notifications = request.app.state.notifications
    found = await notifications.page(
        request.user.owner, unread=unread, before=moment_cursor(cursor), limit=limit + 1
    )
    page = found[:limit]
    last = page[-1] if len(found) > limit else None
    return NotificationPage(page, at_moment(last.created_at, last.id) if last else None)


@patch(
    "/api/notifications/{notification_id:str}/read",
    responses=refuses(errors.NotificationNotFound),
    tags=["notifications"],
    summary="Mark a notification as read",
)
async def mark_read(request: Signed, notification_id: str) -> Notification:
    """Note that and when you read it; doing it again changes nothing."""
    notifications: Notifications = request.app.state.notifications
    name = reading.uuid(notification_id)
    if name is None:
        raise errors.NotificationNotFound
    return await notifications.mark_read(request.user.owner, name)


ROUTES = [list_notifications, mark_read]
