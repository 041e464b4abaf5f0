"""Looking at a running server from outside: its logs, and what becomes true in a moment."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

from tests.support.gemini import Recorded, ScriptedGemini
from tests.support.instance import Instance

Seen = TypeVar("Seen")


async def eventually(look: Callable[[], Awaitable[Seen]], patience: float = 10) -> Seen:
    """The first true thing that `look` yields."""
    deadline = time.monotonic() + patience
    while not (seen := await look()):
        assert time.monotonic() < deadline, f"it did not happen in {patience} s"
        await asyncio.sleep(0.02)
    return seen


def entries(instance: Instance, event: str, **fields: Any) -> list[dict[str, Any]]:
    """The lines of an instance's log that say this, with these fields."""
    lines = [json.loads(line) for line in instance.text.splitlines() if line.startswith("{")]
    return [
        line
        for line in lines
        if line.get("event") == event and all(line.get(k) == v for k, v in fields.items())
    ]


async def logged(instance: Instance, event: str, patience: float = 10, **fields: Any) -> dict[str, Any]:
    """The first line that says this, once it is there."""

    async def look() -> list[dict[str, Any]]:
        return entries(instance, event, **fields)

    return (await eventually(look, patience))[0]


def moment(entry: dict[str, Any]) -> datetime:
    """When a line was logged."""
    return datetime.fromisoformat(entry["timestamp"])


def asked(gemini: ScriptedGemini, said: str) -> Recorded:
    """The last request in which the person's last words were these."""
    found = [
        request
        for request in list(gemini.requests)
        if (words := [text for role, text in request.said if role == "user"]) and words[-1] == said
    ]
    assert found, f"the model was never asked {said!r}"
    return found[-1]
