"""Accepting a message: the one way in, whichever face it came by."""



from tertulia import failpoints, metrics
from tertulia.core.errors import AgentNotFound
from tertulia.core.model import Owner
from tertulia.core.text import client_handle, message_text
from tertulia.queue.publisher import Publisher
from tertulia.store.messages import Accepted, Messages, Submission


class Reception:
    """Checks a message, stores it with its turn, wakes a worker."""

    def __init__(self, messages: Messages, publisher: Publisher, *, agent_id: str, longest: int) -> None:
        self._messages = messages
        self._publisher = publisher
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
        return accepted
