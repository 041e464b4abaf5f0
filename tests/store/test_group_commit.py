"""Messages that come at once are committed together, and none of them suffers from the company."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tertulia.core import errors
from tertulia.core.model import OpenTurns, Owner
from tertulia.embedded import Services
from tertulia.store.database import Database
from tertulia.store.keys import Key
from tertulia.store.messages import Accepted, Messages, Submission
from tests.store.conftest import address

USERS = [Owner("acme", f"user-{number}") for number in range(20)]
ANN, BOB = USERS[:2]


@pytest.fixture
async def admin(migrated: str, backends: Services) -> AsyncIterator["asyncpg.Connection[Any]"]:
    connection = await asyncpg.connect(address(backends, "postgres", migrated))
    await connection.executemany("INSERT INTO users (tenant, id) VALUES ($1, $2)", USERS)
    yield connection
    await connection.close()


@pytest.fixture
async def messages(
    migrated: str, backends: Services, admin: "asyncpg.Connection[Any]"
) -> AsyncIterator[Messages]:
    database = await Database.open(address(backends, "tertulia", migrated), 8)
    yield Messages(database, "assistant", OpenTurns(5, 100))
    await database.close()


def hello(owner: Owner, handle: str = "first", **more: Any) -> tuple[Owner, Submission]:
    return owner, Submission(content=f"Hello from {owner.user}", handle=handle, **more)


async def sent(messages: Messages, *said: tuple[Owner, Submission]) -> list[Accepted | BaseException]:
    """All at once."""
    return await asyncio.gather(*(messages.accept(*each) for each in said), return_exceptions=True)


async def test_those_who_come_at_once_share_transactions_and_each_gets_what_is_theirs(
    messages: Messages, admin: "asyncpg.Connection[Any]"
) -> None:
    got = await sent(messages, *(hello(owner) for owner in USERS))
    rows = await admin.fetch("SELECT id, user_id, content::text, xmin::text AS made_by FROM messages")
    told = {answer.message: owner.user for owner, answer in zip(USERS, got, strict=True)}  # type: ignore[union-attr]
    assert {row["id"]: row["user_id"] for row in rows} == told
    assert {row["content"] for row in rows} == {f'"Hello from {owner.user}"' for owner in USERS}
    assert len({row["made_by"] for row in rows}) <= 2


async def test_messages_of_one_conversation_that_come_at_once_have_places_of_their_own(
    messages: Messages,
) -> None:
    got = await sent(messages, *(hello(ANN) for _ in range(5)))
    assert sorted(answer.seq for answer in got if isinstance(answer, Accepted)) == [1, 2, 3, 4, 5]


async def test_a_message_that_is_refused_takes_no_other_with_it(
    messages: Messages, admin: "asyncpg.Connection[Any]"
) -> None:
    others = (await messages.accept(*hello(BOB))).conversation
    refused = [
        hello(ANN, agent_id="nobody"),
        (ANN, Submission(content="Let me in", named=others, create=False)),
        (ANN, Submission(content="broken \ud800")),
    ]
    got = await sent(messages, *(hello(owner, "second") for owner in USERS[:9]), *refused, hello(USERS[10]))
    kinds = [type(answer) for answer in got]
    assert kinds[:9] == [Accepted] * 9
    assert kinds[9:11] == [errors.AgentNotFound, errors.ConversationNotFound]
    assert isinstance(got[11], ValueError)
    assert kinds[12] is Accepted
    assert await admin.fetchval("SELECT count(*) FROM messages") == 11
    assert await admin.fetchval("SELECT count(*) FROM conversations") == 11
    assert await admin.fetchval("SELECT sum(open_turns) FROM conversations") == 11


async def test_the_one_message_too_many_is_refused_and_no_other(messages: Messages) -> None:
    got = await sent(messages, *(hello(ANN) for _ in range(6)), hello(BOB))
    assert sorted(type(answer).__name__ for answer in got) == ["Accepted"] * 6 + ["ConversationBusy"]
    assert isinstance(got[6], Accepted)


async def test_a_conversation_that_is_locked_holds_nobody_else_up(
    messages: Messages, admin: "asyncpg.Connection[Any]"
) -> None:
    await messages.accept(*hello(ANN))
    async with admin.transaction():
        await admin.execute("SELECT FROM conversations FOR UPDATE")
        waits = asyncio.create_task(messages.accept(*hello(ANN)))
        async with asyncio.timeout(1):
            got = await sent(messages, *(hello(owner) for owner in USERS[1:]))
            assert {type(answer) for answer in got} == {Accepted}
            assert isinstance(await messages.accept(*hello(BOB)), Accepted)
        assert not waits.done()
    assert (await waits).seq == 2


async def test_a_key_that_comes_twice_at_once_is_carried_out_once(
    messages: Messages, admin: "asyncpg.Connection[Any]"
) -> None:
    key, other = Key("r", "k", b"body"), Key("r", "k", b"other")
    first, again, wrong, unkeyed = await sent(
        messages, hello(ANN, key=key), hello(ANN, key=key), hello(ANN, key=other), hello(BOB)
    )
    assert isinstance(first, Accepted)
    assert isinstance(again, Accepted)
    assert {first.repeated, again.repeated} == {True, False}
    assert first.message == again.message
    assert isinstance(wrong, errors.IdempotencyConflict)
    assert isinstance(unkeyed, Accepted)
    assert await admin.fetchval("SELECT count(*) FROM messages") == 2


async def test_a_database_that_is_away_is_told_to_all_who_wait_and_found_again(
    messages: Messages, admin: "asyncpg.Connection[Any]", migrated: str
) -> None:
    await messages.accept(*hello(ANN))
    await admin.execute(f"ALTER DATABASE {migrated} CONNECTION LIMIT 0")
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()",
        migrated,
    )
    got = await sent(messages, *(hello(owner) for owner in USERS))
    assert {type(answer) for answer in got} == {errors.Unavailable}
    await admin.execute(f"ALTER DATABASE {migrated} CONNECTION LIMIT -1")
    assert isinstance(await messages.accept(*hello(BOB, str(uuid4()))), Accepted)


async def test_who_leaves_meanwhile_takes_nobody_along(
    messages: Messages, admin: "asyncpg.Connection[Any]"
) -> None:
    leaving = [asyncio.create_task(messages.accept(*hello(owner))) for owner in USERS[:5]]
    await asyncio.sleep(0)
    staying = asyncio.create_task(messages.accept(*hello(USERS[10])))
    await asyncio.sleep(0)
    for task in leaving:
        task.cancel()
    assert isinstance(await staying, Accepted)
    assert await admin.fetchval("SELECT count(*) FROM turns WHERE user_id = $1", USERS[10].user) == 1


async def test_a_line_that_is_stuck_costs_those_on_it_three_seconds_and_nobody_else_their_answer(
    messages: Messages, admin: "asyncpg.Connection[Any]"
) -> None:
    await messages.accept(*hello(ANN))
    stuck = await admin.fetchval(
        "SELECT pid FROM pg_stat_activity WHERE usename = 'tertulia' AND datname = current_database()"
    )
    os.kill(stuck, signal.SIGSTOP)
    try:
        async with asyncio.timeout(6):
            lost = asyncio.create_task(messages.accept(*hello(ANN)))
            await asyncio.sleep(0.5)
            behind = await asyncio.create_task(messages.accept(*hello(BOB)))
            assert isinstance(behind, Accepted)
            with pytest.raises(errors.Unavailable):
                await lost
    finally:
        os.kill(stuck, signal.SIGCONT)
