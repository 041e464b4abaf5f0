"""A user of the server, over HTTP and WebSocket, as any program would be one."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx
import jwt
from websockets.asyncio.client import ClientConnection, connect

from tests.support.instance import SECRET

LEEWAY = 30  # seconds for which an expired token is still good: clocks differ


def token(user: str, tenant: str = "acme", *, ttl: float = 3600, secret: str = SECRET, **claims: Any) -> str:
    content = {"user_id": user, "tenant_id": tenant, "exp": int(time.time() + ttl), **claims}
    return jwt.encode({k: v for k, v in content.items() if v is not None}, secret, algorithm="HS256")


class Socket:
    """One WebSocket, its frames as dictionaries."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.seen: list[dict[str, Any]] = []

    async def say(self, **frame: Any) -> None:
        await self.connection.send(json.dumps(frame))

    async def next(self, patience: float = 10) -> dict[str, Any]:
        async with asyncio.timeout(patience):
            frame = json.loads(await self.connection.recv())
        self.seen.append(frame)
        return frame

    async def until(self, kind: str, patience: float = 15, **fields: Any) -> dict[str, Any]:
        """The next frame of this type (and with these fields); what comes before it is kept in `seen`."""
        async with asyncio.timeout(patience):
            while True:
                frame = await self.next(patience)
                if frame["type"] == kind and all(frame.get(k) == v for k, v in fields.items()):
                    return frame

    async def quiet(self, seconds: float = 0.5) -> list[dict[str, Any]]:
        """What comes within so many seconds."""
        found: list[dict[str, Any]] = []
        try:
            async with asyncio.timeout(seconds):
                while True:
                    found.append(await self.next(60))
        except TimeoutError:
            return found

    async def subscribe(self, session_id: str, after: str | None = None) -> None:
        await self.say(type="subscribe", sessionId=session_id, **({"afterCursor": after} if after else {}))


class User:
    """Somebody with a token."""

    def __init__(self, url: str, name: str = "ann", tenant: str = "acme", **claims: Any) -> None:
        self.url = url
        self.name = name
        self.tenant = tenant
        self.token = token(name, tenant, **claims)
        self.http = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {self.token}"}, timeout=20, trust_env=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def send(
        self, content: str, session: str | None = None, *, key: str | None = None
    ) -> dict[str, Any]:
        """Send a message and expect the 202."""
        response = await self.post(content, session, key=key)
        assert response.status_code == 202, response.text
        return response.json()

    async def post(
        self, content: str, session: str | None = None, *, key: str | None = None
    ) -> httpx.Response:
        body = {"content": content} | ({"session_id": session} if session else {})
        return await self.http.post(
            "/api/messages", json=body, headers={"Idempotency-Key": key} if key else {}
        )

    async def state(self, message_id: str) -> dict[str, Any]:
        response = await self.http.get(f"/api/messages/{message_id}")
        assert response.status_code == 200, response.text
        return response.json()

    async def answered(self, sent: dict[str, Any], patience: float = 20) -> dict[str, Any]:
        """The message's state once its turns have ended."""
        async with asyncio.timeout(patience):
            while True:
                try:
                    state = await self.state(sent["message_id"])
                except (httpx.TransportError, AssertionError):
                    state = {"status": "unreachable"}
                if state["status"] not in ("queued", "running", "waiting", "unreachable"):
                    return state
                await asyncio.sleep(0.03)

    async def ask(self, content: str, session: str | None = None) -> dict[str, Any]:
        """Send and wait for the end."""
        return await self.answered(await self.send(content, session))

    async def conversation(self, conversation_id: str, **query: Any) -> dict[str, Any]:
        response = await self.http.get(f"/api/conversations/{conversation_id}", params=query)
        assert response.status_code == 200, response.text
        return response.json()

    async def session_id(self, sent: dict[str, Any]) -> str:
        """The credential for listening to the conversation of a message."""
        return (await self.conversation(sent["conversation_id"]))["conversation"]["sessionId"]

    @asynccontextmanager
    async def socket(self, **options: Any) -> AsyncGenerator[Socket]:
        """A WebSocket that has said hello."""
        address = self.url.replace("http", "ws", 1) + "/ws"
        headers = {"Authorization": f"Bearer {self.token}"}
        async with connect(address, additional_headers=headers, proxy=None, **options) as connection:
            socket = Socket(connection)
            await socket.until("connected")
            yield socket
