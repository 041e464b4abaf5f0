"""Two servers that accept messages for the same conversations at once, in opposite orders.

The database is made to take ten milliseconds over each message, so that those who come at once are in each other's way.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tertulia.embedded import Embedded, Services
from tests.faults.world import World, made, until
from tests.support.client import User
from tests.support.instance import Instance

ROUNDS = 15
ROOMY = {"queued_per_conversation": 1000, "open_turns_per_user": 0, "open_turns_per_tenant": 0}
NAMES = ("ann", "bob")
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
SEQS = "SELECT array_agg(seq ORDER BY seq) FROM messages GROUP BY conversation_id"

Place = tuple[str, str, str]  # whose conversation it is, its handle and its id


@pytest.fixture(scope="module")
async def _narrow(doomed: tuple[Embedded, Services, Path]) -> AsyncGenerator[World]:
    async with made(*doomed, "narrow", 3) as world:
        slow = "PERFORM pg_sleep(0.01); INSERT INTO messages ("
        await world.redefine("accept_message", ("INSERT INTO messages (", slow))
        yield world


@pytest.fixture
async def narrow(_narrow: World) -> World:
    """A database of its own that takes its time over each message; no conversations yet."""
    await _narrow.clear()
    return _narrow


async def places(world: World) -> list[Place]:
    """Eight conversations of each user. By their ids they come in the opposite order to that by their handles."""
    found: list[Place] = []
    for name in NAMES:
        await world.sql("INSERT INTO users (tenant, id) VALUES ('acme', $1) ON CONFLICT DO NOTHING", name)
        for number, conversation in enumerate(sorted((uuid4() for _ in range(8)), reverse=True)):
            await world.sql(
                "INSERT INTO conversations (tenant, id, user_id, external_key, session_id) VALUES ($1, $2, $3, $4, $5)",
                "acme", conversation, name, f"c{number}", uuid4().hex,
            )  # fmt: skip
            found.append((name, f"c{number}", str(conversation)))
    return found


@asynccontextmanager
async def doors(*servers: Instance) -> AsyncGenerator[list[dict[str, User]]]:
    """For each server, the users as they come in by it."""
    async with AsyncExitStack() as stack:
        yield [
            {name: await stack.enter_async_context(User(server.url, name)) for name in NAMES}
            for server in servers
        ]


def accepted(responses: Iterable[httpx.Response]) -> list[str]:
    """The ids of messages none of which was refused."""
    assert Counter(response.status_code for response in responses) == {202: len(list(responses))}
    return [response.json()["message_id"] for response in responses]


async def opposite(here: dict[str, User], there: dict[str, User], where: list[Place]) -> list[httpx.Response]:
    """A message for every conversation by each door at once, by handle here and by id there."""
    posts = zip(
        [here[name].post("here", handle) for name, handle, _ in where],
        [there[name].post("there", conversation) for name, _, conversation in reversed(where)],
        strict=True,
    )
    return await asyncio.gather(*(post for both in posts for post in both))


async def stored(world: World) -> Counter[str]:
    rows = await world.sql("SELECT id::text FROM messages WHERE role = 'user'")
    return Counter(row[0] for row in rows)


async def test_messages_by_two_doors_in_opposite_orders_are_each_accepted_once_and_without_a_deadlock(
    narrow: World,
) -> None:
    where, before = await places(narrow), await narrow.one(DEADLOCKS)
    sent: list[str] = []
    async with narrow.server(**ROOMY) as one, narrow.server(**ROOMY) as two, doors(one, two) as (here, there):
        for _ in range(ROUNDS):
            sent += accepted(await opposite(here, there, where))
    assert await stored(narrow) == Counter(sent)
    assert len(set(sent)) == ROUNDS * 32
    assert [row[0] for row in await narrow.sql(SEQS)] == [list(range(1, 2 * ROUNDS + 1))] * 16
    assert await narrow.one(DEADLOCKS) == before  # both have ended, so that their statistics are in
    assert [line for server in (one, two) for line in server.text.splitlines() if '"error"' in line] == []


async def test_without_the_short_wait_the_same_messages_end_in_deadlocks(narrow: World) -> None:
    """The control: the orders are opposite indeed."""
    where, before = await places(narrow), await narrow.one(DEADLOCKS)
    async with (
        narrow.patched("patient", **ROOMY) as one,
        narrow.patched("patient", **ROOMY) as two,
        doors(one, two) as (here, there),
    ):
        codes: Counter[int] = Counter()
        for _ in range(ROUNDS):
            if codes[503]:
                break
            codes += Counter(each.status_code for each in await opposite(here, there, where))
    assert set(codes) == {202, 503}
    assert await narrow.one(DEADLOCKS) > before


async def test_what_comes_by_both_doors_under_one_key_is_accepted_once_and_answered_once(
    narrow: World,
) -> None:
    where = await places(narrow)
    sent: list[str] = []
    async with (
        narrow.server(**ROOMY) as one,
        narrow.server(**ROOMY) as two,
        narrow.worker(),
        doors(one, two) as users,
    ):
        for number in range(5):
            told = await asyncio.gather(
                *(user[name].post("both", handle, key=f"{number}-{handle}")
                  for user in users for name, handle, _ in where[:: 1 if user is users[0] else -1])
            )  # fmt: skip
            twice = Counter(accepted(told))
            assert set(twice.values()) == {2}
            sent += twice
        await until(lambda: _all_done(narrow), 60)
    assert await stored(narrow) == Counter(sent)
    assert len(sent) == 5 * 16
    assert [row[0] for row in await narrow.sql(SEQS)] == [list(range(1, 11))] * 16


async def _all_done(world: World) -> bool:
    return await world.one("SELECT count(*) FROM turns WHERE status <> 'done'") == 0


async def test_conversations_that_are_begun_by_both_doors_at_once_are_one_each(narrow: World) -> None:
    handles = [f"new {number}" for number in range(40)]
    async with narrow.server() as one, narrow.server() as two, doors(one, two) as (here, there):
        told = await asyncio.gather(
            *(here["ann"].post("here", handle) for handle in handles),
            *(there["ann"].post("there", handle) for handle in reversed(handles)),
        )
    assert await stored(narrow) == Counter(accepted(told))
    assert len({response.json()["conversation_id"] for response in told}) == 40
    assert [row[0] for row in await narrow.sql(SEQS)] == [[1, 2]] * 40


async def test_a_conversation_that_both_doors_fill_at_once_takes_as_many_as_it_may(narrow: World) -> None:
    few = {**ROOMY, "queued_per_conversation": 20}
    async with narrow.server(**few) as one, narrow.server(**few) as two, doors(one, two) as users:
        told = await asyncio.gather(
            *(user["ann"].post("me too", "full") for _ in range(30) for user in users)
        )
    assert Counter(response.status_code for response in told) == {202: 20, 429: 40}
    refused = [response.json()["error"]["code"] for response in told if response.status_code == 429]
    assert set(refused) == {"CONVERSATION_BUSY"}
    assert await stored(narrow) == Counter(accepted([each for each in told if each.status_code == 202]))
    assert [row[0] for row in await narrow.sql(SEQS)] == [list(range(1, 21))]
    assert await narrow.one("SELECT open_turns FROM conversations") == 20
