"""What a listener is told when something is gone from the log it reads."""

from uuid import UUID

from tertulia import clock
from tertulia.core.model import Owner
from tertulia.faces import frames
from tertulia.store.conversations import Conversations

_NEWEST = 10


async def event(conversations: Conversations, owner: Owner | None, conversation: UUID | None) -> bytes:
    """The `resync`: with how the newest turns stand, where a conversation is listened to."""
    turns = await conversations.newest_turns(owner, conversation, _NEWEST) if owner and conversation else []
    return frames.encode(frames.Resync(clock.now(), frames.Standing(turns), conversation))
