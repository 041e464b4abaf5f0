"""A turn as a worker has taken it, for what needs one."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from tertulia.core.model import Owner
from tertulia.core.turns import Turn

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def turn(**fields: Any) -> Turn:
    """Ann's agent is to answer her first message; `fields` say what is different."""
    usual = {
        "id": uuid4(),
        "owner": Owner("acme", "ann"),
        "conversation": uuid4(),
        "handle": "first",
        "message": uuid4(),
        "content": "Hello",
        "said_at": NOON,
        "queued_at": NOON,
        "trigger_seq": 1,
        "agent_id": "assistant",
        "attempt": 1,
        "tries": 1,
        "epoch": 1,
        "context_until": 0,
        "context_tail": 0,
        "card_seq": 0,
        "aborting": False,
        "partial": None,
        "timezone": None,
        "profile": None,
    }
    return Turn(**(usual | fields))
