"""`/ws`: replies and notifications as they come, and the events of the sessions one listens to."""

import asyncio
from typing import Any
from uuid import UUID

import msgspec
from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect

from tertulia import clock, logs, metrics
from tertulia.core import errors
from tertulia.core.events import with_cursor
from tertulia.core.model import Principal
from tertulia.events.log import Cursor, session_log, user_log
from tertulia.events.relay import Relay, Subscription
from tertulia.faces import body as reading
from tertulia.faces import frames, gap
from tertulia.faces.auth import Expiry
from tertulia.faces.errors import count
from tertulia.faces.gate import OPEN, Gate, bearer
from tertulia.faces.limits import Rate
from tertulia.faces.outlet import Outlet
from tertulia.faces.presence import Presence
from tertulia.faces.transport import hang_up
from tertulia.settings import Settings
from tertulia.store.conversations import Conversations
from tertulia.store.messages import Submission

_log = logs.get("faces.socket")

_AUTH_PATIENCE = 10.0
_INBOUND_PER_MINUTE = 600
_TRY_AGAIN, _UNAUTHENTICATED, _FORBIDDEN_ORIGIN, _TOO_MANY = 1013, 4001, 4003, 4008


class Closing(Exception):
    """The socket is to be closed, for this reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Peer:
    """One connected client: who it is, what it listens to."""

    def __init__(self, socket: WebSocket[Any, Any, Any]) -> None:
        state = socket.app.state
        settings: Settings = state.settings
        self._socket = socket
        self._gate: Gate = state.gate
        self._relay: Relay = state.relay
        self._conversations: Conversations = state.conversations
        self._reception = state.reception
        self._settings = settings
        self._inbound = Rate(_INBOUND_PER_MINUTE)
        self._presence: Presence = state.presence
        self._subscriptions: dict[str, Subscription] = {}
        self._closing: asyncio.Future[Closing] = asyncio.get_running_loop().create_future()
        self._expiry: Expiry | None = None
        self.principal: Principal | None = None
        self.outlet = Outlet(
            socket.send_text,
            room=settings.socket_buffer,
            deadline=settings.socket_send_timeout,
            drained=self._resume,
            stuck=self._give_up,
        )

    async def serve(self, principal: Principal | None) -> Closing | None:
        """Talk until one side has enough; yields why it was ours."""
        receiving = asyncio.ensure_future(self._receive(principal))
        try:
            await asyncio.wait([receiving, self._closing], return_when=asyncio.FIRST_COMPLETED)
            if self._closing.done():
                return self._closing.result()
            return receiving.result()
        finally:
            receiving.cancel()

    async def leave(self) -> None:
        if self._expiry:
            self._expiry.cancel()
        for subscription in self._subscriptions.values():
            await subscription.close()
        await self.outlet.close()
        if self.principal:
            self._presence.leave(self.principal.owner)

    def _give_up(self) -> None:
        """The client does not read: it would not read a farewell either."""
        hang_up(self._socket.scope)
        self._close(Closing(1011, "The client does not read."))

    def _close(self, closing: Closing) -> None:
        if not self._closing.done():
            self._closing.set_result(closing)

    def _resume(self) -> None:
        for subscription in self._subscriptions.values():
            subscription.resume()

    async def _receive(self, principal: Principal | None) -> Closing | None:
        patience = asyncio.get_running_loop().time() + _AUTH_PATIENCE
        try:
            if principal:
                await self._welcome(principal)
            while True:
                try:
                    async with asyncio.timeout_at(None if self.principal else patience):
                        data = await self._socket.receive()
                except TimeoutError:
                    return Closing(_UNAUTHENTICATED, "No token came in time.")
                if data["type"] == "websocket.disconnect":
                    return None
                await self._heed(data.get("text"))
        except WebSocketDisconnect:
            return None
        except errors.Unauthenticated as error:
            self.outlet.put(frames.encode(frames.Error(error.code, str(error))))
            await self.outlet.flush()
            return Closing(_UNAUTHENTICATED, str(error))
        except Closing as closing:
            return closing
        except errors.TertuliaError as error:
            return Closing(_TRY_AGAIN, str(error))
        except Exception as error:  # noqa: BLE001  (a bug of ours: the log has it, the client is told that much)
            _log.error("socket broke", exc_info=error)
            return Closing(1011, errors.TertuliaError.message)

    async def _heed(self, text: str | None) -> None:
        if text is None:
            raise Closing(1003, "Only text frames are understood here.")
        if self._inbound.wait("frames"):
            raise Closing(_TOO_MANY, "Too many frames.")
        try:
            said = frames.decode(text)
        except errors.InvalidRequest as error:
            self._tell(frames.Error("INVALID_FRAME", str(error)))
            return
        try:
            await self._answer(said)
        except errors.Unauthenticated:
            raise
        except errors.TertuliaError as error:
            count(error)
            handle = getattr(said, "session_id", None)
            self._tell(frames.Error(error.code, str(error), handle and reading.shortened(handle)))

    async def _answer(self, said: frames.Frame) -> None:
        if isinstance(said, frames.Auth):
            await self._sign_in(said.token)
        elif isinstance(said, frames.Subscribe):
            if said.token:
                await self._sign_in(said.token)
            await self._subscribe(self._counted(), said)
        elif isinstance(said, frames.Unsubscribe):
            if subscription := self._subscriptions.pop(said.session_id, None):
                await subscription.close()
        elif isinstance(said, frames.Say):
            await self._say(self._counted(), said)
        else:
            self._tell(frames.Pong(clock.now()))

    def _counted(self) -> Principal:
        """Who asks, signed in, and not too often: what costs as much as a request counts as one."""
        if self.principal is None:
            raise errors.Unauthenticated
        self._gate.count(self.principal)
        return self.principal

    async def _sign_in(self, token: str) -> None:
        principal = await self._gate.admit(token)
        if self.principal is None:
            await self._welcome(principal)
        elif self.principal.owner != principal.owner:
            raise Closing(_UNAUTHENTICATED, "This socket belongs to another user.")
        else:
            self._expire(principal)

    async def _welcome(self, principal: Principal) -> None:
        try:
            self._presence.enter(principal.owner)
        except errors.TooManyConnections as error:
            raise Closing(_TOO_MANY, str(error)) from error
        self.principal = principal
        self._expire(principal)
        try:
            place = await self._listen("user", user_log(principal.owner), None, None)
        except errors.Unavailable as error:  # a socket that nothing is pushed to would be a trap
            raise Closing(_TRY_AGAIN, str(error)) from error
        self._tell(frames.Connected(principal.user, principal.tenant, str(place)))

    def _expire(self, principal: Principal) -> None:
        """The token's end is the socket's, unless a newer one comes."""
        if self._expiry:
            self._expiry.cancel()
        closing = Closing(_UNAUTHENTICATED, "The token has expired.")
        self._expiry = Expiry(principal, lambda: self._close(closing))

    async def _subscribe(self, principal: Principal, said: frames.Subscribe) -> None:
        after = Cursor.parse(said.after_cursor) if said.after_cursor else None
        if said.after_cursor and after is None:
            after = Cursor("garbage", 0)  # of no log: the answer is a resync
        if said.topic == "user":
            await self._listen("user", user_log(principal.owner), after, None)
            return
        if not said.session_id:
            raise errors.InvalidRequest("subscribe needs a sessionId.")
        if len(self._subscriptions) > self._settings.subscriptions_per_socket:
            raise errors.TooManyRequests("This socket listens to as many sessions as one may.")
        conversation = await self._conversations.of_session(principal.owner, said.session_id)
        if conversation is None:
            raise errors.ConversationNotFound
        place = await self._listen(
            said.session_id, session_log(principal.tenant, conversation), after, conversation
        )
        self._tell(frames.Subscribed(said.session_id, str(place)))

    async def _listen(
        self, name: str, log: str, after: Cursor | None, conversation: UUID | None
    ) -> Cursor | None:
        if old := self._subscriptions.pop(name, None):
            await old.close()

        def put(cursor: Cursor, event: bytes) -> bool:
            return self.outlet.put(with_cursor(str(cursor), event))

        async def resync() -> bytes:
            owner = self.principal.owner if self.principal else None
            return await gap.event(self._conversations, owner, conversation)

        subscription = await self._relay.subscribe(log, after, put, resync)
        self._subscriptions[name] = subscription
        return subscription.place

    async def _say(self, principal: Principal, said: frames.Say) -> None:
        accepted = await self._reception.accept(
            principal.owner,
            Submission(
                content=said.content,
                agent_id=said.agent_id,
                handle=said.session_id,
                named=reading.uuid(said.session_id) if said.session_id else None,
                key=reading.key("WS message", said.idempotency_key, msgspec.json.encode(said)),
            ),
        )
        self._tell(frames.Accepted(accepted.message, accepted.turn, accepted.handle, accepted.conversation))

    def _tell(self, answer: frames.Answer) -> None:
        if not self.outlet.answer(frames.encode(answer)):
            raise Closing(1008, "You ask more than you read.")


@websocket("/ws", opt={OPEN: True})
async def socket(socket: WebSocket[Any, Any, Any]) -> None:
    """Admit, serve, clean up."""
    settings: Settings = socket.app.state.settings
    headers = {name.lower(): value for name, value in socket.headers.items()}
    if not _may_come_from(headers.get("origin"), headers.get("host", ""), settings.allowed_origins):
        await socket.close(code=_FORBIDDEN_ORIGIN, reason="This origin may not connect.")
        return
    offered = [part.strip() for part in headers.get("sec-websocket-protocol", "").split(",")]
    await socket.accept(subprotocols="bearer" if offered[0] == "bearer" else None)
    metrics.SOCKETS.inc()
    closing, peer = None, None
    try:
        principal = await _admitted(socket, headers, offered)
        peer = Peer(socket)
        closing = await peer.serve(principal)
    except errors.TertuliaError as error:
        closing = Closing(
            _UNAUTHENTICATED if isinstance(error, errors.Unauthenticated) else _TRY_AGAIN, str(error)
        )
    finally:
        metrics.SOCKETS.dec()
        if peer:
            await peer.leave()
    if closing:
        await _say_goodbye(socket, closing)


async def _admitted(
    socket: WebSocket[Any, Any, Any], headers: dict[str, str], offered: list[str]
) -> Principal | None:
    gate: Gate = socket.app.state.gate
    if "authorization" in headers:
        return await gate.admit(bearer(headers["authorization"].encode()))
    if offered[0] == "bearer":
        return await gate.admit(offered[1] if len(offered) > 1 else "")
    return None


async def _say_goodbye(socket: WebSocket[Any, Any, Any], closing: Closing) -> None:
    try:
        async with asyncio.timeout(2):
            await socket.close(code=closing.code, reason=closing.reason[:120])
    except (TimeoutError, RuntimeError, OSError):
        return  # it is gone already


def _may_come_from(origin: str | None, host: str, allowed: tuple[str, ...]) -> bool:
    """Browsers say where a page came from; other programs say nothing and have no cookies to abuse."""
    if origin is None or origin in allowed or "*" in allowed:
        return True
    return origin.partition("://")[2] == host


ROUTES = [socket]
