"""Event streams over HTTP: of a whole session, or of the answer to one message."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import msgspec

from tertulia import clock
from tertulia.core.errors import MessageNotFound, Unauthenticated, Unavailable
from tertulia.core.events import encode
from tertulia.core.model import Owner, Principal
from tertulia.core.statuses import error_of, http_status
from tertulia.core.turns import Ended, told_again
from tertulia.events.log import Cursor, EventLog, place_of, session_log
from tertulia.events.relay import Relay
from tertulia.faces import gap, sse
from tertulia.faces.auth import Expiry
from tertulia.faces.presence import Presence
from tertulia.settings import Settings
from tertulia.store.conversations import Conversations
from tertulia.store.messages import Accepted, Answered, Messages

_EXPIRED = Unauthenticated("The token has expired. Sign in again and come back to hear the rest.")
_NOWHERE = Cursor("0", 0)  # of no log: whoever resumes from here is told to read anew


class Streams:
    """Opens streams, and closes them all when the server goes down."""

    def __init__(
        self, relay: Relay, conversations: Conversations, messages: Messages, presence: Presence,
        settings: Settings,
    ) -> None:  # fmt: skip
        self._relay = relay
        self._conversations = conversations
        self._messages = messages
        self._presence = presence
        self._settings = settings
        self._open: set[sse.Listener] = set()

    @property
    def _events(self) -> EventLog:
        return self._relay.events

    def close(self) -> None:
        """Let all clients go: they can come back with their cursors."""
        for listener in self._open:
            listener.close()

    async def of_conversation(
        self, principal: Principal, conversation: UUID, after: Cursor | None
    ) -> sse.EventStream:
        """Everything that happens in it from the cursor on, until the client leaves or its token ends."""
        listener = sse.Listener(self._settings.socket_buffer)
        self._presence.enter(principal.owner)
        try:
            here = await self._listen(listener, principal.owner, conversation, after)
        except BaseException:
            self._presence.leave(principal.owner)
            raise
        return self._stream(listener, principal, hello=sse.place(here) if after is None else b"")

    async def of_message(
        self,
        principal: Principal,
        accept: "Callable[[], Awaitable[tuple[Accepted, asyncio.Future[Any] | None]]]",
    ) -> sse.EventStream:
        """Accept a message; the events of its turn until its end, or, if that was before, its end again."""
        owner = principal.owner
        self._presence.enter(owner)
        try:
            accepted, shown = await accept()
            listener = sse.Listener(self._settings.socket_buffer, str(accepted.turn))

            async def check() -> list[bytes]:
                try:
                    return await self._ends(owner, accepted, listener.cursor)
                except Unavailable:
                    return []  # we look again
                except MessageNotFound:
                    listener.close()  # it has been deleted meanwhile
                    return []

            hello = b"".join(await self._ends(owner, accepted, None)) if accepted.repeated else b""
            if hello:
                listener.close()
            else:
                await self._follow(listener, owner, accepted, shown)
        except BaseException:
            self._presence.leave(owner)
            raise
        return self._stream(listener, principal, hello=hello or b": accepted\n\n", check=check)

    async def _follow(
        self, listener: sse.Listener, owner: Owner, accepted: Accepted, shown: "asyncio.Future[Any] | None"
    ) -> None:
        """Listen from where the turn begins in the log.

        The message is stored, and whatever fails here must not look as if it were not: where the log cannot be read,
        the end will come from the database.
        """
        log = session_log(owner.tenant, accepted.conversation)
        try:
            last = place_of(await shown) if shown else None
            if last is None:
                needle = b'"turnId":"%b"' % str(accepted.turn).encode()
                before, found = await self._events.place_before(
                    log, needle, first=b"conversation:user_message", last=b"turn_end"
                )
                listener.doubtful = not found
            else:
                before = Cursor(last.generation, last.offset - 1)
            await self._listen(listener, owner, accepted.conversation, before)
        except Unavailable:
            listener.doubtful = True

    async def _listen(
        self, listener: sse.Listener, owner: Owner, conversation: UUID, after: Cursor | None
    ) -> Cursor:
        async def resync() -> bytes:
            return await gap.event(self._conversations, owner, conversation)

        log = session_log(owner.tenant, conversation)
        listener.subscription = await self._relay.subscribe(log, after, listener.take, resync)
        return listener.subscription.place or after or _NOWHERE

    def _stream(
        self,
        listener: sse.Listener,
        principal: Principal,
        *,
        hello: bytes,
        check: Callable[[], Awaitable[list[bytes]]] | None = None,
    ) -> sse.EventStream:
        expiry = Expiry(principal, lambda: listener.close(_EXPIRED))
        self._open.add(listener)

        async def left() -> None:
            expiry.cancel()
            self._open.discard(listener)
            self._presence.leave(principal.owner)
            if listener.subscription:
                await listener.subscription.close()

        return sse.EventStream(
            listener, hello=hello, check=check, deadline=self._settings.socket_send_timeout, left=left
        )

    async def _ends(self, owner: Owner, accepted: Accepted, here: Cursor | None) -> list[bytes]:
        """The last events of the message's turn, once it has ended."""
        asked = await self._messages.asked(owner, accepted.message)
        turns = [turn for turn in asked.turns if turn.turn_id == accepted.turn and turn.status.ended]
        ended = [_ended(turn, asked.conversation, asked.id) for turn in turns]
        here = here or (await self._tail(owner, asked.conversation) if ended else _NOWHERE)
        return [
            sse.frame(here, encode(event))
            for end in ended
            for event in told_again(end, http_status(end.error) if end.error else 200, clock.now())
        ]

    async def _tail(self, owner: Owner, conversation: UUID) -> Cursor:
        try:
            backlog = await self._events.read(session_log(owner.tenant, conversation), None)
        except Unavailable:
            return _NOWHERE
        return Cursor(backlog.generation, backlog.tail)


def _ended(turn: Answered, conversation: UUID, message: UUID) -> Ended:
    reply = turn.reply
    return Ended(
        turn=turn.turn_id,
        conversation=conversation,
        message=message,
        agent_id=turn.agent_id,
        attempt=turn.attempt,
        status=turn.status,
        reply=reply.id if reply else None,
        text=msgspec.json.decode(reply.content, type=str) if reply else "",
        structured_data=_decoded(reply.structured_data) if reply else None,
        actions=tuple(_decoded(reply.actions) or ()) if reply else (),
        usage=_decoded(turn.usage),
        error=error_of(turn.code, turn.error) if turn.code else None,
    )


def _decoded(raw: msgspec.Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)
