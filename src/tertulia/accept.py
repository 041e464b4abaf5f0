"""Accepting a message, or a failed turn once more: the one way in, whichever face it came by."""

import asyncio
from typing import Any
from uuid import UUID

from tertulia import clock, failpoints, metrics
from tertulia.core.agents import is_agent_id
from tertulia.core.errors import AgentNotFound
from tertulia.core.events import encode
from tertulia.core.model import Owner
from tertulia.core.text import client_handle, message_text
from tertulia.core.turns import asked, asked_once
from tertulia.crowds import Crowds
from tertulia.events.log import EventLog, session_log
from tertulia.queue.outbox import Outbox, stored_terminal
from tertulia.queue.publisher import Publisher
from tertulia.store.conversations import Conversations, Retried
from tertulia.store.keys import Key
from tertulia.store.messages import Accepted, Messages, Submission


class Reception:
    """Checks a message, stores it with its turn, tells those who watch and wakes a worker, in this order."""

    def __init__(
        self, messages: Messages, conversations: Conversations, publisher: Publisher, events: EventLog,
        outbox: Outbox, crowds: Crowds, *, longest: int,
    ) -> None:  # fmt: skip
        self._messages = messages
        self._conversations = conversations
        self._publisher = publisher
        self._events = events
        self._outbox = outbox
        self._crowds = crowds
        self._longest = longest

    async def accept(self, owner: Owner, submission: Submission) -> Accepted:
        """Once this returns, the message is committed and will be answered, whatever breaks."""
        accepted = await self._store(owner, submission)
        if not accepted.repeated:
            self._events.post(*self._shown(owner, accepted, submission.content))
        # A repeat may be of a message whose acceptance nobody heard of, and which nobody was woken for.
        self._publisher.wake(owner, accepted.conversation, accepted.message)
        return accepted

    async def accept_and_show(
        self, owner: Owner, submission: Submission
    ) -> "tuple[Accepted, asyncio.Future[Any] | None]":
        """The same, for one who wants to hear the answer: when the message is in the session's log, and where.

        None for a repeated message, which is there already.
        """
        accepted = await self._store(owner, submission)
        if accepted.repeated:
            self._publisher.wake(owner, accepted.conversation, accepted.message)
            return accepted, None
        shown = self._events.begin(*self._shown(owner, accepted, submission.content))
        self._publisher.wake(owner, accepted.conversation, accepted.message)
        return accepted, shown

    async def retry(self, owner: Owner, turn: UUID) -> Retried:
        """Queue a failed or aborted turn again, once it is known that everybody was told how it ended."""
        self._crowds.check(owner.tenant)
        if end := await self._conversations.untold_end(owner, turn):
            await self._outbox.send(
                owner, end.conversation, turn, end.attempt, end.epoch, stored_terminal(end.terminal)
            )
        retried = await self._conversations.retry(owner, turn)
        self._publisher.wake(owner, retried.conversation, retried.message)
        return retried

    async def _store(self, owner: Owner, submission: Submission) -> Accepted:
        if not (submission.key and await self._is_repeated(owner, submission.key)):
            self._crowds.check(owner.tenant)
        message_text(submission.content, self._longest)
        if submission.handle is not None:
            client_handle(submission.handle, "session_id")
        if submission.agent_id is not None and not is_agent_id(submission.agent_id):
            raise AgentNotFound
        accepted = await self._messages.accept(owner, submission)
        if not accepted.repeated:
            failpoints.reach("api.after_commit")
            metrics.ACCEPTED.inc()
        return accepted

    async def _is_repeated(self, owner: Owner, key: Key) -> bool:
        """Whether it was accepted before: then it is answered as it was, however crowded it is now."""
        return self._crowds.is_crowded(owner.tenant) and await self._messages.is_known(owner, key)

    def _shown(self, owner: Owner, accepted: Accepted, content: str) -> tuple[str, list[bytes], str]:
        """Which log it is shown in, how, and under which name: a worker may be quicker, or we may not get there."""
        event = asked(accepted.conversation, accepted.message, accepted.turn, content, clock.now())
        return session_log(owner.tenant, accepted.conversation), [encode(event)], asked_once(accepted.message)
