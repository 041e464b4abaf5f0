"""`notify_user`: an agent leaves a note for another user of the same tenant."""

from typing import Any
from uuid import NAMESPACE_OID, uuid5

from tertulia.core.events import Notified, encode
from tertulia.core.model import Owner
from tertulia.core.turns import Turn
from tertulia.events.log import EventLog, user_log
from tertulia.store.notifications import Notification, Notifications, Refusal
from tertulia.tools.port import Outcome

_LONGEST = 2000
_REFUSED: dict[Refusal, str] = {
    "unknown": "There is no user {!r} in this organisation; nothing was sent.",
    "flooded": "{!r} has had very many notifications from here within the last hour; nothing was sent.",
}


class NotifyUser:
    """Stores a notification and pushes it to its reader. The id comes from the call, so a repeat changes nothing."""

    name = "notify_user"
    description = "Leave a notification for another user of this organisation, by their user id."
    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {
            "user_id": {"type": "string", "description": "the id of the user to notify"},
            "message": {"type": "string", "description": "what to tell them"},
        },
        "required": ["user_id", "message"],
    }
    repeatable = True

    def __init__(self, notifications: Notifications, events: EventLog) -> None:
        self._notifications = notifications
        self._events = events

    async def run(self, turn: Turn, call_id: str, arguments: dict[str, Any]) -> Outcome:
        target, message = arguments.get("user_id"), arguments.get("message")
        if not isinstance(target, str) or not isinstance(message, str) or not message.strip():
            return Outcome("notify_user needs a user_id and a message.", is_error=True)
        message = message.replace("\x00", "")[:_LONGEST]
        sent = await self._notifications.send(
            turn.owner, target, message, uuid5(NAMESPACE_OID, f"{turn.id}:{call_id}")
        )
        if not isinstance(sent, Notification):
            return Outcome(_REFUSED[sent].format(target[:100]), is_error=True)
        self._events.post(
            user_log(Owner(turn.owner.tenant, target)),
            [encode(Notified(sent.id, sent.from_user_id, sent.to_user_id, sent.message, sent.created_at))],
            once=str(sent.id),
        )
        return Outcome(
            f"{target} has been notified.", action={"type": self.name, "user_id": target, "message": message}
        )
