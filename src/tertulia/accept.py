"""Accepting a message: the one way in, whichever face it came by."""

from tertulia import clock, failpoints, metrics
from tertulia.core.errors import AgentNotFound
from tertulia.core.events import Event, UserMessage, encode
from tertulia.core.model import Owner
from tertulia.core.text import client_handle, message_text
from tertulia.events.log import EventLog, session_log
from tertulia.queue.publisher import Publisher
from tertulia.store.messages import Accepted, Messages, Submission


class Reception:
    """Checks a message, stores it with its turn, wakes a worker and tells those who watch."""

    def __init__(
        self, messages: Messages, publisher: Publisher, events: EventLog, *, agent_id: str, longest: int
    ) -> None:
        self._messages = messages
        self._publisher = publisher
        self._events = events
        self._agent_id = agent_id
        self._longest = longest

    async def accept(self, owner: Owner, submission: Submission) -> Accepted:
        """Once this returns, the message is committed and will be answered, whatever breaks."""
        message_text(submission.content, self._longest)
        if submission.handle is not None:
            client_handle(submission.handle, "session_id")
        if submission.agent_id != self._agent_id:
            raise AgentNotFound
        accepted = await self._messages.accept(owner, submission)
        if accepted.repeated:
            return accepted
        failpoints.reach("api.after_commit")
        metrics.ACCEPTED.inc()
        self._publisher.wake(owner, accepted.conversation, accepted.message)
        self._tell(owner, accepted, submission.content)
        return accepted

    def _tell(self, owner: Owner, accepted: Accepted, content: str) -> None:
        """Show the message to all who watch the session, such as the user's other devices."""
        data = UserMessage(message_id=accepted.message, message=content)
        event = Event(data.type, accepted.conversation, clock.now(), data, accepted.turn)
        self._events.post(session_log(owner.tenant, accepted.conversation), [encode(event)])
