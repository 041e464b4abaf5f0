"""A message that is sent again with its key: over the WebSocket as over HTTP, and for how long a key is remembered."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest

from tertulia.embedded import Services
from tertulia.queue.sweeper import Sweeper
from tertulia.store.database import Database
from tests.scenarios.conftest import Someone, word
from tests.support.client import Socket, User

DAY = timedelta(hours=24)
REUSED = "This Idempotency-Key was used before with another body. Use a new key for a new request."


@pytest.fixture
async def ann(someone: Someone) -> User:
    return await someone("ann")


@pytest.fixture
async def sweeper(backends: Services) -> AsyncGenerator[Sweeper]:
    """A sweeper of the running server's database, which sweeps when it is told to."""
    database = await Database.open(backends.database_url, 2)
    absent = cast(Any, None)
    yield Sweeper(database, absent, absent, absent, absent, quiet=1, erase_after=1)
    await database.close()


def keyed(content: str = "Once only") -> dict[str, str]:
    """A frame with a key of its own."""
    return {"type": "message", "content": content, "session_id": word("s"), "idempotency_key": word("key")}


async def say(socket: Socket, frame: dict[str, str]) -> dict[str, Any]:
    await socket.say(**frame)
    return await socket.until("accepted")


async def asked_in(database: asyncpg.Connection, conversation: str) -> list[str]:
    """What the user has said in this conversation."""
    query = "SELECT content #>> '{}' AS said FROM messages WHERE conversation_id = $1 AND role = 'user' ORDER BY seq"
    return [row["said"] for row in await database.fetch(query, UUID(conversation))]


async def test_a_frame_that_is_repeated_with_its_key_is_answered_as_the_first_was(
    ann: User, database: asyncpg.Connection
) -> None:
    async with ann.socket() as socket, ann.socket() as other:
        first = await say(socket, frame := keyed())
        while_it_runs = await say(socket, frame)
        await ann.answered(first)
        assert [while_it_runs, await say(socket, frame), await say(other, frame)] == [first] * 3
        another = await say(socket, frame | {"idempotency_key": word("key")})
        await other.until("message", message_id=(await ann.answered(another))["reply"]["id"])
    assert another["message_id"] != first["message_id"]
    assert await asked_in(database, first["conversation_id"]) == ["Once only", "Once only"]
    assert [pushed["turn_id"] for pushed in other.seen if pushed["type"] == "message"] == [
        first["turn_id"],
        another["turn_id"],
    ]


@pytest.mark.parametrize("other", ["content", "session_id"])
async def test_a_frame_with_a_key_that_another_frame_had_is_refused_and_the_socket_stays(
    other: str, ann: User, database: asyncpg.Connection
) -> None:
    async with ann.socket() as socket:
        first = await say(socket, frame := keyed())
        changed = frame | {other: word("other")}
        await socket.say(**changed)
        assert await socket.until("error") == {
            "type": "error",
            "code": "IDEMPOTENCY_KEY_REUSED",
            "content": REUSED,
            "session_id": changed["session_id"],
        }
        assert await say(socket, frame) == first
    assert await asked_in(database, first["conversation_id"]) == ["Once only"]
    query = "SELECT count(*) FROM messages WHERE user_id = $1 AND role = 'user'"
    assert await database.fetchval(query, ann.name) == 1


async def test_the_same_key_of_another_user_is_another_key(ann: User, someone: Someone) -> None:
    bob = await someone("bob")
    async with ann.socket() as of_ann, bob.socket() as of_bob:
        first = await say(of_ann, frame := keyed())
        second = await say(of_bob, frame | {"content": "Mine"})
    assert first["message_id"] != second["message_id"]


async def aged(database: asyncpg.Connection, key: str, age: timedelta) -> None:
    query = "UPDATE idempotency SET created_at = created_at - $2::interval WHERE key = $1"
    assert await database.execute(query, key, age) == "UPDATE 1"


async def test_a_key_is_remembered_for_24_hours_and_then_forgotten(
    ann: User, database: asyncpg.Connection, sweeper: Sweeper
) -> None:
    minute, hour = timedelta(minutes=1), timedelta(hours=1)
    ages = {word("key"): age for age in (hour * 23, DAY - minute, DAY + minute)}
    first = {key: await ann.send("Hi", "over-http", key=key) for key in ages}
    for key, age in ages.items():
        await aged(database, key, age)
    await sweeper.forget_keys()
    again = {key: await ann.send("Hi", "over-http", key=key) for key in ages}
    assert [again[key] == first[key] for key in ages] == [True, True, False]
    assert (await ann.post("Ho", "over-http", key=next(iter(ages)))).status_code == 409


async def test_a_frames_key_is_forgotten_as_soon(
    ann: User, database: asyncpg.Connection, sweeper: Sweeper
) -> None:
    young, old = keyed(), keyed()
    async with ann.socket() as socket:
        first = [await say(socket, young), await say(socket, old)]
        await aged(database, young["idempotency_key"], DAY - timedelta(minutes=1))
        await aged(database, old["idempotency_key"], DAY + timedelta(minutes=1))
        await sweeper.forget_keys()
        again = [await say(socket, young), await say(socket, old)]
    assert [one == other for one, other in zip(first, again, strict=True)] == [True, False]
