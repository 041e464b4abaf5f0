"""A user and an agent: what is posted to the one in the name of the other, and what they say to each other."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx

from tests.support.client import User
from tests.support.sse import Event, saying


@dataclass(frozen=True)
class Pair:
    """A reader and an agent of their tenant, with the admin who made it and posts in its name."""

    admin: User
    reader: User
    agent: str

    async def brief(self, title: str = "代码返工率50%", **draft: Any) -> str:
        """The id of a briefing that has just been posted."""
        response = await post(self.admin, user_id=self.reader.name, agent_id=self.agent, title=title, **draft)
        assert response.status_code == 201, response.text
        return response.json()["id"]

    async def start(self, briefing: str) -> dict[str, Any]:
        """「继续对话」: what the click answers."""
        return await start(self.reader, briefing)

    async def standing(self) -> dict[str, Any]:
        return await standing(self.reader, self.agent)

    async def messages(self, conversation: str, **query: Any) -> dict[str, Any]:
        response = await self.reader.http.get(f"/conversations/{conversation}/messages", params=query)
        assert response.status_code == 200, response.text
        return response.json()

    async def say(self, conversation: str, content: str) -> list[Event]:
        """All events that the answer's stream brings."""
        async with saying(self.reader, conversation, content) as stream:
            return await stream.over()


async def paired(
    make: Callable[..., Awaitable[User]], *, agent: dict[str, Any] | None = None, **who: Any
) -> Pair:
    """Two whom the server knows, and who have never talked; `who` is about the reader."""
    place = {name: who[name] for name in ("tenant", "at") if name in who}
    admin, reader = await make("admin", role="admin", **place), await make("reader", **who)
    await reader.http.get("/briefings")
    return Pair(admin, reader, await made_agent(admin, **(agent or {})))


async def made_agent(admin: User, **profile: Any) -> str:
    """The id of a new agent."""
    given = {"id": f"agent-{uuid4().hex[:8]}", "display_name": "Analyst"} | profile
    response = await admin.http.post("/api/agents", json=given)
    assert response.status_code == 201, response.text
    return response.json()["id"]


async def post(poster: User, *, key: str | None = None, **draft: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return await poster.http.post("/briefings", json={"summary": "最近7天"} | draft, headers=headers)


async def act(user: User, briefing: str, action: str) -> httpx.Response:
    return await user.http.post(f"/briefings/{briefing}/actions", json={"action": action})


async def start(user: User, briefing: str) -> dict[str, Any]:
    response = await act(user, briefing, "start_conversation")
    assert response.status_code == 200, response.text
    return response.json()


async def standing(user: User, agent: str) -> dict[str, Any]:
    response = await user.http.get(f"/conversations/{agent}")
    assert response.status_code == 200, response.text
    return response.json()
