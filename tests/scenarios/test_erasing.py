"""What is deleted is gone: from the context, from what waits to be answered, from what was pushed."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import pytest
from redis.asyncio import Redis

from tertulia.context.limits import ContextLimits
from tertulia.context.open import open_stores
from tertulia.core.model import Owner
from tests.scenarios.conftest import Alone, Someone, word
from tests.support.backends import of_superuser
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.instance import Instance
from tests.support.observe import eventually, logged

WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


class Place(NamedTuple):
    """A server that keeps its context where we can look, and soon erases what was deleted."""

    server: Instance
    database: "asyncpg.Connection[Any]"
    database_url: str
    valkey: Redis


@pytest.fixture(scope="module")
async def place(alone: Alone, folder: Path) -> AsyncGenerator[Place]:
    settings = await alone(context_store="redis", delete_seconds=1.5, sweep_seconds=0.2)
    url = of_superuser(settings["database_url"])
    database = await asyncpg.connect(url)
    with Instance("serve", folder, "--port", "0", **settings) as server:
        async with Redis.from_url(settings["redis_url"]) as valkey:
            yield Place(server, database, url, valkey)
    await database.close()


@pytest.fixture
async def ann(place: Place, someone: Someone) -> User:
    return await someone("ann", at=place.server)


async def delete(user: User, sent: dict[str, Any]) -> None:
    assert (await user.http.delete(f"/api/conversations/{sent['conversation_id']}")).status_code == 200


async def test_the_end_of_a_stopped_answer_does_not_bring_a_deleted_conversation_back_into_the_context(
    place: Place, ann: User, gemini: ScriptedGemini
) -> None:
    sent = await ann.send(question := f"{word()} [[hang]]")

    async def reached() -> bool:
        return any(request.said == [("user", question)] for request in list(gemini.requests))

    await eventually(reached)
    store = open_stores("redis", ContextLimits(), place.valkey).open(Owner("acme", ann.name))
    assert await store.get(sent["conversation_id"]) is not None
    await delete(ann, sent)
    await logged(place.server, "turn ended", turn=sent["turn_id"], status="aborted")
    assert await store.get(sent["conversation_id"]) is None


async def test_a_message_that_is_accepted_while_its_conversation_is_deleted_is_not_answered(
    place: Place, ann: User, gemini: ScriptedGemini
) -> None:
    first = await ann.send("Hello", session := word("s"))
    await ann.answered(first)
    conversation = UUID(first["conversation_id"])

    async def waiting(number: int) -> None:
        async def look() -> bool:
            return await place.database.fetchval(WAITING) == number

        await eventually(look)

    holder = await asyncpg.connect(place.database_url)
    async with holder.transaction():
        await holder.execute("SELECT FROM conversations WHERE id = $1 FOR UPDATE", conversation)
        sending = asyncio.create_task(ann.send(question := f"{word()} Too late", session))
        await waiting(1)
        deleting = asyncio.create_task(delete(ann, first))
        await waiting(2)
    await holder.close()
    sent = await sending
    await deleting

    async def ended() -> str | None:
        query = "SELECT status FROM turns WHERE id = $1 AND status NOT IN ('queued', 'running')"
        return await place.database.fetchval(query, UUID(sent["turn_id"]))

    assert await eventually(ended) == "aborted"
    assert not [request for request in list(gemini.requests) if request.said[-1] == ("user", question)]


async def test_what_was_pushed_of_a_conversation_can_not_be_read_again_once_it_is_erased(
    place: Place, ann: User
) -> None:
    secret = word("secret")
    async with ann.socket() as socket:
        before = socket.seen[0]["cursor"]
        sent = await ann.send(f'Tell me [[text {{"said": "{secret}"}}]]')
        assert (await socket.until("message"))["content"] == secret
        await socket.say(type="subscribe", topic="user", afterCursor=before)
        assert (await socket.until("message"))["content"] == secret
        await delete(ann, sent)
        await logged(place.server, "conversation erased", conversation=sent["conversation_id"])
        seen = len(socket.seen)
        await socket.say(type="subscribe", topic="user", afterCursor=before)
        await socket.until("resync")
        await socket.say(type="ping")
        await socket.until("pong")
    assert secret not in str(socket.seen[seen:])
    assert [key for key in await place.valkey.keys("tertulia:{*}:events") if ann.name.encode() in key] == []
