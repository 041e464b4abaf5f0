"""What tests share in which a backend goes away: whether the server is well, and messages that are sent on and on."""

import asyncio
from typing import Any

import httpx

from tests.faults.world import Talk, World


async def readiness(world: World) -> dict[str, Any]:
    """What the server says of its backends."""
    async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
        return (await http.get(f"{world.url}/readyz")).json()


async def ready(world: World) -> bool:
    return (await readiness(world))["status"] == "ready"


async def insist(talk: Talk, text: str, key: str, codes: set[str]) -> None:
    """Send again and again under one key, until it is accepted; refusals must be of these kinds."""
    for _ in range(300):
        response = await talk.user.post(text, talk.conversation, key=key)
        if response.status_code == 202:
            talk.sent.append(response.json())
            return
        assert response.status_code == 503, response.text
        codes.add(response.json()["error"]["code"])
        await asyncio.sleep(0.02)
    raise AssertionError("never accepted")
